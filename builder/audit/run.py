"""The audit of one wheel: every rule, one report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from builder.audit import abi, content, identity, leaks, patches
from builder.audit.finding import RULES, AuditReport, Finding, ModuleReport, finding
from builder.audit.subject import Subject
from builder.errors import AuditError
from builder.store import file_sha256
from builder.wheel.version import CPU

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from builder.arch import Arch
    from builder.engines.base import Engine
    from builder.native.fatbin import Module

#: Rules that compare with a build record: not checked where there is none.
_OURS_ONLY: Final = frozenset(
    {
        "AUD-ARCH-003", "AUD-ENTRY-001", "AUD-LABEL-001", "AUD-NATIVE-001", "AUD-PATCH-001",
        "AUD-PATCH-002", "AUD-PATH-001", "AUD-DIRTY-001",
    }
)  # fmt: skip


def audit_wheel(
    path: Path, arch: Arch | None, *, engine: Callable[[str], Engine | None],
    against: Path | None = None,
) -> AuditReport:  # fmt: skip
    """Check a wheel against its label.

    Args:
        path: the wheel.
        arch: the architecture that it is to run on; not asked of a wheel whose label says
            that it has no GPU code, and None only for such.
        engine: gives the engine of a distribution's name, if there is one.
        against: site-packages folder whose torch the modules must fit.

    Raises:
        AuditError: the file cannot be read as a wheel.
    """
    subject = Subject.open(path)
    arch = _asked(subject, arch)
    kind = engine(subject.project)
    found: list[Finding] = []
    modules: list[ModuleReport] = []
    steps: tuple[Callable[[], Iterator[Finding]], ...] = (
        lambda: identity.unsafe_names(subject),
        lambda: identity.record(subject),
        lambda: identity.names(subject),
        lambda: identity.versions(subject, kind),
        lambda: identity.fields(subject),
        lambda: identity.label(subject),
        lambda: identity.tags(subject),
        lambda: identity.entry_points(subject),
        lambda: content.label_arch(subject, arch),
        lambda: content.missing_modules(subject),
        lambda: patches.post_images(subject),
        lambda: patches.live_symbols(subject),
        lambda: patches.left_overs(subject),
        lambda: leaks.secrets(subject),
        lambda: leaks.text_paths(subject),
        lambda: _compiled(subject, arch, modules, against),
    )
    for step in steps:
        try:
            found += step()
        except AuditError as error:  # a damaged member: the other rules still have their say
            found.append(finding("AUD-ZIP-001", path.name, error.message))
    found = list({(one.rule, one.where, one.message): one for one in found}.values())
    if subject.record is None:
        found.append(
            finding("AUD-OURS-001", path.name, "no build record: not built by sm86-builder")
        )
    elif subject.record.strength == "dirty":
        found.append(finding("AUD-DIRTY-001", path.name, f"built from {subject.record.source}"))
    ours = subject.record is not None
    checked = [
        name
        for name in RULES
        if (ours or name not in _OURS_ONLY) and (name != "AUD-ABI-001" or against is not None)
    ]
    return AuditReport(
        wheel=path.name, sha256=file_sha256(path), size=path.stat().st_size,
        arch=arch.name if arch else CPU,
        ours=ours, findings=tuple(found), modules=tuple(modules),
        checked=tuple(checked),
    )  # fmt: skip


def _asked(subject: Subject, arch: Arch | None) -> Arch | None:
    if subject.label is not None and subject.label.arch == CPU:
        return None
    if arch is None:
        raise AuditError(
            f"{subject.path.name} is no build without GPU code", fix="name the card with --arch"
        )
    return arch


def _gpu_code(subject: Subject, name: str, module: Module, arch: Arch) -> Iterator[Finding]:
    yield from content.foreign_code(subject, name, module, arch)
    yield from content.gpu_functions(subject, name, module, arch)


def _compiled(
    subject: Subject, arch: Arch | None, modules: list[ModuleReport], against: Path | None
) -> Iterator[Finding]:
    offered = abi.exports(against) if against is not None else set()
    for name, data, module in subject.compiled:
        report = content.module_report(name, data, module, arch)
        modules.append(report)
        found = [
            *(_gpu_code(subject, name, module, arch) if arch else content.no_gpu_code(report)),
            *content.cuda_major(subject, report),
            *content.glibc(subject, name, data),
            *leaks.build_paths(subject, name, data),
            *(abi.missing(name, data, offered) if against is not None else ()),
        ]
        yield from found or content.digest(subject, name, data)
    listed = subject.record.kernels if subject.record else {}
    bare = not listed and not any(report.archs for report in modules)
    if arch is not None and subject.label is not None and bare:
        where = subject.path.name
        yield finding("AUD-ARCH-004", where, f"has no GPU code, the label says {arch}")
