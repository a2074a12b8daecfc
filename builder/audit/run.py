"""The audit of one wheel: every rule, one report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.audit import abi, content, identity, leaks, patches
from builder.audit.finding import RULES, AuditReport, Finding, ModuleReport, finding
from builder.audit.subject import Subject
from builder.errors import AuditError
from builder.store import file_sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from builder.arch import Arch
    from builder.engines.base import Engine


def audit_wheel(
    path: Path, arch: Arch, *, engine: Callable[[str], Engine | None], against: Path | None = None
) -> AuditReport:
    """Check a wheel against its label.

    Args:
        path: the wheel.
        arch: the architecture that it is to run on.
        engine: gives the engine of a distribution's name, if there is one.
        against: site-packages folder whose torch the modules must fit.

    Raises:
        AuditError: the file cannot be read as a wheel.
    """
    subject = Subject.open(path)
    kind = engine(subject.project)
    found: list[Finding] = []
    modules: list[ModuleReport] = []
    for rule in (
        identity.unsafe_names(subject),
        identity.names(subject),
        identity.versions(subject, kind),
        identity.tags(subject),
        identity.record(subject),
        identity.entry_points(subject),
        content.label_arch(subject, arch),
        content.missing_modules(subject),
        patches.post_images(subject),
        patches.live_symbols(subject),
        patches.left_overs(subject),
        leaks.secrets(subject),
        leaks.text_paths(subject),
        _compiled(subject, arch, modules, against),
    ):
        found += rule
    if subject.record is None:
        found.append(
            finding("AUD-OURS-001", path.name, "no build record: not built by sm86-builder")
        )
    elif subject.record.strength == "dirty":
        found.append(finding("AUD-DIRTY-001", path.name, f"built from {subject.record.source}"))
    checked = [name for name in RULES if name != "AUD-ABI-001" or against is not None]
    return AuditReport(
        wheel=path.name, sha256=file_sha256(path), size=path.stat().st_size, arch=arch.name,
        ours=subject.record is not None, findings=tuple(found), modules=tuple(modules),
        checked=tuple(checked),
    )  # fmt: skip


def _compiled(
    subject: Subject, arch: Arch, modules: list[ModuleReport], against: Path | None
) -> Iterator[Finding]:
    offered = abi.exports(against) if against is not None else set()
    try:
        for name, data, module in subject.compiled:
            report = content.module_report(name, data, module, arch)
            modules.append(report)
            yield from content.gpu_functions(subject, name, module, arch)
            yield from content.foreign_code(name, module, arch)
            yield from content.cuda_major(subject, report)
            yield from content.glibc(subject, name, data)
            yield from leaks.build_paths(subject, name, data)
            if against is not None:
                yield from abi.missing(name, data, offered)
    except AuditError as error:
        yield finding("AUD-ZIP-001", subject.path.name, error.message)
