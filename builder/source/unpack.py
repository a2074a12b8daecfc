"""Unpacking archives from strangers: nothing leaves the folder, nothing is a device or a bomb.

Files are written by us, not by the archive library: only below folders that we made, never
through a link, and links come last. So no chain of links can lead a later file outside.
"""

from __future__ import annotations

import lzma
import os
import posixpath
import shutil
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from builder.errors import IdentityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: An archive that unpacks to more than this is refused (vLLM's sdist: 0.14 GB).
MAX_BYTES: Final = 4 << 30
MAX_FILES: Final = 200_000
_CHUNK: Final = 1 << 20
_LONGEST_LINK: Final = 4096


@dataclass(frozen=True)
class _Member:
    """A file, folder or link of an archive.

    Attributes:
        name: its name there.
        kind: ``file``, ``folder``, ``link``, ``hard`` or ``other``.
        executable: whether it may be run.
        target: where a link leads.
        open: its content.
    """

    name: str
    kind: str
    executable: bool = False
    target: str = ""
    open: Callable[[], IO[bytes]] | None = None


def unpack(archive: Path, target: Path) -> None:
    """Unpack a tar or zip archive into an existing empty folder.

    Raises:
        IdentityError: it is damaged, too large, or has a member that would leave the folder,
            lies below a link or a file, is a device, or has a name that is there already.
    """
    reader = _zip_members if zipfile.is_zipfile(archive) else _tar_members
    try:
        _write(archive, target, reader(archive))
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        EOFError,
        lzma.LZMAError,
        zlib.error,
        RuntimeError,
        NotImplementedError,
    ) as error:
        raise _refuse(archive, f"cannot be unpacked: {error}") from error
    except OSError as error:
        if error.errno is None:  # gzip and bz2 report damage so
            raise _refuse(archive, f"cannot be unpacked: {error}") from error
        raise


def _refuse(archive: Path, why: str) -> IdentityError:
    return IdentityError(f"{archive.name} {why}", fix="get the archive again, or do not use it")


def _write(archive: Path, target: Path, members: Iterator[_Member]) -> None:
    files: set[str] = set()
    folders: set[str] = {""}
    links: dict[str, str] = {}
    room = MAX_BYTES
    for count, member in enumerate(members):
        name = _safe(archive, member.name)
        if count >= MAX_FILES:
            raise _refuse(archive, f"unpacks to more than {MAX_FILES} files")
        if member.kind == "other":
            raise _refuse(archive, f"holds {member.name!r}, a device or pipe")
        if member.kind == "folder":
            if name in files or name in links:
                raise _refuse(archive, f"holds {name!r} twice")
            _make_folders(archive, target, name, folders, files | links.keys())
            continue
        if name in files or name in links or name in folders:
            raise _refuse(archive, f"holds {name!r} twice")
        _make_folders(archive, target, posixpath.dirname(name), folders, files | links.keys())
        path = target / name
        if member.kind == "link":
            links[name] = _link_target(archive, name, member.target)
        elif member.kind == "hard":
            source = _safe(archive, member.target)
            if source not in files:
                raise _refuse(archive, f"links {name!r} to {source!r}, which is no file before it")
            shutil.copy(target / source, path)
            files.add(name)
        else:
            assert member.open is not None  # noqa: S101  (files have content)
            with member.open() as content, path.open("xb") as out:
                room = _copy(archive, content, out, room)
            path.chmod(0o755 if member.executable else 0o644)
            files.add(name)
    for name, where in links.items():
        (target / name).symlink_to(where)


def _safe(archive: Path, name: str) -> str:
    """A member's name, normalised; refused if it leads outside."""
    parts = name.rstrip("/").split("/")
    if name.startswith("/") or "\\" in name or "\0" in name or ".." in parts:
        raise _refuse(archive, f"holds {name!r}, which leaves the folder")
    normal = posixpath.normpath("/".join(parts))
    return "" if normal == "." else normal


def _link_target(archive: Path, name: str, where: str) -> str:
    lands = posixpath.normpath(posixpath.join(posixpath.dirname(name), where))
    if not where or where.startswith("/") or lands.startswith(".."):
        raise _refuse(archive, f"links {name!r} to {where!r}, which leaves the folder")
    return where


def _make_folders(
    archive: Path, target: Path, name: str, folders: set[str], taken: set[str]
) -> None:
    parts = name.split("/") if name else []
    for depth in range(1, len(parts) + 1):
        part = "/".join(parts[:depth])
        if part in taken:
            raise _refuse(archive, f"holds something below {part!r}, which is no folder")
        if part not in folders:
            (target / part).mkdir()
            folders.add(part)


def _copy(archive: Path, content: IO[bytes], out: IO[bytes], room: int) -> int:
    while chunk := content.read(_CHUNK):
        room -= len(chunk)
        if room < 0:
            raise _refuse(archive, f"unpacks to more than {MAX_BYTES >> 20} MiB")
        out.write(chunk)
    return room


def _tar_members(archive: Path) -> Iterator[_Member]:
    with tarfile.open(archive) as tar:
        for info in tar:
            kind = (
                "file" if info.isfile() else "folder" if info.isdir() else "link" if info.issym()
                else "hard" if info.islnk() else "other"
            )  # fmt: skip

            def content(info: tarfile.TarInfo = info) -> IO[bytes]:
                found = tar.extractfile(info)
                assert found is not None  # noqa: S101  (it is a file)
                return found

            yield _Member(info.name, kind, bool(info.mode & 0o100), info.linkname, content)


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            mode = info.external_attr >> 16
            kind = {0: "file", 8: "file", 4: "folder", 10: "link"}.get(mode >> 12, "other")
            if info.is_dir():
                kind = "folder"
            where = ""
            if kind == "link" and info.file_size <= _LONGEST_LINK:
                where = os.fsdecode(file.read(info))

            def content(info: zipfile.ZipInfo = info) -> IO[bytes]:
                return file.open(info)

            yield _Member(info.filename, kind, bool(mode & 0o100), where, content)
