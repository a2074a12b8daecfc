"""Reading CUDA fat binaries: which GPU code a compiled module holds.

A module's ``.nv_fatbin`` section (``__nv_relfatbin`` for relocatable device code) is a row
of containers, one per translation unit, each a 16-byte header and entries: a cubin or PTX
for one architecture, raw or compressed. The layout is undocumented; what is read here was
established on vLLM 0.22.1 and 0.33.0 and llama.cpp modules, and the tests compare it entry
for entry with NVIDIA's own ``cuobjdump``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import zstandard

from builder.native.container import containers
from builder.native.elf import NOBITS, DamagedError, Section, is_elf, sections
from builder.native.kernels import cubin_kernels, ptx_kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.arch import Arch, Code
    from builder.native.container import Container, Entry

_SECTIONS: Final = (".nv_fatbin", "__nv_relfatbin")
#: One entry may not unpack to more than this (the largest seen is 20 MB).
MAX_UNPACKED: Final = 1 << 30


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
            if zstandard.frame_content_size(raw) not in {-1, entry.unpacked}:
                raise DamagedError(
                    "GPU code claims another length than its header", fix="rebuild the file"
                )
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
    return is_elf(data) and bool(_parts(data))


def _parts(data: bytes | memoryview) -> list[Section]:
    """The sections with GPU code that are in the file (not those of a file of symbols only)."""
    return [
        part
        for part in sections(data)
        if part.name in _SECTIONS and part.size and part.type != NOBITS
    ]


def read(data: bytes | memoryview) -> Module:
    """The GPU code of a compiled file.

    Args:
        data: the bytes of an ELF file, or of a bare fat binary.

    Raises:
        DamagedError: its structure cannot be read.
    """
    view = memoryview(data)
    parts = _parts(view) if is_elf(view) else [Section("", 1, 0, len(view), 0)]
    found = [unit for part in parts for unit in containers(view, part)]
    if not found and not is_elf(view):
        raise DamagedError("neither an ELF file nor a fat binary", fix="check the path")
    return Module(view, tuple(found))
