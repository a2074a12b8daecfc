"""What this machine has, what that means for building and running, and what to do about it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal

import psutil

from builder.errors import ToolError
from builder.run import ProgramError, run

if TYPE_CHECKING:
    from pathlib import Path

    from builder.context import Context

#: Lowest Linux driver for each CUDA version (NVIDIA, "CUDA Toolkit Release Notes", table 3).
DRIVERS: Final = {(13, 0): 580, (12, 9): 575, (12, 8): 570, (12, 6): 560, (12, 4): 550}
_BUILD_DISK: Final = 2_000_000_000
_INSTALL_DISK: Final = 12_000_000_000


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes:
        name: what.
        status: fine, lacking for some uses, or lacking for building.
        detail: what was found.
        fix: what to do, empty if fine.
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    fix: str = ""

    def as_dict(self) -> dict[str, str]:
        """The fields as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Card:
    """A GPU as ``nvidia-smi`` reports it."""

    name: str
    capability: tuple[int, int]
    driver: int
    memory_mib: int


def examine(context: Context) -> list[Finding]:
    """Look at everything."""
    return [
        _python(),
        _glibc(),
        _git(),
        _memory(),
        _disk(context.cache_dir("store"), "disk for building", _BUILD_DISK, "SM86_CACHE"),
        _disk(context.cache, "disk for installing and proving", _INSTALL_DISK, "SM86_CACHE"),
        *_gpus(),
    ]


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info < (3, 11):  # noqa: UP036  (this is the check)
        return Finding("python", "fail", version, "use Python 3.11 or newer")
    return Finding("python", "ok", version)


def _glibc() -> Finding:
    name, version = platform.libc_ver()
    if name != "glibc":
        return Finding("glibc", "warn", name or "unknown", "the wheels need a glibc system")
    parts = tuple(int(part) for part in version.split("."))
    if parts < (2, 28):
        return Finding("glibc", "warn", version, "the wheels need glibc 2.28: a newer distribution")
    return Finding("glibc", "ok", version)


def _git() -> Finding:
    if shutil.which("git") is None:
        return Finding("git", "fail", "not on PATH", "apt-get install git")
    text = run(["git", "--version"]).text
    found = re.search(r"(\d+)\.(\d+)", text)
    if found is None or (int(found[1]), int(found[2])) < (2, 30):
        return Finding("git", "fail", text, "install git 2.30 or newer")
    return Finding("git", "ok", text)


def _memory() -> Finding:
    free = psutil.virtual_memory().available
    if free < 2e9:
        return Finding("memory", "warn", f"{free / 1e9:.1f} GB free", "a build takes about 1.5 GB")
    return Finding("memory", "ok", f"{free / 1e9:.1f} GB free, {os.cpu_count()} cores")


def _disk(folder: Path, name: str, need: int, variable: str) -> Finding:
    free = shutil.disk_usage(folder).free
    detail = f"{free / 1e9:.1f} GB free in {folder}, {need / 1e9:.0f} GB needed"
    if free >= need:
        return Finding(name, "ok", detail)
    status: Literal["warn", "fail"] = "fail" if need == _BUILD_DISK else "warn"
    return Finding(name, status, detail, f"free some space, or set {variable} to another disk")


def cards(listing: str) -> list[Card]:
    """Read what ``nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total`` prints."""
    found: list[Card] = []
    for line in listing.splitlines():
        parts = [part.strip() for part in line.rsplit(",", 3)]
        if len(parts) == 4 and re.fullmatch(r"\d+\.\d", parts[1]):
            major, minor = parts[1].split(".")
            memory = re.match(r"\d+", parts[3])
            found.append(
                Card(
                    parts[0], (int(major), int(minor)), int(parts[2].split(".")[0]),
                    int(memory[0]) if memory else 0,
                )
            )  # fmt: skip
    return found


def judge(card: Card, cuda: tuple[int, int]) -> Finding:
    """Whether a card can run a wheel of this CUDA version that was built for sm_86."""
    name = f"GPU {card.name}"
    major, minor = card.capability
    detail = f"sm_{major}{minor}, {card.memory_mib} MiB, driver {card.driver}"
    need = DRIVERS[cuda]
    if card.driver < need:
        return Finding(
            name, "warn", detail,
            f"CUDA {cuda[0]}.{cuda[1]} needs driver {need} or newer: update the NVIDIA driver",
        )  # fmt: skip
    if card.capability not in {(8, 6), (8, 9)}:
        return Finding(name, "warn", detail, "the sm_86 wheels are not for this card")
    return Finding(name, "ok", detail)


def _gpus() -> list[Finding]:
    if shutil.which("nvidia-smi") is None:
        return [Finding("GPU", "warn", "no nvidia-smi", "fine for building; running needs a card")]
    query = "--query-gpu=name,compute_cap,driver_version,memory.total"
    try:
        done = run(["nvidia-smi", query, "--format=csv,noheader"], timeout=30)
    except (ProgramError, OSError) as error:
        text = error.done.last_words if isinstance(error, ProgramError) else str(error)
        return [Finding("GPU", "warn", text, "fine for building; running needs a working driver")]
    found = [judge(card, (13, 0)) for card in cards(done.text)]
    return found or [Finding("GPU", "warn", "none", "fine for building; running needs a card")]


def worst(findings: list[Finding]) -> ToolError | None:
    """The error that building would end with, if there is one."""
    for one in findings:
        if one.status == "fail":
            return ToolError(f"{one.name}: {one.detail}", fix=one.fix)
    return None
