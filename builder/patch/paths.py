"""Paths as diffs write them: prefixed, and C-quoted where git finds a byte odd."""

from __future__ import annotations

import os
import re
from typing import Final

from builder.source.tree import quoted

#: A head whose names are not in quotes.
_HEAD: Final = re.compile(rb"^diff --git (a/[^\r\n]*)(\r?)$", re.MULTILINE)
_ESCAPES: Final = {
    ord(key): ord(value) for key, value in zip('abtnvfr"\\', '\a\b\t\n\v\f\r"\\', strict=True)
}


def unquote(name: bytes) -> str:
    """A path as git writes it, with or without C quoting, as text (undecodable bytes escaped)."""
    if not (name.startswith(b'"') and name.endswith(b'"') and len(name) > 1):
        return name.decode("utf-8", "surrogateescape")
    out = bytearray()
    body = name[1:-1]
    at = 0
    while at < len(body):
        if body[at] != 0x5C:
            out.append(body[at])
            at += 1
        elif body[at + 1 : at + 4].isdigit():
            out.append(int(body[at + 1 : at + 4], 8) & 0xFF)
            at += 4
        else:
            out.append(_ESCAPES.get(body[at + 1], body[at + 1]) if at + 1 < len(body) else 0x5C)
            at += 2
    return out.decode("utf-8", "surrogateescape")


def plain_path(words: bytes) -> str | None:
    """The path of a ``---`` or ``+++`` line, without ``a/`` or ``b/`` and any time stamp."""
    name = words.rstrip(b"\r\n")
    name = name[: name.rindex(b'"') + 1] if name.startswith(b'"') else name.split(b"\t", 1)[0]
    text = unquote(name)
    return None if text == "/dev/null" else strip(text)


def strip(text: str) -> str:
    """A path without its first folder, which is ``a`` or ``b``."""
    head, slash, rest = text.partition("/")
    return rest if slash and head else text


def quote_heads(diff: bytes) -> bytes:
    """A diff whose ``diff --git`` lines name their file in quotes.

    git writes a name with blanks without them and cannot always find its end again: not that
    of a changed mode in a folder whose name ends in a blank.
    """

    def quoted_head(found: re.Match[bytes]) -> bytes:
        name = same_name(found[1])
        if name is None or b" " not in os.fsencode(name):
            return found[0]
        path = os.fsencode(name)
        return b"diff --git " + quoted(b"a/" + path) + b" " + quoted(b"b/" + path) + found[2]

    return _HEAD.sub(quoted_head, diff)


def same_name(rest: bytes) -> str | None:
    """The one name in ``a/x b/x``; None if there are two."""
    if rest.startswith(b'"'):
        closing = re.match(rb'"(?:[^"\\]|\\.)*"', rest)
        end = closing.end() if closing else len(rest)
        first, second = rest[:end], rest[end + 1 :]
    else:
        middle = len(rest) // 2
        first, second = rest[:middle], rest[middle + 1 :]
    old, new = strip(unquote(first)), strip(unquote(second))
    return old if old == new else None
