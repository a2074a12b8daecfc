"""Which patch files a command line means, and in which order.

A folder's order is stated by its ``series`` file (quilt's format) or, without one, by the
numbers that begin the file names; anything else is refused, since a name's place in a
listing differs from machine to machine.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from builder.errors import PatchError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def expand(given: Sequence[Path]) -> list[Path]:
    """Patch files in the order they are to be applied.

    Raises:
        PatchError: a file is missing, left out of its series, or the order is not stated.
    """
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            found += _folder(path)
        elif path.is_file():
            found.append(path)
        else:
            raise PatchError(f"{path}: no such patch", fix="check the path")
    return found


def _folder(folder: Path) -> list[Path]:
    there = sorted(path for path in folder.glob("*.patch") if not path.name.startswith("."))
    series = folder / "series"
    if series.is_file():
        return _listed(folder, series, there)
    if len(there) < 2:
        if not there:
            raise PatchError(f"{folder}: no patch in it", fix="check the path")
        return there
    numbers = [re.match(r"\d+", path.name) for path in there]
    order = [int(number[0]) for number in numbers if number]
    if len(order) != len(there) or len(set(order)) != len(order):
        raise PatchError(
            f"{folder}: {len(there)} patches and no order: neither a 'series' file nor a number of"
            " its own before each name",
            fix="write a 'series' file with one name a line",
        )
    return [path for _, path in sorted(zip(order, there, strict=True))]


def _listed(folder: Path, series: Path, there: list[Path]) -> list[Path]:
    names = [line.split("#")[0].strip() for line in series.read_text().splitlines()]
    names = [name for name in names if name]
    for name in names:
        if not (folder / name).is_file():
            raise PatchError(f"{series}: names {name}, which does not exist", fix="correct it")
        if names.count(name) > 1:
            raise PatchError(f"{series}: names {name} twice", fix="correct it")
    unlisted = [path.name for path in there if path.name not in names]
    if unlisted:
        raise PatchError(
            f"{folder}: {', '.join(unlisted)} is not in its 'series' file",
            fix="list it, or rename it to something that does not end in .patch",
        )
    return [folder / name for name in names]
