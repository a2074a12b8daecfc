"""Spoiled copies of a wheel: one fault each, everything else right, RECORD and CRCs included."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from builder.arch import Arch
from builder.native.fatbin import read
from builder.wheel import archive
from builder.wheel.record import read_record, record_line, write_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from builder.wheel.archive import Member

SECRET: Final = b"token = 'ghp_" + b"a1B2" * 9 + b"'\n"


class Copy:
    """A wheel's members, to be changed and written to another folder."""

    def __init__(self, wheel: Path) -> None:
        self.name = wheel.name
        self.members = {entry.name: entry for entry in archive.members(wheel)}
        self.info = next(n for n in self.members if n.endswith("/RECORD")).split("/")[0]
        self.rows = read_record(self.read(f"{self.info}/RECORD"))

    def read(self, name: str) -> bytes:
        """Content of a member."""
        return archive.content(self.members[name])

    def put(self, name: str, data: bytes) -> None:
        """Add or replace a member, with its RECORD row."""
        self.members[name] = archive.pack(name, data)
        self.rows[name] = record_line(name, data)[1:]

    def edit(self, name: str, old: bytes, new: bytes) -> None:
        """Replace text in a member."""
        data = self.read(name)
        assert old in data, (name, old)
        self.put(name, data.replace(old, new))

    def drop(self, name: str) -> None:
        """Remove a member and its RECORD row."""
        del self.members[name]
        del self.rows[name]

    def rename_info(self, new: str) -> None:
        """Rename the dist-info folder."""
        old, self.info = self.info, new
        renamed: dict[str, Member] = {}
        for name, entry in self.members.items():
            target = name.replace(f"{old}/", f"{new}/", 1)
            renamed[target] = archive.Member(
                target, entry.executable, entry.method, entry.crc, entry.size, entry.packed,
                entry.stream, entry.source,
            )  # fmt: skip
        self.members = renamed
        self.rows = {n.replace(f"{old}/", f"{new}/", 1): row for n, row in self.rows.items()}

    def write(self, folder: Path) -> Path:
        """Write the wheel, RECORD last."""
        folder.mkdir(parents=True, exist_ok=True)
        record = f"{self.info}/RECORD"
        self.rows[record] = ("", "")
        rows = [(name, *row) for name, row in self.rows.items()]
        self.members[record] = archive.pack(record, write_record(rows))
        path = folder / self.name
        archive.write(path, list(self.members.values()), epoch=1_780_000_000)
        return path


def without_code(data: bytes, arch: Arch) -> bytes:
    """A module whose code for a card says that it is for another one."""
    out = bytearray(data)
    for entry in read(data).entries:
        if arch.runs(entry.code):
            struct.pack_into("<H", out, entry.offset, 8)  # a kind that no card runs
    return bytes(out)


def faults(version: str, package: dict[str, str]) -> dict[str, Callable[[Copy], None]]:
    """The faults, by the rule that must fire, and it alone.

    Args:
        version: the wheel's version.
        package: members to spoil: ``patched`` file and upstream's text for it, ``module``.
    """
    other = version.replace(".sm86.1.", ".sm86.2.")
    base = version.partition("+")[0]

    def file_name(copy: Copy) -> None:
        copy.name = copy.name.replace(version, other)

    def metadata(copy: Copy) -> None:
        copy.edit(
            f"{copy.info}/METADATA", f"Version: {version}".encode(), f"Version: {other}".encode()
        )

    def dunder(copy: Copy) -> None:
        copy.edit("vllm/_version.py", version.encode(), base.encode())

    def folder(copy: Copy) -> None:
        copy.rename_info(copy.info.replace(version, other))

    def label(copy: Copy) -> None:
        wrong = version.replace(".sm86.", ".sm89.")
        copy.name = copy.name.replace(version, wrong)
        for name in (f"{copy.info}/METADATA", "vllm/_version.py", f"{copy.info}/builder.json"):
            copy.edit(name, version.encode(), wrong.encode())
        copy.rename_info(copy.info.replace(version, wrong))

    def reverted(copy: Copy) -> None:
        copy.put(package["patched"], package["upstream"].encode())

    def cuda(copy: Copy) -> None:
        copy.edit(package["module"], b"libcudart.so.13\0", b"libcudart.so.12\0")

    def kernels(copy: Copy) -> None:
        copy.put(package["module"], without_code(copy.read(package["module"]), Arch(8, 6)))

    def tag(copy: Copy) -> None:
        copy.edit(f"{copy.info}/WHEEL", b"manylinux_2_28", b"manylinux_2_17")

    def record(copy: Copy) -> None:
        copy.rows[package["patched"]] = ("sha256=" + "A" * 43, "1")

    def unlisted(copy: Copy) -> None:
        copy.put("vllm/more.py", b"x = 1\n")
        del copy.rows["vllm/more.py"]

    def entry_points(copy: Copy) -> None:
        copy.edit(f"{copy.info}/entry_points.txt", b"vllm = vllm", b"vlm = vllm")

    def build_path(copy: Copy) -> None:
        data = copy.read(package["module"]) + b"\0/home/ann/src/vllm/csrc/ops.cu\0"
        copy.put(package["module"], data)

    return {
        "AUD-VERSION-001 file name": file_name,
        "AUD-VERSION-002 METADATA": metadata,
        "AUD-VERSION-003 __version__": dunder,
        "AUD-VERSION-004 dist-info": folder,
        "AUD-ARCH-003 foreign label": label,
        "AUD-PATCH-001 reverted file": reverted,
        "AUD-PATCH-003 left-over": lambda copy: copy.put(package["patched"] + ".rej", b"x\n"),
        "AUD-CUDA-001 other CUDA": cuda,
        "AUD-ARCH-001 no kernels": kernels,
        "AUD-TAG-001 other tag": tag,
        "AUD-RECORD-001 wrong digest": record,
        "AUD-RECORD-001 unlisted file": unlisted,
        "AUD-ENTRY-001 entry point lost": entry_points,
        "AUD-SECRET-001 secret": lambda copy: copy.put("vllm/keys.py", SECRET),
        "AUD-PATH-001 build path": build_path,
        "AUD-ZIP-001 unsafe name": lambda copy: copy.put("../evil.py", b"x = 1\n"),
    }
