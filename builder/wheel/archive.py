"""Wheels as zip files, written so that the same inputs give the same bytes.

Members that do not change are copied as compressed streams; everything else (order, times,
modes, flags) is fixed. The standard library's writer can copy no streams.
"""

from __future__ import annotations

import stat
import struct
import time
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import deflate

from builder.errors import AuditError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import BinaryIO

_LOCAL: Final = struct.Struct("<4s5H3I2H")
_CENTRAL: Final = struct.Struct("<4s6H3I5H2I")
_END: Final = struct.Struct("<4s4H2IH")
_UTF8: Final = 0x800
_LIMIT: Final = 0xFFFFFFFF
#: libdeflate's best.
LEVEL: Final = 12
#: What a wheel may unpack to, in bytes: one member (the largest known has 0.2 GB), and all.
MAX_MEMBER: Final = 2 << 30
MAX_BYTES: Final = 8 << 30


@dataclass(frozen=True)
class Member:
    """One file of a wheel, compressed.

    Attributes:
        name: path in the wheel.
        executable: whether it may be run.
        method: zip's compression method (0 stored, 8 deflate).
        crc: CRC-32 of the content.
        size: bytes of the content.
        packed: bytes of the stream.
        stream: the stream, or None if `source` holds it.
        source: wheel file and offset of the stream in it.
    """

    name: str
    executable: bool
    method: int
    crc: int
    size: int
    packed: int
    stream: bytes | None = None
    source: tuple[Path, int] | None = None


def pack(name: str, content: bytes, *, executable: bool = False) -> Member:
    """A member from its content, deflated if that makes it smaller.

    What zlib makes of the same content differs from one of its versions, and from zlib-ng, to
    the next; libdeflate comes with its Python package, whose version is pinned.
    """
    crc, size = zlib.crc32(content), len(content)
    stream = bytes(deflate.deflate_compress(content, LEVEL))
    if len(stream) < size:
        return Member(name, executable, zipfile.ZIP_DEFLATED, crc, size, len(stream), stream)
    return Member(name, executable, zipfile.ZIP_STORED, crc, size, size, content)


def members(wheel: Path) -> list[Member]:
    """The members of a wheel, their streams left where they are.

    Raises:
        AuditError: it is not a zip file, has features that wheels do not use, or would unpack
            to more than 2 GiB in one member or 8 GiB in all.
    """
    found: list[Member] = []
    room = MAX_BYTES
    try:
        with zipfile.ZipFile(wheel) as archive, wheel.open("rb") as file:
            for info in archive.infolist():
                if info.is_dir():
                    continue
                if info.flag_bits & 1 or info.compress_type not in {0, 8}:
                    raise AuditError(f"{wheel.name}: {info.filename} is encrypted or not deflated")
                mode = info.external_attr >> 16
                if stat.S_IFMT(mode) not in {0, stat.S_IFREG}:
                    raise AuditError(f"{wheel.name}: {info.filename} is not a plain file")
                room -= info.file_size
                if info.file_size > MAX_MEMBER or room < 0:
                    raise AuditError(
                        f"{wheel.name}: {info.filename} would unpack to {info.file_size:,} bytes"
                        f" (limits: {MAX_MEMBER:,} in one member, {MAX_BYTES:,} in all)",
                        fix="do not install this wheel",
                    )
                offset = _stream_offset(file, info)
                found.append(
                    Member(
                        info.filename, bool(mode & 0o111), info.compress_type, info.CRC,
                        info.file_size, info.compress_size, source=(wheel, offset),
                    )
                )  # fmt: skip
    except (zipfile.BadZipFile, struct.error, OSError) as error:
        raise AuditError(f"{wheel}: not a wheel: {error}", fix="get it again") from error
    _require_apart(wheel, found)
    return found


