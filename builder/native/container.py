"""Containers of GPU code, one for each translation unit, and the entries in them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from builder.arch import Arch, Code
from builder.native.elf import DamagedError, Section

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC: Final = 0xBA55ED50
_CONTAINER: Final = struct.Struct("<IHHQ")
_ENTRY: Final = struct.Struct("<HHIQIIHHIIIQQQ")
_PTX, _CUBIN = 1, 2
_ZSTD, _LZ4, _CHIP, _FAMILY = 0x8000, 0x2000, 0x100000, 0x200000


@dataclass(frozen=True)
class Entry:
    """One piece of GPU code.

    Attributes:
        code: what it was compiled for.
        offset: where its header begins in the file.
        header: size of that header in bytes.
        size: bytes of payload as stored, padding included.
        packed: bytes of compressed payload, 0 if stored raw.
        unpacked: bytes after decompression, 0 if stored raw.
        flags: the entry's flag word.
        name: the name in the header, usually empty.
    """

    code: Code
    offset: int
    header: int
    size: int
    packed: int
    unpacked: int
    flags: int
    name: str

    @property
    def compression(self) -> str:
        """``zstd``, ``lz4`` or empty for raw."""
        if self.flags & _ZSTD:
            return "zstd"
        return "lz4" if self.flags & _LZ4 else ""

    @property
    def stored(self) -> int:
        """Bytes in the file, header included."""
        return self.header + self.size


@dataclass(frozen=True)
class Container:
    """The GPU code of one translation unit.

    Attributes:
        offset: where it begins in the file.
        size: bytes in the file, header included.
        entries: its pieces of code.
        other: whether it also holds something that is neither cubin nor PTX.
    """

    offset: int
    size: int
    entries: tuple[Entry, ...]
    other: bool = False

    def choice(self, arch: Arch) -> tuple[Entry, ...]:
        """The entries that a card of this architecture would run.

        The driver prefers a cubin of the exact version, then the highest lower one of the
        same major version, then the highest PTX that is not above the card's.
        """
        best: dict[str, Entry] = {}
        for entry in self.entries:
            if arch.runs(entry.code):
                rank = (not entry.code.ptx, entry.code.number)
                have = best.get(entry.name)
                if have is None or rank > (not have.code.ptx, have.code.number):
                    best[entry.name] = entry
        return tuple(best.values())


def container(body: bytes) -> bytes:
    """A container of these entries' bytes; the driver finds nothing in an empty one."""
    return _CONTAINER.pack(_MAGIC, 1, _CONTAINER.size, len(body)) + body


def containers(view: memoryview, part: Section) -> Iterator[Container]:
    """The containers of a section.

    Raises:
        DamagedError: its structure cannot be read.
    """
    at, end = part.offset, part.offset + part.size
    while at + _CONTAINER.size <= end:
        magic, version, header, size = _CONTAINER.unpack_from(view, at)
        if magic == 0:  # padding between containers
            at += 8
            continue
        if magic != _MAGIC or version != 1 or header != _CONTAINER.size:
            raise DamagedError(f"no fat-binary container at byte {at}", fix="rebuild the file")
        begin, stop = at + header, at + header + size
        if stop > end:
            raise DamagedError(
                f"container at byte {at} is longer than its section", fix="rebuild it"
            )
        entries = tuple(_entries(view, begin, stop))
        other = sum(entry.stored for entry in entries) != size
        yield Container(at, header + size, entries, other)
        at = stop + (-stop) % 8


def _entries(view: memoryview, at: int, end: int) -> Iterator[Entry]:
    while at < end:
        if at + _ENTRY.size > end:
            raise DamagedError(f"an entry at byte {at} is cut off", fix="rebuild the file")
        (kind, _version, header, size, packed, _options, _minor, _major, number, name_at, name_len,
         flags, _zero, unpacked) = _ENTRY.unpack_from(view, at)  # fmt: skip
        if header < _ENTRY.size or at + header + size > end:
            raise DamagedError(f"the entry at byte {at} cannot be read", fix="rebuild the file")
        if kind not in {_PTX, _CUBIN}:  # for example LTO IR: nothing that a card runs
            at += header + size
            continue
        compressed = bool(flags & (_ZSTD | _LZ4))
        if packed > size or (compressed and not packed):
            raise DamagedError(f"the entry at byte {at} has no payload", fix="rebuild the file")
        if name_at and name_at + name_len > header:
            raise DamagedError(f"the entry at byte {at} has no name", fix="rebuild the file")
        name = bytes(view[at + name_at : at + name_at + name_len]) if name_at else b""
        yield Entry(
            code=Code(number, ptx=kind == _PTX, suffix=_suffix(flags)),
            offset=at, header=header, size=size, packed=packed if compressed else 0,
            unpacked=unpacked if compressed else 0, flags=flags,
            name=name.split(b"\0")[0].decode("latin-1"),
        )  # fmt: skip
        at += header + size


def _suffix(flags: int) -> str:
    if flags & _FAMILY:
        return "f"
    return "a" if flags & _CHIP else ""
