"""The native layer compiled from the patched tree with CMake: programs, libraries, backends.

A build folder is kept for each version and target, so a run after a kill or a changed patch
compiles only what is not there yet.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import deflate

from builder.errors import CompileError
from builder.native import cmake, fatbin
from builder.native.dynamic import needed, soname
from builder.native.elf import is_elf
from builder.native.result import Extra, NativeResult, Stream
from builder.native.strip import strip
from builder.source.tree import sync
from builder.store import digest, entry_lock, stage

if TYPE_CHECKING:
    from pathlib import Path

    from builder.arch import Arch
    from builder.context import Context
    from builder.engines.base import Engine
    from builder.git import Git
    from builder.native.toolchain import Toolchain
    from builder.pin import Compile, Pin

_SCHEMA: Final = 1
#: libdeflate's best; its bytes depend on its version alone, which is pinned.
_LEVEL: Final = 12
#: Where NVIDIA's packages put their libraries, seen from the programs' folder.
_CUDA_PATHS: Final = ("$ORIGIN/../../nvidia/cu13/lib", "$ORIGIN/../../nvidia/nccl/lib")


@dataclass(frozen=True)
class Work:
    """What is to be compiled, and with what.

    Attributes:
        pin: the version.
        engine: its engine.
        git: repository that holds the patched commit.
        commit: that commit.
        arch: the card; None for the form without GPU code.
        tools: the toolchain.
        jobs: compilers at a time.
    """

    pin: Pin
    engine: Engine
    git: Git
    commit: str
    arch: Arch | None
    tools: Toolchain
    jobs: int

    @property
    def form(self) -> Compile:
        """The recipe's table."""
        assert self.pin.compile is not None  # noqa: S101  (the caller's choice of this way)
        return self.pin.compile

    @property
    def target(self) -> str:
        """What it is compiled for, in a word."""
        return self.arch.name if self.arch else "cpu"


def build_folder(context: Context, engine: Engine, pin: Pin, target: str) -> Path:
    """The kept folder of a version and target."""
    return context.cache_dir("builds") / f"{engine.name}-{pin.version}-{target}"


def definitions(work: Work, source: str) -> dict[str, str]:
    """All CMake cache entries but those that name programs.

    Args:
        work: what is compiled.
        source: the folder of the source, which must not show in what comes out.
    """
    form = work.form
    paths = ["$ORIGIN", *(_CUDA_PATHS if work.arch else ())]
    flags = f"-ffile-prefix-map={source}={work.engine.name}"
    words = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
        "CMAKE_INSTALL_RPATH": ";".join(paths),
        "CMAKE_INSTALL_RPATH_USE_LINK_PATH": "OFF",
        "CMAKE_C_FLAGS": flags,
        "CMAKE_CXX_FLAGS": flags,
        **form.definitions,
        **work.engine.definitions(work.pin),
    }
    if work.arch is None:
        return words | form.cpu
    return words | {"CMAKE_CUDA_ARCHITECTURES": f"{work.arch.cmake}-real"} | form.cuda


def compile_tree(context: Context, work: Work) -> tuple[Path, NativeResult]:
    """Compile a patched tree and collect what goes into the wheel.

    Returns:
        The stage's folder, which holds the members as deflated streams, and its result.

    Raises:
        CompileError: CMake or a compiler fails, or a target is missing afterwards.
    """
    key = digest(
        {
            "schema": _SCHEMA,
            "deflate": deflate.__version__,
            "tree": work.git.text("rev-parse", f"{work.commit}^{{tree}}"),
            "targets": work.form.targets,
            "definitions": definitions(work, "."),
            "tools": dict(work.tools.versions),
            "target": work.target,
        }
    )

    def make(out: Path) -> NativeResult:
        home = build_folder(context, work.engine, work.pin, work.target)
        with entry_lock(context, home):
            home.mkdir(exist_ok=True)
            folder = cmake.Folder(home / "src", home / "build", home / "log.txt")
            sync(work.git, work.commit, folder.source)
            cmake.configure(work.tools, folder, definitions(work, str(folder.source)))
            todo = cmake.outstanding(work.tools, folder, work.form.targets)
            context.say(f"compiling for {work.target}: {todo} steps, {work.jobs} at a time")
            cmake.compile_targets(context, work.tools, folder, work.form.targets, jobs=work.jobs)
            units = cmake.units(work.tools, folder, work.form.targets)
            extras = _collect(work, folder.build / "bin", out)
        return NativeResult(
            stage="native", key=key, mode="compiled", tools=dict(work.tools.versions),
            units=units, extras=extras,
        )  # fmt: skip

    return stage(context, "native", key=key, result=NativeResult, make=make)


def _collect(work: Work, bin_: Path, out: Path) -> tuple[Extra, ...]:
    """Programs, the libraries that they link to, and plugins: each under the name it is sought by.

    Raises:
        CompileError: a program is missing, or a file names a folder of this machine.
    """
    found: dict[str, tuple[bytes, bool]] = {}
    todo = [(name, True) for name in work.form.targets]
    todo += [
        (path.name, False)
        for path in sorted(bin_.iterdir())
        if any(fnmatchcase(path.name, pattern) for pattern in work.engine.plugins)
    ]
    while todo:
        name, program = todo.pop()
        path = bin_ / name
        if name in found or (not program and not path.exists()):
            continue  # the system's library
        if not path.is_file():
            raise CompileError(f"{name} was not built", fix="correct the recipe's targets")
        data = path.read_bytes()
        if not is_elf(data):
            raise CompileError(f"{name} is no ELF file", fix="correct the recipe's targets")
        found[name] = (data, program)
        if not program and soname(data) not in {"", name}:
            raise CompileError(f"{name} calls itself {soname(data)}", fix="report it")
        todo += [(one, False) for one in needed(data)]
    return tuple(_extra(work, name, *found[name], out) for name in sorted(found))


def _extra(work: Work, name: str, data: bytes, program: bool, out: Path) -> Extra:  # noqa: FBT001
    made = strip(data)
    sha256 = hashlib.sha256(made).hexdigest()
    packed = deflate.deflate_compress(made, _LEVEL)
    (out / f"{sha256}.deflate").write_bytes(packed)
    totals = fatbin.read(made).totals()
    member = work.engine.program_folder + name
    return Extra(
        name=member, sha256=sha256, size=len(made), origin=work.engine.origin(member),
        compiled=True, executable=program,
        archs={str(code): size for code, (_, size) in totals.items()},
        stream=Stream(file=f"{sha256}.deflate", packed=len(packed), crc=zlib.crc32(made)),
    )  # fmt: skip
