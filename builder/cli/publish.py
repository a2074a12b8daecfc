"""``sm86 publish``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder.arch import parse_target
from builder.audit.run import audit_wheel
from builder.cli.common import common
from builder.engines.registry import engine_of
from builder.errors import PublishError
from builder.publish.simple import install_line
from builder.publish.static import publish as publish_

if TYPE_CHECKING:
    from builder.cli.common import App


@click.command(epilog="Example: sm86 publish wheels/*.whl --index public")
@click.argument(
    "wheels", nargs=-1, required=True, metavar="WHEEL...",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
)  # fmt: skip
@click.option(
    "--index", required=True, metavar="DIR", help="Folder of the index.",
    type=click.Path(path_type=Path, file_okay=False),
)  # fmt: skip
@click.option("--arch", default="sm_86", show_default=True, help="Card that the wheels are for.")
@common(writes=True)
def publish(app: App, wheels: tuple[Path, ...], index: Path, arch: str) -> None:
    """Add wheels to a static index that pip and uv install from.

    Every wheel is audited first; one that fails, or that was built from a changed source, is
    not published.
    """
    target = parse_target(arch)
    for wheel in wheels:
        report = audit_wheel(wheel, target, engine=engine_of)
        bad = [*report.errors, *(one for one in report.findings if one.rule == "AUD-DIRTY-001")]
        if bad:
            raise PublishError(
                f"{wheel.name}: {bad[0].rule} {bad[0].message}", fix="see 'sm86 audit'"
            )
    if app.context.dry_run:
        app.result("publish", {"would_publish": [wheel.name for wheel in wheels]})
        app.line(f"would add {len(wheels)} wheel(s) to {index}")
        return
    entries = publish_(wheels, index)
    app.result("publish", {"entries": [one.model_dump(mode="json") for one in entries]})
    for one in entries:
        app.line(f"published {one.file}")
    app.line("")
    for one in entries:
        app.line(f"install  {install_line(one, 'ADDRESS')}")
    app.line(
        "         where ADDRESS is what serves the folder; the full version is the only safe pin"
    )
