"""Modules cut to a card: smaller, loadable, and with the same code."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from builder.arch import Arch
from builder.errors import CompileError
from builder.native import fatbin
from builder.native.cut import cut
from builder.native.elf import DamagedError, sections
from builder.native.strip import strip
from tests.elfmaker import TAIL, container, cubin, elf, entry, module

if TYPE_CHECKING:
    from pathlib import Path

SM86 = Arch(8, 6)
DICE = random.Random(86)
BIG = cubin("kernel") + DICE.randbytes(20_000)
LOOSE = cubin("flash") + b"a raw cubin compresses well " * 3000


def made() -> bytes:
    """Three units: one with code for several cards, one with nothing for 8.6, one stored raw."""
    return module(
        container(
            entry(80, BIG[:9000], packed=True), entry(86, BIG, packed=True),
            entry(90, BIG[::-1], packed=True), entry(80, b".version 8.7", ptx=True),
        ),
        container(entry(90, BIG, packed=True, flags=0x100000), entry(100, BIG[::-1])),
        container(entry(80, LOOSE), entry(80, b".version 8.7\n.target sm_80\n", ptx=True)),
        needed=(),
    )  # fmt: skip


def code(data: bytes) -> list[list[tuple[str, bytes]]]:
    found = fatbin.read(data)
    return [
        [(str(one.code), found.payload(one)) for one in unit.entries] for unit in found.containers
    ]


def test_only_what_the_card_runs_stays_bit_for_bit() -> None:
    data = made()
    result = cut(data, SM86)
    assert code(result.data) == [
        [("sm_86", BIG)], [], [("sm_80", LOOSE + bytes(-len(LOOSE) % 8))],
    ]  # fmt: skip
    assert (result.containers, result.emptied, result.kept, result.removed) == (3, 1, 2, 6)
    assert len(result.data) < len(data) - len(LOOSE) - 2 * len(BIG)
    assert cut(data, SM86) == result, "the same module is cut the same way"
    again = cut(result.data, SM86)
    assert code(again.data) == code(result.data)


@pytest.mark.parametrize("arch", [Arch(8, 0), Arch(8, 6), Arch(8, 9), Arch(9, 0)])
def test_other_cards(arch: Arch) -> None:
    before, after = fatbin.read(made()), fatbin.read(cut(made(), arch).data)
    for old, new in zip(before.containers, after.containers, strict=True):
        chosen = old.choice(arch)
        assert [one.code for one in new.entries] == [one.code for one in chosen]
        assert [after.payload(one) for one in new.entries] == [
            before.payload(one) for one in chosen
        ]


LOAD = """
import ctypes, struct, sys
module = ctypes.CDLL(sys.argv[1])
tail = bytes((ctypes.c_char * int(sys.argv[2])).in_dll(module, "tail"))
table = bytes((ctypes.c_char * (24 * int(sys.argv[3]))).in_dll(module, "wrappers"))
sizes = []
for at in range(0, len(table), 24):
    magic, version, place, other = struct.unpack_from("<IIQQ", table, at)
    head = struct.unpack("<IHHQ", ctypes.string_at(place, 16))
    assert magic == 0x466243B1 and head[:3] == (0xBA55ED50, 1, 16), (magic, head)
    sizes.append(len(ctypes.string_at(place, 16 + head[3])) - 16)
