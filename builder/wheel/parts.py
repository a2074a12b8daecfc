"""Everything that a wheel is put together from, and the digest of it that names the wheel."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from builder.errors import UsageError
from builder.store import digest, file_sha256
from builder.wheel.version import CPU

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
ASSEMBLER: Final = 3


@dataclass(frozen=True)
class Parts:
    """Everything that a wheel is put together from."""

    recipe: Recipe
    pin: Pin
    engine: Engine
    arch: Arch | None
    members: Sequence[Member]
    source: SourceResult
    git: Git
    patched: PatchResult
    native: NativeResult
    official: Path | None
    modules: Path

    @property
    def target(self) -> str:
        """What it is for, in a word: ``sm_86`` or ``cpu``."""
        return self.arch.name if self.arch else CPU

    @property
    def requires(self) -> bool:
        """Whether the wheel needs other packages."""
        if self.pin.compile is None:
            return True
        return self.arch is not None and bool(self.pin.compile.requires)


def kernels_path(context: Context, pin: Pin, arch: Arch) -> Path:
    """The manifest of GPU functions that a pin's modules must have for an architecture."""
    return context.recipes / "kernels" / pin.kernels.format(arch=arch.name)


def manifest(context: Context, parts: Parts) -> dict[str, dict[str, int]]:
    """The GPU functions that each module must have.

    Raises:
        UsageError: there is no list for this architecture, or it cannot be read.
    """
    if parts.arch is None:
        return {}
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


def inputs_digest(context: Context, parts: Parts) -> str:
    """SHA-256 (hex) of everything that the wheel's bytes depend on."""
    pin, own = parts.pin, parts.engine.own_files()
    return digest(
        {
            "assembler": ASSEMBLER,
            "arch": parts.target,
            "pin": pin.model_dump(mode="json"),
            "license": parts.recipe.license,
            "package_tree": parts.source.package_tree,
            "strength": parts.source.strength,
            "series": [
                (m.patch.id, m.sha256, m.patch.model_dump(mode="json")) for m in parts.members
            ],
            "native": [
                parts.native.mode,
                parts.native.wheel_sha256,
                [(extra.name, extra.sha256) for extra in parts.native.extras],
            ],
            "kernels": manifest(context, parts),
            "lock": file_sha256(context.recipes / "locks" / pin.lock) if parts.requires else "",
            "own": {name: sha256(data).hexdigest() for name, data in own.items()},
        }
    )
