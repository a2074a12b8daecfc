"""The version of our wheels: upstream's, and a local part that names what is inside.

``0.22.1+cu130.sm86.1.p1a2b3c4d``: CUDA, architecture, the recipe's revision (so that newer
sorts higher), and a digest of all inputs. ``.dirty`` follows where the source was local. A wheel
without GPU code says ``cpu`` where the others name CUDA and architecture.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from builder.errors import UsageError

if TYPE_CHECKING:
    from builder.arch import Arch
    from builder.engines.base import Engine
    from builder.pin import Pin

#: Stands for the architecture where there is none.
CPU: Final = "cpu"
_LOCAL: Final = re.compile(
    r"(?:(?P<cuda>cu\d+)\.(?P<arch>sm\d+)|cpu)\.(?P<revision>\d+)\.p(?P<inputs>[0-9a-f]{8})(?P<dirty>\.dirty)?"
)


@dataclass(frozen=True)
class Label:
    """What a local version says.

    Attributes:
        cuda: for example ``cu130``; empty without GPU code.
        arch: for example ``sm86``; ``cpu`` without GPU code.
        revision: the recipe's revision.
        inputs: first 8 hex digits of the digest of all inputs.
        dirty: the source was local.
    """

    cuda: str
    arch: str
    revision: int
    inputs: str
    dirty: bool


def compose(pin: Pin, arch: Arch | None, engine: Engine, *, inputs: str, dirty: bool) -> str:
    """The full version.

    Raises:
        UsageError: it would hold a word that the engine takes for something else.
    """
    form = f"{pin.cuda_tag}.{arch.tag}" if arch else CPU
    local = f"{form}.{pin.revision}.p{inputs[:8]}" + (".dirty" if dirty else "")
    for word in engine.forbidden_words:
        if word in local:
            raise UsageError(f"version part {local!r} holds {word!r}", fix="raise 'revision'")
    return f"{pin.version}+{local}"


def parse_label(version: str) -> Label | None:
    """What a version's local part says; None if it is not one of ours."""
    found = _LOCAL.fullmatch(version.partition("+")[2])
    if found is None:
        return None
    return Label(
        found["cuda"] or "", found["arch"] or CPU, int(found["revision"]), found["inputs"],
        bool(found["dirty"]),
    )  # fmt: skip
