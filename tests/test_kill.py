"""Kill anywhere: a second run ends as if the first had never been.

Every change to the disk is a place to be killed at; they are counted by a run that is not
killed. ``SM86_KILLS`` sets how many of them are tried (0: all); ``ci/nightly`` tries all.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests import toy as toys
from tests.helpers import ROOT, files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.toy import Toy

KILLS = int(os.environ.get("SM86_KILLS", "12"))
KILLER = Path(__file__).resolve().parent / "killer.py"


def run(
    words: Sequence[str | Path], *, at: int, watch: Sequence[Path], env: dict[str, str], note: Path
) -> int:
    known = os.environ | env | {
        "KILL_AT": str(at), "KILL_WATCH": ":".join(map(str, watch)), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, KILLER, note, *words], env=known, capture_output=True, check=False,
        stdin=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip
    assert done.returncode in {0, -9}, done.stderr.decode()
    return done.returncode


def places(total: int) -> list[int]:
    """Which of them to try: all, or so many evenly spread, the first and last among them."""
    if KILLS in {0, total} or total < KILLS:
        return list(range(1, total + 1))
    return sorted({1 + round(step * (total - 1) / (KILLS - 1)) for step in range(KILLS)})


def counted(note: Path) -> int:
    """How many places there are; shown by kind with ``pytest -s``."""
    kinds: dict[str, int] = json.loads(note.read_text())
    assert {"open", "os.rename", "fcntl.flock", "subprocess.Popen"} <= kinds.keys()
    total = sum(kinds.values())
    print(f"\n{total} places, {len(places(total))} tried:", dict(sorted(kinds.items())))
    return total


def left_over(folder: Path) -> list[str]:
    """Temporary things below a folder; lock files are meant to stay."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.name.endswith((".tmp", ".part", ".doomed", ".index")) or ".sm86-" in path.name
        or path.parent.name == "scratch"
    ]  # fmt: skip


def test_build(toy: Toy, tmp_path: Path) -> None:
    note = tmp_path / "count"

    def once(name: str, at: int) -> tuple[int, Path]:
        home = tmp_path / name
        words = ["build", "vllm", "--arch", "sm_86", "--root", toy.root, "--cache", home / "cache",
                 "--out", home / "out", "-q"]  # fmt: skip
        watch = [home / "cache", home / "out"]
        return run(words, at=at, watch=watch, env=toy.env, note=note), home

    code, good = once("good", 0)
    assert code == 0
    total = counted(note)
    assert total > 60, "the run that counts sees what it should"
    for at in places(total):
        name = f"at-{at}"
        code, home = once(name, at)
        assert code == -9, at
        code, home = once(name, 0)
        assert code == 0, at
        assert files(home / "out") == files(good / "out"), at
        assert left_over(home) == [], at
        shutil.rmtree(home)


def test_patch_apply(tmp_path: Path) -> None:
    note = tmp_path / "count"
    before = {"a": b"1\n", "b/c": b"2\n", "d": b"3\n"}
    patch = tmp_path / "p.patch"
    patch.write_bytes(
        b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+one\n"
        b"--- a/b/c\n+++ /dev/null\n@@ -1 +0,0 @@\n-2\n"
        b"--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+now a file\n"
        b"--- a/d\n+++ b/d\n@@ -1 +1 @@\n-3\n+three\n"
    )

    def once(name: str, at: int) -> tuple[int, Path]:
        home = tmp_path / name
        if not home.exists():
            toys.put(home / "tree", before)
        words = ["patch", "apply", "--tree", home / "tree", patch, "--cache", home / "cache", "-q"]
        return run(words, at=at, watch=[home], env={}, note=note), home

    _, good = once("good", 0)
    want = files(good / "tree")
    assert want == {"a": b"one\n", "b": b"now a file\n", "d": b"three\n"}
    total = counted(note)
    assert total > 30
    for at in places(total):
        code, home = once(f"at-{at}", at)
        if code == 0:  # killed after its last change to the disk
            continue
        halfway = files(home / "tree")
        known = os.environ | {"PYTHONPATH": str(ROOT)}
        again = subprocess.run(
            [sys.executable, "-m", "builder", "patch", "apply", "--tree", home / "tree", patch,
             "--cache", home / "cache", "-q"],
            env=known, capture_output=True, text=True, check=False,
        )  # fmt: skip
        done = again.returncode == 4 and "already applied" in again.stderr and halfway == want
        assert again.returncode == 0 or done, (at, again.stderr)
        assert files(home / "tree") == want, at
        assert left_over(home) == [], at
        shutil.rmtree(home)
