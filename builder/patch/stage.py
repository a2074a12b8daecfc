"""The patch stage: a pristine commit and a series in, a patched commit out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict

from builder.errors import PatchError
from builder.git import Git
from builder.patch.apply import apply_mails
from builder.patch.changes import FileChange, changes
from builder.patch.mail import parse
from builder.store import StageResult, digest, stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from builder.context import Context
    from builder.patch.mail import Mail
    from builder.pin import Pin
    from builder.series import Member
    from builder.source import SourceResult

_SCHEMA: Final = 1


class PatchRecord(BaseModel):
    """A patch of the series, applied.

    Attributes:
        id: its id.
        sha256: digest of its mail.
        subject: subject of its mail.
        commit: the commit with it and all before it.
        files: what it changed.
        added: lines added.
        removed: lines removed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    sha256: str
    subject: str
    commit: str
    files: tuple[FileChange, ...]
    added: int
    removed: int


class PatchResult(StageResult):
    """What the patch stage made.

    Attributes:
        base: the pristine commit.
        commit: the commit with the whole series.
        patches: the patches, in order.
        files: what the whole series changes, seen as one change.
    """

    base: str
    commit: str
    patches: tuple[PatchRecord, ...]
    files: tuple[FileChange, ...]


def apply_series(
    context: Context, pin: Pin, *, source: tuple[Git, SourceResult], members: Sequence[Member]
) -> tuple[Git, PatchResult]:
    """Apply a pin's series; one commit each.

    Returns:
        A repository that holds pristine and patched commits, and the stage's result.

    Raises:
        PatchError: a patch does not fit exactly.
    """
    pristine, found = source
    what = {
        "schema": _SCHEMA,
        "base": found.commit,
        "epoch": pin.epoch,
        "source": found.key,
        "series": [(member.patch.id, member.sha256) for member in members],
    }

    def make(work: Path) -> PatchResult:
        git = Git.init(work / "repo.git")
        _borrow(git, pristine)
        mails = [_only_mail(member) for member in members]
        applied = apply_mails(context, git, found.commit, mails, epoch=pin.epoch)
        records = [
            PatchRecord(
                id=member.patch.id, sha256=member.sha256, subject=one.mail.subject,
                commit=one.commit, files=one.files, added=one.added, removed=one.removed,
            )
            for member, one in zip(members, applied, strict=True)
        ]  # fmt: skip
        head = records[-1].commit if records else found.commit
        git("update-ref", "refs/heads/pristine", found.commit)
        git("update-ref", "refs/heads/patched", head)
        return PatchResult(
            stage="patch", key=key, base=found.commit, commit=head, patches=tuple(records),
            files=changes(git, found.commit, head),
        )  # fmt: skip

    key = digest(what)
    entry, result = stage(context, "patch", key=key, result=PatchResult, make=make)
    return Git(entry / "repo.git"), result


def _borrow(git: Git, other: Git) -> None:
    """Let a repository use another one's objects, by a path that survives moving the cache."""
    info = git.dir / "objects" / "info"
    info.mkdir(exist_ok=True)
    place = git.dir.parent.parent / "entry" / "repo.git"  # where this one will be
    path = os.path.relpath(other.dir / "objects", place / "objects")
    (info / "alternates").write_text(f"{path}\n")


def _only_mail(member: Member) -> Mail:
    mails = parse(member.file)
    if len(mails) != 1:
        raise PatchError(
            f"{member.patch.id}/{member.file.name} holds {len(mails)} mails",
            fix="a patch is one mail: squash them, or make several patches",
        )
    return mails[0]
