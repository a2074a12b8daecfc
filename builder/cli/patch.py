"""``sm86 patch apply|verify|checkout|export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder.arch import parse_target
from builder.cli.common import common
from builder.errors import PatchError, UsageError
from builder.job import Request, patched_tree, prepare, pristine_tree
from builder.patch import apply_to_directory, author

if TYPE_CHECKING:
    from builder.cli.common import App
    from builder.job import Job
    from builder.patch.apply import Applied

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


def _job(app: App, engine: str, arch: str, pin: str | None, *, authoring: bool = False) -> Job:
    return prepare(app.context, Request(engine, parse_target(arch), pin, authoring=authoring))


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
    _show(
        app,
        "patch apply",
        apply_to_directory(app.context, tree, patches, dry_run=app.context.dry_run),
    )


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
        if engine is not None:
            members = _job(app, engine, arch, pin).members
            patches = tuple(member.file for member in members)
        if not patches:
            raise UsageError("--tree needs an engine or --patch", fix="see 'sm86 patch verify -h'")
        _show(app, "patch verify", apply_to_directory(app.context, tree, patches, dry_run=True))
        return
    if engine is None:
        raise UsageError("neither an engine nor --tree was given", fix="see 'sm86 patch verify -h'")
    job = _job(app, engine, arch, pin)
    found = patched_tree(app.context, job)
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
    job = _job(app, engine, arch, pin, authoring=True)
    if app.context.dry_run:
        app.result("patch checkout", {"folder": str(folder), "patches": len(job.members)})
        app.line(f"{folder}: would hold {len(job.members)} commit(s) on {engine} {job.pin.version}")
        return
    pristine = pristine_tree(app.context, job)
    done = author.checkout(app.context, job.pin, pristine, job.members, folder)
    app.result("patch checkout", {"folder": str(folder), "patches": [m.patch.id for m in done]})
    app.line(f"{folder}: {len(done)} commit(s) on {engine} {job.pin.version}")
    if len(done) < len(job.members):
        stuck = job.members[len(done)]
        app.line(f"{stuck.patch.id} does not fit; make its change by hand, for example with")
        app.line(f"  git -C {folder} apply --3way {stuck.file}")
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
    job = _job(app, engine, arch, pin, authoring=True)
    exported = author.compare(job.members, author.read_commits(app.context, folder))
    changed = [item.id for item in exported if item.changed]
    if not (check or app.context.dry_run):
        author.write(exported, app.context.patches / engine, job.pin.version)
    app.result("patch export", {"patches": [item.id for item in exported], "changed": changed})
    app.line(f"{len(exported)} patch(es), changed: {', '.join(changed) or 'none'}")
    if check and changed:
        raise PatchError(f"{', '.join(changed)} would change", fix="run without --check")
