"""Fetching one commit by its full id, from servers that allow it and from those that refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.errors import IdentityError
from builder.run import ProgramError

if TYPE_CHECKING:
    from builder.git import Git
    from builder.run import Done


def fetch_commit(git: Git, url: str, commit: str, *, timeout: float = 1800) -> str:
    """Bring a commit into a repository and return the id of its tree.

    The commit alone is asked for first (protocol 2, then 0). A server that hands out only
    what its branches and tags point to is then asked for all of them. A tag's name is never
    trusted: only the id counts.

    Raises:
        IdentityError: the commit is not there, or the repository cannot be reached.
    """
    tries: tuple[tuple[str, ...], ...] = (
        ("--depth=1", url, commit),
        (url, "+refs/heads/*:refs/mirror/heads/*", "+refs/tags/*:refs/mirror/tags/*"),
    )
    last = ""
    for words in tries:
        try:
            git(
                "-c", "core.hooksPath=/dev/null", "fetch", "--quiet", "--no-tags",
                "--no-write-fetch-head", "--no-recurse-submodules", *words,
                timeout=timeout, network=True,
            )  # fmt: skip
        except ProgramError as error:
            last = _reason(error.done)
            continue
        if git("cat-file", "-e", f"{commit}^{{commit}}", check=False).code == 0:
            return _checked_tree(git, commit)
    why = f": {last}" if last and "not our ref" not in last and "unadvertised" not in last else ""
    fix = "check the pin and the address, or build from the sdist (--from sdist)"
    if "dubious ownership" in last:
        fix = "it belongs to another user: git config --global --add safe.directory FOLDER"
    raise IdentityError(f"commit {commit} not found in {url}{why}", fix=fix)


def _reason(done: Done) -> str:
    """The first thing that git calls fatal: advice and consequences come after it."""
    lines = done.err.decode("utf-8", "replace").splitlines()
    fatal = [line.removeprefix("fatal: ") for line in lines if line.startswith("fatal: ")]
    return fatal[0] if fatal else done.last_words


def _checked_tree(git: Git, commit: str) -> str:
    broken = git(
        "fsck", "--connectivity-only", "--no-dangling", "--no-reflogs", commit, check=False
    )
    if broken.code != 0:
        raise IdentityError(
            f"commit {commit} came with objects missing ({broken.last_words})", fix="run again"
        )
    links = git("ls-tree", "-r", commit).text.splitlines()
    modules = [line.split("\t", 1)[1] for line in links if line.startswith("160000 ")]
    if modules:
        raise IdentityError(
            f"commit {commit} has submodules ({', '.join(modules[:3])})",
            fix="submodules are not fetched: use the sdist (--from sdist)",
        )
    return git.text("rev-parse", f"{commit}^{{tree}}")
