"""Whether a patch fits a tree exactly, and if not, why not and what to do.

Exactly means: every hunk's old side stands at the stated line, every stated blob id and
mode is the tree's. git checks neither ids nor places; this does, before git is asked.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from builder.errors import PatchError
from builder.patch.view import split

if TYPE_CHECKING:
    from builder.patch.filediff import FileDiff, Hunk
    from builder.patch.mail import Mail
    from builder.patch.view import View


@dataclass(frozen=True)
class _Where:
    """A hunk's place, for messages."""

    mail: Mail
    path: str
    hunk: Hunk

    def __str__(self) -> str:
        inside = f" ({self.hunk.heading})" if self.hunk.heading else ""
        return f"{self.mail.name}: {self.path} hunk {self.hunk.number}{inside}"


def check(mail: Mail, view: View) -> None:
    """Check every file of a change against a tree, and make the change there.

    Raises:
        PatchError: it does not fit; the text says which of the known reasons it is. The view
            is then of no further use.
    """
    done: list[FileDiff] = []
    try:
        for item in mail.files:
            _check_file(mail, item, view)
            view.apply(item)
            done.append(item)
    except PatchError as error:
        if done or not all(_file_applied(item, view) for item in mail.files):
            raise
        raise PatchError(
            f"{mail.name}: already applied: every change of it is in the tree (upstream has it, or"
            " the patch is reversed)",
            fix="drop the patch from the recipe for this pin",
        ) from error


def _check_file(mail: Mail, item: FileDiff, view: View) -> None:
    if item.old is None:
        if view.content(item.path) is not None:
            same = "with the same content" if _new_side(item) == view.content(item.path) else ""
            raise PatchError(
                f"{mail.name}: makes {item.path}, which exists already {same}".rstrip(),
                fix="port the patch; if upstream has taken this file, drop that part",
            )
        return
    content = view.content(item.old)
    if content is None:
        raise _missing(mail, item, view)
    for parent in PurePosixPath(item.path).parents:
        if str(parent) != "." and view.mode(str(parent)) == "120000":
            raise PatchError(
                f"{mail.name}: {item.path} lies behind the link {parent}", fix="do not apply it"
            )
    mode = view.mode(item.old)
    if item.old_mode and item.old_mode != mode:
        raise PatchError(
            f"{mail.name}: {item.old} has mode {mode}, the patch expects {item.old_mode}",
            fix="make the patch again from this tree",
        )
    lines = split(content)
    changed = bool(item.old_blob) and not view.blob(item.old).startswith(item.old_blob)
    for hunk in item.hunks:
        at = max(hunk.old_start - 1, 0)
        fits = tuple(lines[at : at + len(hunk.old)]) == hunk.old
        if not fits or (not hunk.old and hunk.old_start == 0 and lines):
            raise _misfit(_Where(mail, item.old, hunk), lines, item, changed=changed)
    if changed:
        raise PatchError(
            f"{mail.name}: {item.old} has changed since the patch was made (blob"
            f" {view.blob(item.old)[:12]}, the patch was made on {item.old_blob[:12]}), though the"
            " lines around each hunk are the same",
            fix="look at what changed, then make the patch again with 'sm86 patch export'",
        )


def _new_side(item: FileDiff) -> bytes:
    return b"".join(line for hunk in item.hunks for line in hunk.new)


def _file_applied(item: FileDiff, view: View) -> bool:
    if item.new is None:
        return item.old is not None and view.content(item.old) is None and bool(item.hunks)
    content = view.content(item.new)
    if content is None:
        return False
    if item.moved == "rename" and item.old is not None and view.content(item.old) is not None:
        return False
    if item.new_mode and view.mode(item.new) != item.new_mode:
        return False
    if item.binary:
        return bool(item.new_blob) and view.blob(item.new).startswith(item.new_blob)
    if item.old is None:
        return content == _new_side(item)
    lines = split(content)
    return all(_hunk_applied(hunk, lines) for hunk in item.hunks)


def _hunk_applied(hunk: Hunk, lines: list[bytes]) -> bool:
    at = max(hunk.new_start - 1, 0)
    if tuple(lines[at : at + len(hunk.new)]) == hunk.new:
        return True
    return len(hunk.new) > 1 and _find(hunk.new, lines) is not None


