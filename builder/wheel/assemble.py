"""The wheel stage: patched tree and native layer in, one wheel out, byte for byte repeatable."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from builder.errors import IdentityError
from builder.store import StageResult, file_sha256, stage
from builder.wheel import archive
from builder.wheel.base import base
from builder.wheel.layers import body
from builder.wheel.metadata import NOTICE, metadata, notice, wheel_file
from builder.wheel.parts import ASSEMBLER, Parts, inputs_digest, manifest
from builder.wheel.platform import too_new
from builder.wheel.record import (
    BUILD_RECORD,
    BuildRecord,
    BuiltFile,
    BuiltLive,
    BuiltModule,
    BuiltPatch,
    record_line,
    write_record,
)
from builder.wheel.sbom import sbom
from builder.wheel.version import compose

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from builder.context import Context
    from builder.wheel.base import Base, Row


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
        start = base(parts)
        name = f"{_file_name(parts.engine.distribution)}-{version}-{start.tags}.whl"
        context.say(f"assembling {name}")
        entries, rows, files = body(parts, start, version)
        points = start.texts.get("entry_points.txt", b"")
        record = _build_record(context, parts, points, files, version=version, inputs=inputs)
        made = {entry.name: entry for entry in entries}
        info, info_rows = _dist_info(parts, start, record, made=made)
        entries = sorted(entries, key=lambda entry: entry.name)
        rows = sorted(rows) + sorted(info_rows)
        record_name = f"{_folder(record)}/RECORD"
        last = archive.pack(record_name, write_record([*rows, (record_name, "", "")]))
        entries += [*sorted(info, key=lambda entry: entry.name), last]
        path = work / name
        archive.write(path, entries, epoch=parts.pin.epoch)
        return WheelResult(
            stage="wheel", key=inputs, file=name, version=version, sha256=file_sha256(path),
            size=path.stat().st_size, unpacked=sum(entry.size for entry in entries),
            tag=start.tags,
        )  # fmt: skip

    entry, result = stage(context, "wheel", key=inputs, result=WheelResult, make=make)
    return entry / result.file, result


def _file_name(distribution: str) -> str:
    """A distribution's name as it stands in file names."""
    return canonicalize_name(distribution).replace("-", "_")


def _folder(record: BuildRecord) -> str:
    return f"{_file_name(record.distribution)}-{record.version}.dist-info"


def _build_record(
    context: Context, parts: Parts, points: bytes, files: list[BuiltFile], *, version: str,
    inputs: str,
) -> BuildRecord:  # fmt: skip
    modules = [extra for extra in parts.native.extras if extra.compiled]
    return BuildRecord(
        engine=parts.engine.name,
        distribution=parts.engine.distribution,
        version=version,
        inputs=inputs,
        arch=parts.target,
        cuda=parts.pin.cuda if parts.arch else "",
        torch=parts.pin.torch or "",
        revision=parts.pin.revision,
        upstream_version=parts.pin.version,
        commit=parts.pin.commit,
        strength=parts.source.strength,
        source=parts.source.origin,
        source_tree=parts.source.tree,
        native=parts.native.mode,
        native_from=(
            f"{parts.native.wheel} sha256:{parts.native.wheel_sha256}" if parts.native.wheel
            else f"{parts.native.units} object files, compiled"
        ),
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
            BuiltModule(
                path=one.name, sha256=one.sha256, origin=one.origin, archs=one.archs,
                upstream_sha256=one.stream.upstream_sha256 if one.stream else "",
            )
            for one in modules
        ),
        kernels=manifest(context, parts),
        dropped={pattern: drop.why for drop in parts.pin.drop for pattern in drop.files},
        entry_points=hashlib.sha256(points).hexdigest(),
        assembler=ASSEMBLER,
        tools=parts.native.tools,
    )  # fmt: skip


def _dist_info(
    parts: Parts, start: Base, record: BuildRecord, *, made: dict[str, archive.Member]
) -> tuple[list[archive.Member], list[Row]]:
    new = _folder(record)
    texts = dict(start.texts)
    python, abi, platform = start.tags.split("-")
    platforms = platform.split(".")
    _check_platforms(parts, made, platforms, label=start.label)
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
        record, parts.pin, parts.native, recipe=parts.recipe
    )
    texts[BUILD_RECORD] = record.dump()
    info = [archive.pack(f"{new}/{name}", text) for name, text in texts.items()]
    rows = [record_line(f"{new}/{name}", text) for name, text in texts.items()]
    return info, rows


def _check_platforms(
    parts: Parts, made: dict[str, archive.Member], platforms: Sequence[str], *, label: str
) -> None:
    """Upstream's tag is kept only where the compiled files' symbols bear it out."""
    kept = [extra.name for extra in parts.native.extras if extra.compiled]
    files = [(name, archive.content(made[name])) for name in sorted(kept)]
    for platform in platforms:
        bad = too_new(files, platform)
        if bad:
            raise IdentityError(
                f"{label} is labelled {platform} but {bad[0]}",
                fix="the label is false: correct the pin's wheel",
            )
