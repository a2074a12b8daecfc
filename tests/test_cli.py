from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from builder.doctor import cards, judge
from tests.helpers import ROOT, sm86

if TYPE_CHECKING:
    from pathlib import Path

    from tests.toy import Toy

COMMANDS = (
    *("list", "doctor", "build", "audit", "inspect", "prove", "verify-installed", "lock", "cache"),
    *("patch apply", "patch verify", "patch checkout", "patch export"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_json_and_an_example(command: str) -> None:
    done = sm86(*command.split(), "--help")
    assert done.returncode == 0
    assert "Example: sm86 " + command in done.stdout
    assert "--json" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["build", "vllm", "--arch", "sm_68"], 2, "did you mean sm_86?"),
        (["build", "vlm", "--arch", "sm_86"], 2, "did you mean vllm?"),
        (["build", "vllm", "--arch", "sm_86", "--pin", "9"], 2, "pinned are: 0.22.1"),
        (["build", "vllm"], 2, "name either --arch ARCH or --cpu-only"),
        (["buld"], 2, "did you mean 'build'?"),
        (["build", "vllm", "--arch", "sm_86", "--offline"], 3, "--offline"),
        (["build", "vllm", "--arch", "sm_86", "--source", "/nowhere"], 2, "no such file"),
        (["build", "vllm", "--arch", "sm_86", "--root", "/tmp"], 2, "has no recipes/ folder"),
        (["audit", "nowhere.whl"], 7, "no such wheel"),
        (["audit"], 2, "no wheel given"),
        (["inspect", "README.md"], 2, "neither a wheel nor a compiled file"),
        (["patch", "apply", "--tree", "/nowhere", "x"], 2, "no such folder"),
        (["patch", "apply", "--tree", ".", "nowhere.patch"], 4, "no such patch"),
        (["prove", "vllm", "--python", sys.executable, "--offline"], 3, "--offline"),
        (["verify-installed", "vllm", "--python", sys.executable], 7, "is not installed"),
        (["verify-installed", "vllm", "--python", "/bin/false"], 2, "does not run"),
        (["lock", "vllm", "--exclude-newer", "2026-06-06", "--offline"], 3, "--offline"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_a_code(
    words: list[str], code: int, said: str, tmp_path: Path
) -> None:
    env = {"SM86_CACHE": str(tmp_path / "cache")}
    done = sm86(*words, env=env)
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("sm86: ")]
    assert len(lines) == 1
    assert said in lines[0]
    assert "Traceback" not in done.stderr
    as_json = sm86(*words, "--json", env=env)
    assert as_json.returncode == code
    assert json.loads(as_json.stdout)["error"]["exit_code"] == code
    assert "Traceback" in sm86(*words, "-vv", env=env).stderr


def test_build_as_a_person_sees_it(toy: Toy, tmp_path: Path) -> None:
    words = ["build", "vllm", "--arch", "sm_86", "--root", toy.root, "--cache", tmp_path / "c",
             "--out", tmp_path / "out"]  # fmt: skip
    plan = sm86(*words, "--plan", env=toy.env)
    assert "download   vllm-1.2.0.tar.gz" in plan.stdout
    assert not (tmp_path / "out").exists()
    done = sm86(*words, env=toy.env)
    assert done.returncode == 0, done.stderr
    for word in ("wheel ", "size ", "sha256 ", "seconds ", "passes", "sm_86"):
        assert word in done.stdout
    found = json.loads(sm86(*words, "--json", "-q", env=toy.env).stdout)
    assert found["patches"] == ["raise-limit"]
    assert found["audit"]["schema_version"] == 1
    assert len(found["sha256"]) == 64


def test_series_editing_round_trip(toy: Toy, tmp_path: Path) -> None:
    """checkout, amend, export, verify: the way of a patch author."""
    base = ["--root", toy.root, "--cache", tmp_path / "c"]
    work = tmp_path / "work"
    assert sm86("patch", "checkout", "vllm", work, *base, env=toy.env).returncode == 0
    assert sm86("patch", "export", "vllm", work, "--check", *base, env=toy.env).returncode == 0
    status = subprocess.run(
        ["git", "-C", work, "status", "--porcelain"], check=True, capture_output=True
    )
    assert status.stdout == b""
    (work / "vllm" / "ops.py").write_text((work / "vllm" / "ops.py").read_text() + "MORE = 2\n")
    refused = sm86("patch", "export", "vllm", work, *base, env=toy.env)
    assert refused.returncode == 2
    assert "uncommitted changes" in refused.stderr
    identity = ["-c", "user.name=A Person", "-c", "user.email=a@example.invalid"]
    subprocess.run(
        ["git", "-C", work, *identity, "commit", "-qa", "--amend", "--no-edit"], check=True
    )
    stale = sm86("patch", "export", "vllm", work, "--check", *base, env=toy.env)
    assert stale.returncode == 4
    done = sm86("patch", "export", "vllm", work, *base, env=toy.env)
    assert "changed: raise-limit" in done.stdout
    verified = sm86("patch", "verify", "vllm", *base, env=toy.env)
    assert verified.returncode == 0, verified.stderr
    assert "1 patch(es) apply exactly" in verified.stdout
    patch = toy.root / "patches/vllm/raise-limit/1.2.0.patch"
    patch.write_bytes(patch.read_bytes().replace(b"Pending", b"Denied"))
    wrong = sm86("patch", "verify", "vllm", *base, env=toy.env)
    assert wrong.returncode == 4
    assert "trailer 'Upstream-Status:' says Denied, patch.toml Pending" in wrong.stderr


def test_cache_is_shown_and_cleared(toy: Toy, tmp_path: Path) -> None:
    base = ["--root", toy.root, "--cache", tmp_path / "c"]
    sm86("build", "vllm", "--arch", "sm_86", *base, "--out", tmp_path / "o", env=toy.env)
    kinds = json.loads(sm86("cache", "--json", *base).stdout)["kinds"]
    assert {"source", "patch", "native", "wheel", "downloads"} <= kinds.keys()
    dry = json.loads(sm86("cache", "--clear", "--dry-run", "--json", *base).stdout)
    assert dry["freed"] > 0
    assert json.loads(sm86("cache", "--json", *base).stdout)["kinds"] == kinds
    assert sm86("cache", "--clear", *base).returncode == 0
    assert json.loads(sm86("cache", "--json", *base).stdout)["kinds"] == {}


def test_doctor_reads_cards_and_drivers() -> None:
    listing = (
        "NVIDIA GeForce RTX 3090, 8.6, 580.95.05, 24576 MiB\n"
        "NVIDIA RTX A6000, 8.6, 550.54.14, 49140 MiB\n"
        "NVIDIA GeForce RTX 5090, 12.0, 580.95.05, 32607 MiB\n"
        "garbage\n"
    )
    good, old, other = (judge(card, (13, 0)) for card in cards(listing))
    assert (good.status, good.fix) == ("ok", "")
    assert old.status == "warn"
    assert "needs driver 580" in old.fix
    assert "not for this card" in other.fix
    findings = json.loads(sm86("doctor", "--json").stdout)["findings"]
    assert {"python", "git", "memory", "GPU"} <= {one["name"].split(" ")[0] for one in findings}


def test_list_shows_pins_and_patches() -> None:
    data = json.loads(sm86("list", "--json").stdout)
    (vllm,) = [one for one in data["engines"] if one["engine"] == "vllm"]
    assert vllm["pins"][0]["commit"] == "0decac0d96c42b49572498019f0a0e3600f50398"
    assert "genesis-quant" in {patch["id"] for patch in vllm["patches"]}
    assert "genesis-quant" in sm86("list").stdout


@pytest.mark.parametrize("colour", [False, True])
def test_colour_only_on_a_terminal_and_not_with_no_color(colour: bool) -> None:
    main, terminal = pty.openpty()
    env = os.environ | {"TERM": "xterm"} | ({} if colour else {"NO_COLOR": "1"})
    subprocess.run(
        [sys.executable, "-m", "builder", "list"], stdout=terminal, check=True, env=env, cwd=ROOT
    )
    os.close(terminal)
    text = os.read(main, 65536)
    os.close(main)
    assert b"\x1b[" in text, "styled on a terminal"
    colours = re.search(rb"\x1b\[(?:\d+;)*(?:3[0-8]|9[0-7])(?:;\d+)*m", text)
    assert colours is None or colour
    assert "\x1b" not in sm86("list").stdout
