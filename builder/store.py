"""A content-keyed store of stage results that a kill at any moment cannot half-break.

An entry is a folder ``<stage>/<digest of key and code>`` holding the stage's files and
``<stage>.json``. It is made in a temporary folder beside it and renamed when complete, under
a lock of its own; so an entry that exists is whole, and two processes never make the same
one. What is lost later (a disk that fails, a person who tidies up) is noticed when the
entry is used: every file must still be there in its size.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import json
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from builder.context import Context


class StageResult(BaseModel):
    """What every stage writes beside its output as ``<stage>.json``.

    Attributes:
        schema_version: version of this file's shape.
        stage: the stage's name.
        key: digest of everything that the output was made from.
        seconds: how long the stage took.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = 1
    stage: str
    key: str
    seconds: float = 0.0


R = TypeVar("R", bound=StageResult)


def canonical(value: Any) -> bytes:
    """A value as JSON that is the same bytes for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def digest(value: Any) -> str:
    """SHA-256 (hex) of a value's canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


@functools.cache
def _code() -> str:
    """Digest of this program's own code: results of another version are not reused."""
    package = Path(__file__).resolve().parent
    files = sorted(package.rglob("*.py"))
    return digest([[str(f.relative_to(package)), file_sha256(f)] for f in files])


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A temporary path beside `target` that becomes it when the block ends without error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        if not _alive(left.name.split(".")[-3]):
            left.unlink(missing_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _alive(pid: str) -> bool:
    """Whether a process of this number is running (a number that is none counts as running)."""
    return not pid.isdigit() or Path(f"/proc/{pid}").exists()


@contextlib.contextmanager
def scratch(context: Context) -> Iterator[Path]:
    """A temporary folder in the cache; what killed runs left of such folders is removed."""
    home = context.cache_dir("scratch")
    for left in home.glob("*.lock"):
        held = FileLock(left)
        with contextlib.suppress(Timeout):
            held.acquire(timeout=0)
            remove_tree(left.with_suffix(""))
            sweep(home, left.stem)  # killed while that was being removed
            left.unlink(missing_ok=True)
            held.release()
    place = home / secrets.token_hex(8)
    mine = FileLock(place.with_suffix(".lock"))
    with mine:
        place.mkdir()
        try:
            yield place
        finally:
            remove_tree(place)
            place.with_suffix(".lock").unlink(missing_ok=True)


def write_atomic(target: Path, content: bytes | str) -> None:
    """Write a file so that it is either the old one or the whole new one."""
    with atomic_path(target) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def lock(context: Context, name: str) -> FileLock:
    """The lock of that name in this cache; waits for whoever holds it."""
    return FileLock(context.cache_dir("locks") / f"{name}.lock")


_SWEEPS: Final = 50
#: Lists an entry's files, so that one that has lost some is noticed.
_FILES: Final = "files.json"
#: Folders of the cache that hold entries which can be made again.
KINDS: Final = ("downloads", "source", "patch", "builds", "native", "wheel", "worlds")


def entry_lock(context: Context, entry: Path) -> FileLock:
    """The lock under which an entry of the cache is made."""
    kind = {"downloads": "download", "worlds": "world"}.get(entry.parent.name, entry.parent.name)
    return lock(context, f"{kind}-{entry.name.removesuffix('.part')[:32]}")


def remove_tree(path: Path) -> None:
    """Delete a folder, also one with read-only members; missing is fine."""
    if not path.exists():
        return
    doomed = path
    if not path.name.startswith("."):  # leave the name at once: nobody may take it for whole
        doomed = path.with_name(f".{path.name}.{secrets.token_hex(4)}.doomed")
        path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def sweep(home: Path, place: str) -> None:
    """Remove what killed runs left of a folder while it was made or removed.

    Args:
        home: folder that it is in.
        place: its name; the caller holds its lock.
    """
    for left in home.glob(f".{place}.*"):
        for _ in range(_SWEEPS):
            shutil.rmtree(left, ignore_errors=True)
            if not left.exists():
                break
            time.sleep(0.1)  # a child of the killed run still writes here: it is about to end


def stage(
    context: Context, name: str, *, key: str, result: type[R], make: Callable[[Path], R]
) -> tuple[Path, R]:
    """The entry of a stage, made now if it is not there.

    Args:
        context: paths and settings.
        name: the stage's name.
        key: digest of all inputs; the same key always means the same output.
        result: model of ``<stage>.json``.
        make: fills an empty folder and returns the result.

    Returns:
        The entry's folder and its result.
    """
    home = context.cache_dir(name)
    place = digest([key, _code()])
    entry, note = home / place, f"{name}.json"
    with lock(context, f"{name}-{place[:32]}"):
        sweep(home, place)
        with contextlib.suppress(FileNotFoundError, ValidationError):
            found = result.model_validate_json((entry / note).read_bytes())
            lost = _lost(entry, note)
            if found.key == key and not lost:
                os.utime(entry)
                context.say(f"{name}: reused {key[:12]}", level=1)
                return entry, found
            context.say(f"{name} in the cache is damaged ({lost or note}): making it again")
        remove_tree(entry)
        work = home / f".{place}.{secrets.token_hex(4)}.part"
        work.mkdir()
        try:
            started = time.monotonic()
            made = make(work).model_copy(update={"seconds": time.monotonic() - started})
            (work / _FILES).write_bytes(canonical(_sizes(work)))
            (work / note).write_text(made.model_dump_json(indent=1) + "\n")
            work.rename(entry)
        finally:
            remove_tree(work)
        return entry, made


def _sizes(folder: Path) -> dict[str, int]:
    """Size in bytes of every file below a folder, links not followed."""
    found: dict[str, int] = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)  # noqa: PTH118  (thousands of files, each time)
            found[os.path.relpath(path, folder)] = os.lstat(path).st_size
    return found


def _lost(entry: Path, note: str) -> str:
    """A file that the entry was made with and that is gone or has another size."""
    try:
        made: dict[str, int] = json.loads((entry / _FILES).read_bytes())
    except (OSError, ValueError):
        return _FILES
    there = _sizes(entry)
    there.pop(note, None)
    return next((file for file, size in made.items() if there.get(file) != size), "")
