"""Adding wheels to a static index: a folder that any file server or ``file://`` can serve.

``files/`` holds the wheels, which never change; ``simple/`` the pages, each replaced in one
step after everything that it links to is there. A reader sees the old page or the new one.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import defaultdict
from typing import TYPE_CHECKING

from filelock import FileLock

from builder.audit.subject import Subject
from builder.errors import PublishError
from builder.publish.names import require_wheel
from builder.publish.simple import Entry, project_page, read_page, root_page
from builder.store import atomic_path, file_sha256, write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def publish(wheels: Sequence[Path], folder: Path) -> tuple[Entry, ...]:
    """Add wheels to the index in a folder, which is made if it is not there.

    What is there is kept: pages are read before they are written, and a file that is
    already published is never replaced. Publishing again is harmless.

    Args:
        wheels: the wheels.
        folder: the index.

    Raises:
        PublishError: a name is published with other bytes, a page cannot be read without
            doubt, or a wheel's name is not its METADATA's. Nothing is changed then.
        AuditError: a file cannot be read as a wheel.
    """
    new = {wheel: _entry(wheel) for wheel in wheels}
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        pages: dict[str, dict[str, Entry]] = defaultdict(dict)
        for project in {one.project for one in new.values()}:
            page = folder / "simple" / project / "index.html"
            if page.is_file():
                listed = read_page(page.read_text("utf-8"), where=str(page))
                pages[project] = {one.file: one for one in listed}
        for one in new.values():
            _require_same(one, pages[one.project].get(one.file), folder / "files" / one.file)
            pages[one.project].setdefault(one.file, one)
        for wheel, one in new.items():
            _place(wheel, one, folder / "files")
        for project, entries in pages.items():
            _write(
                folder / "simple" / project / "index.html", project_page(project, entries.values())
            )
        names = [path.parent.name for path in (folder / "simple").glob("*/index.html")]
        _write(folder / "simple" / "index.html", root_page(names))
    return tuple(new.values())


def _entry(wheel: Path) -> Entry:
    require_wheel(wheel.name)
    subject = Subject.open(wheel)
    entry = Entry(
        file=wheel.name,
        sha256=file_sha256(wheel),
        requires_python=subject.metadata.get("Requires-Python", ""),
        metadata=hashlib.sha256(subject.info("METADATA")).hexdigest(),
    )
    stated = f"{subject.project} {subject.metadata.get('Version', '')}"
    if stated != f"{entry.project} {subject.stem[1]}":
        raise PublishError(
            f"{wheel.name} says in METADATA that it is {stated}",
            fix="do not rename wheels; see 'sm86 audit'",
        )
    return entry


def _require_same(new: Entry, old: Entry | None, path: Path) -> None:
    there = old.sha256 if old else file_sha256(path) if path.is_file() else new.sha256
    if there != new.sha256:
        raise PublishError(
            f"{new.file} is already published with other bytes (sha256 {there[:12]}, this one is"
            f" {new.sha256[:12]})",
            fix="raise the recipe's revision: a published file never changes",
        )


def _place(wheel: Path, entry: Entry, files: Path) -> None:
    target = files / entry.file
    if not target.is_file():
        with atomic_path(target) as temporary:
            shutil.copyfile(wheel, temporary)
    beside = files / f"{entry.file}.metadata"
    if not beside.is_file():
        write_atomic(beside, Subject.open(target).info("METADATA"))


def _write(page: Path, text: str) -> None:
    if not page.is_file() or page.read_text("utf-8") != text:
        write_atomic(page, text)
