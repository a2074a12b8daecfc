"""The way of the data: source, patch, native, wheel, audit."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from builder.audit.run import audit_wheel
from builder.download import address, cached
from builder.engines.registry import get_engine
from builder.errors import AuditError, BuilderError, ToolError
from builder.job import Job, Request, Tree, patched_tree, prepare
from builder.native import NativeResult, refuse_native_patches, take_upstream
from builder.store import atomic_path, lock, write_atomic
from builder.wheel import Parts, WheelResult, assemble, write_locks

if TYPE_CHECKING:
    from pathlib import Path

    from builder.audit.finding import AuditReport
    from builder.context import Context
    from builder.engines.base import Engine
    from builder.patch import PatchResult
    from builder.pin import Artifact
#: A source archive unpacked, and again as git objects, in sizes of the archive.
_UNPACKED: Final = 10

__all__ = [
    "Built",
    "Job",
    "Request",
    "Tree",
    "build",
    "engine_of",
    "patched_tree",
    "plan",
    "prepare",
]


@dataclass(frozen=True)
class Built:
    """A finished wheel.

    Attributes:
        wheel: its path.
        result: what the wheel stage says of it.
        native: what the native stage says.
        audit: the audit's report.
        locks: requirements and constraints beside it.
        seconds: duration of the whole build.
    """

    wheel: Path
    result: WheelResult
    native: NativeResult
    patched: PatchResult
    audit: AuditReport
    locks: list[Path]
    seconds: float


def build(context: Context, job: Job) -> Built:
    """Build and audit one wheel, and put it into the output folder.

    Raises:
        AuditError: the wheel is not what its label says; it does not reach the output folder.
        BuilderError: as the stages say.
    """
    started = time.monotonic()
    _room(context, job)
    cost = plan(context, job)
    context.say(
        f"{job.request.engine} {job.pin.version} for {job.request.arch}:"
        f" {cost['download_bytes'] / 1e6:.0f} MB to download, {cost['compile_units']} units to"
        f" compile, {cost['disk_bytes'] / 1e6:.0f} MB of disk"
    )
    tree = patched_tree(context, job)
    refuse_native_patches(tree.patched, job.engine)
    official, modules, native = take_upstream(
        context, job.pin, job.engine, source=tree.pristine, arch=job.request.arch
    )
    parts = Parts(
        recipe=job.recipe, pin=job.pin, engine=job.engine, arch=job.request.arch,
        members=job.members, source=tree.pristine[1], git=tree.git, patched=tree.patched,
        native=native, official=official, modules=modules,
    )  # fmt: skip
    path, result = assemble(context, parts)
    context.say("auditing")
    report = audit_wheel(path, job.request.arch, engine=engine_of)
    if report.errors:
        first = report.errors[0]
        raise AuditError(f"{first.rule} {first.where}: {first.message}", fix=first.fix)
    wheel = context.out / result.file
    with lock(context, f"out-{result.sha256[:32]}"):
        there = wheel.exists()
        _publish(path, wheel)
        try:
            locks = write_locks(
                context.recipes / "locks" / job.pin.lock, wheel,
                distribution=job.engine.distribution, version=result.version,
                sha256=result.sha256, origin=address(context, job.pin.wheel),
            )  # fmt: skip
            write_atomic(
                context.out / f"{result.file}.json", report.model_dump_json(indent=1) + "\n"
            )
        except OSError:  # a wheel without its locks is half of an output
            if not there:
                wheel.unlink(missing_ok=True)
            raise
    seconds = time.monotonic() - started
    return Built(wheel, result, native, tree.patched, report, locks, seconds)


def _publish(source: Path, target: Path) -> None:
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)


def engine_of(project: str) -> Engine | None:
    """The engine whose distribution has this name, if there is one."""
    try:
        engine = get_engine(project)
    except BuilderError:
        return None
    return engine if engine.distribution == project else None


def _downloads(context: Context, job: Job) -> list[Artifact]:
    wanted = [job.pin.wheel]
    if job.request.origin.kind == "sdist":
        wanted.insert(0, job.pin.sdist)
    return [artifact for artifact in wanted if cached(context, artifact) is None]


def _disk(context: Context, job: Job) -> int:
    """Bytes that the cache grows by at the most: downloads, unpacked source, one wheel."""
    downloads = sum(one.size for one in _downloads(context, job))
    return downloads + _UNPACKED * job.pin.sdist.size + job.pin.wheel.size


def _room(context: Context, job: Job) -> None:
    """Check the disks before work begins: downloads, trees and two copies of the wheel."""
    for folder, size in (
        (context.cache_dir("scratch"), _disk(context, job)),
        (context.out, job.pin.wheel.size),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < size:
            raise ToolError(
                f"{folder} has {free / 1e9:.1f} GB free and the build needs {size / 1e9:.1f} GB",
                fix="free some space, or choose another disk with SM86_CACHE or --out",
            )


def plan(context: Context, job: Job) -> dict[str, Any]:
    """What a build will download, compile and reuse, before any of it happens.

    Keys: ``downloads`` (file, bytes), ``download_bytes``, ``compile_units``, ``patches``,
    ``disk_bytes``.
    """
    todo = _downloads(context, job)
    total = sum(artifact.size for artifact in todo)
    return {
        "engine": job.request.engine,
        "version": job.pin.version,
        "arch": job.request.arch.name,
        "patches": [member.patch.id for member in job.members],
        "downloads": [{"file": one.file, "bytes": one.size} for one in todo],
        "download_bytes": total,
        "compile_units": 0,
        "native": "upstream",
        "disk_bytes": _disk(context, job) + job.pin.wheel.size,
    }
