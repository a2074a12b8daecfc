"""``sm86 patch apply|verify|checkout|export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder.arch import parse_target
from builder.cli.common import common
from builder.errors import PatchError, UsageError
from builder.patch import apply_to_directory, author

if TYPE_CHECKING:
    from builder.cli.common import App
    from builder.patch.apply import Applied
    from builder.pipeline import Job, Tree

_ENGINE = click.argument("engine")
_PIN = click.option("--pin", metavar="VERSION", help="Pinned version (default: the newest).")
_ARCH = click.option("--arch", default="sm_86", show_default=True, help="Architecture.")
_TREE = click.option(
    "--tree", type=click.Path(path_type=Path), metavar="DIR", help="Any folder with sources."
)
_FILES = click.argument("patches", nargs=-1, type=click.Path(path_type=Path))


@click.group()
def patch() -> None:
    """Apply, check and edit patches."""


def _series(app: App, engine: str, arch: str, pin: str | None) -> tuple[Job, Tree]:
    """The series of a pin, applied."""
    from builder import pipeline  # noqa: PLC0415  (slow to load; 'apply' does without)

    job = pipeline.prepare(app.context, pipeline.Request(engine, parse_target(arch), pin))
    return job, pipeline.patched_tree(app.context, job)


def _show(app: App, command: str, applied: list[Applied]) -> None:
    rows = [
        (one.mail.name, one.mail.subject, len(one.files), f"+{one.added} -{one.removed}")
        for one in applied
    ]
    app.result(
        command,
        {
            "patches": [
                {
                    "file": one.mail.name,
                    "subject": one.mail.subject,
                    "files": [change.model_dump() for change in one.files],
                    "added": one.added,
                    "removed": one.removed,
                }
                for one in applied
            ]
        },
    )
    app.table("", ["patch", "subject", "files>", "lines>"], rows)


@patch.command(epilog="Example: sm86 patch apply --tree vllm-0.22.1 patches/vllm/genesis-quant")
@click.option(
    "--tree", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Folder."
)
@_FILES
@common(writes=True)
def apply(app: App, tree: Path, patches: tuple[Path, ...]) -> None:
    """Apply PATCHES (files, or folders with a series) to a folder: all exactly, or none."""
    if not patches:
        msg = "no patch given"
        raise click.UsageError(msg)
    _show(app, "patch apply", apply_to_directory(tree, patches, dry_run=app.context.dry_run))


@patch.command(epilog="Example: sm86 patch verify vllm")
@click.argument("engine", required=False)
@_PIN
@_ARCH
@_TREE
@click.option(
    "--patch", "patches", multiple=True, type=click.Path(path_type=Path), help="With --tree."
)
@common()
def verify(
    app: App, engine: str | None, pin: str | None, arch: str, tree: Path | None,
    patches: tuple[Path, ...],
) -> None:  # fmt: skip
    """Check that a series applies exactly and that its files are what 'export' writes."""
    if tree is not None:
        _show(app, "patch verify", apply_to_directory(tree, patches, dry_run=True))
        return
    if engine is None:
        raise UsageError("neither an engine nor --tree was given", fix="see 'sm86 patch verify -h'")
    job, found = _series(app, engine, arch, pin)
    for member, record in zip(job.members, found.patched.patches, strict=True):
        if author.format_commit(found.git, record.commit) != member.file.read_bytes():
            raise PatchError(
                f"{member.patch.id}/{member.file.name} is not what 'patch export' writes",
                fix="run 'sm86 patch checkout' and 'sm86 patch export'",
            )
        author.check_trailers(member)
    rows = [
        (r.id, r.subject, len(r.files), f"+{r.added} -{r.removed}") for r in found.patched.patches
    ]
    app.result("patch verify", found.patched.model_dump(mode="json"))
    app.table("", ["patch", "subject", "files>", "lines>"], rows)
    app.line(f"{engine} {job.pin.version}: {len(rows)} patch(es) apply exactly")


@patch.command(epilog="Example: sm86 patch checkout vllm /tmp/vllm")
@_ENGINE
@click.argument("folder", type=click.Path(path_type=Path))
@_PIN
@_ARCH
@common(writes=True)
def checkout(app: App, engine: str, folder: Path, pin: str | None, arch: str) -> None:
    """Make a git repository in FOLDER with the series as commits, to edit them."""
    job, found = _series(app, engine, arch, pin)
    if not app.context.dry_run:
        author.checkout(found.git, found.patched, folder)
    app.result("patch checkout", {"folder": str(folder), "base": found.patched.base})
    app.line(f"{folder}: {len(job.members)} commit(s) on {engine} {job.pin.version}")
    app.line("edit, commit with the trailers 'Upstream-Status:' and 'Patch: <id>', then:")
    app.line(f"  sm86 patch export {engine} {folder}")


@patch.command(epilog="Example: sm86 patch export vllm /tmp/vllm")
@_ENGINE
@click.argument("folder", type=click.Path(path_type=Path))
@_PIN
@_ARCH
@click.option("--check", is_flag=True, help="Fail if a file would change.")
@common(writes=True)
def export(app: App, engine: str, folder: Path, pin: str | None, arch: str, *, check: bool) -> None:
    """Write the commits of FOLDER back to the patch files, byte for byte repeatable."""
    job, _ = _series(app, engine, arch, pin)
    exported = author.compare(job.members, author.read_commits(folder))
    changed = [item.id for item in exported if item.changed]
    if not (check or app.context.dry_run):
        author.write(exported, app.context.patches / engine, job.pin.version)
    app.result("patch export", {"patches": [item.id for item in exported], "changed": changed})
    app.line(f"{len(exported)} patch(es), changed: {', '.join(changed) or 'none'}")
    if check and changed:
        raise PatchError(f"{', '.join(changed)} would change", fix="run without --check")
