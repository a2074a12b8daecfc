"""Unpacking archives from strangers: nothing leaves the folder, nothing is a device or a bomb."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from typing import TYPE_CHECKING, Final

from builder.errors import IdentityError

if TYPE_CHECKING:
    from pathlib import Path

#: An archive that unpacks to more than this is refused (vLLM's sdist: 0.14 GB).
MAX_BYTES: Final = 4 << 30
MAX_FILES: Final = 200_000


def unpack(archive: Path, target: Path) -> None:
    """Unpack a tar or zip archive into an existing empty folder.

    Raises:
        IdentityError: it is damaged, too large, or has a member that would leave the folder,
            a device, or the same name twice.
    """
    try:
        if zipfile.is_zipfile(archive):
            _unzip(archive, target)
        else:
            _untar(archive, target)
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        EOFError,
        lzma.LZMAError,
        zlib.error,
        RuntimeError,
    ) as error:
        raise IdentityError(
            f"{archive.name} cannot be unpacked: {error}", fix="get the archive again"
        ) from error
    except OSError as error:
        if isinstance(error, tarfile.ReadError | EOFError) or error.errno is None:
            raise IdentityError(
                f"{archive.name} cannot be unpacked: {error}", fix="get the archive again"
            ) from error
        raise


def _limits(archive: Path, count: int, size: int) -> None:
    if count > MAX_FILES or size > MAX_BYTES:
        raise IdentityError(
            f"{archive.name} unpacks to more than {MAX_FILES} files or {MAX_BYTES >> 30} GiB",
            fix="this is not a source archive",
        )


def _untar(archive: Path, target: Path) -> None:
    seen: set[str] = set()
    size = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            size += member.size
            _limits(archive, len(seen), size)
            name = member.name.rstrip("/")
            if name in seen and not member.isdir():
                raise IdentityError(f"{archive.name}: {name!r} is there twice", fix="do not use it")
            seen.add(name)
            if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
                raise IdentityError(
                    f"{archive.name}: {name!r} is a device or pipe", fix="do not use it"
                )
            tar.extract(member, target, filter="data")


def _unzip(archive: Path, target: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        infos = file.infolist()
        _limits(archive, len(infos), sum(info.file_size for info in infos))
        names = [info.filename for info in infos]
        if len(set(names)) != len(names):
            raise IdentityError(f"{archive.name}: a name is there twice", fix="do not use it")
        for info in infos:
            parts = info.filename.split("/")
            if info.filename.startswith("/") or ".." in parts or "\\" in info.filename:
                raise IdentityError(
                    f"{archive.name}: {info.filename!r} leaves the folder", fix="do not use it"
                )
            kind = info.external_attr >> 28
            if kind not in {0, 4, 8}:
                raise IdentityError(
                    f"{archive.name}: {info.filename!r} is a link or device", fix="do not use it"
                )
            path = file.extract(info, target)
            mode = info.external_attr >> 16 & 0o777
            if mode & 0o100 and not info.is_dir():
                (target / path).chmod(0o755)
