"""Resolving everything that a pin's wheel needs, as of a day, for every Python it supports."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uv

from builder.errors import IdentityError
from builder.run import ProgramError, run

if TYPE_CHECKING:
    from datetime import date

    from builder.context import Context
    from builder.pin import Pin

_OLDEST_PYTHON: Final = "3.10"


def resolve(context: Context, pin: Pin, *, engine: str, day: date) -> str:
    """The text of a lock: hashed requirements with markers, without the wheel itself.

    Args:
        context: paths and settings.
        pin: the version.
        engine: the engine's name, for the heading.
        day: nothing uploaded on or after it is taken.

    Raises:
        IdentityError: it cannot be resolved, or only with the network.
    """
    if context.offline:
        raise IdentityError("--offline: a lock cannot be resolved", fix="run without --offline")
    with tempfile.TemporaryDirectory(prefix="sm86-lock-") as name:
        wanted = Path(name) / "requirements.in"
        wanted.write_text(f"{pin.sdist.project}=={pin.version}\n")
        try:
            done = run(
                [
                    uv.find_uv_bin(), "pip", "compile", "--quiet", "--universal",
                    "--python-version", _OLDEST_PYTHON, "--exclude-newer", day.isoformat(),
                    "--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url",
                    "--no-emit-find-links", "--no-emit-package", pin.sdist.project, wanted,
                ]
            )  # fmt: skip
        except ProgramError as error:
            raise IdentityError(
                f"{pin.sdist.project} {pin.version} does not resolve: {error.done.last_words}",
                fix="check the index settings and the day",
            ) from error
    heading = (
        f"# Everything that the official wheel {pin.sdist.project} {pin.version} needs.\n"
        f"# Made by: sm86 lock {engine} --pin {pin.version} --exclude-newer {day}\n"
    )
    return heading + done.out.decode()
