"""A tree as a series sees it: paths, modes, blob ids and bytes, kept up to date in memory.

Applying a checked change here, line for line, predicts the blob ids that git must come to;
so one run of git suffices for a whole series, and its result is compared with the prediction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from builder.git import git_blob

if TYPE_CHECKING:
    from collections.abc import Iterable

    from builder.git import Git
    from builder.patch.filediff import FileDiff

TREE: Final = "040000"


@dataclass(frozen=True)
class Entry:
    """One path.

    Attributes:
        mode: as git writes it.
        blob: blob id.
        content: bytes, or None while they are only in the repository.
        fresh: a change made these bytes; the repository does not have them.
    """

    mode: str
    blob: str
    content: bytes | None = None
    fresh: bool = False


class View:
    """The files of a commit, and of what changes make of it.

    Args:
        git: repository that holds the commit.
        commit: its id.
    """

    def __init__(self, git: Git, commit: str) -> None:
        self._git = git
        self._entries: dict[str, Entry] = {}
        for record in git("ls-tree", "-r", "-t", "-z", commit).out.split(b"\0"):
            if record:
                meta, _, path = record.partition(b"\t")
                mode, _, blob = meta.decode().split(" ", 2)
                self._entries[path.decode("utf-8", "surrogateescape")] = Entry(mode, blob)

    def load(self, paths: Iterable[str]) -> None:
        """Read the bytes of many files at once."""
        wanted = [
            path
            for path in dict.fromkeys(paths)
            if path in self._entries and self._entries[path].mode != TREE
        ]
        if not wanted:
            return
        bodies = self._git.objects([self._entries[path].blob for path in wanted])
        for path, body in zip(wanted, bodies, strict=True):
            entry = self._entries[path]
            self._entries[path] = Entry(entry.mode, entry.blob, body)

    def paths(self) -> list[str]:
        """Every file's path."""
        return [path for path, entry in self._entries.items() if entry.mode != TREE]

    def files(self, paths: Iterable[str]) -> dict[str, Entry]:
        """Those of the paths that are files now."""
        found = {path: self._entries[path] for path in paths if path in self._entries}
        return {path: entry for path, entry in found.items() if entry.mode != TREE}

    def mode(self, path: str) -> str:
        """The mode of a path as git writes it; empty if it is not there."""
        return self._entries[path].mode if path in self._entries else ""

    def blob(self, path: str) -> str:
        """The blob id of a path; empty if it is not there."""
        return self._entries[path].blob if path in self._entries else ""

    def content(self, path: str) -> bytes | None:
        """The bytes of a file, or a link's target; None if there is no such file."""
        entry = self._entries.get(path)
        if entry is None or entry.mode == TREE:
            return None
        if entry.content is None:
            body = self._git("cat-file", "blob", entry.blob, check=False)
            if body.code != 0:  # made by a binary change of this very series
                return b""
            self._entries[path] = entry = Entry(entry.mode, entry.blob, body.out)
        return entry.content

    def apply(self, item: FileDiff) -> None:
        """Make the change of one file, which `builder.patch.check` has found to fit."""
        before = self._entries.get(item.old) if item.old else None
        if item.old and item.moved != "copy":
            self._entries.pop(item.old, None)
        if item.new is None:
            return
        mode = item.new_mode or (before.mode if before else "100644")
        if item.binary:
            self._entries[item.new] = Entry(mode, item.new_blob)
            return
        lines = split(before.content or b"") if before else []
        for hunk in reversed(item.hunks):
            # an empty old side stands behind its line, any other begins with it
            at = hunk.old_start if not hunk.old else hunk.old_start - 1
            lines[at : at + len(hunk.old)] = hunk.new
        body = b"".join(lines)
        if not item.hunks and before is not None:
            self._entries[item.new] = replace(before, mode=mode)
        else:
            self._entries[item.new] = Entry(mode, git_blob(body), body, fresh=True)


def split(content: bytes) -> list[bytes]:
    """Lines with their endings; only a line feed ends a line."""
    parts = content.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines
