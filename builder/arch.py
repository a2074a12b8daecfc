"""A GPU architecture as a value, and the ways people spell it.

Only the unambiguous is accepted; a refusal names the nearest right spelling. The two
build systems write the same thing differently: torch wants ``8.6+PTX``, CMake wants
``86`` (cubin and PTX), ``86-real`` (cubin only) or ``86-virtual`` (PTX only).
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Final

from builder.errors import UsageError

#: Compute capabilities that CUDA 13 compiles for or that people still name, with a card each.
KNOWN: Final[dict[tuple[int, int], str]] = {
    (7, 5): "T4, RTX 20",
    (8, 0): "A100",
    (8, 6): "RTX 3080, RTX 3090, A5000, A6000",
    (8, 7): "Orin",
    (8, 9): "RTX 40, L40",
    (9, 0): "H100, H200",
    (10, 0): "B200",
    (10, 3): "B300",
    (11, 0): "Thor",
    (12, 0): "RTX 50",
    (12, 1): "GB10",
}
_TEGRA: Final = 87
#: Where the patches aim, and what a build may be cut to.
BUILDABLE: Final = ((8, 0), (8, 6), (8, 9))

_CARDS: Final = re.compile(
    r"(?:rtx|a)?[ _-]?(?:30[5-9]0|a?[456]000|a100|40[5-9]0|h100|h200)(?:ti)?"
)
_AMPERE: Final = "'ampere' is two architectures: sm_80 (A100) and sm_86 (RTX 30, A5000, A6000)"
_FORM: Final = re.compile(
    r"(?P<prefix>sm_?|compute_)?(?P<digits>\d{2,3}|\d{1,2}\.\d)"
    r"(?P<suffix>[af])?(?P<kind>-real|-virtual|\+ptx)?",
    re.ASCII,
)


@dataclass(frozen=True, order=True)
class Arch:
    """One real GPU architecture (a cubin target), with or without PTX beside it.

    Attributes:
        major: major compute capability.
        minor: minor compute capability.
        ptx: PTX for later cards is wanted as well.
        real_only: the spelling said that PTX is *not* wanted (``86-real``).
    """

    major: int
    minor: int
    ptx: bool = False
    real_only: bool = False

    @property
    def cc(self) -> tuple[int, int]:
        """The compute capability as a pair."""
        return self.major, self.minor

    @property
    def number(self) -> int:
        """The capability as the integer that fat binaries and ``__CUDA_ARCH__ / 10`` use."""
        return self.major * 10 + self.minor

    @property
    def name(self) -> str:
        """The name that labels and file names use, for example ``sm_86``."""
        return f"sm_{self.number}"

    @property
    def tag(self) -> str:
        """The form that a local version may hold, for example ``sm86``."""
        return f"sm{self.number}"

    @property
    def torch(self) -> str:
        """The form that ``TORCH_CUDA_ARCH_LIST`` takes."""
        return f"{self.major}.{self.minor}" + ("+PTX" if self.ptx else "")

    @property
    def cmake(self) -> str:
        """The form that ``CMAKE_CUDA_ARCHITECTURES`` takes."""
        return f"{self.number}" + ("-real" if self.real_only else "")

    def runs(self, code: Code) -> bool:
        """Whether a card of this architecture can run a piece of GPU code.

        A cubin runs on its own major version at the same or a higher minor one, unless it
        uses features of one chip or one family (``90a``, ``100f``); PTX of a lower or equal
        version is compiled by the driver (CUDA C++ Programming Guide, "Application
        compatibility").
        """
        if code.suffix:
            return False  # an Arch here never has features of one chip or family
        if code.ptx:
            return code.number <= self.number
        if code.number == _TEGRA:  # an integrated GPU; its code is for nothing else
            return self.number == _TEGRA
        return code.number // 10 == self.major and code.number <= self.number

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, order=True)
class Code:
    """What a piece of GPU code was compiled for.

    Attributes:
        number: compute capability times ten.
        ptx: it is PTX and not a cubin.
        suffix: ``a`` if it uses features of one chip, ``f`` of one family, else empty.
    """

    number: int
    ptx: bool = False
    suffix: str = ""

    def __str__(self) -> str:
        return f"{'compute' if self.ptx else 'sm'}_{self.number}{self.suffix}"


def _refuse(text: str, why: str, hint: str = "sm_86") -> UsageError:
    return UsageError(f"--arch {text!r}: {why}", fix=f"use {hint}")


def _nearest(number: str) -> str:
    names = [f"{a}{b}" for a, b in KNOWN]
    swapped = number[::-1]
    if swapped in names:
        return f"did you mean sm_{swapped}?"
    close = difflib.get_close_matches(number, names, n=1, cutoff=0.5)
    return f"did you mean sm_{close[0]}?" if close else "no card has it"


def parse_one(text: str) -> Arch:
    """Read one spelling of one architecture.

    Raises:
        UsageError: the text is ambiguous or names nothing that exists.
    """
    raw = text
    text = text.strip()
    if not text:
        raise _refuse(raw, "empty")
    if not text.isascii():
        raise _refuse(raw, "only ASCII letters, digits, '_' and '.' are read")
    low = text.lower()
    if low == "ampere":
        raise _refuse(raw, _AMPERE)
    if low in {"native", "all", "all-major"}:
        raise _refuse(raw, "names no architecture; builds never look at this machine's card")
    if (_CARDS.fullmatch(low) and not re.fullmatch(r"\d{1,3}", low)) or low.startswith(
        ("rtx", "gtx")
    ):
        raise _refuse(raw, "a card's name; RTX 3080, RTX 3090, A5000 and A6000 are sm_86")
    found = _FORM.fullmatch(low)
    if found is None or (found["prefix"] and "." in found["digits"]):
        raise _refuse(raw, "not an architecture")
    digits = found["digits"]
    dotted = "." in digits
    major, minor = (
        (int(part) for part in digits.split(".")) if dotted else (int(digits[:-1]), int(digits[-1]))
    )
    if (major, minor) not in KNOWN:
        raise _refuse(raw, f"there is no sm_{digits}; {_nearest(digits.replace('.', ''))}")
    if found["suffix"]:
        why = (
            f"there is no sm_{major}{minor}{found['suffix']}"
            if major < 9
            else "not an Ampere card; the patches are for sm_86"
        )
        raise _refuse(raw, why)
    if found["kind"] == "-virtual":
        raise _refuse(raw, "only PTX: no cubin for the card", f"sm_{major}{minor}")
    return Arch(major, minor, ptx=found["kind"] == "+ptx", real_only=found["kind"] == "-real")


def parse_list(text: str) -> tuple[Arch, ...]:
    """Read one or several architectures, separated by commas, semicolons or blanks.

    Duplicates fold; order is kept.

    Raises:
        UsageError: as `parse_one`, or nothing was named.
    """
    if re.fullmatch(r"\s*\d\s*,\s*\d\s*", text):
        raise _refuse(text, "reads as two architectures", "8.6 with a point")
    parts = [part for part in re.split(r"[,;\s]+", text) if part]
    if not parts:
        raise _refuse(text, "empty")
    return tuple(dict.fromkeys(parse_one(part) for part in parts))


def parse_target(text: str) -> Arch:
    """Read the one architecture that a build is for.

    Raises:
        UsageError: as `parse_list`, several were named, or nothing is built for it.
    """
    archs = parse_list(text)
    if len(archs) > 1:
        named = ", ".join(arch.name for arch in archs)
        raise UsageError(
            f"--arch {text!r}: names {len(archs)} architectures ({named}); a wheel is for one",
            fix="run one build for each",
        )
    arch = archs[0]
    if arch.cc not in BUILDABLE:
        raise _refuse(text, f"{arch.name} is {KNOWN[arch.cc]}; builds are for Ampere and Ada cards")
    if arch.ptx:
        raise _refuse(text, "a wheel is cut to one card, PTX for later ones is not kept", arch.name)
    return arch
