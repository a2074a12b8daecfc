"""Reading unified and git diffs as bytes, strictly.

`unidiff` reports on patches and git applies them; neither keeps blob ids, modes and exact
bytes together, which is what checking a patch against a tree needs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from builder.errors import PatchError
from builder.patch.filediff import FileDiff, Hunk
from builder.patch.paths import plain_path, same_name, unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

_HUNK: Final = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")
_INDEX: Final = re.compile(rb"index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: (\d{6}))?$")
#: What may stand behind a change, besides another one: blank lines, a signature, svn's heads.
_BETWEEN: Final = re.compile(rb"\s*$|-- ?\r?\n|Index: |=+\s*$|diff -")
#: Lines that mean something only inside a change; alone they show that its head is damaged.
_STRAY: Final = re.compile(
    rb"@@ -|GIT binary patch|index [0-9a-f]{7,}\.\.|(?:new|deleted) file mode \d"
    rb"|(?:old|new) mode \d"
    rb"|(?:dis)?similarity index \d|(?:rename|copy) (?:from|to) |Binary files .* differ"
)


class _Reader:
    """Lines with a position; errors name the line of the patch file."""

    def __init__(self, content: bytes, name: str, first: int) -> None:
        # not bytes.splitlines: that splits at a lone carriage return too, which is content
        self.lines = re.findall(rb"[^\n]*\n|[^\n]+", content)
        self.name, self.first, self.at = name, first, 0

    def peek(self) -> bytes | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def fail(self, why: str) -> PatchError:
        return PatchError(
            f"{self.name}:{self.first + self.at}: corrupt patch: {why}",
            fix="make it again with 'git format-patch' or 'sm86 patch export'",
        )


def read(content: bytes, *, name: str, first_line: int = 1) -> list[FileDiff]:
    """Every file section of a diff.

    Args:
        content: the diff; text before and behind its sections is passed over.
        name: name of the patch file, for errors.
        first_line: line of the patch file where `content` begins.

    Raises:
        PatchError: the diff is cut, damaged, names a path outside the tree, or holds a binary
            change without its data.
    """
    reader = _Reader(content, name, first_line)
    found: list[FileDiff] = []
    ended = False
    while (line := reader.peek()) is not None:
        if line.startswith((b"diff --git ", b"--- ")) and ended:
            raise reader.fail("a change behind the signature")
        if line.startswith(b"diff --git "):
            found.append(_git_section(reader))
        elif line.startswith(b"--- ") and _next_is_plus(reader):
            found.append(_body(reader, FileDiff()))
        elif _STRAY.match(line):
            raise reader.fail("a change without a file name before it")
        elif found and not ended and not _BETWEEN.match(line):
            raise reader.fail("text between two changes")
        else:
            ended = ended or bool(found and re.match(rb"-- ?\r?\n", line))
            reader.at += 1
    for item in found:
        for path in (item.old, item.new):
            if path is not None:
                _inside(path, name)
    return found


def _next_is_plus(reader: _Reader) -> bool:
    after = reader.lines[reader.at + 1] if reader.at + 1 < len(reader.lines) else b""
    return after.startswith(b"+++ ")


def _inside(path: str, name: str) -> None:
    parts = path.split("/")
    if (
        path.startswith("/")
        or ".." in parts
        or not path
        or ".git" in (part.lower() for part in parts)
    ):
        raise PatchError(
            f"{name}: names {path!r}, which is outside the tree", fix="do not apply this patch"
        )


def _git_section(reader: _Reader) -> FileDiff:
    header = reader.lines[reader.at].rstrip(b"\r\n")
    both = same_name(header[len(b"diff --git ") :])
    item = FileDiff(old=both, new=both)
    reader.at += 1
    while (line := reader.peek()) is not None:
        text = line.rstrip(b"\r\n")
        if (found := _INDEX.match(text)) is not None:
            item = replace(item, old_blob=found[1].decode(), new_blob=found[2].decode())
            if found[3]:
                item = replace(item, old_mode=found[3].decode(), new_mode=found[3].decode())
        elif text.startswith(b"old mode "):
            item = replace(item, old_mode=_mode(reader, text))
        elif text.startswith(b"new mode "):
            item = replace(item, new_mode=_mode(reader, text))
        elif text.startswith(b"new file mode "):
            item = replace(item, old=None, new_mode=_mode(reader, text))
        elif text.startswith(b"deleted file mode "):
            item = replace(item, new=None, old_mode=_mode(reader, text))
        elif text.startswith((b"rename from ", b"copy from ")):
            word, _, rest = text.partition(b" from ")
            item = replace(item, old=unquote(rest), moved=word.decode())
        elif text.startswith((b"rename to ", b"copy to ")):
            item = replace(item, new=unquote(text.partition(b" to ")[2]))
        elif not text.startswith((b"similarity index ", b"dissimilarity index ")):
            break
        reader.at += 1
    line = reader.peek() or b""
    if line.startswith(b"Binary files "):
        raise reader.fail("a binary change without its data (use 'git format-patch --binary')")
    if line.startswith(b"GIT binary patch"):
        _skip_binary(reader)
        return replace(item, binary=True)
    if line.startswith(b"--- ") and _next_is_plus(reader):
        return _body(reader, item)
    if item.old is None and item.new is None:
        raise reader.fail("a file section without names")
    return item


def _mode(reader: _Reader, text: bytes) -> str:
    mode = text.rpartition(b" ")[2]
    if not re.fullmatch(rb"[0-7]{6}", mode):
        raise reader.fail("a file mode that is none")
    return mode.decode()


def _skip_binary(reader: _Reader) -> None:
    reader.at += 1
    blocks = 0
    while (line := reader.peek()) is not None and line.startswith((b"literal ", b"delta ")):
        blocks += 1
        reader.at += 1
        while (line := reader.peek()) is not None and line.strip():
            if not re.fullmatch(rb"[A-Za-z][0-9A-Za-z!#$%&()*+;<=>?@^_`{|}~-]+", line.strip()):
                raise reader.fail("damaged binary data")
            reader.at += 1
        if line is None:
            raise reader.fail("binary data is cut off")
        reader.at += 1
    if not blocks:
        raise reader.fail("binary data is missing")


def _body(reader: _Reader, item: FileDiff) -> FileDiff:
    old, new = plain_path(reader.lines[reader.at][4:]), plain_path(reader.lines[reader.at + 1][4:])
    reader.at += 2
    if item.moved:
        old, new = item.old, item.new
    hunks = tuple(_hunks(reader))
    if not hunks:
        raise reader.fail("a file header without a hunk")
    return replace(item, old=old, new=new, hunks=hunks)


def _hunks(reader: _Reader) -> Iterator[Hunk]:
    number = 0
    while (line := reader.peek()) is not None and line.startswith(b"@@ "):
        found = _HUNK.match(line)
        if found is None:
            raise reader.fail("a hunk header that cannot be read")
        number += 1
        reader.at += 1
        left = int(found[2] or 1)
        right = int(found[4] or 1)
        old, new, context = _sides(reader, left, right)
        heading = found[5].strip().decode("utf-8", "replace")
        yield Hunk(number, int(found[1]), int(found[3]), tuple(old), tuple(new), context, heading)


def _sides(reader: _Reader, left: int, right: int) -> tuple[list[bytes], list[bytes], int]:
    old: list[bytes] = []
    new: list[bytes] = []
    last: tuple[list[bytes], ...] = ()
    context = 0
    while len(old) < left or len(new) < right or (reader.peek() or b"").startswith(b"\\"):
        line = reader.peek()
        if line is None:
            raise reader.fail("the patch ends inside a hunk")
        sign, rest = line[:1], line[1:]
        if line == b"\n":  # an empty context line whose blank a mailer cut
            sign, rest = b" ", b"\n"
        if sign == b"\\":
            for side in last:
                side[-1] = side[-1].removesuffix(b"\n")
            last = ()
        elif sign == b" ":
            last = (old, new)
            context += 1
        elif sign == b"-":
            last = (old,)
        elif sign == b"+":
            last = (new,)
        else:
            raise reader.fail("a hunk line that begins with none of ' ', '+', '-'")
        if sign != b"\\":
            if not rest.endswith(b"\n"):
                raise reader.fail("the patch ends inside a line")
            for side in last:
                side.append(rest)
        reader.at += 1
    if len(old) > left or len(new) > right:
        raise reader.fail("a hunk with more lines than its header says")
    return old, new, context


def stray(prose: bytes) -> bytes | None:
    """A line of text that belongs into a diff: the sign of a damaged head."""
    found = re.search(rb"^(?:" + _STRAY.pattern + rb").*$", prose, re.MULTILINE)
    return found[0] if found else None
