"""The page of a prove report says what the report says, and needs nothing else."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from builder.errors import UsageError
from builder.patch_toml import GpuProof
from builder.prove.page import page
from builder.prove.prove import _not_run
from builder.prove.result import NotRun, ProofRun, ProveReport
from builder.series import Member, load_patch
from tests.helpers import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def run(subject: str, verdict: str, *, mutant: str = "", ok: bool = True) -> ProofRun:
    return ProofRun(
        patch="p", proof="bytes", subject=subject, mutant=mutant, ok=ok, verdict=verdict,
        figures={}, failures=(), reached=(), seconds=1.0,
    )  # fmt: skip


def report(*more: ProofRun, recorded: dict[str, object] | None = None) -> ProveReport:
    runs = (
        run("red", "fails as it must: 61694 < x & y differ"), run("green", "holds; reached f"),
        run("mutant", "fails as it must", mutant="one"), *more,
    )  # fmt: skip
    gpu = () if recorded is None else (
        NotRun(patch="p", proof="gpu-bytes", shows="error by key scale", recorded=recorded),
    )  # fmt: skip
    return ProveReport(
        engine="vllm", version="0.22.1", arch="sm_86", emulated="no GPU", runs=runs, not_run=gpu
    )


class Seen(HTMLParser):
    """Text, tags and addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href"}]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_every_run_and_its_verdict_stand_there() -> None:
    seen = Seen(page(report()))
    words = " ".join(seen.text)
    for part in ("61694 < x & y differ", "holds; reached f", "1 of 1 noticed", "none of them"):
        assert part in words
    assert seen.addresses == []
    assert "script" not in seen.tags


def test_a_bad_run_is_counted_and_marked() -> None:
    made = page(report(run("mutant", "should fail and does not", mutant="two", ok=False)))
    assert "1 of 2 noticed" in made
    assert "4 runs, 1 of them not as they must be" in made
    assert re.search(r"<li class=bad>two: should fail", made)


def test_what_was_not_run_is_listed_with_its_plot() -> None:
    figures = {"k8v4 fp16 key std 1": 0.19, "k8v4 fp16 key std 2": 0.71, "torch": "2.11"}
    recorded = {
        "device": "an H200", "command": "python3 x.py", "red": {"figures": figures},
        "green": {"figures": figures | {"k8v4 fp16 key std 2": 0.12}},
    }  # fmt: skip
    seen = Seen(page(report(recorded=recorded)))
    words = " ".join(seen.text)
    assert "Not run here: these need a GPU" in words
    assert "an H200" in words
    assert seen.tags.count("polyline") == 2
    assert "k8v4 fp16, red" in seen.text
    assert "svg" not in Seen(page(report(recorded={"card": "an H200", "kinds": {}}))).tags


@pytest.mark.parametrize("folder", sorted((ROOT / "patches/vllm").iterdir()), ids=lambda p: p.name)
def test_recorded_results_are_there_and_good(folder: Path) -> None:
    patch = load_patch(folder)
    for proof in patch.gpu_proofs:
        assert (folder / proof.script).is_file()
        recorded = json.loads((folder / proof.result).read_text())
        assert "H200" in (recorded.get("device") or recorded["card"])
        assert "NVIDIA H" not in json.dumps(recorded)
        if "green" in recorded:
            assert recorded["green"]["failures"] == []
            assert recorded["red"]["failures"] != []
        else:
            counts = [
                value for kind in recorded["kinds"].values() for name, value in kind.items()
                if "differs" in name
            ]  # fmt: skip
            assert counts
            assert set(counts) == {0}


def test_a_lost_record_is_named(tmp_path: Path) -> None:
    patch = load_patch(ROOT / "patches/vllm/genesis-quant")
    member = Member(patch=patch, folder=tmp_path, file=tmp_path / "x", sha256="0" * 64)
    proof = GpuProof(id="gpu", script="s.py", shows="x", result="results/none.json")
    with pytest.raises(UsageError, match=r"results/none\.json: the recorded result of gpu"):
        _not_run(member, proof)
