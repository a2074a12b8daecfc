"""How many compilers may run at once, and why a compile failed.

Jobs follow memory as well as cores: a translation unit of vLLM takes up to 3 GiB of memory
(measured: 3.1 GB, nvcc 13.0), and a machine that runs out of it kills a compiler without a word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from builder.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

GIB_PER_JOB: Final = 3.0


@dataclass(frozen=True)
class Machine:
    """What limits a compile.

    Attributes:
        cores: processors that this process may use.
        memory_gib: memory that is available, the container's limit included.
    """

    cores: int
    memory_gib: float


@dataclass(frozen=True)
class Jobs:
    """The decision.

    Attributes:
        jobs: translation units compiled at once; at least 1.
        threads: threads of each nvcc.
        note: what to tell before starting; empty if there is nothing to tell.
    """

    jobs: int
    threads: int
    note: str = ""


def this_machine() -> Machine:
    """Cores and memory of this machine, or of the container that this runs in."""
    available = psutil.virtual_memory().available
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        path = Path("/sys/fs/cgroup") / name
        text = path.read_text().strip() if path.is_file() else ""
        if text.isdigit():
            available = min(available, int(text))
    return Machine(len(psutil.Process().cpu_affinity() or [0]), available / 2**30)


def decide(machine: Machine, env: Mapping[str, str], *, gib_per_job: float = GIB_PER_JOB) -> Jobs:
    """Jobs for a machine; ``MAX_JOBS`` and ``NVCC_THREADS`` are obeyed, never reinterpreted.

    Args:
        machine: what it has.
        env: the variables.
        gib_per_job: memory of the largest compiler.

    Raises:
        UsageError: a variable is no positive number.
    """
    threads = _number(env, "NVCC_THREADS") or 1
    wanted = _number(env, "MAX_JOBS")
    fit = int(machine.memory_gib // gib_per_job)
    if wanted is None:
        jobs = max(1, min(machine.cores // threads, fit))
        note = ""
        if fit < 1:
            note = f"{machine.memory_gib:.0f} GiB of memory is less than one compiler may take"
        return Jobs(jobs, threads, note)
    # vLLM's build divides MAX_JOBS by the threads of nvcc: so many objects at once
    jobs = max(1, wanted // threads)
    notes: list[str] = []
    if threads > 1:
        notes.append(f"MAX_JOBS={wanted} and NVCC_THREADS={threads}: {jobs} objects at once")
    if jobs * gib_per_job > machine.memory_gib:
        need = jobs * gib_per_job
        notes.append(
            f"{jobs} jobs need about {need:.0f} GiB, {machine.memory_gib:.0f} GiB are available"
        )
    return Jobs(jobs, threads, "; ".join(notes))


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(
            f"{name}={text!r} is not a positive number", fix=f"correct or unset {name}"
        )
    return int(text)


class Verdict(StrEnum):
    """Why a compile ended."""

    OK = "OK"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    DISK_FULL = "DISK_FULL"
    SOURCE_ERROR = "SOURCE_ERROR"
    STOPPED = "STOPPED_FROM_OUTSIDE"
    UNKNOWN = "UNKNOWN"


_SIGNS: Final = (
    (Verdict.DISK_FULL, re.compile(r"No space left on device")),
    (
        Verdict.OUT_OF_MEMORY,
        re.compile(
            r"^Killed$|Killed signal terminated program|died due to signal 9|exit status -?9\b"
            r"|Cannot allocate memory|std::bad_alloc|out of memory allocating",
            re.MULTILINE,
        ),
    ),
    (Verdict.STOPPED, re.compile(r"exit status -15\b|died due to signal 15|interrupted by user")),
    (Verdict.SOURCE_ERROR, re.compile(r"\): error[: ]|: (?:fatal )?error: |errors? detected in")),
)
_DONE: Final = re.compile(r"^\[(\d+)/\1\] ", re.MULTILINE)


def classify(log: str) -> Verdict:
    """Why a compile ended, from its last lines."""
    for verdict, sign in _SIGNS:
        if sign.search(log):
            return verdict
    return Verdict.OK if _DONE.search(log) else Verdict.UNKNOWN


_KEPT: Final = "finished objects are kept"


def advice(verdict: Verdict, jobs: int) -> str:
    """What to do about it, in one line."""
    fewer = max(1, jobs // 2)
    return {
        Verdict.OK: "",
        Verdict.OUT_OF_MEMORY: f"out of memory: run again with --jobs {fewer}; {_KEPT}",
        Verdict.DISK_FULL: f"the disk is full: free some space and run again; {_KEPT}",
        Verdict.SOURCE_ERROR: "the source does not compile: see the log's first error",
        Verdict.STOPPED: f"stopped from outside: run again; {_KEPT}",
        Verdict.UNKNOWN: "see the log",
    }[verdict]
