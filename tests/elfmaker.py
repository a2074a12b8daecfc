"""Small, valid ELF files and fat binaries, made from nothing."""

from __future__ import annotations

import struct

import zstandard


def elf(sections: dict[str, bytes], *, needed: tuple[str, ...] = ()) -> bytes:
    """A 64-bit ELF file with these sections, and a dynamic section if libraries are named."""
    parts = [(name, 1, data, 0, 0) for name, data in sections.items()]
    if needed:
        names = b"\0" + b"".join(name.encode() + b"\0" for name in needed)
        dynamic, at = b"", 1
        for name in needed:
            dynamic += struct.pack("<QQ", 1, at)
            at += len(name) + 1
        parts.append((".dynstr", 3, names, 0, 0))
        parts.append((".dynamic", 6, dynamic + struct.pack("<QQ", 0, 0), len(parts), 16))
    names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in parts) + b".shstrtab\0"
    parts.append((".shstrtab", 3, names, 0, 0))
    body, headers, at_name = b"", [bytes(64)], 1
    for name, kind, data, link, size in parts:
        body += b"\0" * (-(64 + len(body)) % 8)
        headers.append(
            struct.pack(
                "<IIQQQQIIQQ", at_name, kind, 0, 0, 64 + len(body), len(data), link, 0, 8, size
            )
        )
        body += data
        at_name += len(name) + 1
    body += b"\0" * (-(64 + len(body)) % 8)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64 + len(body), 0, 64, 56, 0, 64, len(headers),
        len(headers) - 1,
    )  # fmt: skip
    return ident + head + body + b"".join(headers)


def cubin(*functions: str) -> bytes:
    """A stand-in for a cubin: an ELF file with a ``.text.<function>`` section each."""
    return elf({f".text.{name}": b"\0" * 16 for name in functions})


def entry(
    arch: int, payload: bytes, *, ptx: bool = False, packed: bool = False, flags: int = 0
) -> bytes:
    """One entry of a fat-binary container."""
    size = len(payload)
    stored = zstandard.ZstdCompressor().compress(payload) if packed else payload
    padded = stored + b"\0" * (-len(stored) % 8)
    return (
        struct.pack(
            "<HHIQIIHHIIIQQQ", 1 if ptx else 2, 0x101, 64, len(padded),
            len(stored) if packed else 0, 0, 0, 8, arch, 0, 0,
            0x11 | flags | (0x8000 if packed else 0), 0, size if packed else 0,
        )
        + padded
    )  # fmt: skip


