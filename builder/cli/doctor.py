"""``sm86 doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from builder.cli.common import common
from builder.doctor import examine, worst

if TYPE_CHECKING:
    from builder.cli.common import App


@click.command(epilog="Example: sm86 doctor")
@common()
def doctor(app: App) -> None:
    """Look at this machine: tools, disk, memory, GPU, driver; say what to do."""
    findings = examine(app.context)
    app.result("doctor", {"findings": [one.as_dict() for one in findings]})
    app.table(
        "", ["what", "status", "found", "what to do"],
        [(one.name, one.status, one.detail, one.fix) for one in findings],
    )  # fmt: skip
    error = worst(findings)
    if error is not None:
        raise error
