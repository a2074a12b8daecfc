"""Patches as data, and the ordered series of them that a pin gets.

A patch is a folder ``patches/<engine>/<id>/`` with ``patch.toml`` and one ``<pin>.patch``
per pin that it serves. The mail in the ``.patch`` file says what and why to people;
``patch.toml`` holds what a machine needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from builder import toml
from builder.errors import PatchError, UsageError
from builder.patch_toml import Patch
from builder.store import file_sha256

if TYPE_CHECKING:
    from pathlib import Path

    from builder.arch import Arch
    from builder.context import Context
    from builder.pin import Pin


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
    context: Context, engine: str, pin: Pin, arch: Arch | None, *, authoring: bool = False
) -> tuple[Member, ...]:
    """The patches of a pin for an architecture, in order.

    Args:
        context: where the patches are.
        engine: the engine's name.
        pin: the version.
        arch: the architecture; None for a form without GPU code.
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
