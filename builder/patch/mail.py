"""Patch files as mails: ``git format-patch`` output, hand-cut mails and bare diffs.

Whatever comes in is rewritten to one canonical mail for each change, so that ``git am``
neither needs an author it can parse nor loses a bracketed word of the subject.
"""

from __future__ import annotations

import email
import email.policy
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.header import Header
from email.utils import format_datetime, formataddr, parseaddr
from typing import TYPE_CHECKING, Final

from builder.errors import PatchError
from builder.patch.diff import read, stray
from builder.patch.paths import quote_heads

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path

    from builder.patch.filediff import FileDiff, Hunk

_FROM: Final = re.compile(rb"^From [0-9a-f]{40} Mon Sep 17 00:00:00 2001\n", re.MULTILINE)
_DIFF: Final = re.compile(rb"^(?:---\n|diff -|Index: |--- [^\n]+\n\+\+\+ )", re.MULTILINE)
_TRAILER: Final = re.compile(r"([A-Z][A-Za-z-]+): (\S.*)")
_SUMMARY: Final = re.compile(
    r"^ (\d+) files? changed(?:, (\d+) insertions?\(\+\))?(?:, (\d+) deletions?\(-\))?$",
    re.MULTILINE,
)
_NOBODY: Final = ("unknown", "unknown@sm86.invalid")


@dataclass(frozen=True)
class Mail:
    """One change of a patch file.

    Attributes:
        name: patch file, with the mail's number if it holds several.
        subject: the subject without ``[PATCH]``.
        body: the text that says why, trailers included.
        author: name and address.
        date: the author's date as the mail has it; empty if it has none.
        summary: the text between message and diff.
        diff: the diff's bytes.
        files: the diff, read.
    """

    name: str
    subject: str
    body: str
    author: tuple[str, str]
    date: str
    summary: str
    diff: bytes
    files: tuple[FileDiff, ...]

    @property
    def trailers(self) -> dict[str, str]:
        """The trailers of the last paragraph, last one winning."""
        last = self.body.rstrip().rsplit("\n\n", 1)[-1].splitlines()
        return {found[1]: found[2] for line in last if (found := _TRAILER.fullmatch(line))}

    def canonical(self, epoch: int = 0) -> bytes:
        """The mail as ``git am`` gets it; one without a date is of `epoch` (seconds since 1970)."""
        date = self.date or (format_datetime(datetime.fromtimestamp(epoch, UTC)) if epoch else "")
        name, address = self.author
        sender = formataddr(
            (Header(name, "utf-8").encode() if not name.isascii() else name, address)
        )
        head = [
            "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001",
            f"From: {sender}",
            *([f"Date: {date}"] if date else []),
            f"Subject: [PATCH] {self.subject}",
            "MIME-Version: 1.0",
            "Content-Type: text/plain; charset=UTF-8",
            "Content-Transfer-Encoding: 8bit",
            "",
            self.body.strip("\n"),
            "---",
            "",
        ]
        return "\n".join(head).encode("utf-8", "surrogateescape") + quote_heads(self.diff)


