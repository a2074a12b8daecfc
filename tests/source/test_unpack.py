from __future__ import annotations

import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from builder.errors import IdentityError
from builder.source import unpack as module
from builder.source.unpack import unpack

if TYPE_CHECKING:
    from pathlib import Path


def tar(path: Path, *members: tuple[str, bytes, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name, kind, data in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
            else:
                info.linkname = data.decode()
                file.addfile(info)
    return path


REG, SYM, LNK = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def chain() -> list[tuple[str, bytes, bytes]]:
    """Links whose resolved path outgrows PATH_MAX: resolving gives up (CVE-2025-4517)."""
    members, at = [], ""
    for letter in "abcdefghijklmnop":
        folder = f"{at}{'d' * 247}"
        members += [(folder, tarfile.DIRTYPE, b""), (f"{at}{letter}", SYM, b"d" * 247)]
        at = f"{folder}/"
    path = "/".join("abcdefghijklmnop") + "/" + "l" * 254
    members += [
        (path, SYM, b"../" * 16),
        ("escape", SYM, path.encode() + b"/../../outside"),
        ("flag", LNK, b"escape/evil"),
        ("escape/evil", REG, b"x"),
    ]
    return members


CHAIN = chain()


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", REG, b"x")],
        [("/evil", REG, b"x")],
        [("a/../../evil", REG, b"x")],
        [("link", SYM, b"../outside")],
        [("link", SYM, b"/etc/passwd")],
        [("hard", LNK, b"../outside")],
        [("d", SYM, b".."), ("d/evil", REG, b"x")],
        [("dev", tarfile.CHRTYPE, b"")],
        [("pipe", tarfile.FIFOTYPE, b"")],
        [("a", REG, b"1"), ("a", REG, b"2")],
        [("x/a", REG, b"1"), ("x/./a", REG, b"2")],
        [("a", REG, b"1"), ("a/b", REG, b"2")],
        [("a/b", REG, b"1"), ("a", SYM, b"..")],
        [("l", SYM, b"d"), ("l/f", REG, b"2")],
        [("h", LNK, b"later"), ("later", REG, b"2")],
        CHAIN,
    ],
)
def test_tricks_are_refused(members: list[tuple[str, bytes, bytes]], tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar.gz", *members)
    target = tmp_path / "in" / "target"
    target.mkdir(parents=True)
    with pytest.raises(IdentityError):
        unpack(archive, target)
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["target"]


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "a\\evil"])
def test_zip_tricks_are_refused(name: str, tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(name, "x")
    (tmp_path / "t").mkdir()
    with pytest.raises(IdentityError, match="leaves the folder"):
        unpack(archive, tmp_path / "t")


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tar(tmp_path / "a.tar.gz", ("zeros", REG, bytes(1 << 20)))
    monkeypatch.setattr(module, "MAX_BYTES", 1 << 19)
    (tmp_path / "t").mkdir()
    with pytest.raises(IdentityError, match="unpacks to more than"):
        unpack(archive, tmp_path / "t")


@pytest.mark.parametrize("cut", [0, 10, 60, -30])
def test_damage_is_refused(cut: int, tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar.gz", ("f", REG, bytes(range(256)) * 99))
    archive.write_bytes(archive.read_bytes()[:cut])
    (tmp_path / "t").mkdir()
    with pytest.raises(IdentityError, match="cannot be unpacked"):
        unpack(archive, tmp_path / "t")


def test_good_archives_keep_modes_and_links(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar.gz", ("d/f", REG, b"x"), ("d/l", SYM, b"f"))
    (tmp_path / "t").mkdir()
    unpack(archive, tmp_path / "t")
    assert (tmp_path / "t/d/l").readlink().name == "f"
    assert (tmp_path / "t/d/f").read_bytes() == b"x"
