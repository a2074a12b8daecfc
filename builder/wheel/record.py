"""The two records inside a wheel: RECORD, and ours of how it was built (``builder.json``)."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, ConfigDict

from builder.errors import AuditError

if TYPE_CHECKING:
    from collections.abc import Iterable

BUILD_RECORD: Final = "builder.json"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BuiltFile(_Part):
    """A file that the series changed.

    Attributes:
        path: wheel member.
        sha256: digest of its patched content; empty if the series removed it.
        upstream_sha256: digest of upstream's content; empty if the series made it.
        patches: ids of the patches that changed it.
    """

    path: str
    sha256: str
    upstream_sha256: str
    patches: tuple[str, ...]


class BuiltLive(_Part):
    """A symbol by which a patch is known to be present (see `builder.patch_toml.Live`)."""

    patch: str
    file: str
    symbol: str


class BuiltPatch(_Part):
    """A patch of the series."""

    id: str
    title: str
    sha256: str
    upstream_status: str
    drop_when: str


class BuiltModule(_Part):
    """A compiled file, and the bytes of GPU code in it by architecture.

    Attributes:
        upstream_sha256: digest of the file that it was cut from; empty if it is that file.
    """

    path: str
    sha256: str
    origin: str
    archs: dict[str, int]
    upstream_sha256: str = ""


class BuildRecord(_Part):
    """Everything a wheel was made from; no times, no paths of the machine.

    Attributes:
        schema_version: version of this record's shape.
        engine: the engine's name.
        distribution: the wheel's distribution.
        version: full version.
        inputs: digest of all inputs; its first 8 digits stand in the version.
        arch: the architecture that the label names.
        cuda: CUDA version.
        torch: torch version.
        revision: the recipe's revision.
        upstream_version: upstream's version.
        commit: upstream's commit.
        strength: how firmly the source is tied to it.
        source: what the source was, in words.
        source_tree: id of the pristine tree.
        native: how the native layer was made.
        native_from: the official wheel and its digest.
        patches: the series, in order.
        files: what it changed in the wheel.
        live: symbols of the series.
        modules: the compiled files.
        kernels: GPU functions that each module must have for the architecture.
        dropped: what was left out, and why.
        entry_points: digest of ``entry_points.txt``.
        assembler: version of the rules by which wheels are put together.
        tools: what it was compiled with; empty if the native layer is upstream's.
    """

    schema_version: Literal[1] = 1
    engine: str
    distribution: str
    version: str
    inputs: str
    arch: str
    cuda: str
    torch: str
    revision: int
    upstream_version: str
    commit: str
    strength: str
    source: str
    source_tree: str
    native: str
    native_from: str
    patches: tuple[BuiltPatch, ...]
    files: tuple[BuiltFile, ...]
    live: tuple[BuiltLive, ...]
    modules: tuple[BuiltModule, ...]
    kernels: dict[str, dict[str, int]]
    dropped: dict[str, str]
    entry_points: str
    assembler: int
    tools: dict[str, str] = {}

    def dump(self) -> bytes:
        """The record as JSON, the same bytes for the same record."""
        plain = self.model_dump(mode="json")
        return (json.dumps(plain, indent=1, sort_keys=True) + "\n").encode()


def urlsafe(sha256: bytes) -> str:
    """A digest in RECORD's notation."""
    return "sha256=" + base64.urlsafe_b64encode(sha256).rstrip(b"=").decode()


def from_hex(sha256: str) -> str:
    """RECORD's notation of a digest in hex."""
    return urlsafe(bytes.fromhex(sha256))


def record_line(name: str, content: bytes) -> tuple[str, str, str]:
    """RECORD's fields for a file."""
    return name, urlsafe(hashlib.sha256(content).digest()), str(len(content))


def write_record(rows: Iterable[tuple[str, str, str]]) -> bytes:
    """A RECORD file (PEP 376, as amended by PEP 427)."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()


def read_record(content: bytes) -> dict[str, tuple[str, str]]:
    """The rows of a RECORD file as name -> (digest, size)."""
    text = content.decode("utf-8", "replace")
    try:
        return {row[0]: (row[1], row[2]) for row in csv.reader(io.StringIO(text)) if len(row) == 3}
    except csv.Error as error:
        raise AuditError(f"RECORD cannot be read: {error}", fix="get the wheel again") from error
