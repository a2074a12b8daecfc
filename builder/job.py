"""A build request with its recipe read, and its source brought and patched."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from builder import recipe as recipes
from builder.engines.registry import get_engine
from builder.errors import UsageError
from builder.patch import PatchResult, apply_series
from builder.series import Member, load_series
from builder.source import Origin, SourceResult, fetch_source

if TYPE_CHECKING:
    from builder.arch import Arch
    from builder.context import Context
    from builder.engines.base import Engine
    from builder.git import Git
    from builder.pin import Pin
    from builder.recipe import Recipe

#: Variables by which other tools are told an architecture; the command line wins over them.
_ARCH_VARIABLES: Final = (
    "TORCH_CUDA_ARCH_LIST",
    "CMAKE_CUDA_ARCHITECTURES",
    "CUDAARCHS",
    "CUDA_DOCKER_ARCH",
)


@dataclass(frozen=True)
class Request:
    """What is to be built.

    Attributes:
        engine: the engine's name.
        arch: the card's architecture; None for the form without GPU code.
        version: a pinned version; the newest if None.
        origin: where the source is to come from.
        authoring: patches are being written: those without a file are passed over.
    """

    engine: str
    arch: Arch | None
    version: str | None = None
    origin: Origin = field(default_factory=Origin)
    authoring: bool = False


@dataclass(frozen=True)
class Job:
    """A request with its recipe read: nothing has been fetched yet."""

    request: Request
    recipe: Recipe
    pin: Pin
    engine: Engine
    members: tuple[Member, ...]

    @property
    def target(self) -> str:
        """What it is built for, in a word: ``sm_86`` or ``cpu``."""
        return self.request.arch.name if self.request.arch else "cpu"


@dataclass(frozen=True)
class Tree:
    """The source of a job, pristine and patched."""

    pristine: tuple[Git, SourceResult]
    git: Git
    patched: PatchResult


def prepare(context: Context, request: Request) -> Job:
    """Read recipe and series.

    Raises:
        UsageError: engine, pin, recipe or series are wrong.
        PatchError: a patch is needed but has no file for the pin.
    """
    if request.arch is not None:
        note_clashes(context, request.arch)
    recipe = recipes.load(context, request.engine)
    pin = recipe.pin(request.version)
    if request.arch is None and pin.compile is None:
        raise UsageError(
            f"{request.engine} has no form without GPU code", fix="leave --cpu-only out"
        )
    members = load_series(context, request.engine, pin, request.arch, authoring=request.authoring)
    return Job(request, recipe, pin, get_engine(request.engine), members)


def pristine_tree(context: Context, job: Job) -> tuple[Git, SourceResult]:
    """Fetch the source."""
    return fetch_source(
        context, job.pin, origin=job.request.origin, repository=job.recipe.repository,
        package=job.engine.package,
    )  # fmt: skip


def patched_tree(context: Context, job: Job) -> Tree:
    """Fetch the source and apply the series."""
    pristine = pristine_tree(context, job)
    git, patched = apply_series(context, job.pin, source=pristine, members=job.members)
    return Tree(pristine, git, patched)


def note_clashes(context: Context, arch: Arch) -> None:
    """Say which of the environment's architecture settings are not used."""
    if arch.cc != (8, 6):
        context.say(f"note: the patches are made for sm_86; {arch} gets those that it needs")
    for name in _ARCH_VARIABLES:
        value = os.environ.get(name)
        if value and value not in {arch.torch, arch.cmake}:
            context.say(f"note: {name}={value} is ignored: --arch {arch} was given")
