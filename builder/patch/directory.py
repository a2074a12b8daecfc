"""Applying patches to any folder, in place, all or none, safe to kill.

The folder is taken as it is: a repository around it or in it is neither read nor touched.
Old and new contents first go into a journal outside the folder, in the cache, where no
archive can have planted one. A run that finds a complete journal finishes it; a file that
somebody has changed in the meantime stops it.
"""

from __future__ import annotations

import glob
import hashlib
import os
import secrets
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from builder.errors import PatchError, UsageError
from builder.git import Git, git_blob
from builder.patch.apply import Applied, apply_mails
from builder.patch.changes import changes
from builder.patch.mail import parse
from builder.patch.order import expand
from builder.source.tree import write_tree
from builder.store import digest, lock, remove_tree, scratch, sweep, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from builder.context import Context

_EPOCH: Final = 1_000_000_000
_LINK: Final = "120000"


class _Step(BaseModel):
    """One file: mode and blob before and after; empty where it is not there."""

    model_config = ConfigDict(frozen=True)

    path: str
    old_mode: str
    old_blob: str
    new_mode: str
    new_blob: str


class _Journal(BaseModel):
    """What is to be done, and for which patches."""

    model_config = ConfigDict(frozen=True)

    request: str
    steps: tuple[_Step, ...]


def apply_to_directory(
    context: Context, tree: Path, patches: Sequence[Path], *, dry_run: bool
) -> list[Applied]:
    """Apply patch files to a folder.

    Args:
        context: for locks, journal and scratch folders.
        tree: the folder.
        patches: patch files, or folders of them.
        dry_run: check only.

    Returns:
        What was applied (with `dry_run`, what would be); nothing if this run only finished
        what a killed run of the same patches had begun.

    Raises:
        UsageError: the folder does not exist.
        PatchError: a patch does not fit exactly; the folder is unchanged.
    """
    if not tree.is_dir():
        raise UsageError(f"--tree {tree}: no such folder", fix="check the path")
    mails = [mail for path in expand(patches) for mail in parse(path)]
    request = digest([hashlib.sha256(mail.canonical()).hexdigest() for mail in mails])
    place = hashlib.sha256(os.fsencode(tree.resolve())).hexdigest()[:32]
    home = context.cache_dir("apply") / place
    with lock(context, f"apply-{place}"), scratch(context) as room:
        sweep(home.parent, place)
        if home.exists():
            if dry_run and _read(home) is not None:
                raise PatchError(
                    f"{tree}: an interrupted run is waiting to be finished",
                    fix="run 'sm86 patch apply' once more",
                )
            if not dry_run and _finish(home, tree) == request:
                context.say(f"{tree}: finished what an interrupted run had begun")
                return []
        git = Git.init(room / "repo.git")
        base = git.commit_tree(write_tree(git, tree), "tree\n", epoch=_EPOCH)
        applied = apply_mails(context, git, base, mails, epoch=_EPOCH)
        if applied and not dry_run:
            _write_journal(home, git, request, base, applied[-1].commit)
            _finish(home, tree)
    return applied


def _write_journal(home: Path, git: Git, request: str, base: str, after: str) -> None:
    remove_tree(home)
    home.mkdir(parents=True)
    steps: list[_Step] = []
    for change in changes(git, base, after, renames=False):
        old, new = change.status != "A", change.status != "D"
        steps.append(
            _Step(
                path=change.path,
                old_mode=change.old_mode if old else "", old_blob=change.old_blob if old else "",
                new_mode=change.new_mode if new else "", new_blob=change.new_blob if new else "",
            )
        )  # fmt: skip
        for blob in filter(None, (steps[-1].old_blob, steps[-1].new_blob)):
            (home / blob).write_bytes(git.blob(blob))
    # a file goes before a folder of its name comes, and the other way round
    steps.sort(key=lambda step: bool(step.new_mode))
    note = _Journal(request=request, steps=tuple(steps))
    write_atomic(home / "journal.json", note.model_dump_json())


def _read(home: Path) -> _Journal | None:
    try:
        return _Journal.model_validate_json((home / "journal.json").read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _finish(home: Path, tree: Path) -> str:
    """Bring a journal's files to their new state; all of them, or back to the old one.

    Returns:
        The request that the journal was for; empty if there was no complete one.
    """
    journal = _read(home)
    if journal is None:
        remove_tree(home)
        return ""
    for step in journal.steps:
        _safe(tree, step.path)
        state = _state(tree / step.path)
        if state not in {(step.old_mode, step.old_blob), (step.new_mode, step.new_blob)}:
            remove_tree(home)
            raise PatchError(
                f"{tree / step.path} was changed while patches were being applied",
                fix="look at the folder, restore it, and apply again",
            )
    try:
        for step in journal.steps:
            _put(home, tree, step.path, step.new_mode, step.new_blob)
    except OSError as error:
        for step in reversed(journal.steps):
            _put(home, tree, step.path, step.old_mode, step.old_blob)
        remove_tree(home)
        raise PatchError(
            f"{error.filename or tree}: cannot be written: {error.strerror}",
            fix="nothing was changed",
        ) from error
    remove_tree(home)
    return journal.request


def _safe(tree: Path, path: str) -> None:
    """A path stays in the folder, and no folder on its way is a link."""
    pure = PurePosixPath(path)
    outside = pure.is_absolute() or ".." in pure.parts
    if outside or any((tree / parent).is_symlink() for parent in list(pure.parents)[:-1]):
        raise PatchError(f"{path} leads outside {tree}", fix="do not apply this patch")


def _state(path: Path) -> tuple[str, str]:
    """Mode and blob of what stands at a path; empty for nothing or a folder."""
    try:
        if path.is_symlink():
            return _LINK, git_blob(os.fsencode(path.readlink()))
        if path.is_dir():
            return "", ""
        executable = path.stat().st_mode & 0o100
        return ("100755" if executable else "100644"), git_blob(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return "", ""


def _put(home: Path, tree: Path, path: str, mode: str, blob: str) -> None:
    """Make a path have this mode and content, or be gone; atomic for each file."""
    target = tree / path
    there = _state(target) == (mode, blob)
    if not mode:
        if not there:
            target.unlink()
        # also when the file is gone: a killed run may have left its empty folder
        for parent in _parents(tree, target):
            if any(parent.iterdir()):
                break
            parent.rmdir()
        return
    if there:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f".{glob.escape(target.name)}.sm86-*"):
        left.unlink()
    fresh = target.with_name(f".{target.name}.sm86-{secrets.token_hex(4)}")
    try:
        if mode == _LINK:
            fresh.symlink_to(os.fsdecode((home / blob).read_bytes()))
        else:
            fresh.write_bytes((home / blob).read_bytes())
            keep = target.stat().st_mode & 0o666 if target.is_file() else 0o644
            fresh.chmod(keep | (0o111 if mode == "100755" else 0))
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


def _parents(tree: Path, target: Path) -> Iterator[Path]:
    parent = target.parent
    while parent != tree and parent.is_dir():
        yield parent
        parent = parent.parent
