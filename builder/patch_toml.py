"""``patch.toml`` as data: what a machine needs to know of a patch."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, Field, StringConstraints

from builder.pin import Strict

if TYPE_CHECKING:
    from builder.arch import Arch


class UpstreamStatus(StrEnum):
    """Where a patch stands with upstream (the Yocto Project's vocabulary)."""

    PENDING = "Pending"
    SUBMITTED = "Submitted"
    DENIED = "Denied"
    INAPPROPRIATE = "Inappropriate"
    BACKPORT = "Backport"
    INACTIVE = "Inactive-Upstream"


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        msg = f"{text!r} is not a version range (PEP 440)"
        raise ValueError(msg) from error
    return text


Range = Annotated[str, AfterValidator(_specifier)]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]


class Upstream(Strict):
    """Where the patch stands with upstream, and when it may go."""

    status: UpstreamStatus
    """Vocabulary of the trailer ``Upstream-Status``."""
    drop_when: str
    """The condition under which the patch is dropped."""
    links: tuple[str, ...] = ()
    """Issues and pull requests."""


class Live(Strict):
    """A place in an installed file by which the patch is known to be there."""

    file: str
    """Wheel member."""
    symbol: str
    """Function, class or constant that the patch adds or changes."""


class Mutant(Strict):
    """A planted fault that the proof must notice."""

    id: Slug
    file: str
    """File of the green tree."""
    find: str
    """Text that stands there exactly once."""
    replace: str
    """What it becomes."""
    reason: str
    """Regular expression that one of the proof's failures must match."""


class Proof(Strict):
    """A test that is red without the patch and green with it."""

    id: Slug
    script: str
    """File in the patch's folder."""
    reach: str
    """Symbol of the patch that the script must have executed or compiled."""
    red: str
    """Regular expression that a failure on the tree without the patch must match."""
    mutants: tuple[Mutant, ...] = ()


class GpuProof(Strict):
    """A proof that needs a GPU, and its recorded result."""

    id: Slug
    script: str
    """File in the patch's folder."""
    shows: str
    """What it shows, in one line."""
    result: str
    """File in the patch's folder: JSON with the command and the card that gave it."""


class Patch(Strict):
    """``patch.toml``."""

    schema_version: Literal[1]
    id: Slug
    """The folder's name."""
    title: str
    """What it does, in one line."""
    why: str
    """What goes wrong without it, and for whom."""
    applies: Range
    """Versions of the engine that need it."""
    capability: str = Field(default="", pattern=r"^(|[<>]=?\d+\.\d)$")
    """Cards that need it, for example ``<8.9``; empty for all."""
    layer: Literal["python", "native"]
    """Whether compiled files change."""
    depends: tuple[Slug, ...] = ()
    """Patches that must be applied before it."""
    upstream: Upstream
    live: tuple[Live, ...] = Field(min_length=1)
    proofs: tuple[Proof, ...] = Field(min_length=1)
    gpu_proofs: tuple[GpuProof, ...] = ()
    """Those that no machine without a GPU can run."""

    def serves(self, arch: Arch | None) -> bool:
        """Whether cards of this architecture, or a form without GPU code, need the patch."""
        if not self.capability:
            return True
        if arch is None:
            return False
        found = re.fullmatch(r"([<>]=?)(\d+)\.(\d)", self.capability)
        assert found is not None  # noqa: S101  (the field's pattern)
        limit = (int(found[2]), int(found[3]))
        return {
            "<": arch.cc < limit,
            "<=": arch.cc <= limit,
            ">": arch.cc > limit,
            ">=": arch.cc >= limit,
        }[found[1]]
