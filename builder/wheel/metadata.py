"""The texts of a wheel's ``.dist-info``: upstream's, with what must differ changed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from builder.errors import IdentityError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from builder.engines.base import Engine
    from builder.pin import Pin
    from builder.recipe import Recipe
    from builder.wheel.record import BuiltFile, BuiltPatch

NOTICE: Final = "NOTICE.sm86-builder"


def metadata(upstream: bytes, *, version: str, arch: str, licenses: Iterable[str]) -> bytes:
    """METADATA with our version, a summary that says what this is, and our licence files.

    Requirements stay upstream's, word for word.
    """
    head, blank, body = upstream.partition(b"\n\n")
    lines = head.decode("utf-8").splitlines()
    found = {line.split(":")[0] for line in lines}
    if not {"Metadata-Version", "Name", "Version", "Summary"} <= found:
        raise IdentityError("the official wheel's METADATA lacks fields", fix="correct the pin")
    out: list[str] = []
    for line in lines:
        if line.startswith("Version: "):
            out.append(f"Version: {version}")
        elif line.startswith("Summary: "):
            out.append(f"{line} (unofficial build, patched for {arch} by sm86-builder)")
        else:
            out.append(line)
    fields = [line.split(":")[0] for line in out]
    if "License-File" in fields:  # from metadata 2.4 on (PEP 639)
        last = len(fields) - fields[::-1].index("License-File")
        out[last:last] = [f"License-File: {name}" for name in licenses]
    return "\n".join(out).encode() + blank + body


def fresh_metadata(
    engine: Engine, recipe: Recipe, pin: Pin, *, requires: Sequence[str], licenses: Sequence[str]
) -> bytes:
    """METADATA (version 2.4, PEP 639) as upstream would state it, had it such a wheel."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {engine.distribution}",
        f"Version: {pin.version}",
        f"Summary: {engine.summary}",
        f"License-Expression: {recipe.license}",
        *(f"License-File: {name}" for name in licenses),
        "Classifier: Operating System :: POSIX :: Linux",
        f"Project-URL: Source, {recipe.repository}",
        "Requires-Python: >=3.10",
        *(f"Requires-Dist: {name}" for name in requires),
    ]
    text = (
        f"{engine.summary}, from commit {pin.commit} ({pin.tag}).\n\n"
        f"Programs: {', '.join(engine.scripts)}.\n"
    )
    return ("\n".join(lines) + "\n\n" + text).encode()


def entry_points(scripts: Mapping[str, str]) -> bytes:
    """``entry_points.txt`` with console scripts."""
    lines = ["[console_scripts]", *(f"{name} = {what}" for name, what in sorted(scripts.items()))]
    return ("\n".join(lines) + "\n").encode()


def wheel_file(upstream: bytes, *, tags: Sequence[str], builder: str) -> bytes:
    """WHEEL, agreeing with the file name (upstream's does not)."""
    pure = re.search(rb"^Root-Is-Purelib: (\w+)", upstream, re.MULTILINE)
    lines = [
        "Wheel-Version: 1.0",
        f"Generator: sm86-builder ({builder})",
        f"Root-Is-Purelib: {pure[1].decode() if pure else 'false'}",
        *(f"Tag: {tag}" for tag in tags),
    ]
    return ("\n".join(lines) + "\n").encode()


def notice(
    *, distribution: str, version: str, commit: str, patches: Sequence[BuiltPatch],
    files: Sequence[BuiltFile], dropped: dict[str, str],
) -> bytes:  # fmt: skip
    """The list of changes that the Apache License 2.0, section 4(b), asks for."""
    lines = [
        f"{distribution} {version}",
        "",
        f"This is an unofficial build of {distribution}, made by sm86-builder from upstream commit",
        f"{commit}. It is not supported by upstream.",
        "",
        "Patches, in order:",
        *(f"  {patch.id}: {patch.title}" for patch in patches),
        *(["  none"] if not patches else []),
        "",
        "Files changed from upstream's:",
        *(f"  {file.path} ({', '.join(file.patches)})" for file in files),
        *(["  none"] if not files else []),
        "",
        "Left out of upstream's wheel:",
        *(f"  {pattern}: {why}" for pattern, why in dropped.items()),
        *(["  nothing"] if not dropped else []),
        "",
        "Each changed file says so at its top. The full record is builder.json beside this folder.",
    ]
    return ("\n".join(lines) + "\n").encode()