def _require_apart(wheel: Path, found: list[Member]) -> None:
    """Refuse members that share bytes: so a small file can unpack to a huge one."""
    reached = 0
    placed = [(one.source[1], one.name, one.packed) for one in found if one.source]
    for offset, name, packed in sorted(placed):
        if offset < reached:
            raise AuditError(
                f"{wheel.name}: {name} lies in the bytes of another member",
                fix="do not install this wheel",
            )
        reached = offset + packed


def _stream_offset(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    file.seek(info.header_offset)
    header = _LOCAL.unpack(file.read(_LOCAL.size))
    name = file.read(int(header[9])).decode("utf-8", "replace")
    if header[0] != b"PK\3\4" or name != info.orig_filename:
        raise AuditError(
            f"{info.filename} is called {name!r} in its own header", fix="do not install this wheel"
        )
    return info.header_offset + _LOCAL.size + int(header[9]) + int(header[10])


def write(path: Path, entries: Sequence[Member], *, epoch: int) -> None:
    """Write a wheel.

    Args:
        path: file to write.
        entries: the members, in the order in which they are to stand.
        epoch: time of every member, in seconds since 1970; zip keeps even seconds from 1980.
    """
    moment = max(time.gmtime(epoch)[:6], (1980, 1, 1, 0, 0, 0))
    date = (moment[0] - 1980) << 9 | moment[1] << 5 | moment[2]
    clock = moment[3] << 11 | moment[4] << 5 | moment[5] // 2
    directory: list[bytes] = []
    with path.open("wb") as out:
        for entry in entries:
            name = entry.name.encode()
            flags = 0 if name.isascii() else _UTF8
            offset = out.tell()
            if max(offset, entry.size, entry.packed) > _LIMIT or len(entries) > 0xFFFF:
                raise AuditError(f"{path.name}: too large for a wheel (4 GiB, 65,535 members)")
            common = (20, flags, entry.method, clock, date, entry.crc, entry.packed, entry.size)
            out.write(_LOCAL.pack(b"PK\3\4", *common, len(name), 0) + name)
            _copy(entry, out)
            mode = 0o100755 if entry.executable else 0o100644
            directory.append(
                _CENTRAL.pack(
                    b"PK\1\2", 3 << 8 | 20, *common, len(name), 0, 0, 0, 0, mode << 16, offset
                )
                + name
            )
        start = out.tell()
        body = b"".join(directory)
        out.write(body)
        count = len(entries)
        out.write(_END.pack(b"PK\5\6", 0, 0, count, count, len(body), start, 0))


def _copy(entry: Member, out: BinaryIO) -> None:
    if entry.stream is not None:
        out.write(entry.stream)
        return
    assert entry.source is not None  # noqa: S101  (one of the two is always there)
    wheel, offset = entry.source
    left = entry.packed
    with wheel.open("rb") as file:
        file.seek(offset)
        while left:
            chunk = file.read(min(left, 1 << 20))
            if not chunk:
                raise AuditError(f"{wheel.name}: cut off in {entry.name}", fix="get it again")
            out.write(chunk)
            left -= len(chunk)


def content(entry: Member) -> bytes:
    """The content of a member, checked against its CRC."""
    stream = entry.stream
    if stream is None:
        assert entry.source is not None  # noqa: S101  (as in _copy)
        with entry.source[0].open("rb") as file:
            file.seek(entry.source[1])
            stream = file.read(entry.packed)
    try:
        plain = stream if entry.method == 0 else _inflate(stream, entry.size)
    except zlib.error as error:
        raise AuditError(f"{entry.name} does not unpack: {error}", fix="get it again") from error
    if len(plain) != entry.size or zlib.crc32(plain) != entry.crc:
        raise AuditError(f"{entry.name} does not have its checksum", fix="get it again")
    return plain


def _inflate(stream: bytes, size: int) -> bytes:
    """Decompress, but never to more than one byte beyond what was announced."""
    packer = zlib.decompressobj(-15)
    plain = packer.decompress(stream, size + 1)
    return plain if packer.eof or len(plain) > size else plain + packer.flush(1)
