"""Patches as data, and the ordered series of them that a pin gets.

A patch is a folder ``patches/<engine>/<id>/`` with ``patch.toml`` and one ``<pin>.patch``
per pin that it serves. The mail in the ``.patch`` file says what and why to people;
``patch.toml`` holds what a machine needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, Field, StringConstraints

from builder import toml
from builder.errors import PatchError, UsageError
from builder.pin import Strict
from builder.store import file_sha256

if TYPE_CHECKING:
    from pathlib import Path

    from builder.arch import Arch
    from builder.context import Context
    from builder.pin import Pin


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

    def serves(self, arch: Arch) -> bool:
        """Whether cards of this architecture need the patch."""
        if not self.capability:
            return True
        found = re.fullmatch(r"([<>]=?)(\d+)\.(\d)", self.capability)
        assert found is not None  # noqa: S101  (the field's pattern)
        limit = (int(found[2]), int(found[3]))
        return {
            "<": arch.cc < limit,
            "<=": arch.cc <= limit,
            ">": arch.cc > limit,
            ">=": arch.cc >= limit,
        }[found[1]]


@dataclass(frozen=True)
class Member:
    """A patch as it stands in a series.

    Attributes:
        patch: its metadata.
        folder: its folder.
        file: its mail for this pin.
        sha256: digest of that mail.
    """

    patch: Patch
    folder: Path
    file: Path
    sha256: str


def load_patch(folder: Path) -> Patch:
    """Read a patch's metadata.

    Raises:
        UsageError: it is missing or malformed.
    """
    path = folder / "patch.toml"
    patch = toml.load(path, Patch)
    if patch.id != folder.name:
        raise UsageError(f"{path}: id is {patch.id!r}", fix=f"it must be {folder.name!r}")
    return patch


def all_patches(context: Context, engine: str) -> list[Patch]:
    """Every patch of an engine, by id."""
    home = context.patches / engine
    folders = sorted(path.parent for path in home.glob("*/patch.toml"))
    return [load_patch(folder) for folder in folders]


def load_series(
    context: Context, engine: str, pin: Pin, arch: Arch, *, authoring: bool = False
) -> tuple[Member, ...]:
    """The patches of a pin for an architecture, in order.

    Args:
        context: where the patches are.
        engine: the engine's name.
        pin: the version.
        arch: the architecture.
        authoring: pass over patches that have no file for the pin: they are being written.

    Raises:
        UsageError: the recipe names a patch that does not exist, a file is out of its
            patch's range, or the order breaks a dependency.
        PatchError: a patch is needed for this pin but has no file for it.
    """
    home = context.patches / engine
    known = {patch.id: patch for patch in all_patches(context, engine)}
    for patch in known.values():
        if not (authoring and not (home / patch.id / f"{pin.version}.patch").is_file()):
            _check_ported(home / patch.id, patch, pin)
    members: list[Member] = []
    for name in pin.patches:
        if name not in known:
            raise UsageError(
                f"recipe {engine} {pin.version}: patch {name!r} does not exist",
                fix=f"known are: {', '.join(known) or 'none'}",
            )
        patch = known[name]
        if not patch.serves(arch):
            continue
        have = {member.patch.id for member in members}
        missing = [need for need in patch.depends if need not in have]
        if missing and not authoring:
            raise UsageError(
                f"recipe {engine} {pin.version}: {name} needs {', '.join(missing)} before it",
                fix="reorder 'patches'",
            )
        file = home / name / f"{pin.version}.patch"
        if not file.is_file():
            if authoring:
                continue
            raise PatchError(f"{name} has no {file.name}", fix=f"port it to {engine} {pin.version}")
        members.append(Member(patch, home / name, file, file_sha256(file)))
    unlisted = [
        patch.id
        for patch in known.values()
        if not authoring
        and patch.id not in pin.patches
        and (home / patch.id / f"{pin.version}.patch").exists()
    ]
    if unlisted:
        raise UsageError(
            f"recipe {engine} {pin.version}: {', '.join(unlisted)} has a file for this pin but is"
            " not in 'patches'",
            fix="list it, or remove the file",
        )
    return tuple(members)


def _check_ported(folder: Path, patch: Patch, pin: Pin) -> None:
    needed = SpecifierSet(patch.applies).contains(pin.version, prereleases=True)
    there = (folder / f"{pin.version}.patch").is_file()
    if needed and not there:
        raise PatchError(
            f"{patch.id} is needed for {pin.version} ({patch.applies}) but has no file for it",
            fix=f"port it: write {folder.name}/{pin.version}.patch, or narrow 'applies'",
        )
    if there and not needed:
        raise UsageError(
            f"{folder.name}/{pin.version}.patch lies outside 'applies' ({patch.applies})",
            fix="widen 'applies', or remove the file",
        )
