"""Reading CUDA fat binaries: which GPU code a compiled module holds.

A module's ``.nv_fatbin`` section (``__nv_relfatbin`` for relocatable device code) is a row
of containers, one per translation unit, each a 16-byte header and entries: a cubin or PTX
for one architecture, raw or compressed. The layout is undocumented; what is read here was
established on vLLM 0.22.1 and 0.33.0 and llama.cpp modules, and the tests compare it entry
for entry with NVIDIA's own ``cuobjdump``.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import zstandard

from builder.arch import Arch, Code
from builder.native.elf import DamagedError, Section, is_elf, sections
from builder.native.kernels import cubin_kernels, ptx_kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC: Final = 0xBA55ED50
_CONTAINER: Final = struct.Struct("<IHHQ")
_ENTRY: Final = struct.Struct("<HHIQIIHHIIIQQQ")
_SECTIONS: Final = (".nv_fatbin", "__nv_relfatbin")
_PTX, _CUBIN = 1, 2
_ZSTD, _LZ4, _CHIP, _FAMILY = 0x8000, 0x2000, 0x100000, 0x200000
#: One entry may not unpack to more than this (the largest seen is 20 MB).
MAX_UNPACKED: Final = 1 << 30


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
    """

    offset: int
    size: int
    entries: tuple[Entry, ...]

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


@dataclass(frozen=True)
class Module:
    """A compiled file and the GPU code in it.

    Attributes:
        data: the file's bytes.
        containers: in file order.
    """

    data: memoryview
    containers: tuple[Container, ...]

    @property
    def entries(self) -> Iterator[Entry]:
        """Every piece of code, in file order."""
        for container in self.containers:
            yield from container.entries

    def totals(self) -> dict[Code, tuple[int, int]]:
        """Number of pieces and bytes in the file, by architecture."""
        count: Counter[Code] = Counter()
        size: Counter[Code] = Counter()
        for entry in self.entries:
            count[entry.code] += 1
            size[entry.code] += entry.stored
        return {code: (count[code], size[code]) for code in sorted(count)}

    def payload(self, entry: Entry) -> bytes:
        """The code itself, decompressed: an ELF file (cubin) or PTX text.

        Raises:
            DamagedError: it does not decompress to what its header says.
        """
        begin = entry.offset + entry.header
        if not entry.compression:
            return bytes(self.data[begin : begin + entry.size])
        if entry.compression != "zstd":
            raise DamagedError(
                "GPU code is compressed with LZ4, which is not read", fix="report it"
            )
        raw = self.data[begin : begin + entry.packed]
        if entry.unpacked > MAX_UNPACKED:
            raise DamagedError(f"GPU code claims {entry.unpacked} bytes", fix="rebuild the file")
        try:
            out = zstandard.ZstdDecompressor().decompress(raw, max_output_size=entry.unpacked)
        except zstandard.ZstdError as error:
            raise DamagedError(
                f"GPU code does not decompress: {error}", fix="rebuild it"
            ) from error
        if len(out) != entry.unpacked:
            raise DamagedError("GPU code decompresses to another length", fix="rebuild the file")
        return out

    def kernels(self, arch: Arch) -> Counter[str]:
        """How often each GPU function occurs in the code that this card would run.

        Keys are function names without template arguments; so an overload set or a
        template's instantiations count under one name.
        """
        found: Counter[str] = Counter()
        for container in self.containers:
            for entry in container.choice(arch):
                body = self.payload(entry)
                found.update(ptx_kernels(body) if entry.code.ptx else cubin_kernels(body))
        return found


def has_gpu_code(data: bytes | memoryview) -> bool:
    """Whether an ELF file has a fat-binary section."""
    return is_elf(data) and any(part.name in _SECTIONS and part.size for part in sections(data))


def read(data: bytes | memoryview) -> Module:
    """The GPU code of a compiled file.

    Args:
        data: the bytes of an ELF file, or of a bare fat binary.

    Raises:
        DamagedError: its structure cannot be read.
    """
    view = memoryview(data)
    if is_elf(view):
        parts = [part for part in sections(view) if part.name in _SECTIONS and part.size]
    else:
        parts = [Section("", 1, 0, len(view), 0)]
    containers = [found for part in parts for found in _containers(view, part)]
    if not containers and not is_elf(view):
        raise DamagedError("neither an ELF file nor a fat binary", fix="check the path")
    return Module(view, tuple(containers))


def container(body: bytes) -> bytes:
    """A container of these entries' bytes; the driver finds nothing in an empty one."""
    return _CONTAINER.pack(_MAGIC, 1, _CONTAINER.size, len(body)) + body


def _containers(view: memoryview, part: Section) -> Iterator[Container]:
    at, end = part.offset, part.offset + part.size
    while at + _CONTAINER.size <= end:
        magic, version, header, size = _CONTAINER.unpack_from(view, at)
        if magic == 0:  # padding between containers
            at += 8
            continue
        if magic != _MAGIC or version != 1 or header < _CONTAINER.size:
            raise DamagedError(f"no fat-binary container at byte {at}", fix="rebuild the file")
        begin, stop = at + header, at + header + size
        if stop > end:
            raise DamagedError(
                f"container at byte {at} is longer than its section", fix="rebuild it"
            )
        yield Container(at, header + size, tuple(_entries(view, begin, stop)))
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
        if name_at and name_at + name_len > header + size:
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