print(tail[:20].decode(), sizes)
"""


@pytest.mark.parametrize("whole", [True, False])
def test_the_loader_takes_it(tmp_path: Path, whole: bool) -> None:
    """The dynamic linker maps the split segment; every pointer leads to a container."""
    data = made() if whole else cut(made(), SM86).data
    file = tmp_path / "module.so"
    file.write_bytes(data)
    sizes = [sum(one.stored for one in unit.entries) for unit in fatbin.read(data).containers]
    done = subprocess.run(
        [sys.executable, "-c", LOAD, file, str(len(TAIL)), "3"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{TAIL[:20].decode()} {sizes}\n"


def test_addresses_stay(tmp_path: Path) -> None:
    before = {one.name: one for one in sections(made())}
    data = cut(made(), SM86).data
    after = {one.name: one for one in sections(data)}
    assert before.keys() - after.keys() == {".symtab", ".strtab"}
    for name, part in after.items():
        assert part.address == before[name].address, name
        if name not in {".nv_fatbin", ".rela.dyn", ".shstrtab"}:
            old = made()[before[name].offset :][: before[name].size]
            assert data[part.offset :][: part.size] == old, name
    count = struct.unpack_from("<H", data, 0x38)[0]
    for number in range(count):
        kind, _, offset, address, _, size, _, align = struct.unpack_from(
            "<IIQQQQQQ", data, 64 + 56 * number
        )
        assert kind != 1 or (offset - address) % align == 0
        assert offset + size <= len(data)


def test_what_has_no_gpu_code_is_only_stripped() -> None:
    plain = module(needed=())
    result = cut(plain, SM86)
    assert result.data == strip(plain)
    assert len(result.data) < len(plain)
    assert cut(b"#!/bin/sh\n", SM86).data == b"#!/bin/sh\n"
    unlinked = elf({".text": b"x"})
    assert strip(unlinked) == unlinked


def test_an_unknown_shape_is_refused() -> None:
    loose = elf({".nv_fatbin": container(entry(86, BIG))})
    with pytest.raises((DamagedError, CompileError), match=r"\.nvFatBinSegment"):
        cut(loose, SM86)
    data = bytearray(made())
    table = next(one for one in sections(data) if one.name == ".rela.dyn")
    struct.pack_into("<q", data, table.offset + 16, 0x99)
    with pytest.raises(DamagedError, match="where no GPU code begins"):
        cut(bytes(data), SM86)
    struct.pack_into("<H", data, 0x12, 183)  # AArch64
    with pytest.raises(DamagedError):
        cut(bytes(data), SM86)


def test_one_damaged_byte_is_an_error_or_harmless() -> None:
    data = made()
    for _ in range(400):
        wrong = bytearray(data)
        wrong[DICE.randrange(len(wrong))] ^= 1 << DICE.randrange(8)
        try:
            result = cut(bytes(wrong), SM86)
        except (DamagedError, CompileError):
            continue
        fatbin.read(result.data)


def test_bytes_behind_the_end_are_not_lost() -> None:
    plain = module(needed=()) + b"a payload that the program reads from its own file"
    assert cut(plain, SM86).data == plain
    with pytest.raises(DamagedError, match="bytes stand behind its end"):
        cut(made() + b"more", SM86)


def test_code_of_another_kind_is_not_thrown_away() -> None:
    odd = bytearray(entry(86, BIG))
    struct.pack_into("<H", odd, 0, 8)  # NVVM, which another tool may link
    with pytest.raises(DamagedError, match="neither cubin nor PTX"):
        cut(module(container(bytes(odd)), needed=()), SM86)


def test_another_pointer_into_the_code_is_refused() -> None:
    data = bytearray(made())
    parts = {one.name: one for one in sections(data)}
    table, code_at = parts[".rela.dyn"], parts[".nv_fatbin"].address
    # the third wrapper's relocation becomes one of a word elsewhere that points to the same code
    struct.pack_into("<Q", data, table.offset + 48, parts[".dynamic"].address)
    assert struct.unpack_from("<q", data, table.offset + 64)[0] >= code_at
    with pytest.raises(DamagedError, match=r"points into \.nv_fatbin from outside"):
        cut(bytes(data), SM86)


def test_a_frame_that_lies_about_its_size() -> None:
    whole = bytearray(module(container(entry(86, BIG, packed=True)), needed=()))
    at = whole.index(b"\x28\xb5\x2f\xfd")
    whole[at + 4] |= 0xC0  # an 8-byte content size, read from what follows
    with pytest.raises(DamagedError, match="claims another length"):
        cut(bytes(whole), SM86)


def test_a_file_of_symbols_only_has_no_gpu_code() -> None:
    data = bytearray(made())
    (table,) = struct.unpack_from("<Q", data, 0x28)
    for number, part in enumerate(sections(data)):
        if part.name == ".nv_fatbin":
            struct.pack_into("<I", data, table + number * 64 + 4, 8)  # NOBITS
    assert fatbin.read(bytes(data)).containers == ()
    assert not fatbin.has_gpu_code(bytes(data))
