"""Whether every symbol that a wheel's modules need exists in an environment's libraries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from builder.audit.finding import Finding, finding
from builder.errors import UsageError
from builder.native.dynamic import defined, undefined

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Prefixes of symbols that the interpreter, the C library and the driver bring.
_ELSEWHERE: Final = ("Py", "_Py", "cu", "__cu", "_Unwind_", "__gxx", "__cxa", "__libc", "__stack")
_TORCH: Final = "|".join(f"{len(name)}{name}" for name in ("c10", "at", "caffe2", "torch"))


def exports(site_packages: Path) -> set[str]:
    """Symbols that torch and the CUDA packages of an environment offer.

    Raises:
        UsageError: the folder holds no torch.
    """
    torch = site_packages / "torch" / "lib"
    if not torch.is_dir():
        raise UsageError(f"{site_packages} holds no torch", fix="name a site-packages folder")
    found: set[str] = set()
    for path in sorted(torch.glob("*.so*")):
        found |= defined(path.read_bytes())
    return found


def missing(name: str, data: bytes, offered: set[str]) -> Iterator[Finding]:
    """Symbols of torch's name spaces that a module needs and nothing offers."""
    lost = sorted(
        symbol for symbol in undefined(data) if _is_torch(symbol) and symbol not in offered
    )
    if lost:
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        yield finding("AUD-ABI-001", name, f"needs {lost[0]}{more}, which torch does not have")


def _is_torch(symbol: str) -> bool:
    if symbol.startswith(_ELSEWHERE):
        return False
    if not symbol.startswith("_Z"):
        return symbol.startswith(("aoti_torch_", "torch_"))
    return re.match(rf"_ZN?[KVr]*(?:{_TORCH})", symbol) is not None
