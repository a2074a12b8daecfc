"""What an audit can find: rules with stable ids, each with a severity and a way out."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict


class Severity(StrEnum):
    """How bad a finding is; only errors fail an audit."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Rule(BaseModel):
    """Something that must hold of a wheel.

    Attributes:
        id: stable name, for reports and exceptions.
        severity: of its findings.
        holds: what must hold, in words.
        fix: what to do when it does not.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    severity: Severity
    holds: str
    fix: str


def _rule(name: str, holds: str, fix: str, severity: Severity = Severity.ERROR) -> Rule:
    return Rule(id=name, severity=severity, holds=holds, fix=fix)


_ALL: Final = (
    _rule("AUD-ZIP-001", "the archive is whole and its names are safe and unique", "get it again"),
    _rule("AUD-RECORD-001", "RECORD lists every file with its digest, and no other", "rebuild"),
    _rule("AUD-NAME-001", "file name, METADATA and dist-info name one project", "rebuild"),
    _rule("AUD-VERSION-001", "the file name's version is the wheel's", "rename or rebuild"),
    _rule("AUD-VERSION-002", "METADATA's version is the wheel's", "rebuild"),
    _rule("AUD-VERSION-003", "the package's own __version__ is the wheel's", "rebuild"),
    _rule("AUD-VERSION-004", "the dist-info folder's version is the wheel's", "rebuild"),
    _rule("AUD-VERSION-005", "the version is normalised (PEP 440) and not a fallback", "rebuild"),
    _rule("AUD-LABEL-001", "the label's CUDA, revision, digest and dirty mark are the build record's", "rebuild"),
    _rule("AUD-META-001", "METADATA and WHEEL state each single field once, in versions that installers know", "rebuild"),
    _rule("AUD-TAG-001", "WHEEL's tags are the file name's", "retag with 'wheel tags'"),
    _rule("AUD-ENTRY-001", "the entry points are upstream's", "rebuild"),
    _rule("AUD-ARCH-001", "every listed GPU function has code that runs on the card", "rebuild"),
    _rule("AUD-ARCH-002", "no GPU code for other cards (a warning in wheels built elsewhere)", "rebuild"),
    _rule("AUD-ARCH-003", "the label's architecture is the one that was built for", "rebuild"),
    _rule("AUD-ARCH-004", "a wheel labelled cpu has no GPU code, one labelled for a card has", "rebuild"),
    _rule("AUD-CUDA-001", "modules link to the CUDA major version of the label", "rebuild"),
    _rule("AUD-GLIBC-001", "symbol versions stay within the platform tag's policy", "retag"),
    _rule("AUD-ABI-001", "every symbol that a module needs is in the pinned torch or CUDA", "rebuild"),
    _rule("AUD-NATIVE-001", "every compiled file is the one that was recorded", "rebuild"),
    _rule("AUD-PATCH-001", "every patched file is the series' result", "rebuild"),
    _rule("AUD-PATCH-002", "every symbol by which a patch lives is there", "correct 'live' or rebuild"),
    _rule("AUD-PATCH-003", "nothing is left over from applying patches", "rebuild from a clean tree"),
    _rule("AUD-SECRET-001", "no keys or tokens", "revoke the secret, then rebuild"),
    _rule("AUD-PATH-001", "no path of the machine that built it", "rebuild with mapped paths"),
    _rule("AUD-DIRTY-001", "built from a pinned source", "rebuild without --source", Severity.WARNING),
    _rule("AUD-OURS-001", "a build record is inside", "none: built elsewhere", Severity.INFO),
    _rule("AUD-OURS-002", "a wheel with our label carries a build record that can be read", "rebuild"),
)  # fmt: skip
RULES: Final = {rule.id: rule for rule in _ALL}


class Finding(BaseModel):
    """A rule that does not hold.

    Attributes:
        rule: its id.
        severity: how bad.
        where: member or place.
        message: what is there and what should be.
        fix: what to do.
    """

    model_config = ConfigDict(frozen=True)

    rule: str
    severity: Severity
    where: str
    message: str
    fix: str


def finding(rule: str, where: str, message: str, severity: Severity | None = None) -> Finding:
    """A finding of a known rule, of the rule's severity unless another one is given."""
    known = RULES[rule]
    return Finding(
        rule=rule, severity=severity or known.severity, where=where, message=message, fix=known.fix
    )


class ModuleReport(BaseModel):
    """A compiled file: size, and bytes and pieces of GPU code by architecture.

    Attributes:
        path: wheel member.
        size: bytes.
        archs: architecture -> (pieces, bytes).
        runs: whether any of its GPU code units has code that runs on the audited architecture;
            None if it has no GPU code. Whether all that must run do is AUD-ARCH-001.
        needed: libraries that it links to.
    """

    model_config = ConfigDict(frozen=True)

    path: str
    size: int
    archs: dict[str, tuple[int, int]]
    runs: bool | None
    needed: tuple[str, ...]


class AuditReport(BaseModel):
    """The result of auditing one wheel.

    Attributes:
        schema_version: version of this report's shape.
        wheel: file name.
        sha256: its digest.
        size: its bytes.
        arch: architecture that it was audited for.
        ours: it carries a build record.
        findings: what does not hold.
        modules: the compiled files.
        checked: ids of the rules that were checked.
    """

    model_config = ConfigDict(frozen=True)

    schema_version: int = 1
    wheel: str
    sha256: str
    size: int
    arch: str
    ours: bool
    findings: tuple[Finding, ...]
    modules: tuple[ModuleReport, ...]
    checked: tuple[str, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that fail the audit."""
        return tuple(one for one in self.findings if one.severity is Severity.ERROR)
