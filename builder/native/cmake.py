"""Running CMake and Ninja: resumable, logged, with progress, and with a reason for a failure."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from builder.errors import CompileError
from builder.native.jobs import Verdict, advice, classify
from builder.run import follow, run
from builder.store import canonical, remove_tree, write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from builder.context import Context
    from builder.native.toolchain import Toolchain

_STEP: Final = re.compile(r"\[(\d+)/(\d+)\] ")
#: Seconds between two lines of progress.
_EVERY: Final = 20.0
_TAIL: Final = 200
#: Of the environment, what a compiler needs; everything else could change what comes out.
_KEEP: Final = ("PATH", "HOME", "TMPDIR", "CCACHE_DIR", "CCACHE_REMOTE_STORAGE", "LD_LIBRARY_PATH")


@dataclass(frozen=True)
class Folder:
    """Where something is compiled; kept, so that a second run compiles only what has changed.

    Attributes:
        source: the patched tree.
        build: CMake's folder.
        log: everything that CMake and the compilers say.
    """

    source: Path
    build: Path
    log: Path


def environment(folder: Folder) -> dict[str, str]:
    """The environment of CMake and of the compilers."""
    kept = {key: os.environ[key] for key in _KEEP if key in os.environ}
    return kept | {
        "LC_ALL": "C.UTF-8",
        "CCACHE_BASEDIR": str(folder.source.parent),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_MAXSIZE": os.environ.get("CCACHE_MAXSIZE", "10G"),
    }


def configure(tools: Toolchain, folder: Folder, definitions: Mapping[str, str]) -> None:
    """Let CMake write the build files.

    A cache that was made with other words is thrown away: CMake keeps old values of
    everything that it is not told anew, another architecture among them.

    Raises:
        CompileError: CMake refuses.
    """
    words = {**definitions, **tools.definitions}
    told = canonical([words, dict(tools.versions)])
    note = folder.build / "told.json"
    if not note.is_file() or note.read_bytes() != told:
        remove_tree(folder.build)
    folder.build.mkdir(parents=True, exist_ok=True)
    args = [f"-D{name}={value}" for name, value in sorted(words.items())]
    done = run(
        [tools.cmake, "-S", folder.source, "-B", folder.build, "-G", "Ninja", *args],
        env=environment(folder), check=False, log=folder.log,
    )  # fmt: skip
    if done.code != 0:
        text = (done.out + done.err).decode("utf-8", "replace")
        reason = re.search(r"CMake Error[^\n]*\n+\s*([^\n]+)", text)
        raise CompileError(
            f"CMake refuses: {reason[1] if reason else done.last_words}", fix=f"see {folder.log}"
        )
    write_atomic(note, told)


def outstanding(tools: Toolchain, folder: Folder, targets: Sequence[str]) -> int:
    """Steps that Ninja would take now."""
    done = run(
        [tools.ninja, "-C", folder.build, "-n", *targets], env=environment(folder), check=False
    )
    found = _STEP.findall(done.out.decode("utf-8", "replace"))
    return int(found[-1][1]) if found else 0


def units(tools: Toolchain, folder: Folder, targets: Sequence[str]) -> int:
    """Object files that targets are made of."""
    words = [str(tools.ninja), "-C", str(folder.build), "-t", "commands", *targets]
    done = run(words, env=environment(folder))
    return len(re.findall(r" -c \S", done.text))


def compile_targets(
    context: Context, tools: Toolchain, folder: Folder, targets: Sequence[str], *, jobs: int
) -> None:
    """Let Ninja build targets, as far as they are not built.

    Raises:
        CompileError: a compiler fails; the message says why and whether to run again.
    """
    started, said = time.monotonic(), [0.0]
    tail: list[str] = []

    def line(text: str) -> None:
        tail.append(text)
        del tail[:-_TAIL]
        step = _STEP.match(text)
        now = time.monotonic()
        if step is not None and now - said[0] > _EVERY:
            said[0] = now
            n, m, spent = int(step[1]), int(step[2]), now - started
            left = spent / max(n, 1) * (m - n)
            context.say(f"  {n} of {m}, {spent:.0f} s, about {left:.0f} s left")

    words = [str(tools.ninja), "-C", str(folder.build), f"-j{jobs}", *targets]
    code = follow(words, env=environment(folder), log=folder.log, line=line)
    if code == 0:
        return
    text = "\n".join(tail)
    verdict = classify(text)
    first = next((one for one in tail if re.search(r"\berror\b", one)), "")
    what = first if verdict is Verdict.SOURCE_ERROR and first else f"ninja failed ({code})"
    raise CompileError(
        f"{what[:300]}: {verdict.value}", fix=f"{advice(verdict, jobs)} ({folder.log})"
    )
