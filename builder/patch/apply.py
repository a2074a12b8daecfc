"""Applying changes as commits, all or none.

git applies (``git am`` in a scratch work tree, hermetic settings); before and after, the
blob ids, modes and list of files are compared with what the patch says, since git does not.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict
from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

from builder.errors import PatchError
from builder.git import Git
from builder.patch.check import check
from builder.patch.view import TREE, View
from builder.store import scratch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.context import Context
    from builder.patch.mail import Mail

_AM: Final = (
    "am", "--quiet", "--keep-cr", "--keep-non-patch", "--no-3way", "--no-scissors",
    "--whitespace=nowarn", "--no-gpg-sign",
)  # fmt: skip


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


@dataclass(frozen=True)
class Applied:
    """A change that is now a commit.

    Attributes:
        mail: the change.
        commit: its commit.
        files: what it did.
        added: lines added.
        removed: lines removed.
    """

    mail: Mail
    commit: str
    files: tuple[FileChange, ...]
    added: int
    removed: int


def apply_mails(
    context: Context, git: Git, base: str, mails: Sequence[Mail], *, epoch: int
) -> list[Applied]:
    """Apply changes in order on top of a commit.

    The repository gains commits and nothing else: no ref moves, no work tree stays.

    Args:
        context: for a scratch folder.
        git: a bare repository that holds `base`.
        base: commit to start from.
        mails: the changes.
        epoch: committer date, and author date of mails without one, in seconds since 1970.

    Raises:
        PatchError: one does not fit exactly; nothing is left behind.
    """
    view = View(git, base)
    named = [path for mail in mails for item in mail.files for path in (item.old, item.new) if path]
    view.load(named)
    # the index lists what the base has of the named files; git takes the others as unchanged
    written = [path for path in dict.fromkeys(named) if view.mode(path) not in {"", TREE}]
    predicted: list[dict[str, tuple[str, str]]] = []
    for mail in mails:
        paths = {path for item in mail.files for path in (item.old, item.new) if path}
        before = {path: (view.mode(path), view.blob(path)) for path in paths}
        check(mail, view)
        after = {path: (view.mode(path), view.blob(path)) for path in paths}
        predicted.append({path: new for path, new in after.items() if new != before[path]})
        _stated(mail, view)
    if not mails:
        return []
    with scratch(context) as place:
        local = Git.init(place / "git")
        work = Git(local.dir, place / "tree")
        (place / "tree").mkdir()
        local.borrow(git)
        local("update-ref", "--no-deref", "HEAD", base)
        _materialise(work, base, written)
        _am(work, mails, epoch)
        commits = local.text("rev-list", "--reverse", f"{base}..HEAD").split()
        if len(commits) != len(mails):
            raise PatchError(f"git made {len(commits)} commits of {len(mails)}", fix="report this")
        applied = _verified(local, mails, commits, predicted)
        pack = local(
            "pack-objects", "--revs", "--stdout", "-q",
            stdin=f"{commits[-1]}\n^{base}\n".encode(),
        )  # fmt: skip
        git("unpack-objects", "-q", stdin=pack.out)
    return applied


def _materialise(work: Git, base: str, written: Sequence[str]) -> None:
    work("read-tree", base)
    keep = set(written)
    names = b"".join(os.fsencode(path) + b"\0" for path in written)
    work("checkout-index", "--force", "-z", "--stdin", stdin=names)
    have = work("ls-files", "-z", "--", ":/").out.split(b"\0")
    rest = b"".join(name + b"\0" for name in have if name and os.fsdecode(name) not in keep)
    work("update-index", "-z", "--skip-worktree", "--stdin", stdin=rest)


def _am(work: Git, mails: Sequence[Mail], epoch: int) -> None:
    """One run of git for each stretch of mails that has, or lacks, a date of its own."""
    for dated, group in itertools.groupby(mails, key=lambda mail: bool(mail.date)):
        stretch = list(group)
        dates = {"GIT_COMMITTER_DATE": f"@{epoch} +0000"}
        if not dated:
            dates["GIT_AUTHOR_DATE"] = f"@{epoch} +0000"
        box = b"".join(mail.canonical() + b"\n" for mail in stretch)
        ended = work(*_AM, stdin=box, env=dates, check=False)
        if ended.code != 0:
            current = work("am", "--show-current-patch=raw", check=False).out
            at = next((m for m in stretch if f"] {m.subject}\n".encode() in current), stretch[0])
            raise PatchError(
                f"{at.name}: git am refuses it: {ended.last_words}",
                fix="make it again with 'git format-patch' or 'sm86 patch export'",
            )


def _stated(mail: Mail, view: View) -> None:
    """The ids and modes that a change states for its result are those that it comes to."""
    last = {item.path: item for item in mail.files}
    for path, item in last.items():
        if item.new is None:
            continue
        expected = [
            ("content", item.new_blob, view.blob(path)),
            ("mode", item.new_mode, view.mode(path)),
        ]
        for what, stated, got in expected:
            if stated and not got.startswith(stated):
                raise PatchError(
                    f"{mail.name}: {path}: the result's {what} is {got[:12]}, the patch states"
                    f" {stated[:12]}",
                    fix="the patch was edited by hand: make it again with 'sm86 patch export'",
                )


def _verified(
    local: Git, mails: Sequence[Mail], commits: Sequence[str],
    predicted: Sequence[dict[str, tuple[str, str]]],
) -> list[Applied]:  # fmt: skip
    """Compare what git did, commit by commit, with what was to come."""
    applied: list[Applied] = []
    plain = _commit_changes(local, commits, renames=False)
    shown = _commit_changes(local, commits, renames=True)
    for mail, commit, wanted in zip(mails, commits, predicted, strict=True):
        if not wanted:
            raise PatchError(f"{mail.name}: changes nothing", fix="remove it from the series")
        made = {
            change.path: ("", "") if change.status == "D" else (change.new_mode, change.new_blob)
            for change in plain[commit]
        }
        if made != wanted:
            odd = sorted(path for path in made | wanted if made.get(path) != wanted.get(path))
            raise PatchError(
                f"{mail.name}: git makes something else of {odd[0]} than the patch says",
                fix="the patch is damaged: make it again with 'sm86 patch export'",
            )
        added, removed = _counts(mail)
        applied.append(Applied(mail, commit, shown[commit], added, removed))
    return applied


def changes(git: Git, before: str, after: str, *, renames: bool = True) -> tuple[FileChange, ...]:
    """What differs between two commits or trees."""
    words = git(*_diff(renames=renames), before, after).out.decode("utf-8", "surrogateescape")
    return _read_raw(words.split("\0"))


def _diff(*, renames: bool) -> list[str]:
    how = "--find-renames=50%" if renames else "--no-renames"
    return ["diff-tree", "-r", "-z", "--raw", "--full-index", how]


def _commit_changes(
    git: Git, commits: Sequence[str], *, renames: bool
) -> dict[str, tuple[FileChange, ...]]:
    """What each commit changes; one run of git for all."""
    asked = "".join(f"{commit}\n" for commit in commits).encode()
    out = git(*_diff(renames=renames), "--stdin", stdin=asked).out
    parts: dict[str, list[str]] = {}
    current: list[str] = []
    for word in out.decode("utf-8", "surrogateescape").split("\0"):
        head = word.lstrip("\n")
        if head in commits and head not in parts:
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


def _counts(mail: Mail) -> tuple[int, int]:
    """Lines added and removed, by unidiff; by our own reader where unidiff gives up."""
    try:
        report = PatchSet(mail.diff.decode("utf-8", "replace"))
    except UnidiffParseError:
        hunks = [hunk for item in mail.files for hunk in item.hunks]
        return sum(len(hunk.new) for hunk in hunks), sum(len(hunk.old) for hunk in hunks)
    return report.added, report.removed
