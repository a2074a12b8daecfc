"""Downloads that end whole and right, or not at all.

A file arrives in ``<sha256>.part``, is resumed after a break, and becomes
``<sha256>/<name>`` only when length and digest are the pinned ones.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

import requests
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from builder import index
from builder.errors import IdentityError, ToolError
from builder.store import file_sha256, lock, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.context import Context
    from builder.pin import Artifact

_CHUNK: Final = 1 << 17
_TIMEOUT: Final = (15, 60)
_TRIES: Final = 6
_LONGEST_WAIT: Final = 30.0
_RETRY_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class _AgainError(Exception):
    """A failure that another try may mend, after so many seconds if the server said so."""

    def __init__(self, message: str, *, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


def cached(context: Context, artifact: Artifact) -> Path | None:
    """The file if it is in the cache; its bytes are not looked at."""
    path = context.cache / "downloads" / artifact.sha256 / artifact.file
    return path if path.is_file() and path.stat().st_size == artifact.size else None


def address(context: Context, artifact: Artifact) -> str:
    """Where a cached file came from; empty if it came from a local folder."""
    note = context.cache / "downloads" / artifact.sha256 / "url"
    return note.read_text() if note.is_file() else ""


def fetch(context: Context, artifact: Artifact) -> Path:
    """The pinned file, from the cache or the index.

    Raises:
        IdentityError: it cannot be had, or its bytes are not the pinned ones.
        ToolError: the disk has no room for it.
    """
    home = context.cache_dir("downloads")
    with lock(context, f"download-{artifact.sha256[:32]}"):
        found = cached(context, artifact)
        if found is not None:
            if file_sha256(found) == artifact.sha256:
                os.utime(found.parent)
                return found
            context.say(f"{artifact.file} in the cache is damaged: fetching it again")
            found.unlink()
        if context.offline:
            raise IdentityError(
                f"{artifact.file} is not in the cache and --offline forbids fetching it",
                fix="run once without --offline",
            )
        if shutil.disk_usage(home).free < artifact.size:
            raise ToolError(
                f"no room for {artifact.file} ({artifact.size / 1e6:.0f} MB) in {home}",
                fix="free some space, or set SM86_CACHE to another disk",
            )
        part = home / f"{artifact.sha256}.part"
        where = index.locate(artifact, index.settings())
        if isinstance(where, Path):
            shutil.copyfile(where, part)
            _require(artifact, part)
        else:
            context.say(f"downloading {artifact.file}")
            stale = part.exists()
            _receive(context, where, artifact, part)
            if stale and file_sha256(part) != artifact.sha256:
                part.unlink()  # what an earlier run left was something else
                _receive(context, where, artifact, part)
            _require(artifact, part)
        target = home / artifact.sha256 / artifact.file
        target.parent.mkdir(exist_ok=True)
        if isinstance(where, str):
            write_atomic(target.parent / "url", _public(where))
        part.replace(target)
        return target


def _require(artifact: Artifact, part: Path) -> None:
    actual = file_sha256(part)
    if actual != artifact.sha256:
        part.unlink()
        raise IdentityError(
            f"{artifact.file}: sha256 is {actual}, pinned is {artifact.sha256}",
            fix="the index serves another file than the pinned one; do not use it",
        )


def _receive(context: Context, url: str, artifact: Artifact, part: Path) -> None:
    """Try until the file is there; only failures in a row without any progress count."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    show = context.console.is_terminal and context.verbosity >= 0
    failures = 0
    with Progress(*columns, console=context.console, disable=not show, transient=True) as bar:
        task = bar.add_task(artifact.file[:40], total=artifact.size)
        while True:
            before = part.stat().st_size if part.exists() else 0
            try:
                for size in _resume(url, artifact, part):
                    bar.update(task, completed=size)
            except _AgainError as error:
                after = part.stat().st_size if part.exists() else 0
                failures = 1 if after > before else failures + 1
                if failures >= _TRIES:
                    raise IdentityError(
                        f"{artifact.file}: {error}", fix="run again: what has arrived is kept"
                    ) from error
                time.sleep(min(error.wait or 0.1 * 2**failures, _LONGEST_WAIT))
            else:
                return


def _resume(url: str, artifact: Artifact, part: Path) -> Iterator[int]:
    """Yield the size reached after each chunk."""
    have = part.stat().st_size if part.exists() else 0
    if have > artifact.size:
        part.unlink()
        have = 0
    if have == artifact.size:
        yield have
        return
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as answer:
            if answer.status_code in _RETRY_STATUS:
                msg = f"the index answers {answer.status_code} {answer.reason}"
                after = answer.headers.get("Retry-After", "")
                raise _AgainError(msg, wait=float(after) if after.isdigit() else 0.0)
            if answer.status_code == 416:
                part.unlink(missing_ok=True)
                msg = "the index refuses to resume"
                raise _AgainError(msg)
            if answer.status_code not in {200, 206}:
                raise IdentityError(
                    f"{artifact.file}: the index answers {answer.status_code} {answer.reason}",
                    fix="check the index settings (PIP_INDEX_URL)",
                )
            resumed = answer.status_code == 206
            if resumed and not answer.headers.get("Content-Range", f"bytes {have}-").startswith(
                f"bytes {have}-"
            ):
                part.unlink(missing_ok=True)
                msg = "the index resumes at another place"
                raise _AgainError(msg)
            have = have if resumed else 0
            with part.open("ab" if resumed else "wb") as file:
                for chunk in answer.iter_content(_CHUNK):
                    file.write(chunk)
                    have += len(chunk)
                    if have > artifact.size:
                        break
                    yield have
    except requests.RequestException as error:
        msg = f"the connection broke after {have} of {artifact.size} bytes ({type(error).__name__})"
        raise _AgainError(msg) from error
    if have != artifact.size:
        if have > artifact.size:
            part.unlink(missing_ok=True)
            raise IdentityError(
                f"{artifact.file}: longer than the pinned {artifact.size} bytes",
                fix="the index serves another file than the pinned one; do not use it",
            )
        msg = f"only {have} of {artifact.size} bytes came"
        raise _AgainError(msg)


def _public(url: str) -> str:
    """An address without credentials, query and fragment."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
