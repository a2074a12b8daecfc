"""``sm86 list``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from builder import recipe, series
from builder.cli.common import common

if TYPE_CHECKING:
    from builder.cli.common import App


@click.command(name="list", epilog="Example: sm86 list --json")
@click.argument("engine", required=False)
@common()
def list_(app: App, engine: str | None) -> None:
    """List recipes, pins and patches, and where each patch stands."""
    engines = [engine] if engine else recipe.names(app.context)
    data = []
    for name in engines:
        found = recipe.load(app.context, name)
        patches = series.all_patches(app.context, name)
        rows = []
        for one in patches:
            folder = app.context.patches / name / one.id
            pins = sorted(path.stem for path in folder.glob("*.patch"))
            rows.append(
                (one.id, ", ".join(pins), one.capability or "all", one.upstream.status, one.title)
            )
        app.table(
            f"{name}: {found.repository}",
            ["pin", "commit", "torch", "CUDA", "patches"],
            [
                (p.version, p.commit[:12], p.torch or "none", p.cuda, ", ".join(p.patches))
                for p in found.pins
            ],
        )
        app.line("")
        app.table("", ["patch", "for pins", "cards", "upstream", "what it does"], rows)
        data.append(
            {
                "engine": name,
                "pins": [pin.model_dump(mode="json") for pin in found.pins],
                "patches": [one.model_dump(mode="json") for one in patches],
            }
        )
    app.result("list", {"engines": data})
