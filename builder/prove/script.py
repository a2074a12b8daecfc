"""Running one proof script in another interpreter, and judging what it reports."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from builder.prove.result import ProofRun, Subject
from builder.run import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.patch_toml import Patch, Proof

_KIT: Final = Path(__file__).resolve().parent / "kit"
_LIMIT: Final = 1800.0
_KEEP: Final = (
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_HOME",
)


@dataclass(frozen=True)
class Task:
    """One proof to run on one tree.

    Attributes:
        patch: the patch.
        proof: the proof.
        script: its file.
        root: folder that the engine's package is imported from.
        subject: what that folder is.
        mutant: id of the planted fault.
        reason: regular expression that a failure must match; empty where none may fail.
    """

    patch: Patch
    proof: Proof
    script: Path
    root: Path
    subject: Subject
    mutant: str = ""
    reason: str = ""


def run_task(task: Task, *, python: Path | str, environment: Mapping[str, str]) -> ProofRun:
    """Run a script and judge it.

    Green and installed trees must report no failure and have reached the patch's code; red
    trees and mutants must fail for the stated reason, not for another.
    """
    started = time.monotonic()
    report, crash = _run(task, python, environment)
    failures = tuple(report.get("failures", ()))
    reached = tuple(report.get("reached", ()))
    ok, verdict = _judge(task, failures, reached, crash)
    return ProofRun(
        patch=task.patch.id, proof=task.proof.id, subject=task.subject, mutant=task.mutant, ok=ok,
        verdict=verdict, figures=report.get("figures", {}), failures=failures, reached=reached,
        seconds=round(time.monotonic() - started, 1),
    )  # fmt: skip


def _run(
    task: Task, python: Path | str, environment: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    with tempfile.TemporaryDirectory(prefix="sm86-proof-") as name:
        out = Path(name) / "report.json"
        env = {key: os.environ[key] for key in _KEEP if key in os.environ}
        env |= dict(environment) | {
            "PYTHONPATH": str(_KIT),
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1",  # several scripts run at a time
            "SM86_PACKAGE_ROOT": str(task.root),
            "SM86_PROOF_OUT": str(out),
            "SM86_PROOF_MUTANT": "1" if task.mutant else "0",
            # Triton's cache knows nothing of who compiled for what
            "TRITON_CACHE_DIR": str(Path(name) / "triton"),
        }
        done = run([python, task.script], env=env, timeout=_LIMIT, check=False, cwd=Path(name))
        if done.code != 0 or not out.is_file():
            return {}, done.last_words
        found: dict[str, Any] = json.loads(out.read_text())
        return found, ""


def _judge(
    task: Task, failures: tuple[str, ...], reached: tuple[str, ...], crash: str
) -> tuple[bool, str]:
    if crash:
        return False, f"the script did not finish: {crash}"
    if task.reason:
        if not failures:
            return False, "should fail and does not"
        if any(re.search(task.reason, line) for line in failures):
            return True, f"fails as it must: {failures[0]}"
        return False, f"fails for another reason than {task.reason!r}: {failures[0]}"
    if failures:
        return False, failures[0]
    if task.proof.reach not in reached:
        return False, f"passes without ever reaching {task.proof.reach}"
    return True, f"holds; reached {task.proof.reach}"
