"""Taking bytes out of a linked ELF file without moving anything that is loaded.

Every virtual address stays: whole pages that nothing uses any more leave the file, the
segment around them is split in two, and file offsets behind them shrink. Layout: System V
ABI, chapters 4 and 5; ``p_offset`` and ``p_vaddr`` stay congruent modulo the page size.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Final

from builder.native.elf import NOBITS, DamagedError, sections

PAGE: Final = 4096
_LOAD, _NOTE = 1, 4
_PROGRAM: Final = struct.Struct("<IIQQQQQQ")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_RELA: Final = struct.Struct("<QQq")
_RELATIVE: Final = 8  # R_X86_64_RELATIVE
_X86_64: Final = 62


@dataclass(frozen=True)
class Segment:
    """A program header: type, flags, offset, address, size in the file and in memory, alignment."""

    type: int
    flags: int
    offset: int
    address: int
    physical: int
    size: int
    memory: int
    align: int

    def pack(self) -> bytes:
        """The header's bytes."""
        return _PROGRAM.pack(
            self.type, self.flags, self.offset, self.address, self.physical, self.size,
            self.memory, self.align,
        )  # fmt: skip


def _refuse(why: str) -> DamagedError:
    return DamagedError(
        f"this file cannot be cut: {why}", fix="report it; --keep-all keeps it whole"
    )


def programs(data: bytes | bytearray) -> tuple[int, list[Segment]]:
    """Where the program headers stand, and the headers."""
    (machine,) = struct.unpack_from("<H", data, 0x12)
    if machine != _X86_64:
        raise _refuse(f"it is for machine {machine}, not x86-64")
    (at,) = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x36)
    if size != _PROGRAM.size or at + size * count > len(data):
        raise DamagedError("ELF program headers lie outside the file", fix="rebuild the file")
    return at, [Segment(*_PROGRAM.unpack_from(data, at + i * size)) for i in range(count)]


def move_pointers(data: bytearray, section: str, moved: dict[int, int]) -> int:
    """Rewrite the pointers in a section, each of them a relative relocation.

    Args:
        data: the file; changed.
        section: name of the section that holds the pointers.
        moved: new address by old one.

    Returns:
        How many there were.

    Raises:
        DamagedError: one points to something that is not in `moved`.
    """
    parts = {part.name: part for part in sections(memoryview(data))}
    home, table = parts.get(section), parts.get(".rela.dyn")
    if home is None or table is None or NOBITS in {home.type, table.type}:
        raise _refuse(f"it has no {section} or no .rela.dyn")
    count = 0
    for at in range(table.offset, table.offset + table.size - _RELA.size + 1, _RELA.size):
        place, info, addend = _RELA.unpack_from(data, at)
        if not home.address <= place < home.address + home.size:
            continue
        if info & 0xFFFFFFFF != _RELATIVE:
            raise _refuse(f"{section} has a pointer of another kind than relative")
        if addend not in moved:
            raise _refuse(f"{section} points to {addend:#x}, where no GPU code begins")
        _RELA.pack_into(data, at, place, info, moved[addend])
        mirror = place - home.address + home.offset
        if struct.unpack_from("<Q", data, mirror)[0] == addend:  # some linkers write it there too
            struct.pack_into("<Q", data, mirror, moved[addend])
        count += 1
    return count


def require_no_other_pointers(data: bytearray, section: str, holder: str) -> None:
    """Refuse a file that points into a section from elsewhere than one table.

    Read are relocations with an addend and dynamic symbols; code that computes such an address
    relative to itself cannot be told.

    Raises:
        DamagedError: something else points there.
    """
    parts = {part.name: part for part in sections(memoryview(data))}
    target, home = parts[section], parts.get(holder)
    if home is None:
        raise _refuse(f"it has no {holder}")
    inside = range(target.address, target.address + target.size)
    for name in (".rela.dyn", ".rela.plt"):
        table = parts.get(name)
        if table is None or table.type == NOBITS:
            continue
        for at in range(table.offset, table.offset + table.size - _RELA.size + 1, _RELA.size):
            place, _, addend = _RELA.unpack_from(data, at)
            if addend in inside and not home.address <= place < home.address + home.size:
                raise _refuse(f"{place:#x} points into {section} from outside of {holder}")
    symbols = parts.get(".dynsym")
    if symbols is not None and symbols.type != NOBITS:
        for at in range(symbols.offset, symbols.offset + symbols.size - 23, 24):
            if struct.unpack_from("<Q", data, at + 8)[0] in inside:
                raise _refuse(f"it exports a symbol inside of {section}")


def shorten(data: bytearray, section: str, size: int) -> None:
    """Make a read-only section shorter and take the pages that become free out of the file.

    Args:
        data: the file; changed.
        section: its name.
        size: bytes that it keeps, from its beginning.
    """
    part = next(part for part in sections(memoryview(data)) if part.name == section)
    begin = -(-(part.offset + size) // PAGE) * PAGE
    end = (part.offset + part.size) // PAGE * PAGE
    gap = end - begin
    _edit_section(data, section, size=size)
    if gap <= 0:
        return
    at, segments = programs(data)
    behind = [one.align for one in segments if one.type == _LOAD and one.offset >= end]
    if any(align > PAGE for align in behind):
        raise _refuse("a segment behind its GPU code is aligned beyond a page")
    made: list[Segment] = []
    split = False
    for one in segments:
        inside = one.offset <= part.offset and part.offset + part.size <= one.offset + one.size
        if one.type == _LOAD and inside:
            if one.size != one.memory or one.align > PAGE or one.flags & 2:
                raise _refuse(
                    f"{section} is in a segment that is writable or aligned beyond a page"
                )
            first = begin - one.offset
            rest = one.offset + one.size - end
            made.append(replace(one, size=first, memory=first))
            if rest:
                shift = end - one.offset
                made.append(
                    replace(one, offset=begin, address=one.address + shift,
                            physical=(one.physical + shift) % (1 << 64), size=rest, memory=rest)
                )  # fmt: skip
            split = True
        elif one.offset >= end:
            made.append(replace(one, offset=one.offset - gap))
        else:
            made.append(one)
    if not split:
        raise _refuse(f"{section} is in no segment")
    if len(made) > len(segments):
        # the build id stays in its section, where debuggers find it too
        note = next((one for one in made if one.type == _NOTE), None)
        if note is None:
            raise _refuse("its program header table has no room")
        made.remove(note)
    spare = len(segments) - len(made)
    body = b"".join(one.pack() for one in made) + bytes(spare * _PROGRAM.size)
    data[at : at + len(body)] = body
    if at > end or struct.unpack_from("<Q", data, 0x28)[0] < end:
        raise _refuse("its header tables are in an unusual order")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    _, count = struct.unpack_from("<HH", data, 0x3A)
    for number in range(count):
        place = table + number * _SECTION.size + 0x18
        (offset,) = struct.unpack_from("<Q", data, place)
        if offset >= end:
            struct.pack_into("<Q", data, place, offset - gap)
    struct.pack_into("<Q", data, 0x28, table - gap)
    del data[begin:end]


def _edit_section(data: bytearray, name: str, *, size: int) -> None:
    (table,) = struct.unpack_from("<Q", data, 0x28)
    number = next(i for i, part in enumerate(sections(memoryview(data))) if part.name == name)
    struct.pack_into("<Q", data, table + number * _SECTION.size + 0x20, size)
