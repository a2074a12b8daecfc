"""llama.cpp: C++ programs and backend libraries, compiled with CMake; no Python of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from builder.pin import Pin

_PACKAGE: Final = "llama_cpp_engine"
_VERSION_FILE: Final = """\
# made by sm86-builder; an unofficial build
__version__ = {version!r}
build_number = {number}
commit = {commit!r}
form = {form!r}
"""
#: Program by console script. test-backend-ops gets a prefix: it is a name that others use too.
_PROGRAMS: Final = {
    "llama-bench": "bench",
    "llama-cli": "cli",
    "llama-perplexity": "perplexity",
    "llama-quantize": "quantize",
    "llama-server": "server",
    "sm86-test-backend-ops": "test_backend_ops",
}


@dataclass(frozen=True)
class LlamaCpp:
    """llama.cpp's particulars."""

    name: str = "llama.cpp"
    distribution: str = "llama-cpp-engine"
    #: The whole tree is compiled; no folder of it is a Python package.
    package: str = ""
    version_member: str = f"{_PACKAGE}/_version.py"
    forbidden_words: tuple[str, ...] = ()
    #: One folder for all: a program looks for backends beside itself.
    program_folder: str = f"{_PACKAGE}/bin/"
    plugins: tuple[str, ...] = ("libggml-cpu-*.so", "libggml-cuda.so")
    summary: str = "LLM inference in C/C++: llama.cpp's programs"

    @property
    def scripts(self) -> dict[str, str]:
        """One for each program."""
        return {name: f"{_PACKAGE}.launch:{word}" for name, word in _PROGRAMS.items()}

    def own_files(self) -> dict[str, bytes]:
        """The package that starts the programs."""
        home = resources.files("builder.engines") / _PACKAGE
        names = ("__init__.py", "launch.py")
        return {f"{_PACKAGE}/{name}": (home / name).read_bytes() for name in names}

    def definitions(self, pin: Pin) -> dict[str, str]:
        """Build number and commit, which upstream's build would ask git for."""
        return {"LLAMA_BUILD_NUMBER": pin.version, "LLAMA_BUILD_COMMIT": pin.commit[:9]}

    def version_file(self, pin: Pin, version: str) -> tuple[str, bytes]:
        """``llama_cpp_engine/_version.py``."""
        found = re.match(r"cu\d+\.sm\d+|cpu", version.partition("+")[2])
        text = _VERSION_FILE.format(
            version=version, number=int(pin.version), commit=pin.commit,
            form=found[0] if found else "",
        )  # fmt: skip
        return self.version_member, text.encode()

    def read_version(self, content: bytes) -> str:
        """The value of ``__version__``."""
        found = re.search(rb"^__version__ = '([^']*)'", content, re.MULTILINE)
        return found[1].decode() if found else ""

    def is_native(self, path: str) -> bool:
        """Everything: nothing but compiled files goes into the wheel."""
        return bool(path)

    def is_generated(self, member: str) -> bool:
        """Everything but our own files."""
        return member not in self.own_files()

    def origin(self, member: str) -> str:
        """Compiled here, all of it."""
        return "compiled from llama.cpp" if member.startswith(self.program_folder) else "ours"

    def proof_environment(self, package_root: Path) -> dict[str, str]:
        """Where the programs are."""
        return {"SM86_PACKAGE_ROOT": str(package_root)}
