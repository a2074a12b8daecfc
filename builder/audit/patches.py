"""Rules about the series: is every patch really in the wheel?"""

from __future__ import annotations

import ast
import hashlib
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from builder.audit.finding import Finding, finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.audit.subject import Subject

_LEFT: Final = ("*.rej", "*.orig", "*.patch", "*.diff", "*~", "*/.*.sm86-????????")


def post_images(subject: Subject) -> Iterator[Finding]:
    """Every file that the series changed has exactly the series' content."""
    if subject.record is None:
        return
    for file in subject.record.files:
        data = subject.read(file.path)
        there = file.path in subject.entries
        actual = hashlib.sha256(data).hexdigest() if there else ""
        if actual == file.sha256:
            continue
        what = "is upstream's file" if actual == file.upstream_sha256 else "has other content"
        if not there:
            what = "is missing"
        elif not file.sha256:
            what = "should have been removed"
        yield finding("AUD-PATCH-001", file.path, f"{what}: {', '.join(file.patches)} is not in it")


def live_symbols(subject: Subject) -> Iterator[Finding]:
    """Every symbol by which a patch is known is defined in its file."""
    if subject.record is None:
        return
    reverted = {one.where for one in post_images(subject)}
    for live in subject.record.live:
        if live.file in reverted:
            continue
        if not defines(subject.read(live.file), live.symbol):
            yield finding("AUD-PATCH-002", live.file, f"{live.patch}: no {live.symbol}")


def defines(source: bytes, symbol: str) -> bool:
    """Whether a Python file defines a function, class or name, at any depth."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return re.search(rb"\b" + re.escape(symbol.encode()) + rb"\b", source) is not None
    last = symbol.rpartition(".")[2]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name == last:
                return True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == last:
            return True
    return False


def left_overs(subject: Subject) -> Iterator[Finding]:
    """No file that a patch program or an editor leaves behind."""
    for name in subject.entries:
        if any(fnmatchcase(name, pattern) for pattern in _LEFT):
            yield finding("AUD-PATCH-003", name, "left over from applying a patch")
