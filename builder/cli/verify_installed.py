"""``sm86 verify-installed``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder.cli.common import common
from builder.installed import site_packages
from builder.installed import verify_installed as verify

if TYPE_CHECKING:
    from builder.cli.common import App


@click.command(
    name="verify-installed", epilog="Example: sm86 verify-installed vllm --python .venv/bin/python"
)
@click.argument("distribution", default="vllm")
@click.option(
    "--python", type=click.Path(path_type=Path), metavar="PYTHON",
    help="Interpreter of the environment (default: the one that runs this).",
)  # fmt: skip
@common()
def verify_installed(app: App, distribution: str, python: Path | None) -> None:
    """Check that an environment still holds our wheel, with every patch live."""
    found = verify(distribution, site=site_packages(python))
    app.result("verify-installed", found.model_dump(mode="json"))
    app.line(f"{distribution} {found.version} in {found.site_packages}")
    app.line(f"patches live: {', '.join(found.patches) or 'none'}")
