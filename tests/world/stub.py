"""A shared library that defines symbols and does nothing, written byte by byte.

vLLM's modules link to the driver's library. Without a driver they can still be imported if
something of that name defines the symbols; no compiler is needed to make it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def write_stub(path: Path, soname: str, symbols: Iterable[str]) -> None:
    """Write an x86-64 library in which every symbol is a function that returns 0."""
    names = sorted(set(symbols))
    strings, offsets = b"\0", []
    for name in [*names, soname]:
        offsets.append(len(strings))
        strings += name.encode() + b"\0"
    code = b"\x31\xc0\xc3" + bytes(5)  # xor eax, eax; ret
    base = 64 + 2 * 56
    at_code = base
    at_symbols = at_code + len(code)
    count = len(names) + 1
    table = bytes(24)
    for offset in offsets[:-1]:
        table += struct.pack("<IBBHQQ", offset, 0x12, 0, 1, at_code, 3)
    at_hash = at_symbols + len(table)
    chain = [0, *range(2, count), 0][:count]
    hashes = struct.pack("<II", 1, count) + struct.pack("<I", 1) + struct.pack(f"<{count}I", *chain)
    at_strings = at_hash + len(hashes)
    at_dynamic = at_strings + len(strings) + (-(at_strings + len(strings)) % 8)
    tags = [(14, offsets[-1]), (4, at_hash), (5, at_strings), (6, at_symbols), (10, len(strings)),
            (11, 24), (0, 0)]  # fmt: skip
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    size = at_dynamic + len(dynamic)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0
    )  # fmt: skip
    load = struct.pack("<IIQQQQQQ", 1, 7, 0, 0, 0, size, size, 4096)
    dyn = struct.pack("<IIQQQQQQ", 2, 6, at_dynamic, at_dynamic, 0, len(dynamic), len(dynamic), 8)
    body = (head + load + dyn + code + table + hashes + strings).ljust(at_dynamic, b"\0") + dynamic
    path.write_bytes(body)
