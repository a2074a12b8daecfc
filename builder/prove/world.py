"""The environment that proofs run in: everything the wheel needs, exactly as locked."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Final

import uv

from builder.errors import IdentityError, ToolError
from builder.run import ProgramError, run
from builder.store import digest, file_sha256, lock, remove_tree, sweep

if TYPE_CHECKING:
    from pathlib import Path

    from builder.context import Context
    from builder.pin import Pin

#: What the locked packages take, uv's cache included (vLLM 0.22.1: 8.5 GB).
_NEED: Final = 12_000_000_000
#: Triton 3.6's interpreter needs numpy < 2.4, which the lock has for these Pythons only.
_PYTHONS: Final = ((3, 10), (3, 11), (3, 12))


def base_python() -> str:
    """An interpreter that the locked environment can be made for.

    Raises:
        ToolError: there is none on this machine.
    """
    if sys.version_info[:2] in _PYTHONS:
        return sys.executable
    for major, minor in reversed(_PYTHONS):
        found = shutil.which(f"python{major}.{minor}")
        if found:
            return found
    names = ", ".join(f"{major}.{minor}" for major, minor in _PYTHONS)
    raise ToolError(f"proofs need one of Python {names}", fix="install one, or give --python")


def world(context: Context, pin: Pin) -> Path:
    """The locked environment's interpreter; made on first use (about a minute, 5 GB).

    Raises:
        ToolError: no room, or no fitting Python.
        IdentityError: a package cannot be had or has another hash.
    """
    locked = context.recipes / "locks" / pin.lock
    base = base_python()
    version = run([base, "-I", "-c", "import sys; print(sys.version)"]).text
    home = context.cache_dir("worlds")
    place = home / digest([file_sha256(locked), version])[:32]
    python = place / "bin" / "python"
    with lock(context, f"world-{place.name}"):
        if (place / "complete").is_file():
            os.utime(place)
            return python
        if context.offline:
            raise IdentityError(
                "the locked environment is not in the cache and --offline forbids making it",
                fix="run once without --offline, or give --python",
            )
        free = shutil.disk_usage(home).free
        if free < _NEED:
            raise ToolError(
                f"{home} has {free / 1e9:.1f} GB free and the locked environment needs"
                f" {_NEED / 1e9:.0f} GB",
                fix="free some space, set SM86_CACHE to another disk, or give --python",
            )
        context.say(f"making the locked environment for {pin.sdist.project} {pin.version}")
        sweep(home, place.name)
        remove_tree(place)
        program = uv.find_uv_bin()
        try:
            run([program, "venv", "--quiet", "--python", base, place])
            run(
                [
                    program, "pip", "install", "--quiet", "--python", python, "--require-hashes",
                    "--requirements", locked,
                ],
                timeout=3600,
            )  # fmt: skip
        except ProgramError as error:
            raise IdentityError(
                f"the locked environment cannot be made: {error.done.last_words}",
                fix="check the index settings and the network",
            ) from error
        (place / "complete").touch()
        return python
