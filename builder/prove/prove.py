"""The prove stage: every proof red without its patch, green with it, and awake to faults."""

from __future__ import annotations

import json
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from builder.errors import ProofError, UsageError
from builder.prove.result import NotRun, ProofRun, ProveReport
from builder.prove.script import Task, run_task
from builder.run import end_all
from builder.source.tree import export

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from builder.arch import Arch
    from builder.context import Context
    from builder.engines.base import Engine
    from builder.git import Git
    from builder.patch import PatchResult
    from builder.patch_toml import GpuProof, Mutant
    from builder.pin import Pin
    from builder.series import Member

#: No GPU is used: kernels run in Triton's interpreter or are compiled ahead of time.
EMULATED: Final = "no GPU: Triton interpreter, and compilation for the architecture"


@dataclass(frozen=True)
class Series:
    """What is to be proven.

    Attributes:
        engine: the engine.
        pin: the version.
        arch: the architecture.
        members: the patches, in order.
    """

    engine: Engine
    pin: Pin
    arch: Arch
    members: Sequence[Member]


def prove_trees(
    context: Context, series: Series, *, git: Git, patched: PatchResult, python: Path,
    only: str | None = None, jobs: int = 2,
) -> ProveReport:  # fmt: skip
    """Run every proof on the tree before its patch, on the tree with it, and on mutants.

    Args:
        context: paths and settings.
        series: what is to be proven.
        git: repository with the series' commits.
        patched: the patch stage's result.
        python: interpreter of the locked environment.
        only: a patch to limit it to.
        jobs: scripts to run at a time.

    Raises:
        UsageError: `only` is not in the series, or a mutant cannot be planted.
    """
    commits = [record.commit for record in patched.patches]
    steps = zip(series.members, [patched.base, *commits], commits, strict=False)
    chosen = [step for step in steps if only in {None, step[0].patch.id}]
    if not chosen:
        raise _nothing(series, only)
    with tempfile.TemporaryDirectory(prefix="sm86-prove-") as name:
        tasks = [
            task
            for member, before, after in chosen
            for task in _tasks(Path(name), series, git, member, before, after)
        ]
        runs = _run_all(context, tasks, series=series, python=python, jobs=jobs)
    return _report(series, [member for member, _, _ in chosen], runs)


def prove_installed(
    context: Context, series: Series, *, site: Path, python: Path, only: str | None = None,
    jobs: int = 2,
) -> ProveReport:  # fmt: skip
    """Run every proof of a series against an installed package; all must be green.

    Raises:
        UsageError: `only` is not in the series.
    """
    chosen = [member for member in series.members if only in {None, member.patch.id}]
    if not chosen:
        raise _nothing(series, only)
    tasks = [
        Task(member.patch, proof, member.folder / proof.script, site, "installed")
        for member in chosen
        for proof in member.patch.proofs
    ]
    runs = _run_all(context, tasks, series=series, python=python, jobs=jobs)
    return _report(series, chosen, runs)


def _nothing(series: Series, only: str | None) -> UsageError:
    what = f"patch {only!r}" if only else "patch at all"
    return UsageError(
        f"the series of {series.pin.version} for {series.arch} has no {what}", fix="see 'sm86 list'"
    )


def _report(series: Series, members: Sequence[Member], runs: tuple[ProofRun, ...]) -> ProveReport:
    return ProveReport(
        engine=series.engine.name, version=series.pin.version, arch=series.arch.name,
        emulated=EMULATED, runs=runs,
        not_run=tuple(_not_run(member, proof) for member in members
                      for proof in member.patch.gpu_proofs),
    )  # fmt: skip


def _not_run(member: Member, proof: GpuProof) -> NotRun:
    path = member.folder / proof.result
    try:
        recorded = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path}: the recorded result of {proof.id} cannot be read: {error}",
            fix="run the proof on a GPU and keep its JSON there, or correct patch.toml",
        ) from error
    return NotRun(patch=member.patch.id, proof=proof.id, shows=proof.shows, recorded=recorded)


def _tasks(
    home: Path, series: Series, git: Git, member: Member, before: str, after: str
) -> Iterator[Task]:
    """Red, green and mutant runs of one patch, on trees made for them."""
    patch = member.patch
    red = _tree(home / f"{patch.id}-red", series, git, before)
    green = _tree(home / f"{patch.id}-green", series, git, after)
    for proof in patch.proofs:
        script = member.folder / proof.script
        yield Task(patch, proof, script, red, "red", reason=proof.red)
        yield Task(patch, proof, script, green, "green")
        for mutant in proof.mutants:
            root = _tree(home / f"{patch.id}-{proof.id}-{mutant.id}", series, git, after)
            _plant(root, mutant)
            yield Task(patch, proof, script, root, "mutant", mutant.id, mutant.reason)


def require_proven(report: ProveReport) -> None:
    """Fail unless every run showed what it must.

    Raises:
        ProofError: naming the first that did not.
    """
    if report.bad:
        first = report.bad[0]
        what = f"{first.patch}/{first.proof} on {first.subject}"
        if first.mutant:
            what += f" {first.mutant}"
        raise ProofError(f"{what}: {first.verdict}", fix="see the report (--json)")


def _tree(root: Path, series: Series, git: Git, commit: str) -> Path:
    root.mkdir()
    export(git, commit, root, only=series.engine.package)
    name, content = series.engine.version_file(series.pin, series.pin.version)
    (root / name).write_bytes(content)
    return root


def _plant(root: Path, mutant: Mutant) -> None:
    path = root / mutant.file
    text = path.read_text()
    if text.count(mutant.find) != 1:
        raise UsageError(
            f"mutant {mutant.id}: {mutant.find!r} stands {text.count(mutant.find)} times in"
            f" {mutant.file}",
            fix="it must stand there exactly once: correct patch.toml",
        )
    path.write_text(text.replace(mutant.find, mutant.replace))


def _run_all(
    context: Context, tasks: Sequence[Task], *, series: Series, python: Path, jobs: int
) -> tuple[ProofRun, ...]:
    engine, arch = series.engine, series.arch

    def one(task: Task, compiled: Path) -> ProofRun:
        environment = engine.proof_environment(task.root) | {
            "SM86_ARCH": str(arch.number),
            # outside of trees and environment, and for these runs alone
            "PYTHONPYCACHEPREFIX": str(compiled),
        }
        done = run_task(task, python=python, environment=environment)
        if task.mutant:
            shutil.rmtree(compiled / task.root.relative_to("/"), ignore_errors=True)
        name = f"{task.patch.id}/{task.proof.id} {task.subject} {task.mutant}".rstrip()
        context.say(
            f"{'ok  ' if done.ok else 'BAD '} {name} ({done.seconds:.0f} s): {done.verdict}"
        )
        return done

    with (
        tempfile.TemporaryDirectory(prefix="sm86-pyc-") as name,
        ThreadPoolExecutor(max_workers=jobs) as pool,
    ):
        futures = [pool.submit(one, task, Path(name)) for task in tasks]
        try:
            return tuple(future.result() for future in futures)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
            raise
