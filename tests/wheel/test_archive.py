"""Wheels as archives: what they can do to whoever unpacks them."""

from __future__ import annotations

import base64
import hashlib
import struct
import zipfile
from typing import TYPE_CHECKING

import pytest

from builder.arch import Arch
from builder.audit.run import audit_wheel
from builder.errors import AuditError
from builder.wheel import archive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

INFO = "demo-1.0.dist-info"
FILES = {
    "demo/__init__.py": b"x = 1\n" * 99,
    f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


def rows(content: dict[str, bytes]) -> bytes:
    lines = []
    for name, data in content.items():
        code = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={code},{len(data)}\n")
    return "".join([*lines, f"{INFO}/RECORD,,\n"]).encode()


def wheel(folder: Path, change: Callable[[zipfile.ZipFile], None] | None = None) -> Path:
    """A wheel without faults, then one change."""
    path = folder / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in FILES.items():
            file.writestr(name, data)
        file.writestr(f"{INFO}/RECORD", rows(FILES))
        if change is not None:
            change(file)
    return path


def problems(path: Path) -> list[str]:
    """What the audit has against it, or why it cannot be opened."""
    try:
        report = audit_wheel(path, Arch(8, 6), engine=lambda _: None)
    except AuditError as error:
        return [f"cannot be opened: {error.message}"]
    return [f"{one.rule} {one.where}: {one.message}" for one in report.errors]


def test_a_wheel_without_faults(tmp_path: Path) -> None:
    assert problems(wheel(tmp_path)) == []


def link(file: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("demo/link")
    info.create_system, info.external_attr = 3, 0o120777 << 16
    file.writestr(info, "/etc/passwd")


def device(file: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("demo/null")
    info.create_system, info.external_attr = 3, 0o020666 << 16
    file.writestr(info, "")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda file: file.writestr("../evil.py", "x"), "leaves the installation folder"),
        (lambda file: file.writestr("/evil.py", "x"), "leaves the installation folder"),
        (lambda file: file.writestr("demo/../../evil.py", "x"), "leaves the installation folder"),
        (lambda file: file.writestr("demo/__init__.py", "other"), "is there twice"),
        (link, "not a plain file"),
        (device, "not a plain file"),
        (lambda file: file.writestr("other-2.dist-info/METADATA", "x"), "several dist-info"),
        (lambda file: file.writestr("demo/more.py", "x"), "is in the wheel and not in RECORD"),
    ],
)
def test_tricks(change: Callable[[zipfile.ZipFile], None], words: str, tmp_path: Path) -> None:
    found = problems(wheel(tmp_path, change))
    assert any(words in one for one in found), found


def test_record_names_what_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name, data in FILES.items():
            file.writestr(name, data)
        file.writestr(f"{INFO}/RECORD", rows(FILES | {"demo/gone.py": b"x"}))
    assert problems(path) == ["AUD-RECORD-001 demo/gone.py: is in RECORD and not in the wheel"]


@pytest.mark.parametrize("what", ["digest", "size"])
def test_record_lies(what: str, tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    good = rows(FILES)
    wrong = good.replace(b",594\n", b",595\n") if what == "size" else rows(FILES | {
        "demo/__init__.py": b"y = 1\n" * 99})  # fmt: skip
    assert wrong != good
    with zipfile.ZipFile(path, "w") as file:
        for name, data in FILES.items():
            file.writestr(name, data)
        file.writestr(f"{INFO}/RECORD", wrong)
    found = problems(path)
    assert len(found) == 1
    assert found[0].startswith("AUD-RECORD-001 demo/__init__.py: RECORD says ")


def patched(path: Path, change: Callable[[bytearray, zipfile.ZipInfo], None]) -> Path:
    with zipfile.ZipFile(path) as file:
        info = file.getinfo("demo/__init__.py")
    data = bytearray(path.read_bytes())
    change(data, info)
    path.write_bytes(data)
    return path


def in_directory(data: bytearray, info: zipfile.ZipInfo) -> int:
    """Where the central directory's header of a member starts."""
    at = data.rindex(info.filename.encode()) - 46
    assert data[at : at + 4] == b"PK\1\2"
    return at


def test_checksum(tmp_path: Path) -> None:
    def change(data: bytearray, info: zipfile.ZipInfo) -> None:
        at = in_directory(data, info)
        data[at + 16] ^= 1

    found = problems(patched(wheel(tmp_path), change))
    assert any("does not have its checksum" in one for one in found)


def test_damaged_stream(tmp_path: Path) -> None:
    def change(data: bytearray, info: zipfile.ZipInfo) -> None:
        start = info.header_offset + 30 + len(info.filename)
        data[start : start + 4] = b"\xff\xff\xff\xff"

    found = problems(patched(wheel(tmp_path), change))
    assert any("does not unpack" in one for one in found), found


def test_a_member_called_otherwise_in_its_own_header(tmp_path: Path) -> None:
    def change(data: bytearray, info: zipfile.ZipInfo) -> None:
        start = info.header_offset + 30
        data[start : start + 4] = b"evil"

    assert "in its own header" in problems(patched(wheel(tmp_path), change))[0]


def test_a_bomb_that_says_so(tmp_path: Path) -> None:
    def change(data: bytearray, info: zipfile.ZipInfo) -> None:
        at = in_directory(data, info)
        struct.pack_into("<I", data, at + 24, archive.MAX_MEMBER + 1)

    found = problems(patched(wheel(tmp_path), change))
    assert "would unpack to 2,147,483,649 bytes (limits: 2,147,483,648 in one member" in found[0]


def test_many_members_that_are_a_bomb_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 700)
    assert "in all" in problems(wheel(tmp_path))[0]


def test_a_bomb_that_hides_its_size(tmp_path: Path) -> None:
    """A stream that is longer than it says: reading stops one byte beyond what it said."""

    def bomb(file: zipfile.ZipFile) -> None:
        file.writestr("demo/zeros", bytes(64 << 20))

    path = wheel(tmp_path, bomb)
    data = bytearray(path.read_bytes())
    at = data.rindex(b"demo/zeros") - 46
    struct.pack_into("<I", data, at + 24, 10)
    path.write_bytes(data)
    entry = next(one for one in archive.members(path) if one.name == "demo/zeros")
    assert entry.size == 10
    with pytest.raises(AuditError, match="does not have its checksum"):
        archive.content(entry)


def test_members_that_share_bytes(tmp_path: Path) -> None:
    """Overlapping members unpack a small file to a huge one (D. Fifield, 2019)."""
    path = wheel(tmp_path, lambda file: file.writestr("demo/__init__.pz", b"x = 1\n" * 99))
    data = bytearray(path.read_bytes())
    first = data.index(b"demo/__init__.py") - 30
    at = data.rindex(b"demo/__init__.pz") - 46
    struct.pack_into("<I", data, at + 42, first)
    data[at + 46 : at + 62] = b"demo/__init__.py"
    path.write_bytes(data)
    assert "lies in the bytes of another member" in problems(path)[0]


@pytest.mark.parametrize("cut", [0, 10, -1, -30])
def test_cut_off(cut: int, tmp_path: Path) -> None:
    path = wheel(tmp_path)
    path.write_bytes(path.read_bytes()[:cut])
    assert problems(path)[0].startswith("cannot be opened: ")
