"""A git tree as paths, modes, blob ids and bytes, read through GitPython."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from git import Repo

from builder.git import environment

if TYPE_CHECKING:
    from builder.git import Git


class View:
    """The files of one commit.

    Args:
        git: repository that holds the commit.
        commit: its id.
    """

    def __init__(self, git: Git, commit: str) -> None:
        self._git = git
        self.commit = commit

    @cached_property
    def _entries(self) -> dict[str, tuple[str, str]]:
        with Repo(self._git.dir) as repo:
            repo.git.update_environment(**environment())
            listing = repo.git.ls_tree("-r", "-t", "-z", self.commit, stdout_as_string=False)
        found: dict[str, tuple[str, str]] = {}
        for record in bytes(listing).split(b"\0"):
            if record:
                meta, _, path = record.partition(b"\t")
                mode, _, blob = meta.decode().split(" ", 2)
                found[path.decode("utf-8", "surrogateescape")] = (mode, blob)
        return found

    def paths(self) -> list[str]:
        """Every file's path."""
        return [path for path, (mode, _) in self._entries.items() if mode != "040000"]

    def mode(self, path: str) -> str:
        """The mode of a path as git writes it; empty if it is not there."""
        return self._entries.get(path, ("", ""))[0]

    def blob(self, path: str) -> str:
        """The blob id of a path; empty if it is not there."""
        return self._entries.get(path, ("", ""))[1]

    def content(self, path: str) -> bytes | None:
        """The bytes of a file, or a link's target; None if there is no such file."""
        mode, blob = self._entries.get(path, ("040000", ""))
        return None if mode == "040000" else self._git("cat-file", "blob", blob).out
