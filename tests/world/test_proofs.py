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
    assert len(runs) == 13
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
