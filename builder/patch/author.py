"""For patch authors: a series as a git branch to edit, and back to files, byte for byte.

A commit says which patch it is by the trailer ``Patch: <id>``; ``Upstream-Status:`` says
where it stands with upstream.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from builder.errors import PatchError, UsageError
from builder.git import Git, environment
from builder.patch.mail import parse_bytes
from builder.run import run
from builder.source.tree import export
from builder.store import write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from builder.patch.stage import PatchResult
    from builder.series import Member

_BASE: Final = "refs/patches/upstream-head"
_FORMAT: Final = (
    "format-patch", "--stdout", "--no-numbered", "--full-index", "--zero-commit", "--no-signature",
    "--no-stat", "--binary", "--no-renames", "--no-attach", "--no-thread", "--no-cover-letter",
    "--no-add-header", "--no-to", "--no-cc", "--no-base", "--subject-prefix=PATCH", "--no-notes",
    "--diff-algorithm=myers", "--unified=3", "--inter-hunk-context=0", "--src-prefix=a/",
    "--dst-prefix=b/", "--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short",
    "--no-indent-heuristic", "--encode-email-headers",
)  # fmt: skip


@dataclass(frozen=True)
class Exported:
    """A patch written back.

    Attributes:
        id: the patch.
        content: its mail.
        changed: whether it differs from the file.
    """

    id: str
    content: bytes
    changed: bool


def format_commit(git: Git, commit: str) -> bytes:
    """A commit as a mail; the same commit gives the same bytes on every machine."""
    return git(*_FORMAT, "-1", commit).out


def checkout(git: Git, patched: PatchResult, folder: Path) -> None:
    """Make an ordinary repository in a new folder, one commit for each patch.

    Raises:
        UsageError: the folder is there and not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", fix="name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    local = Git.init(folder / ".git")
    local("config", "core.bare", "false")
    (folder / ".git" / "info" / "exclude").write_text("")
    for name in ("pristine", "patched"):
        local(
            "fetch",
            "--quiet",
            "--update-head-ok",
            git.dir.absolute(),
            f"refs/heads/{name}:refs/heads/{name}",
        )
    local("update-ref", _BASE, patched.base)
    local("symbolic-ref", "HEAD", "refs/heads/patched")
    work = Git(local.dir, folder)
    export(work, "HEAD", folder)
    work("read-tree", "HEAD")
    work("update-index", "-q", "--refresh", check=False)


def read_commits(folder: Path) -> list[tuple[str, bytes]]:
    """The commits of an author's repository above the pristine one as (patch id, mail).

    Raises:
        UsageError: the folder is none that `checkout` made.
        PatchError: a commit names no patch, or two name the same.
    """
    if not (folder / ".git").is_dir():
        raise UsageError(f"{folder} is not a checkout", fix="make one with 'sm86 patch checkout'")
    git = Git(folder / ".git", folder)
    base = git("rev-parse", "--verify", "--quiet", _BASE, check=False)
    if base.code != 0:
        raise UsageError(f"{folder} is not a checkout", fix="make one with 'sm86 patch checkout'")
    dirty = run(
        ["git", "-C", folder, "status", "--porcelain", "--untracked-files=no"], env=environment()
    )
    if dirty.text:
        raise UsageError(f"{folder} has uncommitted changes", fix="commit or discard them")
    found: list[tuple[str, bytes]] = []
    for commit in git.text("rev-list", "--reverse", f"{base.text}..HEAD").split():
        mail = format_commit(git, commit)
        trailer = re.search(rb"^Patch: (\S+)$", mail, re.MULTILINE)
        if trailer is None:
            subject = git.text("log", "-1", "--format=%s", commit)
            raise PatchError(
                f"commit {subject!r} names no patch",
                fix="add the trailer 'Patch: <id>' to its message",
            )
        name = trailer[1].decode()
        if name in (seen for seen, _ in found):
            raise PatchError(f"two commits say 'Patch: {name}'", fix="squash them into one")
        found.append((name, mail))
    return found


def compare(members: Sequence[Member], commits: Sequence[tuple[str, bytes]]) -> list[Exported]:
    """The mails of the commits beside the series' files.

    Raises:
        PatchError: a patch of the series has no commit, or the order differs.
    """
    names = [name for name, _ in commits]
    for member in members:
        if member.patch.id not in names:
            raise PatchError(
                f"no commit for {member.patch.id}", fix="take it out of the recipe, or restore it"
            )
    known = [name for name in names if name in {member.patch.id for member in members}]
    if known != [member.patch.id for member in members]:
        raise PatchError(
            f"the commits stand in another order ({', '.join(known)})", fix="reorder the recipe"
        )
    files = {member.patch.id: member.file.read_bytes() for member in members}
    return [Exported(name, mail, files.get(name) != mail) for name, mail in commits]


def write(exported: Sequence[Exported], home: Path, pin: str) -> list[Path]:
    """Write changed mails into their patches' folders.

    Raises:
        UsageError: a patch has no folder yet.
    """
    written: list[Path] = []
    for item in exported:
        if not (home / item.id / "patch.toml").is_file():
            raise UsageError(f"{home / item.id} has no patch.toml", fix="write it first")
        parse_bytes(item.content, name=item.id)
        if item.changed:
            path = home / item.id / f"{pin}.patch"
            write_atomic(path, item.content)
            written.append(path)
    return written


def check_trailers(member: Member) -> None:
    """A patch's mail and its ``patch.toml`` say the same.

    Raises:
        PatchError: a trailer is missing or differs.
    """
    mail = parse_bytes(member.file.read_bytes(), name=f"{member.patch.id}/{member.file.name}")[0]
    wanted = {"Patch": member.patch.id, "Upstream-Status": str(member.patch.upstream.status)}
    for key, value in wanted.items():
        stated = mail.trailers.get(key, "")
        if stated.split(" ")[0] != value:
            raise PatchError(
                f"{mail.name}: trailer '{key}:' says {stated or 'nothing'}, patch.toml {value}",
                fix="make both say the same",
            )
