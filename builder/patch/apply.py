"""Applying changes as commits, all or none.

git applies (``git am`` in a scratch work tree, hermetic settings); before and after, the
blob ids, modes and list of files are compared with what the patch says, since git does not.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from builder.errors import PatchError
from builder.git import Git
from builder.patch.changes import FileChange, commit_changes, counts
from builder.patch.check import check
from builder.patch.graft import graft, small_base
from builder.patch.view import TREE, View
from builder.store import scratch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.context import Context
    from builder.patch.mail import Mail

#: The objects are packed at the end, so compressing each one first is waste.
_QUICK: Final = ("-c", "core.looseCompression=0", "-c", "core.preloadIndex=false")
_AM: Final = (
    *_QUICK, "am", "--quiet", "--keep-cr", "--keep-non-patch", "--no-3way", "--no-scissors",
    "--whitespace=nowarn", "--no-gpg-sign",
)  # fmt: skip


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
    written = {
        path: (view.mode(path), view.blob(path))
        for path in named
        if view.mode(path) not in {"", TREE}
    }
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
        small = small_base(work, written, epoch=epoch)
        _am(work, mails, epoch)
        made = local.text("rev-list", "--reverse", f"{small}..HEAD").split()
        if len(made) != len(mails):
            raise PatchError(f"git made {len(made)} commits of {len(mails)}", fix="report this")
        commits = graft(local, base, made, commit_changes(local, made, renames=False))
        applied = _verified(local, mails, commits, predicted)
        pack = local(
            "pack-objects", "--revs", "--stdout", "--thin", "-q",
            stdin=f"{commits[-1]}\n^{base}\n".encode(),
        )  # fmt: skip
        git("index-pack", "--stdin", "--fix-thin", stdin=pack.out)
    return applied


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
    plain = commit_changes(local, commits, renames=False)
    moving = [
        commit for commit in commits if any(change.status in "AD" for change in plain[commit])
    ]
    shown = plain | commit_changes(local, moving, renames=True)
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
        added, removed = counts(mail)
        applied.append(Applied(mail, commit, shown[commit], added, removed))
    return applied
