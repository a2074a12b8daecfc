"""The frame of a proof script: figures, failures, and which of the patch's code was reached.

A script builds one `Proof`, calls `figure` and `require`, and ends with `finish`. It never
raises for a wrong number: what is wrong is collected, so that a red can be compared with
what was expected of it.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def package_root() -> Path:
    """The folder that the engine's package is imported from: a tree, or site-packages."""
    return Path(os.environ["SM86_PACKAGE_ROOT"])


def capability() -> tuple[int, int]:
    """Compute capability that the proof is for."""
    number = int(os.environ.get("SM86_ARCH", "86"))
    return number // 10, number % 10


def quick() -> bool:
    """Whether the tree has a planted fault: a part of the inputs suffices to notice it."""
    return os.environ.get("SM86_PROOF_MUTANT") == "1"


def interpret() -> None:
    """Run Triton kernels in Triton's interpreter; call before triton is imported."""
    os.environ["TRITON_INTERPRET"] = "1"


def use_package() -> None:
    """Make the engine's package importable from the root, before any other copy of it."""
    root = str(package_root())
    if sys.path[0] != root:
        sys.path.insert(0, root)


@dataclass
class Proof:
    """What a script found.

    Attributes:
        figures: measured values, by name.
        failures: what did not hold, one line each.
        reached: symbols of the patch that were executed or compiled.
    """

    figures: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)

    def figure(self, name: str, value: Any) -> None:
        """Record a value."""
        self.figures[name] = value

    def fail(self, failure: str) -> None:
        """Record what did not hold."""
        self.failures.append(failure)

    def require(self, holds: object, failure: str) -> None:
        """Record a failure unless something holds."""
        if not holds:
            self.fail(failure)

    def watch(self, module: Any, symbol: str) -> None:
        """Note when a function of a module is called through its global name."""
        original = getattr(module, symbol, None)
        if original is None:
            return

        def seen(*args: Any, **kwargs: Any) -> Any:
            self.reached.add(symbol)
            return original(*args, **kwargs)

        setattr(module, symbol, seen)

    def finish(self, *modules: Any) -> None:
        """Write the result to ``SM86_PROOF_OUT`` or standard output.

        Args:
            modules: the modules under proof; they must come from the root.
        """
        root = package_root().resolve()
        files = {m.__name__: str(Path(m.__file__).resolve()) for m in modules}
        for name, file in files.items():
            if not Path(file).is_relative_to(root):
                self.failures.append(f"{name} was imported from elsewhere: {file}")
        report = {
            "figures": self.figures,
            "failures": self.failures,
            "reached": sorted(self.reached),
            "modules": {n: str(Path(f).relative_to(root)) for n, f in files.items()
                        if Path(f).is_relative_to(root)},
        }  # fmt: skip
        text = json.dumps(report, indent=1, sort_keys=True)
        out = os.environ.get("SM86_PROOF_OUT")
        if out:
            Path(out).write_text(text)
        else:
            print(text)
