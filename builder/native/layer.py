"""The native layer of a job: from upstream's official wheel, or compiled."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builder.errors import CompileError
from builder.native.cmake import Folder, outstanding
from builder.native.compile import Work, build_folder, compile_tree
from builder.native.jobs import GIB_PER_JOB, decide, this_machine
from builder.native.toolchain import Toolchain, find_toolchain
from builder.native.upstream import refuse_native_patches, take_upstream

if TYPE_CHECKING:
    from pathlib import Path

    from builder.context import Context
    from builder.job import Job, Tree
    from builder.native.result import NativeResult
    from builder.pin import Cost


@dataclass(frozen=True)
class Layer:
    """Everything of a wheel that is compiled.

    Attributes:
        official: upstream's wheel, if that is where it comes from.
        modules: folder of the streams that `result` names.
        result: what the stage says of it.
    """

    official: Path | None
    modules: Path
    result: NativeResult


def require_tools(job: Job) -> Toolchain | None:
    """The toolchain, if the job needs one.

    Raises:
        ToolError: it needs one and this machine lacks a part.
    """
    if job.pin.compile is None:
        return None
    if job.request.arch is not None:
        raise CompileError(
            f"{job.engine.name} for {job.target}: compiling GPU code is not part of this version",
            fix="--cpu-only builds the form without GPU code",
        )
    return find_toolchain()


def cost(job: Job) -> Cost | None:
    """What compiling a job took where it was measured; None if nothing is compiled."""
    if job.pin.compile is None:
        return None
    return job.pin.compile.cuda_cost if job.request.arch else job.pin.compile.cpu_cost


def native_layer(
    context: Context, job: Job, tree: Tree, *, tools: Toolchain | None, jobs: int | None = None
) -> Layer:
    """Make the layer.

    Args:
        context: paths and settings.
        job: the job.
        tree: its patched source.
        tools: the toolchain, if it is compiled.
        jobs: compilers at a time; as the machine can bear if None.

    Raises:
        CompileError: it does not compile, or upstream's modules cannot serve the series.
        IdentityError: the official wheel is not of the pinned commit.
    """
    if tools is None:
        assert job.request.arch is not None  # noqa: S101  (`prepare` has seen to it)
        refuse_native_patches(tree.patched, job.engine)
        official, modules, result = take_upstream(
            context, job.pin, job.engine, source=tree.pristine, arch=job.request.arch
        )
        return Layer(official, modules, result)
    known = cost(job)
    need = known.memory_gib if known else GIB_PER_JOB
    choice = decide(this_machine(), os.environ, gib_per_job=need)
    if choice.note and jobs is None:
        context.say(f"note: {choice.note}")
    work = Work(
        job.pin, job.engine, tree.git, tree.patched.commit, job.request.arch, tools,
        jobs or choice.jobs,
    )  # fmt: skip
    return Layer(None, *compile_tree(context, work))


def forecast(context: Context, job: Job) -> dict[str, Any]:
    """What making the layer will take: object files, seconds here, memory.

    Counted where a build folder is there already, else as measured when it was pinned.
    """
    known = cost(job)
    if known is None:
        return {"native": "upstream", "compile_units": 0, "compile_seconds": 0, "memory_gib": 0.0}
    units, how = known.units, "measured elsewhere"
    home = build_folder(context, job.engine, job.pin, job.target)
    folder = Folder(home / "src", home / "build", home / "log.txt")
    if job.pin.compile is not None and (folder.build / "build.ninja").is_file():
        steps = outstanding(find_toolchain(), folder, job.pin.compile.targets)
        units, how = min(units, steps), "counted"
    jobs = decide(this_machine(), os.environ, gib_per_job=known.memory_gib).jobs
    cores = min(jobs, this_machine().cores)
    return {
        "native": "compiled",
        "compile_units": units,
        "compile_seconds": round(known.cpu_seconds * units / known.units / cores),
        "compile_from": how,
        "memory_gib": round(jobs * known.memory_gib, 1),
    }
