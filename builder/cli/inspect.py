"""``sm86 inspect``."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder.arch import parse_target
from builder.cli.common import common, megabytes
from builder.errors import UsageError
from builder.native import fatbin
from builder.native.elf import is_elf
from builder.wheel import archive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.cli.common import App


def _compiled(path: Path) -> Iterator[tuple[str, bytes]]:
    if not path.is_file():
        raise UsageError(f"{path}: no such file", fix="check the path")
    if not zipfile.is_zipfile(path):
        data = path.read_bytes()
        if not is_elf(data) and not data.startswith(b"\x50\xed\x55\xba"):
            raise UsageError(f"{path}: neither a wheel nor a compiled file", fix="check the path")
        yield path.name, data
        return
    for entry in archive.members(path):
        data = archive.content(entry)
        if is_elf(data):
            yield entry.name, data


@click.command(epilog="Example: sm86 inspect wheels/vllm-0.22.1*.whl")
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE|WHEEL")
@click.option(
    "--kernels", metavar="ARCH",
    help="Instead, list as JSON how often each GPU function has code that runs on ARCH.",
)  # fmt: skip
@common()
def inspect(app: App, path: Path, kernels: str | None) -> None:
    """Show which GPU code a wheel, a module or a fat binary holds."""
    found = [(name, len(data), fatbin.read(data)) for name, data in _compiled(path)]
    if kernels is not None:
        arch = parse_target(kernels)
        listing = {name: dict(sorted(module.kernels(arch).items())) for name, _, module in found}
        wanted = {name: functions for name, functions in listing.items() if functions}
        click.echo(json.dumps(wanted, indent=1, sort_keys=True))
        return
    app.result(
        "inspect",
        {
            "modules": [
                {
                    "path": name,
                    "size": size,
                    "containers": len(module.containers),
                    "archs": {
                        str(code): {"pieces": pieces, "bytes": held}
                        for code, (pieces, held) in module.totals().items()
                    },
                    "compression": sorted({e.compression or "none" for e in module.entries}),
                }
                for name, size, module in found
            ]
        },
    )
    rows: list[tuple[object, ...]] = []
    for name, size, module in found:
        totals = module.totals()
        if not totals:
            rows.append((name, megabytes(size), "-", "", "", ""))
        for code, (pieces, held) in totals.items():
            kinds = {e.compression or "none" for e in module.entries if e.code == code}
            rows.append((name, megabytes(size), code, pieces, f"{held:,}", "/".join(sorted(kinds))))
    app.table("", ["module", "size>", "architecture", "pieces>", "bytes>", "compression"], rows)
