"""The few facts about an ELF file that the native layer needs, from its bytes alone.

Everything is bounds-checked: a damaged file gives `DamagedError`, never a crash or a hang.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from builder.errors import AuditError

_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
MAX_SECTIONS: Final = 65_535
NOBITS: Final = 8


class DamagedError(AuditError):
    """A compiled file whose structure cannot be read."""


@dataclass(frozen=True)
class Section:
    """One section of an ELF file.

    Attributes:
        name: its name.
        type: its type (``SHT_*``).
        offset: where its bytes begin in the file.
        size: how many there are.
        address: where they are loaded.
    """

    name: str
    type: int
    offset: int
    size: int
    address: int


def is_elf(data: bytes | memoryview) -> bool:
    """Whether the bytes begin like a 64-bit little-endian ELF file."""
    return bytes(data[:6]) == b"\x7fELF\x02\x01"


def sections(data: bytes | memoryview) -> list[Section]:
    """The sections of a 64-bit little-endian ELF file.

    Raises:
        DamagedError: it is none, or a header points outside the file.
    """
    view = memoryview(data)
    if not is_elf(view) or len(view) < 64:
        raise DamagedError("not a 64-bit little-endian ELF file", fix="rebuild the file")
    (table,) = struct.unpack_from("<Q", view, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", view, 0x3A)
    if table == 0 or count == 0:
        raise DamagedError(
            "an ELF file without a section table", fix="do not strip section headers"
        )
    if size != _SECTION.size or count > MAX_SECTIONS or table + size * count > len(view):
        raise DamagedError("ELF section table lies outside the file", fix="rebuild the file")
    raw = [_SECTION.unpack_from(view, table + number * size) for number in range(count)]
    if names_at >= count:
        raise DamagedError("ELF section names are missing", fix="rebuild the file")
    base, length = raw[names_at][4], raw[names_at][5]
    if base + length > len(view):
        raise DamagedError("ELF section names lie outside the file", fix="rebuild the file")
    names = bytes(view[base : base + length])
    found: list[Section] = []
    for name, kind, _flags, address, offset, extent, *_rest in raw:
        if kind != NOBITS and offset + extent > len(view):
            raise DamagedError("an ELF section lies outside the file", fix="rebuild the file")
        end = names.find(b"\0", name)
        if name > length or end < 0:
            raise DamagedError("an ELF section has no name", fix="rebuild the file")
        text = names[name:end].decode("latin-1")
        found.append(Section(text, kind, offset, extent, address))
    return found
