"""The programs that compile: CMake and Ninja from their Python packages, the host's compiler.

Their versions are inputs of what they compile; a missing one is refused before work begins.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import cmake
import ninja

from builder.errors import ToolError
from builder.run import run

if TYPE_CHECKING:
    from collections.abc import Mapping

#: llama.cpp is C++17; older compilers lack parts of its library.
_OLDEST_GCC: Final = 9


@dataclass(frozen=True)
class Toolchain:
    """Everything that compiles.

    Attributes:
        cmake: CMake.
        ninja: Ninja.
        cc: the C compiler.
        cxx: the C++ compiler.
        launcher: ccache, if there is one.
        versions: name and version of everything that decides what comes out.
    """

    cmake: Path
    ninja: Path
    cc: Path
    cxx: Path
    launcher: Path | None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def definitions(self) -> dict[str, str]:
        """CMake cache entries that name these programs."""
        found = {
            "CMAKE_MAKE_PROGRAM": str(self.ninja),
            "CMAKE_C_COMPILER": str(self.cc),
            "CMAKE_CXX_COMPILER": str(self.cxx),
        }
        if self.launcher is not None:
            found |= {f"CMAKE_{one}_COMPILER_LAUNCHER": str(self.launcher) for one in ("C", "CXX")}
        return found


def find_toolchain(env: Mapping[str, str] | None = None) -> Toolchain:
    """The toolchain of this machine; ``CC`` and ``CXX`` are obeyed.

    Raises:
        ToolError: there is no C++ compiler, or it is too old.
    """
    env = os.environ if env is None else env
    cc, cxx = (_compiler(env, *names) for names in (("CC", "gcc", "cc"), ("CXX", "g++", "c++")))
    version = run([cxx, "-dumpfullversion", "-dumpversion"]).text
    family = "clang" if "clang" in run([cxx, "--version"]).text else "gcc"
    major = int(re.match(r"\d+", version)[0]) if re.match(r"\d+", version) else 0  # type: ignore[index]
    if family == "gcc" and major < _OLDEST_GCC:
        raise ToolError(
            f"{cxx} is gcc {version}, {_OLDEST_GCC} is needed", fix="apt-get install g++"
        )
    programs = {
        "cmake": Path(cmake.CMAKE_BIN_DIR) / "cmake",
        "ninja": Path(ninja.BIN_DIR) / "ninja",
    }
    versions = {name: run([path, "--version"]).text.split("\n")[0].removeprefix("cmake version ")
                for name, path in programs.items()}  # fmt: skip
    linker = run([cxx, "-Wl,--version", "-x", "none"], check=False).text.split("\n")[0]
    versions |= {family: version, "linker": linker}
    ccache = shutil.which("ccache") if env.get("SM86_CCACHE", "1") != "0" else None
    return Toolchain(
        programs["cmake"], programs["ninja"], cc, cxx, Path(ccache) if ccache else None, versions
    )  # fmt: skip


def _compiler(env: Mapping[str, str], variable: str, *names: str) -> Path:
    given = env.get(variable)
    for name in [given] if given else names:
        found = shutil.which(name, path=env.get("PATH"))
        if found:
            return Path(found)
    what = f"{variable}={given}" if given else names[0]
    raise ToolError(
        f"{what} is not on PATH: there is no {'C++' if variable == 'CXX' else 'C'} compiler",
        fix=f"correct {variable}" if given else "apt-get install g++",
    )
