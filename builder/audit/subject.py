"""A wheel opened for audit: its members, texts and compiled files, each read once."""

from __future__ import annotations

import email
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from pydantic import ValidationError

from builder.errors import AuditError
from builder.native import fatbin
from builder.native.elf import is_elf
from builder.wheel import archive
from builder.wheel.record import BUILD_RECORD, BuildRecord, read_record
from builder.wheel.version import Label, parse_label

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.native.fatbin import Module


@dataclass
class Subject:
    """One wheel.

    Attributes:
        path: the file.
        entries: its members by name, in file order.
        twice: names that more than one member has.
    """

    path: Path
    entries: dict[str, archive.Member]
    twice: tuple[str, ...] = ()
    _cache: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> Subject:
        """Open a wheel.

        Raises:
            AuditError: it cannot be read as one at all.
        """
        if not path.is_file():
            raise AuditError(f"{path}: no such wheel", fix="check the path")
        entries = archive.members(path)
        names = Counter(entry.name for entry in entries)
        twice = tuple(name for name, count in names.items() if count > 1)
        found = cls(path, {entry.name: entry for entry in entries}, twice)
        if found.info_folder is None:
            raise AuditError(f"{path.name}: no .dist-info folder: not a wheel", fix="get it again")
        return found

    @cached_property
    def info_folders(self) -> list[str]:
        """Every ``.dist-info`` folder at the top."""
        tops = dict.fromkeys(name.split("/")[0] for name in self.entries if "/" in name)
        return [top for top in tops if top.endswith(".dist-info")]

    @cached_property
    def info_folder(self) -> str | None:
        """Name of the first ``.dist-info`` folder at the top."""
        return self.info_folders[0] if self.info_folders else None

    def read(self, name: str) -> bytes:
        """Content of a member; empty if it is not there."""
        if name not in self.entries:
            return b""
        entry = self.entries[name]
        if entry.size > 1 << 20:
            return archive.content(entry)
        if name not in self._cache:
            self._cache[name] = archive.content(entry)
        return self._cache[name]

    def info(self, name: str) -> bytes:
        """Content of a file in ``.dist-info``."""
        return self.read(f"{self.info_folder}/{name}")

    @cached_property
    def metadata(self) -> dict[str, str]:
        """Single-valued fields of METADATA."""
        fields: dict[str, str] = {}
        for key, value in self.metadata_fields:
            fields.setdefault(key, value)  # installers read the first
        return fields

    @cached_property
    def metadata_fields(self) -> list[tuple[str, str]]:
        """All fields of METADATA, in order."""
        message = email.message_from_bytes(self.info("METADATA").partition(b"\n\n")[0])
        return [(key, str(value)) for key, value in message.items()]

    @cached_property
    def stem(self) -> list[str]:
        """The parts of the file name: name, version, [build,] python, abi, platform."""
        return self.path.name.removesuffix(".whl").split("-")

    @cached_property
    def versions(self) -> dict[str, str]:
        """The version as each place states it, by the rule that guards that place."""
        folder = (self.info_folder or "").removesuffix(".dist-info")
        return {
            "AUD-VERSION-001": self.stem[1] if len(self.stem) > 1 else "",
            "AUD-VERSION-002": self.metadata.get("Version", ""),
            "AUD-VERSION-004": folder.partition("-")[2],
        }

    @cached_property
    def project(self) -> str:
        """Normalised name of the distribution, from METADATA."""
        return canonicalize_name(self.metadata.get("Name", ""))

    @cached_property
    def record(self) -> BuildRecord | None:
        """Our build record, if there is one that can be read."""
        text = self.info(BUILD_RECORD)
        try:
            return BuildRecord.model_validate_json(text) if text else None
        except ValidationError:
            return None

    @cached_property
    def label(self) -> Label | None:
        """What the version's local part says, if it is one of ours.

        The build record's version where there is one; that the other places agree with it
        is a matter of the rules about versions.
        """
        record = self.record
        return parse_label(record.version if record else self.versions["AUD-VERSION-002"])

    @cached_property
    def rows(self) -> dict[str, tuple[str, str]]:
        """RECORD's rows."""
        return read_record(self.info("RECORD"))

    @property
    def compiled(self) -> Iterator[tuple[str, bytes, Module]]:
        """Every ELF file with its content and GPU code."""
        for name, entry in self.entries.items():
            if name.endswith((".py", ".json", ".md", ".h", ".txt")) or entry.size < 64:
                continue
            data = self.read(name)
            if is_elf(data):
                yield name, data, fatbin.read(data)
