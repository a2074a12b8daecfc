"""The files that a wheel travels with: hashed requirements and unhashed constraints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from builder.errors import UsageError
from builder.store import write_atomic

if TYPE_CHECKING:
    from pathlib import Path

_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?:\s*;[^\\]*)?)")


def write_locks(
    lock: Path, out: Path, *, distribution: str, version: str, sha256: str
) -> list[Path]:
    """Write ``requirements-<version>.txt`` and ``constraints-<version>.txt`` beside a wheel.

    Args:
        lock: the committed lock of everything that the wheel needs.
        out: the wheel's folder.
        distribution: the wheel's distribution.
        version: its version.
        sha256: its digest.

    Returns:
        The files written.

    Raises:
        UsageError: the lock is missing or pins nothing.
    """
    try:
        text = lock.read_text()
    except FileNotFoundError:
        raise UsageError(f"{lock}: no such lock", fix="make it with 'sm86 lock'") from None
    pins = [found for line in text.splitlines() if (found := _PIN.match(line)) is not None]
    if not pins:
        raise UsageError(f"{lock}: pins nothing", fix="make it again with 'sm86 lock'")
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    requirements = (
        f"# {distribution} {version} and everything it needs, with hashes.\n"
        "#   pip install -r THIS_FILE\n"
        "#   uv pip install -r THIS_FILE\n"
        "# The wheel is looked for in this file's folder; else give --find-links or an index.\n"
        "--find-links .\n"
        f"{distribution}=={version} \\\n    --hash=sha256:{sha256}\n"
        f"{body.strip()}\n"
    )
    constraints = (
        f"# What {distribution} {version} was locked with; pip refuses hashes here.\n"
         f"{distribution}=={version}\n"
        + "".join(f"{name}=={pinned}{marker.rstrip()}\n" for name, pinned, marker in
                  (found.groups() for found in pins))
    )  # fmt: skip
    written = [out / f"requirements-{version}.txt", out / f"constraints-{version}.txt"]
    for path, content in zip(written, (requirements, constraints), strict=True):
        write_atomic(path, content)
    return written
