"""What differs between two commits, as git sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict
from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.git import Git
    from builder.patch.mail import Mail


class FileChange(BaseModel):
    """One file before and after.

    Attributes:
        path: path after, or before if it was removed.
        old_path: path before, if it was moved.
        status: git's letter: A, D, M, R, C or T.
        old_mode: mode before.
        new_mode: mode after.
        old_blob: blob id before.
        new_blob: blob id after.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    old_path: str
    status: str
    old_mode: str
    new_mode: str
    old_blob: str
    new_blob: str


def changes(git: Git, before: str, after: str, *, renames: bool = True) -> tuple[FileChange, ...]:
    """What differs between two commits or trees."""
    words = git(*_diff(renames=renames), before, after).out.decode("utf-8", "surrogateescape")
    return _read_raw(words.split("\0"))


def _diff(*, renames: bool) -> list[str]:
    how = "--find-renames=50%" if renames else "--no-renames"
    return ["diff-tree", "-r", "-z", "--raw", "--full-index", how]


def commit_changes(
    git: Git, commits: Sequence[str], *, renames: bool
) -> dict[str, tuple[FileChange, ...]]:
    """What each commit changes; one run of git for all."""
    asked = "".join(f"{commit}\n" for commit in commits).encode()
    out = git(*_diff(renames=renames), "--stdin", stdin=asked).out
    known, parts = set(commits), dict[str, list[str]]()
    current: list[str] = []
    for word in out.decode("utf-8", "surrogateescape").split("\0"):
        head = word.lstrip("\n")
        if head in known and head not in parts:
            current = parts.setdefault(head, [])
        else:
            current.append(word)
    return {commit: _read_raw(parts.get(commit, [])) for commit in commits}


def _read_raw(words: Sequence[str]) -> tuple[FileChange, ...]:
    found: list[FileChange] = []
    at = 0
    while at < len(words) and words[at]:
        old_mode, new_mode, old_blob, new_blob, status = words[at].lstrip(":").split(" ")
        moved = status[0] in "RC"
        old_path = words[at + 1]
        path = words[at + 2] if moved else old_path
        at += 3 if moved else 2
        found.append(
            FileChange(
                path=path, old_path=old_path if moved else "", status=status[0],
                old_mode=old_mode, new_mode=new_mode, old_blob=old_blob, new_blob=new_blob,
            )
        )  # fmt: skip
    return tuple(found)


def counts(mail: Mail) -> tuple[int, int]:
    """Lines added and removed, by unidiff; by our own reader where unidiff gives up."""
    try:
        report = PatchSet(mail.diff.decode("utf-8", "replace"))
    except UnidiffParseError:
        hunks = [hunk for item in mail.files for hunk in item.hunks]
        return sum(len(hunk.new) for hunk in hunks), sum(len(hunk.old) for hunk in hunks)
    return report.added, report.removed
