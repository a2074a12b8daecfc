"""What a wheel starts from: upstream's own wheel, or nothing but what was compiled."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from builder.errors import IdentityError
from builder.wheel import archive
from builder.wheel.metadata import entry_points, fresh_metadata
from builder.wheel.platform import lowest
from builder.wheel.record import from_hex, read_record, record_line

if TYPE_CHECKING:
    from builder.native import Extra
    from builder.wheel.parts import Parts

Row = tuple[str, str, str]


@dataclass(frozen=True)
class Base:
    """Members of a wheel before the series and our own texts.

    Attributes:
        entries: members outside of dist-info, by name.
        rows: their RECORD rows.
        texts: files of dist-info, by name.
        tags: tag triple of the wheel.
        label: what the tags come from, for messages.
    """

    entries: dict[str, archive.Member]
    rows: dict[str, Row]
    texts: dict[str, bytes]
    tags: str
    label: str


def base(parts: Parts) -> Base:
    """What the wheel of these parts starts from.

    Raises:
        IdentityError: the official wheel lacks what every wheel has, or no manylinux tag fits
            what was compiled.
    """
    return _scratch(parts) if parts.official is None else _official(parts)


def _official(parts: Parts) -> Base:
    assert parts.official is not None  # noqa: S101  (see `base`)
    assert parts.pin.wheel is not None  # noqa: S101  (that is where it came from)
    official = {entry.name: entry for entry in archive.members(parts.official)}
    folder = f"{parts.engine.distribution}-{parts.pin.version}.dist-info/"
    texts = {
        name.removeprefix(folder): archive.content(entry)
        for name, entry in official.items()
        if name.startswith(folder)
    }
    if not {"METADATA", "WHEEL", "RECORD"} <= texts.keys():
        raise IdentityError(
            f"{parts.official.name} has no METADATA, WHEEL or RECORD", fix="correct the pin"
        )
    record = read_record(texts.pop("RECORD"))
    dropped = set(parts.native.dropped)
    entries = {
        name: entry
        for name, entry in official.items()
        if not name.startswith(folder) and name not in dropped
    }
    rows = {name: (name, *record[name]) for name in entries}
    for extra in parts.native.extras:
        if extra.stream is not None:
            entries[extra.name] = replace(
                _streamed(parts, extra), executable=entries[extra.name].executable
            )
            rows[extra.name] = _row(extra)
    tags = parts.pin.wheel.file.removesuffix(".whl").split("-", 2)[2]
    return Base(entries, rows, texts, tags, parts.official.name)


def _scratch(parts: Parts) -> Base:
    entries: dict[str, archive.Member] = {}
    rows: dict[str, Row] = {}
    for extra in parts.native.extras:
        entries[extra.name] = _streamed(parts, extra)
        rows[extra.name] = _row(extra)
    compiled = [(name, archive.content(entry)) for name, entry in entries.items()]
    platform = lowest(compiled)
    if platform is None:
        raise IdentityError(
            "what was compiled needs symbols that no manylinux tag allows",
            fix="compile on an older distribution",
        )
    for name, data in parts.engine.own_files().items():
        entries[name] = archive.pack(name, data)
        rows[name] = record_line(name, data)
    assert parts.pin.compile is not None  # noqa: S101  (see `base`)
    requires = parts.pin.compile.requires if parts.requires else ()
    texts = {
        "METADATA": fresh_metadata(
            parts.engine, parts.recipe, parts.pin, requires=requires, licenses=["LICENSE"]
        ),
        "WHEEL": b"Root-Is-Purelib: false\n",
        "entry_points.txt": entry_points(parts.engine.scripts),
        "licenses/LICENSE": parts.git.blob(f"{parts.patched.commit}:LICENSE"),
    }
    return Base(entries, rows, texts, f"py3-none-{platform}", "what was compiled")


def _streamed(parts: Parts, extra: Extra) -> archive.Member:
    stream = extra.stream
    assert stream is not None  # noqa: S101  (asked by both callers)
    return archive.Member(
        extra.name, extra.executable, zipfile.ZIP_DEFLATED, stream.crc, extra.size, stream.packed,
        source=(parts.modules / stream.file, 0),
    )  # fmt: skip


def _row(extra: Extra) -> Row:
    return extra.name, from_hex(extra.sha256), str(extra.size)
