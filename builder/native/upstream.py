"""The native layer from upstream's official wheel of the same commit, cut to the card."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import deflate
import zstandard

from builder.download import fetch
from builder.errors import CompileError, IdentityError
from builder.git import git_blob
from builder.native import fatbin
from builder.native.cut import CUTTER, cut
from builder.native.elf import DamagedError, is_elf
from builder.native.result import Extra, NativeResult, Stream
from builder.store import digest, stage

if TYPE_CHECKING:
    from pathlib import Path

    from builder.arch import Arch
    from builder.context import Context
    from builder.engines.base import Engine
    from builder.git import Git
    from builder.patch import PatchResult
    from builder.pin import Pin
    from builder.source import SourceResult

_SCHEMA: Final = 2
#: libdeflate's best; its bytes depend on its version alone, which is pinned.
_LEVEL: Final = 12


def take_upstream(
    context: Context, pin: Pin, engine: Engine, *, source: tuple[Git, SourceResult], arch: Arch
) -> tuple[Path, Path, NativeResult]:
    """Fetch the official wheel, check it against the source, and cut its modules to the card.

    Returns:
        The wheel's path, the stage's folder (which holds the cut modules) and its result.

    Raises:
        IdentityError: a file of the source tree has other bytes in the wheel, or lacks there.
    """
    git, found = source
    assert pin.wheel is not None  # noqa: S101  (the caller's choice of this way)
    official = pin.wheel
    wheel = fetch(context, official)
    drops = [pattern for drop in pin.drop for pattern in drop.files]
    key = digest(
        {
            "schema": _SCHEMA,
            "cutter": [CUTTER, zstandard.__version__, deflate.__version__],
            "wheel": official.sha256,
            "tree": found.package_tree,
            "dirty": found.strength,
            "drop": drops,
            "arch": arch.name,
        }
    )

    def make(work: Path) -> NativeResult:
        context.say(f"checking {official.file} against the source, cutting it to {arch}")
        blobs = _blobs(git, found, engine.package)
        equal = python_equal = dropped_size = 0
        extras: list[Extra] = []
        dropped: list[str] = []
        with zipfile.ZipFile(wheel) as archive:
            infos = [info for info in archive.infolist() if ".dist-info/" not in info.filename]
            for info in infos:
                name = info.filename
                if any(fnmatchcase(name, pattern) for pattern in drops):
                    dropped.append(name)
                    dropped_size += info.file_size
                    continue
                data = archive.read(info)
                if name in blobs:
                    if blobs.pop(name) != git_blob(data) and found.strength != "dirty":
                        raise IdentityError(
                            f"{name} in {official.file} is not the source's",
                            fix="the wheel is of another commit: correct the pin",
                        )
                    equal += 1
                    python_equal += name.endswith(".py")
                elif found.strength == "dirty" and not engine.is_generated(name):
                    continue  # the local source has removed it
                elif name != engine.version_member:
                    extras.append(_extra(name, data, engine, arch=arch, work=work))
        lost = sorted(name for name in blobs if name.endswith(".py"))
        if lost and found.strength != "dirty":
            raise IdentityError(
                f"{official.file} lacks {lost[0]} of the source ({len(lost)} in all)",
                fix="the wheel is of another commit: correct the pin",
            )
        idle = [pattern for pattern in drops if not any(fnmatchcase(n, pattern) for n in dropped)]
        if idle:
            raise IdentityError(
                f"recipe drops {idle[0]!r}, which {official.file} does not hold",
                fix="remove it from 'drop'",
            )
        return NativeResult(
            stage="native", key=key, mode="upstream", wheel=official.file,
            wheel_sha256=official.sha256, equal=equal, python_equal=python_equal,
            extras=tuple(extras), dropped=tuple(dropped), dropped_size=dropped_size,
        )  # fmt: skip

    return wheel, *stage(context, "native", key=key, result=NativeResult, make=make)


def refuse_native_patches(patched: PatchResult, engine: Engine) -> None:
    """A patch that changes compiled sources cannot be served by upstream's modules.

    Raises:
        CompileError: the series holds such a patch.
    """
    for record in patched.patches:
        touched = [change.path for change in record.files if engine.is_native(change.path)]
        if touched:
            raise CompileError(
                f"{record.id} changes {touched[0]}, which upstream's modules do not have",
                fix="leave the patch out of the recipe: compiling is not part of this version",
            )


def _blobs(git: Git, found: SourceResult, package: str) -> dict[str, str]:
    listing = git("ls-tree", "-r", "-z", found.package_tree).out.decode("utf-8", "surrogateescape")
    blobs: dict[str, str] = {}
    for record in listing.split("\0"):
        if record:
            meta, _, path = record.partition("\t")
            blobs[f"{package}/{path}"] = meta.split(" ")[2]
    return blobs


def _extra(name: str, data: bytes, engine: Engine, *, arch: Arch, work: Path) -> Extra:
    origin = engine.origin(name)
    if not is_elf(data):
        digest_ = hashlib.sha256(data).hexdigest()
        return Extra(name=name, sha256=digest_, size=len(data), origin=origin, compiled=False)
    try:
        done = cut(data, arch)
    except (DamagedError, CompileError) as error:
        raise CompileError(f"{name}: {error.message}", fix=error.fix) from error
    made = done.data
    sha256 = hashlib.sha256(made).hexdigest()
    stream = None
    if made != data:
        packed = deflate.deflate_compress(made, _LEVEL)
        (work / f"{sha256}.deflate").write_bytes(packed)
        stream = Stream(
            file=f"{sha256}.deflate", packed=len(packed), crc=zlib.crc32(made),
            upstream_sha256=hashlib.sha256(data).hexdigest(), upstream_size=len(data),
            emptied=done.emptied, units=done.containers,
        )  # fmt: skip
        origin += f", cut to {arch}"
    totals = fatbin.read(made).totals() if done.containers else {}
    return Extra(
        name=name, sha256=sha256, size=len(made), origin=origin, compiled=True,
        archs={str(code): size for code, (_, size) in totals.items()}, stream=stream,
    )  # fmt: skip
