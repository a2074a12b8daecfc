"""The one place that starts other programs.

A program gets an explicit environment, no standard input, its own process group (killed
as a whole on a time limit or an interrupt) and, if asked, a log file.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builder.errors import BuilderError, TimeLimitError, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Done:
    """How a program ended.

    Attributes:
        args: the command line.
        code: exit status; negative for a signal.
        out: standard output.
        err: standard error.
        seconds: wall-clock time.
    """

    args: tuple[str, ...]
    code: int
    out: bytes
    err: bytes
    seconds: float

    @property
    def text(self) -> str:
        """Standard output, decoded and stripped."""
        return self.out.decode("utf-8", "replace").strip()

    @property
    def last_words(self) -> str:
        """The last line that the program wrote, standard error first."""
        for stream in (self.err, self.out):
            lines = [
                line for line in stream.decode("utf-8", "replace").splitlines() if line.strip()
            ]
            if lines:
                return lines[-1].strip()
        return f"exit status {self.code}"


class ProgramError(BuilderError):
    """A program ended with a failure; carries what it printed."""

    exit_code = 1

    def __init__(self, done: Done) -> None:
        words = [word for word in done.args[1:] if not word.startswith("-")]
        name = " ".join([done.args[0].rpartition("/")[2], *words[:1]])
        super().__init__(f"{name} failed ({done.code}): {done.last_words}")
        self.done = done


_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_live: set[subprocess.Popen[Any]] = set()
_live_lock = threading.Lock()


def _die_with_parent() -> None:
    """In the child, before its program starts: end when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with_parent() -> None:
    """As `_die_with_parent`, but asked: ninja then ends the compilers that it has started."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def end_all() -> None:
    """End every program that is running now, with its children."""
    with _live_lock:
        running = list(_live)
    for process in running:
        _kill(process)


def which(program: str, *, package: str) -> str:
    """The path of a program.

    Raises:
        ToolError: it is not on PATH; the text names the package that brings it.
    """
    found = shutil.which(program)
    if found is None:
        raise ToolError(f"{program} is not on PATH", fix=f"install it: apt-get install {package}")
    return found


def run(
    args: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    timeout: float | None = None,
    check: bool = True,
    log: Path | None = None,
) -> Done:
    """Run a program to its end.

    Args:
        args: program and arguments; never passed through a shell.
        cwd: folder to run in.
        env: the whole environment; the caller's own if None.
        stdin: bytes for standard input; closed if None.
        timeout: seconds after which the program and its children are killed.
        check: raise on a non-zero exit status.
        log: file that receives command line and output.

    Raises:
        ToolError: the program does not exist.
        TimeLimitError: it ran past its limit.
        ProgramError: it failed and `check` is true.
    """
    words = tuple(str(arg) for arg in args)
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env=dict(env) if env is not None else None,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  (one C call, no Python locks)
        )
    except FileNotFoundError as error:
        if cwd is not None and not cwd.is_dir():
            raise
        msg = f"{words[0]} is not on PATH"
        raise ToolError(msg, fix="install it, or run 'sm86 doctor'") from error
    with _live_lock:
        _live.add(process)
    try:
        out, err = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        _kill(process)
        msg = f"{words[0]} ran longer than {timeout:.0f} s"
        raise TimeLimitError(msg, fix=f"see {log}" if log else "run it again with -v") from error
    except BaseException:
        _kill(process)
        raise
    finally:
        with _live_lock:
            _live.discard(process)
    done = Done(words, process.returncode, out, err, time.monotonic() - started)
    if log is not None:
        with log.open("ab") as file:
            file.write(f"$ {shlex.join(words)}\n".encode() + out + err)
            file.write(f"# exit {done.code} after {done.seconds:.1f} s\n".encode())
    if check and done.code != 0:
        raise ProgramError(done)
    return done


def follow(
    args: Sequence[str | Path], *, env: Mapping[str, str], log: Path, line: Callable[[str], None]
) -> int:
    """Run a long program, giving each line of its output as it comes, and to a log file.

    Args:
        args: program and arguments.
        env: the whole environment.
        log: file that the command line and everything that it prints are added to.
        line: gets each line.

    Returns:
        Its exit status.
    """
    words = [str(arg) for arg in args]
    process = subprocess.Popen(
        words, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True, text=True, errors="replace",
        preexec_fn=_end_with_parent,  # noqa: PLW1509  (one C call, no Python locks)
    )  # fmt: skip
    with _live_lock:
        _live.add(process)
    try:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"$ {shlex.join(words)}\n")
            assert process.stdout is not None  # noqa: S101  (asked for above)
            for text in process.stdout:
                file.write(text)
                line(text.rstrip("\n"))
        return process.wait()
    except BaseException:
        _kill(process)
        raise
    finally:
        with _live_lock:
            _live.discard(process)


def _kill(process: subprocess.Popen[Any]) -> None:
    """End a process group: ask first, then insist, also on members that closed their pipes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
        process.communicate(timeout=0.5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
        process.communicate(timeout=5)


def no_room(error: BaseException) -> bool:
    """Whether a failure, ours or a program's, is a full disk."""
    if isinstance(error, OSError):
        return error.errno in {errno.ENOSPC, errno.EDQUOT}
    return isinstance(error, ProgramError) and b"No space left on device" in error.done.err
