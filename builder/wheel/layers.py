"""The Python layer on the native one: which members a wheel gets, and where each comes from."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from builder.errors import PatchError
from builder.git import git_blob
from builder.wheel import archive
from builder.wheel.record import BuiltFile, record_line

if TYPE_CHECKING:
    from builder.wheel.base import Base, Row
    from builder.wheel.parts import Parts


def body(
    parts: Parts, start: Base, version: str
) -> tuple[list[archive.Member], list[Row], list[BuiltFile]]:
    """Members outside dist-info, their RECORD rows, and the files that the series changed."""
    kept, rows = dict(start.entries), dict(start.rows)
    files = _python_layer(parts, kept, rows) if parts.engine.package else []
    name, data = parts.engine.version_file(parts.pin, version)
    kept[name], rows[name] = archive.pack(name, data), record_line(name, data)
    return list(kept.values()), list(rows.values()), files


def _python_layer(
    parts: Parts, kept: dict[str, archive.Member], rows: dict[str, Row]
) -> list[BuiltFile]:
    """Put the patched package onto upstream's members."""
    files: list[BuiltFile] = []
    tree = _package_tree(parts)
    known = {extra.name for extra in parts.native.extras} | {parts.engine.version_member}
    changed = {name for name, (_, blob) in tree.items() if blob != _blob(kept.get(name), known)}
    if parts.source.strength != "dirty":
        # what is not a patch's is in upstream's wheel, or upstream does not ship it
        series = {path for change in parts.patched.files for path in (change.path, change.old_path)}
        changed &= series
    gone = {name for name in kept if name not in tree and name not in known}
    for path in sorted(changed | gone):
        upstream = archive.content(kept[path]) if path in kept else None
        kept.pop(path, None)
        rows.pop(path, None)
        data = b""
        if path in tree:
            mode, blob = tree[path]
            data = parts.git.blob(blob)
            kept[path] = archive.pack(path, data, executable=mode == "100755")
            rows[path] = record_line(path, data)
        files.append(_built_file(parts, path, data, upstream, gone=path not in tree))
    return files


def _package_tree(parts: Parts) -> dict[str, tuple[str, str]]:
    """Mode and blob id of every file of the patched package, by wheel member."""
    spec = f"{parts.patched.commit}:{parts.engine.package}"
    listing = parts.git("ls-tree", "-r", "-z", spec).out.decode("utf-8", "surrogateescape")
    found: dict[str, tuple[str, str]] = {}
    for record in filter(None, listing.split("\0")):
        meta, _, path = record.partition("\t")
        mode, _, blob = meta.split(" ")
        if mode not in {"100644", "100755"}:
            raise PatchError(f"{path} is a link or submodule", fix="wheels hold plain files only")
        found[f"{parts.engine.package}/{path}"] = (mode, blob)
    return found


def _blob(entry: archive.Member | None, known: set[str]) -> str:
    """The blob id of an official member that the source tree could hold."""
    return "" if entry is None or entry.name in known else git_blob(archive.content(entry))


def _built_file(
    parts: Parts, path: str, data: bytes, upstream: bytes | None, *, gone: bool
) -> BuiltFile:
    by = tuple(
        record.id
        for record in parts.patched.patches
        if any(path in {change.path, change.old_path} for change in record.files)
    )
    for patch in by:
        if not gone and f"sm86-builder ({patch})".encode() not in data:
            raise PatchError(
                f"{patch}: {path} does not say that it was changed",
                fix=f"state 'Changed by sm86-builder ({patch})' near its top (Apache-2.0, 4b)",
            )
    return BuiltFile(
        path=path,
        sha256="" if gone else hashlib.sha256(data).hexdigest(),
        upstream_sha256="" if upstream is None else hashlib.sha256(upstream).hexdigest(),
        patches=by or ("local source",),
    )
