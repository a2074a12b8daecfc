"""``sm86 build``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
@click.option("--arch", metavar="ARCH", help="Architecture, for example sm_86.")
@click.option("--cpu-only", is_flag=True, help="Build the form without GPU code instead.")
@click.option("--jobs", type=click.IntRange(1), help="Compilers at a time (default: as fits).")
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
    app: App, engine: str, arch: str | None, pin: str | None, origin: str, source: Path | None,
    native: str, out: Path, *, jobs: int | None, cpu_only: bool, plan: bool,
) -> None:  # fmt: skip
    """Build a patched, audited wheel of ENGINE."""
    del native  # both choices mean what the recipe says until an engine has more than one way
    if (arch is None) != cpu_only:
        msg = "name either --arch ARCH or --cpu-only"
        raise click.UsageError(msg)
    context = app.context.with_(out=out)
    where = Origin("local", source) if source else Origin("git" if origin == "git" else "sdist")
    target = parse_target(arch) if arch else None
    job = pipeline.prepare(context, pipeline.Request(engine, target, pin, where))
    if plan or context.dry_run:
        cost = pipeline.plan(context, job)
        app.result("build", {"plan": cost})
        app.line(f"{engine} {cost['version']} for {cost['arch']}")
        app.line(f"  patches    {', '.join(cost['patches']) or 'none'}")
        for item in cost["downloads"]:
            app.line(f"  download   {item['file']} ({megabytes(item['bytes'])})")
        app.line(f"  compile    {cost['compile_units']} units ({_how(cost)})")
        app.line(f"  disk       {megabytes(cost['disk_bytes'])}")
        return
    built = pipeline.build(context, job, jobs=jobs)
    official = job.pin.wheel.size if job.pin.wheel else None
    app.result(
        "build",
        {
            "wheel": str(built.wheel),
            "version": built.result.version,
            "sha256": built.result.sha256,
            "size": built.result.size,
            "unpacked": built.result.unpacked,
            "official_size": official,
            "seconds": round(built.seconds, 1),
            "patches": [record.id for record in built.patched.patches],
            "locks": [str(path) for path in built.locks],
            "audit": built.audit.model_dump(mode="json"),
        },
    )
    show_report(app, built.audit)
    app.line("")
    app.line(f"wheel    {built.wheel}")
    beside = f" (official: {megabytes(official)})" if official else ""
    app.line(f"size     {megabytes(built.result.size)}{beside}")
    app.line(f"sha256   {built.result.sha256}")
    app.line(f"seconds  {built.seconds:.1f}")
    app.line(f"install  pip install -r {built.locks[0]}")


def _how(cost: dict[str, Any]) -> str:
    if cost["native"] == "upstream":
        return f"modules from upstream's wheel, cut to {cost['arch']}"
    minutes = cost["compile_seconds"] / 60
    return f"about {minutes:.0f} min, {cost['memory_gib']} GiB of memory; {cost['compile_from']}"
