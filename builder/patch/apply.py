"""Applying changes as commits, all or none.

git applies (``git am`` in a scratch work tree, hermetic settings); before and after, the
blob ids, modes and list of files are compared with what the patch says, since git does not.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict
from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

from builder.errors import PatchError
from builder.git import Git
from builder.patch.check import check
from builder.patch.view import View
from builder.store import remove_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def apply_mails(git: Git, base: str, mails: Sequence[Mail], *, epoch: int) -> list[Applied]:
    """Apply changes in order on top of a commit.

    The repository gains commits and nothing else: no ref moves, no work tree stays.

    Args:
        git: a bare repository that holds `base`.
        base: commit to start from.
        mails: the changes.
        epoch: committer date, and author date of mails without one, in seconds since 1970.

    Raises:
        PatchError: one does not fit exactly; nothing is left behind.
    """
    done: list[Applied] = []
    with tempfile.TemporaryDirectory(prefix="sm86-apply-") as name:
        scratch = Path(name)
        # a work tree with its own index and HEAD that borrows the objects
        local = Git(scratch / "git", scratch / "tree")
        Git.init(local.dir)
        assert local.tree is not None  # noqa: S101  (given two lines above)
        local.tree.mkdir()
        objects = (git.dir / "objects").absolute()
        (local.dir / "objects" / "info").mkdir(exist_ok=True)
        (local.dir / "objects" / "info" / "alternates").write_text(f"{objects}\n")
        local("update-ref", "--no-deref", "HEAD", base)
        local("read-tree", base)
        _materialise(local, mails)
        head = base
        for mail in mails:
            check(mail, View(local, head))
            after = _am(local, mail, epoch)
            done.append(_verified(local, mail, head, after))
            head = after
        if head != base:
            pack = local(
                "pack-objects", "--revs", "--stdout", "-q", stdin=f"{head}\n^{base}\n".encode()
            )
            git("unpack-objects", "-q", stdin=pack.out)
        remove_tree(local.tree)
    return done


def _materialise(local: Git, mails: Sequence[Mail]) -> None:
    """Write out only the files that the changes name; git takes the others as unchanged."""
    named = {path for mail in mails for item in mail.files for path in (item.old, item.new) if path}
    names = b"".join(path.encode("utf-8", "surrogateescape") + b"\0" for path in sorted(named))
    have = local("ls-files", "-z", "--", ":/").out.split(b"\0")
    wanted = [name for name in names.split(b"\0") if name and name in set(have)]
    local("checkout-index", "--force", "-z", "--stdin", stdin=b"\0".join([*wanted, b""]))
    rest = [name for name in have if name and name not in set(wanted)]
    local("update-index", "-z", "--skip-worktree", "--stdin", stdin=b"\0".join([*rest, b""]))


def _am(local: Git, mail: Mail, epoch: int) -> str:
    dates = {"GIT_COMMITTER_DATE": f"@{epoch} +0000"}
    if not mail.date:
        dates["GIT_AUTHOR_DATE"] = f"@{epoch} +0000"
    ended = local(*_AM, stdin=mail.canonical(), env=dates, check=False)
    if ended.code != 0:
        local("am", "--abort", check=False)
        raise PatchError(
            f"{mail.name}: git am refuses it: {ended.last_words}",
            fix="make it again with 'git format-patch' or 'sm86 patch export'",
        )
    return local.text("rev-parse", "HEAD")


def changes(git: Git, before: str, after: str, *, renames: bool = True) -> tuple[FileChange, ...]:
    """What differs between two commits or trees."""
    how = "--find-renames=50%" if renames else "--no-renames"
    raw = git("diff-tree", "-r", "-z", "--raw", "--full-index", how, before, after).out
    words = raw.decode("utf-8", "surrogateescape").split("\0")
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


def _verified(local: Git, mail: Mail, before: str, after: str) -> Applied:
    """Compare what git did with what the patch says."""
    made = changes(local, before, after, renames=False)
    touched = {change.path: change for change in made}
    named: set[str] = set()
    for item in mail.files:
        if item.empty:
            continue
        named |= {path for path in (item.new, item.old if item.moved != "copy" else None) if path}
        change = touched.get(item.path)
        if change is None:
            raise PatchError(
                f"{mail.name}: {item.path} did not change", fix="the patch does nothing there"
            )
        expected = [
            ("content", item.new_blob if item.new else "", change.new_blob),
            ("mode", item.new_mode if item.new else "", change.new_mode),
        ]
        for what, stated, got in expected:
            if stated and not got.startswith(stated):
                raise PatchError(
                    f"{mail.name}: {item.path}: the result's {what} is {got[:12]}, the patch"
                    f" states {stated[:12]}",
                    fix="the patch was edited by hand: make it again with 'sm86 patch export'",
                )
    stray = sorted(set(touched) - named)
    if stray:
        raise PatchError(f"{mail.name}: also changed {', '.join(stray[:3])}", fix="report this")
    added, removed = _counts(mail)
    return Applied(mail, after, changes(local, before, after), added, removed)


def _counts(mail: Mail) -> tuple[int, int]:
    """Lines added and removed, by unidiff; by our own reader where unidiff gives up."""
    try:
        report = PatchSet(mail.diff.decode("utf-8", "replace"))
    except UnidiffParseError:
        hunks = [hunk for item in mail.files for hunk in item.hunks]
        return sum(len(hunk.new) for hunk in hunks), sum(len(hunk.old) for hunk in hunks)
    return report.added, report.removed
