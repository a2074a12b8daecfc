"""Leaving out of a linked ELF file what only debuggers read."""

from __future__ import annotations

import struct
from typing import Final

from builder.native.elf import NOBITS, sections
from builder.native.shrink import PAGE, programs

_ALLOC: Final = 2
_PROGRAM_SIZE: Final = 56
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
#: What debuggers and profilers read and no loader does.
_SYMBOLS: Final = (".symtab", ".strtab")
#: ET_EXEC and ET_DYN.
_LINKED: Final = (2, 3)


def known_end(data: bytes | bytearray) -> int:
    """Where everything ends that the headers speak of; what stands behind it is unknown."""
    view = memoryview(data)
    at, segments = programs(data)
    table = int(struct.unpack_from("<Q", view, 0x28)[0])
    parts = sections(view)
    return max(
        [one.offset + one.size for one in segments]
        + [part.offset + part.size for part in parts if part.type != NOBITS]
        + [at + len(segments) * _PROGRAM_SIZE, table + len(parts) * _SECTION.size]
    )


def strip(data: bytes | bytearray) -> bytes:
    """Leave out the symbol table that only debuggers read; dynamic symbols stay.

    A file of a form that forbids it comes back as it is: not linked, sections in another order,
    a shared table of names, or bytes behind its end.
    """
    if struct.unpack_from("<H", data, 0x10)[0] not in _LINKED or known_end(data) < len(data):
        return bytes(data)
    known = sections(memoryview(data))
    (table,) = struct.unpack_from("<Q", data, 0x28)
    (names_at,) = struct.unpack_from("<H", data, 0x3E)
    raw = [list(_SECTION.unpack_from(data, table + i * _SECTION.size)) for i in range(len(known))]
    gone = [i for i, part in enumerate(known) if part.name in _SYMBOLS]
    loaded = [i for i, head in enumerate(raw) if head[2] & _ALLOC]
    linked = any(raw[i][6] in gone for i in range(len(raw)) if i not in gone)
    odd = any(not 0 <= head[8] <= PAGE for head in raw)
    if not gone or not loaded or min(gone) < max(loaded) or linked or odd or names_at in gone:
        return bytes(data)
    _, segments = programs(data)
    end = max(
        [one.offset + one.size for one in segments]
        + [known[i].offset + known[i].size for i in loaded if known[i].type != NOBITS]
    )
    if any(0 < raw[i][4] < end for i in range(len(raw)) if i not in loaded and raw[i][1]):
        return bytes(data)
    out = bytearray(data[:end])
    number: dict[int, int] = {}
    heads: list[list[int]] = []
    for i, head in enumerate(raw):
        if i in gone:
            continue
        number[i] = len(heads)
        if i and i not in loaded and known[i].type != NOBITS:
            out += bytes(-len(out) % max(head[8], 1))
            place = len(out)
            out += data[known[i].offset : known[i].offset + known[i].size]
            head[4] = place
        heads.append(head)
    for head in heads:
        head[6] = number.get(head[6], 0)
    out += bytes(-len(out) % 8)
    struct.pack_into("<Q", out, 0x28, len(out))
    struct.pack_into("<HH", out, 0x3C, len(heads), number[names_at])
    for head in heads:
        out += _SECTION.pack(*head)
    return bytes(out)
