"""For patch authors: a series as a git branch to edit, and back to files, byte for byte.

A commit says which patch it is by the trailer ``Patch: <id>``; ``Upstream-Status:`` says
where it stands with upstream.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from git import InvalidGitRepositoryError, NoSuchPathError, Repo

from builder.errors import PatchError, UsageError
from builder.git import Git, environment
from builder.patch.apply import apply_mails
from builder.patch.mail import parse_bytes
from builder.patch.stage import apply_series
from builder.store import remove_tree, write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from git import Commit

    from builder.context import Context
    from builder.pin import Pin
    from builder.series import Member
    from builder.source import SourceResult

_BASE: Final = "refs/patches/upstream-head"
_FORMAT: Final = (
    "format-patch", "--stdout", "--no-numbered", "--full-index", "--zero-commit", "--no-signature",
    "--stat=80", "--binary", "--no-renames", "--no-attach", "--no-thread", "--no-cover-letter",
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


def checkout(
    context: Context, pin: Pin, pristine: tuple[Git, SourceResult], members: Sequence[Member],
    folder: Path,
) -> Sequence[Member]:  # fmt: skip
    """Make an ordinary repository in a new folder, one commit for each patch.

    Where a patch does not fit, the series ends before it, so that it can be ported there.

    Returns:
        The patches that are in it.

    Raises:
        UsageError: the folder is there and not empty.
        PatchError: a patch file cannot be read at all.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", fix="name a new folder")
    done = list(members)
    while True:
        try:
            git, patched = apply_series(context, pin, source=pristine, members=done)
            break
        except PatchError as error:
            if not done:
                raise
            context.say(f"note: {error.message}")
            done.pop()
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = folder.parent / f".{folder.name}.{secrets.token_hex(4)}.part"
    try:
        local = Git.init(work / ".git")
        local("config", "core.bare", "false")
        (local.dir / "info" / "exclude").write_text("")
        for name in ("pristine", "patched"):
            spec = f"refs/heads/{name}:refs/heads/{name}"
            local("fetch", "--quiet", "--update-head-ok", git.dir, spec)
        local("update-ref", _BASE, patched.base)
        local("symbolic-ref", "HEAD", "refs/heads/patched")
        tree = Git(local.dir, work)
        tree("read-tree", "HEAD")
        tree("checkout-index", "--all")
        tree("update-index", "-q", "--refresh", check=False)
        if folder.is_dir():
            folder.rmdir()
        work.rename(folder)
    finally:
        remove_tree(work)
    return done


def read_commits(context: Context, folder: Path) -> list[tuple[str, bytes]]:
    """The commits of an author's repository above the pristine one as (patch id, mail).

    Raises:
        UsageError: the folder is none that `checkout` made, or has uncommitted changes.
        PatchError: a commit names no patch, two name the same, or a message would not come
            back from a mail as it is.
    """
    fix = "make one with 'sm86 patch checkout'"
    try:
        repo = Repo(folder)
    except (InvalidGitRepositoryError, NoSuchPathError) as error:
        raise UsageError(f"{folder} is not a checkout", fix=fix) from error
    with repo:
        repo.git.update_environment(**environment())
        git = Git(Path(repo.git_dir))
        base = git("rev-parse", "--verify", "--quiet", _BASE, check=False).text
        if not base:
            raise UsageError(f"{folder} is not a checkout", fix=fix)
        if repo.git.status("--porcelain", "--untracked-files=no"):
            raise UsageError(f"{folder} has uncommitted changes", fix="commit or discard them")
        commits = list(repo.iter_commits(f"{base}..HEAD", reverse=True))
        found: list[tuple[str, bytes]] = []
        for commit in commits:
            subject = str(commit.summary)
            mail = format_commit(git, commit.hexsha)
            trailer = re.search(rb"^Patch: (\S+)$", mail, re.MULTILINE)
            if trailer is None:
                raise PatchError(
                    f"commit {subject!r} names no patch",
                    fix="add the trailer 'Patch: <id>' to its message",
                )
            name = trailer[1].decode()
            if name in (seen for seen, _ in found):
                raise PatchError(f"two commits say 'Patch: {name}'", fix="squash them into one")
            _comes_back(context, git, commit, mail, name)
            found.append((name, mail))
    return found


def _comes_back(context: Context, git: Git, commit: Commit, mail: bytes, name: str) -> None:
    """A mail that is applied and exported again is the same mail."""
    (parent,) = commit.parents
    parsed = parse_bytes(mail, name=name)
    applied = apply_mails(context, git, parent.hexsha, parsed, epoch=commit.committed_date)
    if len(applied) != 1 or format_commit(git, applied[0].commit) != mail:
        raise PatchError(
            f"the message of {str(commit.summary)!r} does not survive as a mail",
            fix="avoid a subject with brackets or 'Re:', lines that begin with '---', 'diff -',"
            " 'Index:' or 'From:', and double blank lines",
        )


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
    for item in exported:
        if not (home / item.id / "patch.toml").is_file():
            raise UsageError(f"{home / item.id} has no patch.toml", fix="write it first")
    written: list[Path] = []
    for item in exported:
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
