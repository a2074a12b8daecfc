"""The way of the data: source, patch, native, wheel, audit."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from builder.audit.run import audit_wheel
from builder.download import address, cached
from builder.engines.registry import engine_of
from builder.errors import AuditError, ToolError
from builder.job import Job, Request, Tree, patched_tree, prepare
from builder.native import NativeResult, cost, forecast, native_layer, require_tools
from builder.store import atomic_path, lock, write_atomic
from builder.wheel import Parts, WheelResult, assemble, write_locks

if TYPE_CHECKING:
    from pathlib import Path

    from builder.audit.finding import AuditReport
    from builder.context import Context
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


def build(context: Context, job: Job, *, jobs: int | None = None) -> Built:
    """Build and audit one wheel, and put it into the output folder.

    Args:
        context: paths and settings.
        job: what to build.
        jobs: compilers at a time; as the machine can bear if None.

    Raises:
        AuditError: the wheel is not what its label says; it does not reach the output folder.
        BuilderError: as the stages say.
    """
    started = time.monotonic()
    tools = require_tools(job)
    _room(context, job)
    known = plan(context, job)
    context.say(
        f"{job.request.engine} {job.pin.version} for {job.target}:"
        f" {known['download_bytes'] / 1e6:.0f} MB to download, {known['compile_units']} units to"
        f" compile ({known['compile_seconds'] / 60:.0f} min),"
        f" {known['disk_bytes'] / 1e6:.0f} MB of disk"
    )
    tree = patched_tree(context, job)
    layer = native_layer(context, job, tree, tools=tools, jobs=jobs)
    parts = Parts(
        recipe=job.recipe, pin=job.pin, engine=job.engine, arch=job.request.arch,
        members=job.members, source=tree.pristine[1], git=tree.git, patched=tree.patched,
        native=layer.result, official=layer.official, modules=layer.modules,
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
                context.recipes / "locks" / job.pin.lock if parts.requires else None, wheel,
                distribution=job.engine.distribution, version=result.version,
                sha256=result.sha256,
                origin=address(context, job.pin.wheel) if job.pin.wheel else "",
            )  # fmt: skip
            write_atomic(
                context.out / f"{result.file}.json", report.model_dump_json(indent=1) + "\n"
            )
        except OSError:  # a wheel without its locks is half of an output
            if not there:
                wheel.unlink(missing_ok=True)
            raise
    seconds = time.monotonic() - started
    return Built(wheel, result, layer.result, tree.patched, report, locks, seconds)


def _publish(source: Path, target: Path) -> None:
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)


def _downloads(context: Context, job: Job) -> list[Artifact]:
    wanted = [job.pin.wheel] if job.pin.wheel else []
    if job.request.origin.kind == "sdist":
        wanted.insert(0, job.pin.sdist)
    return [artifact for artifact in wanted if cached(context, artifact) is None]


def _disk(context: Context, job: Job) -> int:
    """Bytes that the cache grows by at the most: downloads, source, objects, one wheel."""
    downloads = sum(one.size for one in _downloads(context, job))
    known = cost(job)
    # what is compiled says itself how large its tree is
    work = known.disk if known else _UNPACKED * job.pin.sdist.size
    return downloads + work + _wheel_size(job)


def _wheel_size(job: Job) -> int:
    """The most that the wheel can take, in bytes."""
    if job.pin.wheel is not None:
        return job.pin.wheel.size
    known = cost(job)
    return known.disk if known else job.pin.sdist.size


def _room(context: Context, job: Job) -> None:
    """Check the disks before work begins: downloads, trees and two copies of the wheel."""
    for folder, size in (
        (context.cache_dir("scratch"), _disk(context, job)),
        (context.out, _wheel_size(job)),
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

    Keys: ``downloads`` (file, bytes), ``download_bytes``, ``compile_units``,
    ``compile_seconds``, ``memory_gib``, ``patches``, ``disk_bytes``.
    """
    todo = _downloads(context, job)
    total = sum(artifact.size for artifact in todo)
    return {
        "engine": job.request.engine,
        "version": job.pin.version,
        "arch": job.target,
        "patches": [member.patch.id for member in job.members],
        "downloads": [{"file": one.file, "bytes": one.size} for one in todo],
        "download_bytes": total,
        **forecast(context, job),
        "disk_bytes": _disk(context, job) + _wheel_size(job),
    }