def container(*entries: bytes) -> bytes:
    """A fat-binary container."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


PAGE = 4096
TAIL = b"what stands behind the GPU code and must not move" * 100


def module(*containers: bytes, needed: tuple[str, ...] = ("libcudart.so.13",)) -> bytes:
    """A shared library with GPU code, as a linker makes one; ``dlopen`` loads it.

    It exports ``wrappers``, the table of pointers to the containers that CUDA's start-up code
    registers (``.nvFatBinSegment``, 24 bytes each), and ``tail``, bytes behind the GPU code.
    """
    code, places = b"", []
    for one in containers:
        places.append(len(code))
        code += one + bytes(-len(one) % 8)
    names = b"\0wrappers\0tail\0" + b"".join(name.encode() + b"\0" for name in needed)
    note = struct.pack("<III4s", 4, 8, 3, b"GNU\0") + b"build-id"
    read_only = {
        ".note.gnu.build-id": note, ".hash": struct.pack("<7I", 1, 3, 1, 0, 2, 0, 0)[:24],
        ".dynsym": bytes(72), ".dynstr": names, ".rela.dyn": bytes(24 * len(containers)),
        ".nv_fatbin": code, ".tail": TAIL,
    }  # fmt: skip
    at: dict[str, int] = {}
    end = 64 + 6 * 56
    for name, data in read_only.items():
        at[name] = end = end + -end % 8
        end += len(data)
    first_end, end = end, end + -end % PAGE
    at[".dynamic"] = end
    dynamic, offset = b"", len(b"\0wrappers\0tail\0")
    for name in needed:
        dynamic += struct.pack("<QQ", 1, offset)
        offset += len(name) + 1
    for tag, value in (
        (4, at[".hash"]), (5, at[".dynstr"]), (6, at[".dynsym"]), (10, len(names)), (11, 24),
        (7, at[".rela.dyn"]), (8, 24 * len(containers)), (9, 24), (0, 0),
    ):  # fmt: skip
        dynamic += struct.pack("<QQ", tag, value)
    at[".nvFatBinSegment"] = seat = end + len(dynamic)
    wrappers = struct.pack("<IIQQ", 0x466243B1, 1, 0, 0) * len(containers)
    read_only[".hash"] = struct.pack("<6I", 1, 3, 1, 0, 2, 0)
    symbols = [(1, 9, seat, len(wrappers)), (10, 7, at[".tail"], len(TAIL))]
    read_only[".dynsym"] = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", name, 0x11, 0, index, value, size)
        for name, index, value, size in symbols
    )
    read_only[".rela.dyn"] = b"".join(
        struct.pack("<QQq", seat + 24 * number + 8, 8, at[".nv_fatbin"] + place)
        for number, place in enumerate(places)
    )
    parts = [
        (name, {".note.gnu.build-id": 7, ".hash": 5, ".dynsym": 11, ".dynstr": 3,
                ".rela.dyn": 4}.get(name, 1), 2, data, at[name], at[name])
        for name, data in read_only.items()
    ]  # fmt: skip
    parts += [
        (".dynamic", 6, 3, dynamic, end, end),
        (".nvFatBinSegment", 1, 3, wrappers, seat, seat),
    ]
    last = seat + len(wrappers)
    loads = [(1, 4, 0, first_end, PAGE), (1, 6, end, last - end, PAGE),
             (2, 6, end, len(dynamic), 8), (4, 4, at[".note.gnu.build-id"], len(note), 4),
             (0x6474E551, 6, 0, 0, 16)]  # fmt: skip
    programs = b"".join(
        struct.pack("<IIQQQQQQ", kind, flags, where, where, where, size, size, align)
        for kind, flags, where, size, align in loads
    )
    return _finish(parts, programs, count=len(loads), end=last)


def _finish(
    parts: list[tuple[str, int, int, bytes, int, int]], programs: bytes, *, count: int, end: int
) -> bytes:
    """Header, program headers, loaded parts, a symbol table, and the section table."""
    out = bytearray(end)
    for _, _, _, data, _, where in parts:
        out[where : where + len(data)] = data
    for name, kind, data in ((".comment", 1, b"made by elfmaker\0"), (".symtab", 2, bytes(24 * 9)),
                             (".strtab", 3, b"\0" + b"local_name\0" * 20)):  # fmt: skip
        out += bytes(-len(out) % 8)
        parts.append((name, kind, 0, data, 0, len(out)))
        out += data
    names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in parts) + b".shstrtab\0"
    parts.append((".shstrtab", 3, 0, names, 0, len(out)))
    out += names + bytes(-(len(out) + len(names)) % 8)
    order = [""] + [name for name, *_ in parts]
    links = {".dynsym": ".dynstr", ".hash": ".dynsym", ".rela.dyn": ".dynsym",
             ".dynamic": ".dynstr", ".symtab": ".strtab"}  # fmt: skip
    sizes = {".dynsym": 24, ".rela.dyn": 24, ".dynamic": 16, ".symtab": 24}
    table, at_name, headers = len(out), 1, [bytes(64)]
    for name, kind, flags, data, address, where in parts:
        link = order.index(links[name]) if name in links else 0
        headers.append(
            struct.pack(
                "<IIQQQQIIQQ", at_name, kind, flags, address, where, len(data), link,
                1 if name in {".dynsym", ".symtab"} else 0, 8, sizes.get(name, 0),
            )
        )  # fmt: skip
        at_name += len(name) + 1
    out[:64] = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, table, 0, 64, 56, count, 64, len(headers),
        len(headers) - 1,
    )  # fmt: skip
    out[64 : 64 + len(programs)] = programs
    return bytes(out) + b"".join(headers)
