"""``sm86 build``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder import pipeline
from builder.arch import parse_target
from builder.cli.audit import show_report
from builder.cli.common import common, megabytes
from builder.source import Origin

if TYPE_CHECKING:
    from builder.cli.common import App


@click.command(epilog="Example: sm86 build vllm --arch sm_86")
@click.argument("engine")
@click.option("--arch", required=True, metavar="ARCH", help="Architecture, for example sm_86.")
@click.option("--pin", metavar="VERSION", help="Pinned version (default: the newest).")
@click.option(
    "--from", "origin", type=click.Choice(["sdist", "git"]), default="sdist",
    help="Where the source comes from.", show_default=True,
)  # fmt: skip
@click.option(
    "--source", type=click.Path(path_type=Path), metavar="PATH",
    help="Build from a local folder or archive instead; the wheel is marked dirty.",
)  # fmt: skip
@click.option(
    "--native", type=click.Choice(["auto", "upstream"]), default="auto", show_default=True,
    help="Where compiled modules come from; auto is upstream's official wheel.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("wheels"),
    help="Folder for the wheel.", show_default=True,
)  # fmt: skip
@click.option("--plan", is_flag=True, help="Say what it will cost, do nothing.")
@common(writes=True)
def build(
    app: App, engine: str, arch: str, pin: str | None, origin: str, source: Path | None,
    native: str, out: Path, *, plan: bool,
) -> None:  # fmt: skip
    """Build a patched, audited wheel of ENGINE."""
    del native  # both choices mean upstream's modules until compiling is part of the builder
    context = app.context.with_(out=out)
    where = Origin("local", source) if source else Origin("git" if origin == "git" else "sdist")
    job = pipeline.prepare(context, pipeline.Request(engine, parse_target(arch), pin, where))
    if plan or context.dry_run:
        cost = pipeline.plan(context, job)
        app.result("build", {"plan": cost})
        app.line(f"{engine} {cost['version']} for {cost['arch']}")
        app.line(f"  patches    {', '.join(cost['patches']) or 'none'}")
        for item in cost["downloads"]:
            app.line(f"  download   {item['file']} ({megabytes(item['bytes'])})")
        cut = f"modules from upstream's wheel, cut to {cost['arch']}"
        app.line(f"  compile    {cost['compile_units']} units ({cut})")
        app.line(f"  disk       {megabytes(cost['disk_bytes'])}")
        return
    built = pipeline.build(context, job)
    app.result(
        "build",
        {
            "wheel": str(built.wheel),
            "version": built.result.version,
            "sha256": built.result.sha256,
            "size": built.result.size,
            "unpacked": built.result.unpacked,
            "official_size": job.pin.wheel.size,
            "seconds": round(built.seconds, 1),
            "patches": [record.id for record in built.patched.patches],
            "locks": [str(path) for path in built.locks],
            "audit": built.audit.model_dump(mode="json"),
        },
    )
    show_report(app, built.audit)
    app.line("")
    app.line(f"wheel    {built.wheel}")
    app.line(f"size     {megabytes(built.result.size)} (official: {megabytes(job.pin.wheel.size)})")
    app.line(f"sha256   {built.result.sha256}")
    app.line(f"seconds  {built.seconds:.1f}")
    app.line(f"install  pip install -r {built.locks[0]}")
