"""Cutting compiled files to the card: only GPU code that it would run stays in them.

Each container keeps what the driver would choose for the architecture (`Container.choice`),
bit for bit once decompressed; cubins that upstream stored raw are stored as one zstd frame
each, as ``nvcc --compress-mode=size`` does and every CUDA 13 driver reads. A container with
nothing for the card becomes an empty one, so that the module's table of them stays whole.
"""

from __future__ import annotations

import os
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import zstandard

from builder.errors import CompileError
from builder.native import fatbin
from builder.native.container import Entry, container
from builder.native.elf import DamagedError, is_elf, sections
from builder.native.shrink import move_pointers, require_no_other_pointers, shorten
from builder.native.strip import known_end, strip

if TYPE_CHECKING:
    from builder.arch import Arch

#: Raised whenever the same module would be cut differently.
CUTTER: Final = 1
LEVEL: Final = 19
_SECTION, _POINTERS = ".nv_fatbin", ".nvFatBinSegment"
_ZSTD: Final = 0x8000


@dataclass(frozen=True)
class Cut:
    """A module cut to a card.

    Attributes:
        data: its bytes.
        containers: translation units with GPU code.
        emptied: those of them that have none for the card.
        kept: pieces of GPU code that stay.
        removed: pieces that do not.
    """

    data: bytes
    containers: int
    emptied: int
    kept: int
    removed: int


def cut(data: bytes, arch: Arch) -> Cut:
    """Cut a linked ELF file to an architecture.

    Raises:
        DamagedError: its structure cannot be read, or has a form that is not known here.
        CompileError: what was made does not hold the same code (never written).
    """
    if not is_elf(data):
        return Cut(data, 0, 0, 0, 0)
    module = fatbin.read(data)
    if not module.containers:
        return Cut(strip(data), 0, 0, 0, 0)
    parts = [one for one in sections(data) if one.name.startswith((_SECTION, "__nv_relfatbin"))]
    if [one.name for one in parts if one.size] != [_SECTION]:
        raise DamagedError("this file cannot be cut: its GPU code is relocatable", fix="report it")
    (part,) = (one for one in parts if one.size)
    if any(unit.other for unit in module.containers):
        raise DamagedError(
            "this file cannot be cut: it holds code that is neither cubin nor PTX", fix="report it"
        )
    chosen = [unit.choice(arch) for unit in module.containers]
    flat = [entry for entries in chosen for entry in entries]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        packed = dict(zip(flat, pool.map(lambda one: _entry(module, one), flat), strict=True))
    moved: dict[int, int] = {}
    body = bytearray()
    for unit, entries in zip(module.containers, chosen, strict=True):
        moved[part.address + unit.offset - part.offset] = part.address + len(body)
        inner = b"".join(packed[entry] for entry in entries)
        body += container(inner)
        body += bytes(-len(body) % 8)
    if len(body) > part.size:
        raise CompileError("a module grew when it was cut", fix="report it")
    out = bytearray(data)
    if known_end(out) < len(out):
        raise DamagedError("this file cannot be cut: bytes stand behind its end", fix="report it")
    require_no_other_pointers(out, _SECTION, _POINTERS)
    out[part.offset : part.offset + part.size] = bytes(body) + bytes(part.size - len(body))
    count = move_pointers(out, _POINTERS, moved)
    if count != len(module.containers):
        raise CompileError(
            f"{count} pointers lead to {len(module.containers)} containers of GPU code",
            fix="report it",
        )
    shorten(out, _SECTION, len(body))
    made = strip(out)
    _same(module, chosen, fatbin.read(made))
    emptied = sum(not entries for entries in chosen)
    total = sum(len(unit.entries) for unit in module.containers)
    return Cut(made, len(chosen), emptied, len(flat), total - len(flat))


def _entry(module: fatbin.Module, entry: Entry) -> bytes:
    """An entry as it is to be stored: as it was, or a raw cubin as one zstd frame."""
    whole = bytes(module.data[entry.offset : entry.offset + entry.stored])
    if entry.compression or entry.code.ptx:
        return whole
    raw = whole[entry.header :]
    frame = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True).compress(raw)
    pad = -len(frame) % 8
    if len(frame) + pad >= len(raw):
        return whole
    head = bytearray(whole[: entry.header])
    struct.pack_into("<QI", head, 8, len(frame) + pad, len(frame))
    struct.pack_into("<Q", head, 40, entry.flags | _ZSTD)
    struct.pack_into("<Q", head, 56, len(raw))
    return bytes(head) + frame + bytes(pad)


def _same(before: fatbin.Module, chosen: list[tuple[Entry, ...]], after: fatbin.Module) -> None:
    """What is left is the chosen code, all of it and nothing else, in the same order."""
    if len(after.containers) != len(chosen):
        raise CompileError("cutting lost a container of GPU code", fix="report it")
    for entries, unit in zip(chosen, after.containers, strict=True):
        same = len(entries) == len(unit.entries) and all(
            (old.code, old.name) == (new.code, new.name)
            and before.payload(old) == after.payload(new)
            for old, new in zip(entries, unit.entries, strict=True)
        )
        if not same:
            raise CompileError("cutting changed a piece of GPU code", fix="report it")
