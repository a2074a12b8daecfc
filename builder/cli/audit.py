"""``sm86 audit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder.arch import parse_target
from builder.audit.finding import RULES
from builder.audit.run import audit_wheel
from builder.cli.common import common, megabytes
from builder.engines.registry import engine_of
from builder.errors import AuditError

if TYPE_CHECKING:
    from builder.audit.finding import AuditReport
    from builder.cli.common import App


def show_report(app: App, report: AuditReport) -> None:
    """Print an audit for people."""
    rows = []
    for module in report.modules:
        if not module.archs:
            continue
        held = ", ".join(f"{arch} {size / 1e6:.1f}" for arch, (_, size) in module.archs.items())
        rows.append((module.path, megabytes(module.size), "yes" if module.runs else "no", held))
    if rows:
        columns = ["module", "size>", f"runs on {report.arch}", "MB of GPU code by architecture"]
        app.table("", columns, rows)
        app.line("")
    findings = [(one.rule, one.severity, one.where, one.message) for one in report.findings]
    if findings:
        app.table("", ["rule", "severity", "where", "what"], findings)
        app.line("")
    verdict = "fails" if report.errors else "passes"
    count = f"{len(report.checked)} rules, {len(report.errors)} errors"
    app.line(f"audit    {report.wheel} {verdict}: {count}")


@click.command(epilog="Example: sm86 audit wheels/*.whl --arch sm_86")
@click.argument("wheels", nargs=-1, type=click.Path(path_type=Path), metavar="WHEEL...")
@click.option("--arch", default="sm_86", show_default=True, help="Card that it is to run on.")
@click.option(
    "--against", type=click.Path(path_type=Path, file_okay=False), metavar="SITE_PACKAGES",
    help="Check the modules' symbols against the torch in this folder.",
)  # fmt: skip
@click.option("--rules", is_flag=True, help="List the rules and stop.")
@common()
def audit(
    app: App, wheels: tuple[Path, ...], arch: str, against: Path | None, *, rules: bool
) -> None:
    """Check that wheels are what their labels say; any wheel, ours or another's."""
    if rules:
        known = [rule.model_dump(mode="json") for rule in RULES.values()]
        app.result("audit", {"rules": known})
        app.table(
            "", ["rule", "severity", "holds"], [(r.id, r.severity, r.holds) for r in RULES.values()]
        )
        return
    if not wheels:
        msg = "no wheel given"
        raise click.UsageError(msg)
    target = parse_target(arch)
    reports = [audit_wheel(path, target, engine=engine_of, against=against) for path in wheels]
    app.result("audit", {"reports": [report.model_dump(mode="json") for report in reports]})
    for report in reports:
        show_report(app, report)
    bad = [report for report in reports if report.errors]
    if bad:
        first = bad[0].errors[0]
        raise AuditError(
            f"{bad[0].wheel}: {first.rule} {first.where}: {first.message}", fix=first.fix
        )
