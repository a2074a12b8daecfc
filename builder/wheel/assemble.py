"""The wheel stage: patched tree and native layer in, one wheel out, byte for byte repeatable."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from builder.errors import IdentityError, PatchError, UsageError
from builder.patch.view import git_blob
from builder.store import StageResult, digest, file_sha256, stage
from builder.wheel import archive
from builder.wheel.metadata import NOTICE, metadata, notice, wheel_file
from builder.wheel.platform import too_new
from builder.wheel.record import (
    BUILD_RECORD,
    BuildRecord,
    BuiltFile,
    BuiltLive,
    BuiltModule,
    BuiltPatch,
    read_record,
    record_line,
    write_record,
)
from builder.wheel.sbom import sbom
from builder.wheel.version import compose

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from builder.arch import Arch
    from builder.context import Context
    from builder.engines.base import Engine
    from builder.git import Git
    from builder.native import NativeResult
    from builder.patch import PatchResult
    from builder.pin import Pin
    from builder.recipe import Recipe
    from builder.series import Member
    from builder.source import SourceResult

#: Raised whenever the same inputs would give another wheel.
ASSEMBLER: Final = 1


@dataclass(frozen=True)
class Parts:
    """Everything that a wheel is put together from."""

    recipe: Recipe
    pin: Pin
    engine: Engine
    arch: Arch
    members: Sequence[Member]
    source: SourceResult
    git: Git
    patched: PatchResult
    native: NativeResult
    official: Path


class WheelResult(StageResult):
    """The wheel that the stage made.

    Attributes:
        file: its name.
        version: its version.
        sha256: its digest.
        size: its bytes.
        unpacked: bytes of its members.
        tag: its tag triple.
    """

    file: str
    version: str
    sha256: str
    size: int
    unpacked: int
    tag: str


def kernels_path(context: Context, pin: Pin, arch: Arch) -> Path:
    """The manifest of GPU functions that a pin's modules must have for an architecture."""
    return context.recipes / "kernels" / pin.kernels.format(arch=arch.name)


def inputs_digest(context: Context, parts: Parts) -> str:
    """SHA-256 (hex) of everything that the wheel's bytes depend on."""
    pin = parts.pin
    return digest(
        {
            "assembler": ASSEMBLER,
            "arch": parts.arch.name,
            "pin": pin.model_dump(mode="json"),
            "license": parts.recipe.license,
            "package_tree": parts.source.package_tree,
            "strength": parts.source.strength,
            "series": [
                (m.patch.id, m.sha256, m.patch.model_dump(mode="json")) for m in parts.members
            ],
            "native": [parts.native.mode, parts.native.wheel_sha256],
            "kernels": _manifest(context, parts),
            "lock": file_sha256(context.recipes / "locks" / pin.lock),
        }
    )


def assemble(context: Context, parts: Parts) -> tuple[Path, WheelResult]:
    """Put the wheel together.

    Returns:
        Its path in the store and the stage's result.

    Raises:
        PatchError: a changed file does not say that it was changed.
        IdentityError: the official wheel lacks what every wheel has.
    """
    inputs = inputs_digest(context, parts)

    def make(work: Path) -> WheelResult:
        version = compose(
            parts.pin, parts.arch, parts.engine, inputs=inputs,
            dirty=parts.source.strength == "dirty",
        )  # fmt: skip
        official = {entry.name: entry for entry in archive.members(parts.official)}
        old = f"{parts.engine.distribution}-{parts.pin.version}.dist-info"
        tags = parts.pin.wheel.file.removesuffix(".whl").split("-", 2)[2]
        name = f"{parts.engine.distribution}-{version}-{tags}.whl"
        context.say(f"assembling {name}")
        body, rows, files = _body(parts, official, version, old)
        record = _build_record(
            context, parts, official, files, version=version, inputs=inputs, old=old
        )
        info, info_rows = _dist_info(parts, official, record, tags=tags, old=old)
        entries = sorted(body, key=lambda entry: entry.name)
        rows = sorted(rows) + sorted(info_rows)
        record_name = f"{_folder(record)}/RECORD"
        last = archive.pack(record_name, write_record([*rows, (record_name, "", "")]))
        entries += [*sorted(info, key=lambda entry: entry.name), last]
        path = work / name
        archive.write(path, entries, epoch=parts.pin.epoch)
        return WheelResult(
            stage="wheel", key=inputs, file=name, version=version, sha256=file_sha256(path),
            size=path.stat().st_size, unpacked=sum(entry.size for entry in entries), tag=tags,
        )  # fmt: skip

    entry, result = stage(context, "wheel", key=inputs, result=WheelResult, make=make)
    return entry / result.file, result


def _folder(record: BuildRecord) -> str:
    return f"{record.distribution}-{record.version}.dist-info"


