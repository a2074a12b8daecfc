"""What a patch does to a file, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hunk:
    """One hunk; line numbers count from 1.

    Attributes:
        number: its place in the file, from 1.
        old_start: first line on the old side (0 for an empty side).
        new_start: first line on the new side.
        old: lines of the old side, with their endings.
        new: lines of the new side, with their endings.
        context: number of lines that both sides share.
        heading: text behind the second ``@@``.
    """

    number: int
    old_start: int
    new_start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    context: int
    heading: str


@dataclass(frozen=True)
class FileDiff:
    """What a patch does to one file.

    Attributes:
        old: path before, None if the file is made.
        new: path after, None if the file is removed.
        old_mode: mode before, as git writes it (``100644``), if stated.
        new_mode: mode after, if stated.
        old_blob: id of the content before, possibly shortened, if stated.
        new_blob: id of the content after.
        moved: the patch says that it renames or copies.
        binary: content is a git binary patch.
        hunks: the text hunks.
    """

    old: str | None = None
    new: str | None = None
    old_mode: str = ""
    new_mode: str = ""
    old_blob: str = ""
    new_blob: str = ""
    moved: str = ""
    binary: bool = False
    hunks: tuple[Hunk, ...] = ()

    @property
    def path(self) -> str:
        """The path after, or before if the file is removed."""
        return self.new or self.old or ""

    @property
    def empty(self) -> bool:
        """Whether nothing changes."""
        made = self.old is None or self.new is None
        mode = bool(self.old_mode and self.new_mode and self.old_mode != self.new_mode)
        return not (self.hunks or self.binary or self.moved or mode or made)
