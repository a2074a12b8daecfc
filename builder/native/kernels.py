"""The names of the GPU functions in a cubin or in PTX, without template arguments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from builder.native.elf import sections

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENTRY: Final = re.compile(rb"^\s*(?:\.visible\s+|\.weak\s+)*\.entry\s+([\w$]+)", re.MULTILINE)


def base_name(mangled: str) -> str:
    """``ns::function`` of an Itanium-mangled name; the name itself if it is not mangled.

    Only the outermost source names are read, which is what stays the same from one
    compiler to the next; template arguments and parameter types follow them.
    """
    if not mangled.startswith("_Z"):
        return mangled
    rest = mangled[2:].removeprefix("N")
    while rest[:1] in {"K", "V", "r", "L"}:
        rest = rest[1:]
    parts: list[str] = []
    while (found := re.match(r"\d+", rest)) is not None:
        length = int(found[0])
        name = rest[found.end() : found.end() + length]
        if len(name) < length:
            break
        parts.append("(anonymous)" if name.startswith("_GLOBAL__N_") else name)
        rest = rest[found.end() + length :]
        if rest[:1] == "L":
            rest = rest[1:]
    return "::".join(parts) if parts else mangled


def cubin_kernels(cubin: bytes) -> Iterator[str]:
    """Base names of the functions in a cubin: each has a section ``.text.<name>``."""
    for section in sections(cubin):
        if section.name.startswith(".text.") and section.size:
            yield base_name(section.name.removeprefix(".text."))


def ptx_kernels(ptx: bytes) -> Iterator[str]:
    """Base names of the entry functions in PTX."""
    for found in _ENTRY.finditer(ptx):
        yield base_name(found[1].decode("latin-1"))