def _body(
    parts: Parts, official: dict[str, archive.Member], version: str, old: str
) -> tuple[list[archive.Member], list[tuple[str, str, str]], list[BuiltFile]]:
    """Members outside dist-info, their RECORD rows, and the files that the series changed."""
    kept = {
        name: entry
        for name, entry in official.items()
        if not name.startswith(f"{old}/") and name not in set(parts.native.dropped)
    }
    official_record = read_record(archive.content(official[f"{old}/RECORD"]))
    rows = {name: (name, *official_record[name]) for name in kept}
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
    name, data = parts.engine.version_file(parts.pin, version)
    kept[name], rows[name] = archive.pack(name, data), record_line(name, data)
    return list(kept.values()), list(rows.values()), files


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


def _manifest(context: Context, parts: Parts) -> dict[str, dict[str, int]]:
    path = kernels_path(context, parts.pin, parts.arch)
    try:
        found: dict[str, dict[str, int]] = json.loads(path.read_text())
    except FileNotFoundError:
        raise UsageError(
            f"{path}: no list of GPU functions for {parts.arch}",
            fix=f"make it: sm86 inspect --kernels {parts.arch} WHEEL > {path.name}",
        ) from None
    except ValueError as error:
        raise UsageError(f"{path}: not JSON: {error}", fix="make it again") from error
    return found


def _build_record(
    context: Context, parts: Parts, official: dict[str, archive.Member], files: list[BuiltFile],
    *, version: str, inputs: str, old: str,
) -> BuildRecord:  # fmt: skip
    entry_points = official.get(f"{old}/entry_points.txt")
    points = archive.content(entry_points) if entry_points else b""
    modules = [extra for extra in parts.native.extras if extra.compiled]
    return BuildRecord(
        engine=parts.engine.name,
        distribution=parts.engine.distribution,
        version=version,
        inputs=inputs,
        arch=parts.arch.name,
        cuda=parts.pin.cuda,
        torch=parts.pin.torch,
        revision=parts.pin.revision,
        upstream_version=parts.pin.version,
        commit=parts.pin.commit,
        strength=parts.source.strength,
        source=parts.source.origin,
        source_tree=parts.source.tree,
        native=parts.native.mode,
        native_from=f"{parts.native.wheel} sha256:{parts.native.wheel_sha256}",
        patches=tuple(
            BuiltPatch(
                id=m.patch.id, title=m.patch.title, sha256=m.sha256,
                upstream_status=m.patch.upstream.status, drop_when=m.patch.upstream.drop_when,
            )
            for m in parts.members
        ),
        files=tuple(files),
        live=tuple(
            BuiltLive(patch=m.patch.id, file=live.file, symbol=live.symbol)
            for m in parts.members
            for live in m.patch.live
        ),
        modules=tuple(
            BuiltModule(path=one.name, sha256=one.sha256, origin=one.origin, archs=one.archs)
            for one in modules
        ),
        kernels=_manifest(context, parts),
        dropped={pattern: drop.why for drop in parts.pin.drop for pattern in drop.files},
        entry_points=hashlib.sha256(points).hexdigest(),
        assembler=ASSEMBLER,
    )  # fmt: skip


def _dist_info(
    parts: Parts, official: dict[str, archive.Member], record: BuildRecord, *, tags: str, old: str
) -> tuple[list[archive.Member], list[tuple[str, str, str]]]:
    new = _folder(record)
    texts = {
        name.removeprefix(f"{old}/"): archive.content(entry)
        for name, entry in official.items()
        if name.startswith(f"{old}/") and not name.endswith("/RECORD")
    }
    if not {"METADATA", "WHEEL"} <= texts.keys():
        raise IdentityError(
            f"{parts.official.name} has no METADATA or WHEEL", fix="correct the pin"
        )
    python, abi, platform = tags.split("-")
    platforms = platform.split(".")
    _check_platforms(parts, official, platforms)
    texts["METADATA"] = metadata(
        texts["METADATA"], version=record.version, arch=record.arch, licenses=[NOTICE]
    )
    texts["WHEEL"] = wheel_file(
        texts["WHEEL"], tags=[f"{python}-{abi}-{one}" for one in platforms],
        builder=f"assembler {ASSEMBLER}",
    )  # fmt: skip
    texts[f"licenses/{NOTICE}"] = notice(
        distribution=record.distribution, version=record.version, commit=record.commit,
        patches=record.patches, files=record.files, dropped=record.dropped,
    )  # fmt: skip
    texts["sboms/sm86-builder.cdx.json"] = sbom(
        record, parts.pin, parts.native, license_id=parts.recipe.license
    )
    texts[BUILD_RECORD] = record.dump()
    info = [archive.pack(f"{new}/{name}", text) for name, text in texts.items()]
    rows = [record_line(f"{new}/{name}", text) for name, text in texts.items()]
    return info, rows


def _check_platforms(
    parts: Parts, official: dict[str, archive.Member], platforms: Sequence[str]
) -> None:
    """Upstream's tag is kept only where the compiled files' symbols bear it out."""
    kept = [extra.name for extra in parts.native.extras if extra.compiled]
    files = [(name, archive.content(official[name])) for name in sorted(kept)]
    for platform in platforms:
        bad = too_new(files, platform)
        if bad:
            raise IdentityError(
                f"{parts.official.name} is labelled {platform} but {bad[0]}",
                fix="the label is false: correct the pin's wheel",
            )
