"""Applying patches to any folder, in place, all or none, safe to kill.

The folder is taken as it is: a repository around it or in it is neither read nor touched.
Results are first written out beside a journal; once the journal is complete the change is
rolled forward, by this run or, after a kill, by the next one.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from builder.errors import PatchError, UsageError
from builder.git import Git
from builder.patch.apply import Applied, apply_mails, changes
from builder.patch.mail import parse
from builder.patch.order import expand
from builder.source.tree import write_tree
from builder.store import write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence

_JOURNAL: Final = ".sm86-apply"
_EPOCH: Final = 1_000_000_000


def apply_to_directory(tree: Path, patches: Sequence[Path], *, dry_run: bool) -> list[Applied]:
    """Apply patch files to a folder.

    Args:
        tree: the folder.
        patches: patch files, or folders of them.
        dry_run: check only.

    Returns:
        What was applied (with `dry_run`, what would be).

    Raises:
        UsageError: the folder does not exist.
        PatchError: a patch does not fit exactly; the folder is unchanged.
    """
    if not tree.is_dir():
        raise UsageError(f"--tree {tree}: no such folder", fix="check the path")
    files = expand(patches)
    mails = [mail for path in files for mail in parse(path)]
    recover(tree)
    with tempfile.TemporaryDirectory(prefix="sm86-tree-") as name:
        git = Git.init(Path(name) / "repo.git")
        base = git.commit_tree(write_tree(git, tree), "tree\n", epoch=_EPOCH)
        applied = apply_mails(git, base, mails, epoch=_EPOCH)
        if applied and not dry_run:
            _swap_in(git, base, applied[-1].commit, tree)
    return applied


def _swap_in(git: Git, base: str, after: str, tree: Path) -> None:
    journal = tree / _JOURNAL
    shutil.rmtree(journal, ignore_errors=True)
    try:
        journal.mkdir()
        steps: list[dict[str, str]] = []
        for number, change in enumerate(changes(git, base, after, renames=False)):
            step = {"path": change.path, "mode": change.new_mode, "file": ""}
            if change.status != "D":
                step["file"] = str(number)
                (journal / str(number)).write_bytes(git.blob(change.new_blob))
            steps.append(step)
        write_atomic(journal / "journal.json", json.dumps(steps))
    except OSError as error:
        shutil.rmtree(journal, ignore_errors=True)
        raise PatchError(
            f"{tree}: cannot write there: {error.strerror}", fix="nothing was changed"
        ) from error
    recover(tree)


def recover(tree: Path) -> None:
    """Finish what a killed run had decided, or clear away what it had not."""
    journal = tree / _JOURNAL
    note = journal / "journal.json"
    if note.is_file():
        for step in json.loads(note.read_text()):
            target = tree / step["path"]
            if not step["file"]:
                target.unlink(missing_ok=True)
                _prune(target.parent, tree)
                continue
            fresh = journal / step["file"]
            if not fresh.exists():  # already moved into place
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if step["mode"] == "120000":
                link = journal / f"{step['file']}.link"
                link.unlink(missing_ok=True)
                link.symlink_to(os.fsdecode(fresh.read_bytes()))
                link.replace(target)
                fresh.unlink()
                continue
            fresh.chmod(0o755 if step["mode"] == "100755" else 0o644)
            fresh.replace(target)
    shutil.rmtree(journal, ignore_errors=True)


def _prune(folder: Path, top: Path) -> None:
    while folder != top and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
