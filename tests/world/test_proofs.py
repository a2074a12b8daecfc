"""Every patch red without it, green with it, and its proofs awake to planted faults."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.helpers import sm86

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.world


def test_red_green_and_mutants(locked: Path, cache: Path) -> None:
    done = sm86("prove", "vllm", "--python", locked, "--cache", cache, "--json", "-q")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    runs = {(run["proof"], run["subject"], run["mutant"]): run for run in report["runs"]}
    mutants = sum(bool(run["mutant"]) for run in report["runs"])
    assert (len(runs), mutants) == (76, 52)
    assert "no GPU" in report["emulated"]
    red = runs["e4m3-bytes", "red", ""]["figures"]
    green = runs["e4m3-bytes", "green", ""]["figures"]
    assert red["float16_wrong_bytes"] == 61694
    assert red["decode_0_wrong"] == 254
    assert {value for name, value in green.items() if name != "decode_sum_error_over_bound"} == {0}
    assert green["decode_sum_error_over_bound"] <= 1.0
    kernels = runs["aot-sm86", "green", ""]["figures"]
    assert len(kernels) == 48
    assert all(figures["spills"] == 0 for figures in kernels.values())
    refused = [name for name, got in runs["aot-sm86", "red", ""]["figures"].items()
               if got == "does not compile"]  # fmt: skip
    assert sorted(refused) == [f"store k8v4 bf16 D={dim}" for dim in (128, 256, 64)]
    presets = runs["presets", "green", ""]["figures"]
    wrong = [value[0] for name, value in presets.items() if name.endswith("wrong bytes")]
    assert wrong == [0] * 16
    assert runs["wna16", "green", ""]["figures"]["layers"] == 75
    assert (
        runs["wna16", "red", ""]["figures"]["aligned_sha256"]
        == (runs["wna16", "green", ""]["figures"]["aligned_sha256"])
    ), "layers that have a tile get the same bytes with and without the patch"
    assert runs["fp8", "green", ""]["figures"]["layers"] == 44
    assert runs["shards", "green", ""]["figures"]["sizes"] == 27508
    red, green = (runs["moe", name, ""]["figures"] for name in ("red", "green"))
    assert green["layers"] == 42
    assert red["aligned_sha256"] == green["aligned_sha256"], "experts that have a tile"
    assert runs["cards", "green", ""]["figures"]["cases"] == 18
    red, green = (runs["verify-rows", name, ""]["figures"] for name in ("red", "green"))
    assert red.keys() == green.keys()
    assert all(max(errors) < 2.0**-10 for errors in green.values())
    assert min(red["graph replayed"]) > 1, "a graph of the step's own tokens"
    assert min(red["rejected drafts, turboquant_4bit_nc"]) > 10, "loud tokens that nobody may see"
    scratch = runs["scratch", "green", ""]["figures"]["scratch_of_27b_bytes"]
    assert all(size <= 65 << 20 for size in scratch)
