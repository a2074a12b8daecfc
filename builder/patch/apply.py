"""Applying changes as commits, all or none.

git applies (``git am`` in a scratch work tree, hermetic settings); before and after, the
blob ids, modes and list of files are compared with what the patch says, since git does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.errors import PatchError
from builder.patch.changes import FileChange, commit_changes, counts
from builder.patch.check import check
from builder.patch.graft import graft
from builder.patch.stretch import Stretch, am, begin, named, starts
from builder.patch.view import View
from builder.store import scratch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.context import Context
    from builder.git import Git
    from builder.patch.mail import Mail


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
    if not mails:
        return []
    view = View(git, base)
    view.load(named(mails))
    first = starts(mails)
    stretches: list[Stretch] = []
    predicted: list[dict[str, tuple[str, str]]] = []
    for number, mail in enumerate(mails):
        if number in first:
            stretches.append(begin(first[number], view))
        paths = named([mail])
        before = {path: (view.mode(path), view.blob(path)) for path in paths}
        check(mail, view)
        after = {path: (view.mode(path), view.blob(path)) for path in paths}
        predicted.append({path: new for path, new in after.items() if new != before[path]})
        _stated(mail, view)
    with scratch(context) as place:
        local, made = am(git, place, stretches, epoch=epoch)
        plain = commit_changes(local, made, renames=False)
        _verify(mails, [plain[commit] for commit in made], predicted)
        commits = graft(local, base, made, plain)
        moving = [one for one in made if any(change.status in "AD" for change in plain[one])]
        shown = plain | commit_changes(local, moving, renames=True)
        pack = local(
            "pack-objects", "--revs", "--stdout", "--window=0", "-q",
            stdin=f"{commits[-1]}\n^{base}\n".encode(),
        )  # fmt: skip
        git("index-pack", "--stdin", stdin=pack.out)
    return [
        Applied(mail, commit, shown[old], *counts(mail))
        for mail, commit, old in zip(mails, commits, made, strict=True)
    ]


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


def _verify(
    mails: Sequence[Mail], made: Sequence[Sequence[FileChange]],
    predicted: Sequence[dict[str, tuple[str, str]]],
) -> None:  # fmt: skip
    """Compare what git did, commit by commit, with what was to come."""
    for mail, changes, wanted in zip(mails, made, predicted, strict=True):
        if not wanted:
            raise PatchError(f"{mail.name}: changes nothing", fix="remove it from the series")
        done = {
            change.path: ("", "") if change.status == "D" else (change.new_mode, change.new_blob)
            for change in changes
        }
        if done != wanted:
            odd = sorted(path for path in done | wanted if done.get(path) != wanted.get(path))
            raise PatchError(
                f"{mail.name}: git makes something else of {odd[0]} than the patch says",
                fix="the patch is damaged: make it again with 'sm86 patch export'",
            )
