"""``sm86 prove``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder import pipeline
from builder.arch import parse_target
from builder.cli.common import common
from builder.errors import ProofError
from builder.installed import site_packages, verify_installed
from builder.prove.page import page
from builder.prove.prove import Series, prove_installed, prove_trees, require_proven
from builder.prove.world import world
from builder.store import write_atomic

if TYPE_CHECKING:
    from builder.cli.common import App


@click.command(epilog="Example: sm86 prove vllm --only genesis-quant")
@click.argument("engine")
@click.option("--pin", metavar="VERSION", help="Pinned version (default: the newest).")
@click.option("--arch", default="sm_86", show_default=True, help="Architecture.")
@click.option("--only", metavar="PATCH", help="Prove one patch.")
@click.option(
    "--installed",
    is_flag=True,
    help="Prove the package that is installed for --python, green only.",
)
@click.option(
    "--python", type=click.Path(path_type=Path), metavar="PYTHON",
    help="Interpreter of an environment with the engine's dependencies"
    " (default: one is made from the lock).",
)  # fmt: skip
@click.option(
    "--report", type=click.Path(path_type=Path), metavar="FILE", help="Write the JSON here."
)
@click.option(
    "--page", "html", type=click.Path(path_type=Path), metavar="FILE",
    help="Write the report as one HTML page here.",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(1), default=2, show_default=True, help="Scripts at a time."
)
@common()
def prove(
    app: App, engine: str, pin: str | None, arch: str, only: str | None, python: Path | None,
    report: Path | None, html: Path | None, *, jobs: int, installed: bool,
) -> None:  # fmt: skip
    """Show every patch red without it and green with it. Needs no GPU."""
    target = parse_target(arch)
    job = pipeline.prepare(app.context, pipeline.Request(engine, target, pin))
    interpreter = python or world(app.context, job.pin)
    series = Series(job.engine, job.pin, target, job.members)
    if installed:
        site = site_packages(interpreter)
        there = verify_installed(job.engine.distribution, site=site).patches
        wanted = tuple(member.patch.id for member in job.members)
        if there != wanted:
            raise ProofError(
                f"installed are the patches {', '.join(there)}, the series is {', '.join(wanted)}",
                fix="install the wheel that this recipe builds",
            )
        found = prove_installed(
            app.context, series, site=site, python=interpreter, only=only, jobs=jobs
        )
    else:
        tree = pipeline.patched_tree(app.context, job)
        found = prove_trees(
            app.context, series, git=tree.git, patched=tree.patched, python=interpreter,
            only=only, jobs=jobs,
        )  # fmt: skip
    if report is not None:
        write_atomic(report, found.model_dump_json(indent=1) + "\n")
    if html is not None:
        write_atomic(html, page(found))
    app.result("prove", found.model_dump(mode="json"))
    rows = [
        (
            f"{r.patch}/{r.proof}",
            f"{r.subject} {r.mutant}".strip(),
            "ok" if r.ok else "BAD",
            r.verdict,
        )
        for r in found.runs
    ]
    app.table(found.emulated, ["proof", "on", "", "verdict"], rows)
    for one in found.not_run:
        card = one.recorded.get("device") or one.recorded.get("card")
        app.line(f"not run, needs a GPU: {one.patch}/{one.proof}: {one.shows} (recorded on {card})")
    require_proven(found)