def _find(wanted: tuple[bytes, ...], lines: list[bytes]) -> int | None:
    """The first place (from 0) where these lines stand together."""
    if not wanted:
        return None
    for at in range(len(lines) - len(wanted) + 1):
        if lines[at] == wanted[0] and tuple(lines[at : at + len(wanted)]) == wanted:
            return at
    return None


def _missing(mail: Mail, item: FileDiff, view: View) -> PatchError:
    name = PurePosixPath(item.old or "").name
    near = [path for path in view.paths() if PurePosixPath(path).name == name]
    old = tuple(line for hunk in item.hunks for line in hunk.old)
    near.sort(key=lambda path: -_likeness(old, view.content(path) or b""))
    if near:
        return PatchError(
            f"{mail.name}: {item.old} does not exist; {near[0]} is the likely new place",
            fix="if upstream moved the file, port the patch to the new path",
        )
    return PatchError(
        f"{mail.name}: {item.old} does not exist, nor any file of that name",
        fix="upstream removed it: port the patch or drop it for this pin",
    )


def _likeness(lines: tuple[bytes, ...], content: bytes) -> float:
    have = set(split(content))
    return sum(line in have for line in lines) / len(lines) if lines else 0.0


def _endings(lines: list[bytes] | tuple[bytes, ...]) -> str:
    crlf = sum(line.endswith(b"\r\n") for line in lines)
    plain = sum(line.endswith(b"\n") for line in lines) - crlf
    return "mixed" if crlf and plain else "CRLF" if crlf else "LF"


def _misfit(where: _Where, lines: list[bytes], item: FileDiff, *, changed: bool) -> PatchError:
    hunk = where.hunk
    bare = [line.rstrip(b"\r\n") for line in lines]
    wanted = [line.rstrip(b"\r\n") for line in hunk.old]
    at = max(hunk.old_start - 1, 0)
    if bare[at : at + len(wanted)] == wanted:
        file, patch = _endings(lines), _endings(hunk.old)
        if file != patch:
            return PatchError(
                f"{where}: line endings differ: the file has {file}, the patch has {patch}",
                fix="make the patch again from this tree; endings are never converted",
            )
        return PatchError(
            f"{where}: the file's last line "
            + ("ends" if lines[-1:] and lines[-1].endswith(b"\n") else "does not end")
            + " with a line break, the patch expects otherwise",
            fix="make the patch again from this tree",
        )
    done = [part.number for part in item.hunks if _hunk_applied(part, lines)]
    if done and len(done) < len(item.hunks):
        some = ", ".join(map(str, done))
        return PatchError(
            f"{where}: does not fit, while hunk {some} is already in the tree: upstream has part",
            fix="port the patch: keep only what upstream does not have",
        )
    if _hunk_applied(hunk, lines):
        return PatchError(f"{where}: already in the tree", fix="drop the patch or that part of it")
    return PatchError(
        f"{where}: {_difference(hunk, lines)}"
        + ("; the file has changed since the patch was made" if changed else ""),
        fix="no fuzz and no offsets here: port the patch ('sm86 patch checkout', edit, export)",
    )


def _difference(hunk: Hunk, lines: list[bytes]) -> str:
    """The first line that differs, and where the hunk's text stands instead."""
    at = max(hunk.old_start - 1, 0)
    here = lines[at : at + len(hunk.old)]
    number, wanted, got = at + 1, b"", None
    for step, line in enumerate(hunk.old):
        got = here[step] if step < len(here) else None
        if got != line:
            number, wanted = at + step + 1, line
            break
    text = f"line {number} should be {_show(wanted)} but is {_show(got)}"
    found = _find(hunk.old, lines)
    if found is not None:
        return f"{text}; its text stands at line {found + 1} (offset {found - at:+d})"
    close = difflib.get_close_matches(
        wanted.decode("utf-8", "replace"),
        [line.decode("utf-8", "replace") for line in lines],
        n=1,
        cutoff=0.75,
    )
    if close and wanted.strip():
        like = [line.decode("utf-8", "replace") for line in lines].index(close[0])
        return f"{text}; similar text stands at line {like + 1}"
    return text


def _show(line: bytes | None) -> str:
    return "missing" if line is None else repr(line.decode("utf-8", "replace").rstrip("\r\n"))
