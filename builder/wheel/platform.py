"""The platform tag that a set of compiled files really supports."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import TYPE_CHECKING, Final

from builder.native.dynamic import versions_needed
from builder.native.elf import is_elf

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_TAG: Final = re.compile(r"manylinux_2_(\d+)_x86_64")

#: Names from before PEP 600.
_OLD: Final = {
    "manylinux1_x86_64": "manylinux_2_5_x86_64",
    "manylinux2010_x86_64": "manylinux_2_12_x86_64",
    "manylinux2014_x86_64": "manylinux_2_17_x86_64",
}


def policy(tag: str) -> Mapping[str, list[str]] | None:
    """The symbol versions that a manylinux tag allows (auditwheel's policy file)."""
    tag = _OLD.get(tag, tag)
    if _TAG.fullmatch(tag) is None:
        return None
    text = resources.files("auditwheel.policy").joinpath("manylinux-policy.json").read_text()
    for entry in json.loads(text):
        if entry["name"] == tag.removesuffix("_x86_64"):
            found: Mapping[str, list[str]] = entry["symbol_versions"]["x86_64"]
            return found
    return None


def lowest(files: Sequence[tuple[str, bytes]]) -> str | None:
    """The oldest manylinux tag that allows everything the files need; None if there is none."""
    text = resources.files("auditwheel.policy").joinpath("manylinux-policy.json").read_text()
    names = [f"{entry['name']}_x86_64" for entry in json.loads(text)]
    known = [(int(found[1]), name) for name in names if (found := _TAG.fullmatch(name))]
    return next((name for _, name in sorted(known) if not too_new(files, name)), None)


def too_new(files: Iterable[tuple[str, bytes]], tag: str) -> list[str]:
    """Symbol versions that the files need and a manylinux tag does not allow.

    Args:
        files: names and contents.
        tag: platform tag of the wheel.

    Returns:
        One text for each, naming file and symbol version; empty if the tag holds.
    """
    allowed = policy(tag)
    if allowed is None:
        return [f"{tag} is not a manylinux tag of x86_64"]
    bad: list[str] = []
    for name, data in files:
        if not is_elf(data):
            continue
        for symbol in sorted(versions_needed(data)):
            family, _, number = symbol.partition("_")
            if family in allowed and number not in allowed[family]:
                bad.append(f"{name} needs {symbol}")
    return bad
