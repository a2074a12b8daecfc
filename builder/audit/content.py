"""Rules about compiled files: GPU code, CUDA libraries, glibc."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from builder.audit.finding import Finding, ModuleReport, Severity, finding
from builder.native.dynamic import needed
from builder.wheel.platform import policy, too_new
from builder.wheel.version import CPU

#: Libraries whose file version is CUDA's major version.
_CUDA: Final = re.compile(r"lib(?:cudart|cublas|cublasLt|cusparse|nvrtc|nvJitLink)\.so\.(\d+)")

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.arch import Arch
    from builder.audit.subject import Subject
    from builder.native.fatbin import Module


def module_report(name: str, data: bytes, module: Module, arch: Arch | None) -> ModuleReport:
    """What a compiled file holds."""
    units = [unit for unit in module.containers if unit.entries]
    return ModuleReport(
        path=name,
        size=len(data),
        archs={str(code): found for code, found in module.totals().items()},
        runs=any(unit.choice(arch) for unit in units) if units and arch else None,
        needed=tuple(needed(data)),
    )


def gpu_functions(subject: Subject, name: str, module: Module, arch: Arch) -> Iterator[Finding]:
    """Every GPU function that the manifest lists has code that runs on the card."""
    record = subject.record
    if record is None or name not in record.kernels:
        if module.containers and not any(unit.choice(arch) for unit in module.containers):
            yield finding("AUD-ARCH-001", name, f"has no code that runs on {arch}")
        return
    wanted, have = record.kernels[name], module.kernels(arch)
    lost = {kernel: (have.get(kernel, 0), count) for kernel, count in wanted.items()}
    lost = {kernel: both for kernel, both in lost.items() if both[0] < both[1]}
    if lost:
        kernel, (got, count) = next(iter(lost.items()))
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        yield finding(
            "AUD-ARCH-001", name,
            f"{kernel}: {got} of {count} instances have code that runs on {arch}{more}",
        )  # fmt: skip


def missing_modules(subject: Subject) -> Iterator[Finding]:
    """Every module that the manifest names is there."""
    if subject.record is not None:
        for name in subject.record.kernels.keys() - subject.entries.keys():
            yield finding("AUD-ARCH-001", name, "is missing")


def foreign_code(subject: Subject, name: str, module: Module, arch: Arch) -> Iterator[Finding]:
    """No GPU code that this card would never run; nobody else promises that of a wheel."""
    foreign: dict[str, int] = {}
    for unit in module.containers:
        chosen = unit.choice(arch)
        for entry in unit.entries:
            if entry not in chosen:
                foreign[str(entry.code)] = foreign.get(str(entry.code), 0) + entry.stored
    if foreign:
        total = sum(foreign.values()) / 1e6
        listed = ", ".join(sorted(foreign))
        ours = subject.record is not None or subject.label is not None
        yield finding(
            "AUD-ARCH-002", name, f"{total:.1f} MB of code for other cards ({listed})",
            None if ours else Severity.WARNING,
        )  # fmt: skip


def no_gpu_code(report: ModuleReport) -> Iterator[Finding]:
    """What the label calls a build without GPU code has none, and asks for no CUDA library."""
    if report.archs:
        held = ", ".join(report.archs)
        yield finding("AUD-ARCH-004", report.path, f"has GPU code ({held}), the label says cpu")
    for library in report.needed:
        if _CUDA.match(library) or library.startswith("libcuda.so"):
            yield finding("AUD-ARCH-004", report.path, f"links to {library}, the label says cpu")


def label_arch(subject: Subject, arch: Arch | None) -> Iterator[Finding]:
    """The architecture in the version is the one that the wheel was built for."""
    label, record = subject.label, subject.record
    if label is None:
        return
    built = record.arch if record is not None else arch.name if arch else CPU
    if label.arch != built.replace("_", ""):
        yield finding(
            "AUD-ARCH-003",
            subject.path.name,
            f"the label says {label.arch}, it was built for {built}",
        )


def cuda_major(subject: Subject, module: ModuleReport) -> Iterator[Finding]:
    """CUDA libraries are of the label's major version; any wheel's ``cuNNN`` counts."""
    named = re.search(r"(?:^|[.+])cu(\d{2,3})(?:$|\.)", subject.versions["AUD-VERSION-002"])
    if named is None:
        return
    wanted = named[1][:-1]
    for library in module.needed:
        found = _CUDA.match(library)
        if found is not None and found[1] != wanted:
            yield finding(
                "AUD-CUDA-001", module.path,
                f"links to {library}, the label cu{named[1]} means CUDA {wanted}",
            )  # fmt: skip


def digest(subject: Subject, name: str, data: bytes) -> Iterator[Finding]:
    """A compiled file is the recorded one; asked only where no other rule names the difference."""
    if subject.record is None:
        return
    known = {module.path: module.sha256 for module in subject.record.modules}
    if name not in known:
        yield finding("AUD-NATIVE-001", name, "is not in the build record")
    elif hashlib.sha256(data).hexdigest() != known[name]:
        yield finding("AUD-NATIVE-001", name, "has other bytes than the recorded file")


def glibc(subject: Subject, name: str, data: bytes) -> Iterator[Finding]:
    """Symbol versions stay within what the platform tag allows."""
    for platform in subject.stem[-1].split("."):
        if platform == "any":
            yield finding(
                "AUD-GLIBC-001", name, "is compiled, and the tag 'any' promises any machine"
            )
            continue
        if policy(platform) is None:
            continue
        bad = too_new([(name, data)], platform)
        if bad:
            yield finding("AUD-GLIBC-001", name, f"{bad[0]}, beyond {platform}")
