"""Rules about names, versions, tags and RECORD: does the label agree with itself?"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from builder.audit.finding import Finding, finding
from builder.errors import AuditError
from builder.wheel.record import BUILD_RECORD, urlsafe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.audit.subject import Subject
    from builder.engines.base import Engine

#: What setuptools-scm and its kin make up when no tag is at hand or the tree is changed.
_GUESSED: Final = re.compile(r"\.dev\d+\+g[0-9a-f]{6,}|\.d20\d{6}$")


def names(subject: Subject) -> Iterator[Finding]:
    """File name, METADATA and dist-info name one project; the file name can be read."""
    file = subject.path.name
    try:
        parsed = parse_wheel_filename(file)[0]
    except InvalidWheelFilename as error:
        yield finding("AUD-NAME-001", file, f"not a wheel's file name: {error}")
        return
    except InvalidVersion as error:
        yield finding("AUD-VERSION-005", file, str(error))
        return
    folder = canonicalize_name((subject.info_folder or "").removesuffix(".dist-info").split("-")[0])
    if not parsed == subject.project == folder:
        yield finding(
            "AUD-NAME-001", file,
            f"file name says {parsed}, METADATA {subject.project}, dist-info {folder}",
        )  # fmt: skip
    record = subject.record
    if record is not None and canonicalize_name(record.distribution) != subject.project:
        yield finding("AUD-NAME-001", file, f"renamed from {record.distribution}")


def versions(subject: Subject, engine: Engine | None) -> Iterator[Finding]:
    """The version in each place is the build record's, else the one that most places state."""
    stated = dict(subject.versions)
    if engine is not None and engine.version_member in subject.entries:
        stated["AUD-VERSION-003"] = engine.read_version(subject.read(engine.version_member))
    wheel = Counter(stated.values()).most_common(1)[0][0]
    if subject.record is not None:
        wheel = subject.record.version
    for rule, version in stated.items():
        if version != wheel:
            yield finding(
                rule, subject.path.name, f"says {version or 'nothing'}, the wheel {wheel}"
            )
    try:
        normal = str(Version(wheel))
    except InvalidVersion:
        yield finding("AUD-VERSION-005", subject.path.name, f"{wheel!r} is not a version")
        return
    if normal != wheel:
        yield finding("AUD-VERSION-005", subject.path.name, f"{wheel} should be {normal}")
    if _GUESSED.search(wheel):
        yield finding(
            "AUD-VERSION-005", subject.path.name, f"{wheel} was guessed from a changed checkout"
        )
    if Version(wheel).base_version == "0.0.0":
        yield finding("AUD-VERSION-005", subject.path.name, "0.0.0: the version was not found")


def tags(subject: Subject) -> Iterator[Finding]:
    """WHEEL's tags are exactly those that the file name stands for."""
    lines = re.findall(
        r"^Tag: (\S+)", subject.info("WHEEL").decode("utf-8", "replace"), re.MULTILINE
    )
    try:
        named = {str(tag) for tag in parse_wheel_filename(subject.path.name)[3]}
    except (InvalidWheelFilename, InvalidVersion):
        return
    if set(lines) != named:
        yield finding(
            "AUD-TAG-001", subject.path.name,
            f"WHEEL says {', '.join(sorted(lines)) or 'nothing'}, the file name"
            f" {', '.join(sorted(named))}",
        )  # fmt: skip


def record(subject: Subject) -> Iterator[Finding]:
    """RECORD and the archive name the same files with the same digests."""
    own = {f"{subject.info_folder}/{name}" for name in ("RECORD", "RECORD.jws", "RECORD.p7s")}
    for name in subject.entries:
        if name in own:
            continue
        if name not in subject.rows:
            yield finding("AUD-RECORD-001", name, "is in the wheel and not in RECORD")
            continue
        digest, size = subject.rows[name]
        try:
            data = subject.read(name)
        except AuditError as error:
            yield finding("AUD-ZIP-001", name, error.message)
            continue
        actual = urlsafe(hashlib.sha256(data).digest())
        if digest != actual or (size and size != str(len(data))):
            yield finding("AUD-RECORD-001", name, f"RECORD says {digest}, it is {actual}")
    for name in subject.rows.keys() - subject.entries.keys():
        yield finding("AUD-RECORD-001", name, "is in RECORD and not in the wheel")


def unsafe_names(subject: Subject) -> Iterator[Finding]:
    """No member leaves the folder that it is installed to."""
    for name in subject.twice:
        yield finding("AUD-ZIP-001", name, "is there twice: installers differ in which they take")
    if len(subject.info_folders) > 1:
        listed = ", ".join(subject.info_folders)
        yield finding("AUD-ZIP-001", subject.path.name, f"has several dist-info folders: {listed}")
    for name in subject.entries:
        if name.startswith("/") or ".." in name.split("/") or "\\" in name:
            yield finding("AUD-ZIP-001", name, "leaves the installation folder")


def entry_points(subject: Subject) -> Iterator[Finding]:
    """Console scripts and plugins are the ones that upstream declares."""
    if subject.record is None:
        return
    actual = hashlib.sha256(subject.info("entry_points.txt")).hexdigest()
    if actual != subject.record.entry_points:
        yield finding("AUD-ENTRY-001", "entry_points.txt", "differs from upstream's")


def fields(subject: Subject) -> Iterator[Finding]:
    """Fields that may stand once do, and the format is one that installers know."""
    once = Counter(key for key, _ in subject.metadata_fields)
    for key in ("Metadata-Version", "Name", "Version", "Summary", "Requires-Python"):
        if once[key] > 1:
            yield finding("AUD-META-001", "METADATA", f"states {key} {once[key]} times")
    for key in ("Metadata-Version", "Name", "Version"):
        if not once[key]:
            yield finding("AUD-META-001", "METADATA", f"has no {key}")
    stated = re.findall(rb"^Wheel-Version: *(\S+)", subject.info("WHEEL"), re.MULTILINE)
    if len(stated) != 1 or not stated[0].startswith(b"1."):
        shown = b", ".join(stated).decode("latin-1") or "nothing"
        yield finding("AUD-META-001", "WHEEL", f"Wheel-Version is {shown}, not 1.x")


def label(subject: Subject) -> Iterator[Finding]:
    """What the version's local part says is what the build record says."""
    found, built = subject.label, subject.record
    if built is None:
        raw = subject.info(BUILD_RECORD)
        if raw or found is not None:
            what = "cannot be read" if raw else "is missing"
            yield finding("AUD-OURS-002", subject.path.name, f"the build record {what}")
        return
    if found is None:
        yield finding("AUD-LABEL-001", subject.path.name, "the version carries no label of ours")
        return
    pairs = [
        ("CUDA", found.cuda, "cu" + built.cuda.replace(".", "") if built.cuda else ""),
        ("revision", str(found.revision), str(built.revision)),
        ("digest", found.inputs, built.inputs[:8]),
        ("dirty mark", str(found.dirty), str(built.strength == "dirty")),
    ]
    for what, said, recorded in pairs:
        if said != recorded:
            yield finding(
                "AUD-LABEL-001", subject.path.name, f"{what} is {said}, recorded {recorded}"
            )