def parse(path: Path) -> list[Mail]:
    """The changes of a patch file, in order.

    Raises:
        PatchError: the file is unreadable, empty, damaged, or has CRLF endings of its own.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PatchError(f"{path}: {error.strerror}", fix="check the path") from error
    return parse_bytes(content, name=path.name)


def parse_bytes(content: bytes, *, name: str) -> list[Mail]:
    """As `parse`, for bytes already read."""
    if not content.strip():
        raise PatchError(f"{name}: empty patch file", fix="remove it from the series")
    heads = re.findall(
        rb"^(?:From [0-9a-f]{40}|diff --git |--- |\+\+\+ |@@ )[^\n]*\n", content, re.MULTILINE
    )
    if heads and all(line.endswith(b"\r\n") for line in heads):
        raise PatchError(
            f"{name}: the patch file itself has CRLF endings (checked out with autocrlf?)",
            fix="check it out with 'git -c core.autocrlf=false checkout', or run dos2unix on it",
        )
    starts = [found.start() for found in _FROM.finditer(content)]
    if starts and content[: starts[0]].strip():
        starts.insert(0, 0)
    parts = [
        (begin, content[begin:end])
        for begin, end in zip(starts or [0], [*starts[1:], len(content)], strict=True)
    ]
    mails = [
        _one(part, f"{name}#{number}" if len(parts) > 1 else name, content[:begin].count(b"\n") + 1)
        for number, (begin, part) in enumerate(parts, 1)
    ]
    for mail in mails:
        _complete(mail)
        if not mail.files or all(item.empty for item in mail.files):
            raise PatchError(f"{mail.name}: changes nothing", fix="remove it from the series")
    return mails


def _complete(mail: Mail) -> None:
    """A mail with a summary of its diff holds just that diff: a cut between files shows."""
    found = _SUMMARY.search(mail.summary)
    paths = [item.path for item in mail.files]
    if found is None or len(set(paths)) < len(paths):  # a file that becomes a link is there twice
        return
    stated = tuple(int(number or 0) for number in found.groups())
    hunks = [hunk for item in mail.files for hunk in item.hunks]
    counts = [_lines(hunk) for hunk in hunks]
    actual = (len(mail.files), sum(added for added, _ in counts), sum(gone for _, gone in counts))
    binary = len(re.findall(r"^ .* \| +Bin \d+ -> \d+ bytes$", mail.summary, re.MULTILINE))
    if stated != actual or binary != sum(item.binary for item in mail.files):
        raise PatchError(
            f"{mail.name}: its summary says {stated[0]} files, +{stated[1]} -{stated[2]}, it holds"
            f" {actual[0]} files, +{actual[1]} -{actual[2]}: it was cut or edited",
            fix="make it again with 'git format-patch' or 'sm86 patch export'",
        )


def _lines(hunk: Hunk) -> tuple[int, int]:
    """Lines added and removed: what a side has beyond the context lines."""
    return len(hunk.new) - hunk.context, len(hunk.old) - hunk.context


def _one(part: bytes, name: str, line: int) -> Mail:
    is_mail = (
        _FROM.match(part) is not None or re.match(rb"(?:From|Subject|Date): ", part) is not None
    )
    if not is_mail:
        found = _DIFF.search(part)
        begin = found.start() if found else 0
        diff, prose = part[begin:], part[:begin].decode("utf-8", "replace").strip()
        files = read(diff, name=name, first_line=line + part[:begin].count(b"\n"))
        subject, _, body = prose.partition("\n")
        _no_stray(name, part[:begin])
        return Mail(name, subject.strip() or name, body, _NOBODY, "", "", diff, tuple(files))
    part, separators = _FROM.subn(b"", part, count=1)
    head, _, rest = part.partition(b"\n\n")
    message = email.message_from_bytes(head + b"\n\n", policy=email.policy.compat32)
    text = _decoded(message, rest)
    found = _DIFF.search(text)
    if found is None:
        raise PatchError(f"{name}: a mail without a diff", fix="remove it from the series")
    offset = line + separators + head.count(b"\n") + 2 + text[: found.start()].count(b"\n")
    diff = text[found.start() :]
    prose = text[: found.start()].decode("utf-8", "surrogateescape").strip("\n")
    first = re.search(rb"^diff -|^Index: |^--- [^\n]+\n\+\+\+ ", diff, re.MULTILINE)
    summary = diff[: first.start() if first else len(diff)]
    _no_stray(name, text[: found.start()] + summary)
    subject = re.sub(r"^\s*\[PATCH[^\]]*\]\s*", "", _header(message, "Subject"))
    author = parseaddr(_header(message, "From"))
    if "@" in author[1] and not author[1].isascii():
        raise PatchError(
            f"{name}: the author's address {author[1]!r} is not ASCII",
            fix="make it again with 'git format-patch' or 'sm86 patch export'",
        )
    if "@" not in author[1]:
        author = (_header(message, "From") or _NOBODY[0], _NOBODY[1])
    files = read(diff, name=name, first_line=offset)
    return Mail(
        name, subject or name, prose, (author[0] or author[1], author[1]),
        _header(message, "Date"), summary.decode("utf-8", "replace"), diff, tuple(files),
    )  # fmt: skip


def _no_stray(name: str, prose: bytes) -> None:
    line = stray(prose)
    if line is not None:
        raise PatchError(
            f"{name}: {line.decode('utf-8', 'replace')!r} stands in the text: the head of a"
            " change is damaged",
            fix="make it again with 'git format-patch' or 'sm86 patch export'",
        )


def _header(message: Message, key: str) -> str:
    raw = message.get(key, "")
    text = re.sub(r"\s*\n\s+", " ", str(raw))
    parts = email.header.decode_header(text)
    pieces = [
        piece.decode(charset or "utf-8", "replace") if isinstance(piece, bytes) else piece
        for piece, charset in parts
    ]
    return "".join(pieces).strip()


def _decoded(message: Message, rest: bytes) -> bytes:
    if str(message.get("Content-Transfer-Encoding", "")).lower() in {"quoted-printable", "base64"}:
        message.set_payload(rest.decode("ascii", "surrogateescape"))
        payload = message.get_payload(decode=True)
        return payload if isinstance(payload, bytes) else rest
    return rest
