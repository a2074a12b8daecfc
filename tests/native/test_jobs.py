"""Case 18: memory and the number of compile jobs; why a build died."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from builder.errors import UsageError
from builder.native.jobs import Machine, Verdict, advice, classify, decide, this_machine
from tests.helpers import case

MACHINES = {one["name"]: one for one in json.loads((case("18") / "machines.json").read_text())}
LOGS = json.loads((case("18") / "log-verdicts.json").read_text())


def jobs_of(name: str) -> tuple[int, int, str]:
    data = MACHINES[name]
    memory = min(data["mem_available_gib"], data["cgroup_mem_gib"] or 1e9)
    found = decide(Machine(data["cpus"], memory), data["env"])
    return found.jobs, found.threads, found.note


@pytest.mark.parametrize(
    ("name", "jobs", "note"),
    [
        ("laptop", 4, ""),
        ("workstation-64g", 20, ""),
        ("big", 64, ""),
        ("docker-build", 5, ""),
        ("user-jobs", 12, ""),
        ("user-both", 2, "2 objects at once"),
        ("user-too-many", 32, "32 jobs need about 96 GiB"),
        ("zero", 1, "less than one compiler may take"),
    ],
)
def test_jobs_follow_memory_and_the_person(name: str, jobs: int, note: str) -> None:
    found = jobs_of(name)
    assert found[0] == jobs
    assert note in found[2]
    assert bool(note) == bool(found[2])


@pytest.mark.parametrize("name", ["bad", "bad0"])
def test_nonsense_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="MAX_JOBS"):
        jobs_of(name)


def test_every_machine_of_the_case_is_tested() -> None:
    text = Path(__file__).read_text()
    for name in MACHINES:
        assert f'"{name}"' in text


@pytest.mark.parametrize("name", LOGS)
def test_why_a_build_died(name: str) -> None:
    verdict = classify((case("18") / f"log-{name}.txt").read_text())
    assert verdict == LOGS[name]
    if verdict is Verdict.OUT_OF_MEMORY:
        said = advice(verdict, 32)
        assert re.search(r"--jobs 16", said)
        assert "finished objects are kept" in said


def test_this_machine() -> None:
    here = this_machine()
    assert here.cores >= 1
    assert 0.1 < here.memory_gib < 1e5
