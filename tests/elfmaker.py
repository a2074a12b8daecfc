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


def module(*containers: bytes, needed: tuple[str, ...] = ("libcudart.so.13",)) -> bytes:
    """A compiled module with GPU code."""
    return elf({".nv_fatbin": b"".join(containers)}, needed=needed)
