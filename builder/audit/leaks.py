"""Rules about what must never travel: secrets, and paths of the building machine."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from builder.audit.finding import Finding, finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.audit.subject import Subject

#: Shapes of well-known credentials, from their issuers' documentation.
_SECRETS: Final = re.compile(
    rb"-----BEGIN (?:RSA |EC |OPENSSH |DSA |ENCRYPTED )?PRIVATE KEY-----\s*\n[A-Za-z0-9+/=\s]{64}"
    rb"|\bAKIA[0-9A-Z]{16}\b"
    rb"|\bgh[pousr]_[A-Za-z0-9]{36}\b"
    rb"|\bgithub_pat_[A-Za-z0-9_]{60,}\b"
    rb"|\bhf_[A-Za-z0-9]{34}\b"
    rb"|\bpypi-AgE[A-Za-z0-9_-]{60,}"
    rb"|\bsk-(?:proj-|ant-)?[A-Za-z0-9_-]{40,}\b"
    rb"|\bxox[abpr]-[0-9A-Za-z-]{20,}\b"
)
#: Folders of people and of temporary builds; upstream's own build container uses /workspace.
_PATHS: Final = re.compile(
    rb"(?<![\w./-])(?:/home/[a-z_][\w-]*|/root|/Users/[A-Za-z][\w.-]*|/tmp|/var/tmp|/build)"
    rb"/[\w.+-]+(?:/[\w.+-]+)+\.(?:cc?|cpp|cxx|cu|cuh|hh?|hpp|o|a|so|py|rs)\b"
)


def secrets(subject: Subject) -> Iterator[Finding]:
    """No file holds something of a credential's shape."""
    for name, entry in subject.entries.items():
        if entry.size > 4 << 20:
            continue
        found = _SECRETS.search(subject.read(name))
        if found is not None:
            shown = found[0][:8].decode("latin-1")
            yield finding("AUD-SECRET-001", name, f"holds what looks like a credential ({shown}…)")


def build_paths(subject: Subject, name: str, data: bytes) -> Iterator[Finding]:
    """A compiled file names no source file in somebody's folder.

    Files that upstream compiled carry upstream's paths; those are upstream's to judge.
    """
    record = subject.record
    if record is None:
        return
    known = {module.path: module for module in record.modules}
    found = _PATHS.search(data)
    if found is not None and not (name in known and _same(known[name].sha256, data)):
        yield finding("AUD-PATH-001", name, f"names {found[0].decode('latin-1')}")


def text_paths(subject: Subject) -> Iterator[Finding]:
    """No text that we wrote names a folder of the building machine."""
    record = subject.record
    if record is None:
        return
    ours = {file.path for file in record.files} | {
        name for name in subject.entries if name.startswith(f"{subject.info_folder}/")
    }
    for name in sorted(ours & subject.entries.keys()):
        if name.endswith("/METADATA"):
            continue
        found = _PATHS.search(subject.read(name))
        if found is not None:
            yield finding("AUD-PATH-001", name, f"names {found[0].decode('latin-1')}")


def _same(sha256: str, data: bytes) -> bool:
    return hashlib.sha256(data).hexdigest() == sha256
