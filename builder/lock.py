"""Resolving everything that a pin's wheel needs, as of a day, for every Python it supports."""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import uv

from builder.errors import IdentityError
from builder.run import ProgramError, run

if TYPE_CHECKING:
    from datetime import date

    from builder.context import Context
    from builder.pin import Pin

_OLDEST_PYTHON: Final = "3.10"


#: Stands in a committed lock for the address of the index's file host.
FILES: Final = "{files}/"
_PLATFORM: Final = re.compile(r"-(?:any|(?:many)?linux\w*_x86_64[\w.]*)\.whl$")


@dataclass(frozen=True)
class Lock:
    """A resolution in the two forms that are committed.

    Attributes:
        requirements: hashed requirements with markers, without the wheel itself.
        pylock: the same as a lock file (PEP 751), its files' addresses relative to the
            index's file host, wheels of other platforms left out.
    """

    requirements: str
    pylock: str


def resolve(context: Context, pin: Pin, *, engine: str, day: date) -> Lock:
    """Resolve what a pin's wheel needs.

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
    heading = (
        f"# Everything that the official wheel {pin.sdist.project} {pin.version} needs.\n"
        f"# Made by: sm86 lock {engine} --pin {pin.version} --exclude-newer {day}\n"
    )
    return Lock(
        heading + _compile(pin, day, "--generate-hashes", "--no-emit-package", pin.sdist.project),
        heading + _portable(tomllib.loads(_compile(pin, day, "--format", "pylock.toml")), pin),
    )


def _compile(pin: Pin, day: date, *how: str) -> str:
    with tempfile.TemporaryDirectory(prefix="sm86-lock-") as name:
        wanted = Path(name) / "requirements.in"
        wanted.write_text(f"{pin.sdist.project}=={pin.version}\n")
        try:
            done = run(
                [
                    uv.find_uv_bin(), "pip", "compile", "--quiet", "--universal",
                    "--python-version", _OLDEST_PYTHON, "--exclude-newer", day.isoformat(),
                    "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links",
                    # without the extras, pip before 24 calls a hashed lock incomplete
                    "--no-strip-extras", *how, wanted,
                ]
            )  # fmt: skip
        except ProgramError as error:
            raise IdentityError(
                f"{pin.sdist.project} {pin.version} does not resolve: {error.done.last_words}",
                fix="check the index settings and the day",
            ) from error
    return done.out.decode()


def _portable(data: dict[str, Any], pin: Pin) -> str:
    """A lock file without the index's host and without other platforms' wheels.

    Its first package is the official wheel's own: the address that a build really fetches it
    from gives the host back.
    """
    packages = sorted(data["packages"], key=lambda one: one["name"] != pin.sdist.project)
    out = [
        f'lock-version = "{data["lock-version"]}"',
        'created-by = "sm86-builder"',
        f'requires-python = "{data["requires-python"]}"',
    ]
    for package in packages:
        wheels = [one for one in package.get("wheels", []) if _PLATFORM.search(one["url"])]
        out += ["", "[[packages]]"]
        out += [
            f"{key} = {json.dumps(package[key])}"
            for key in ("name", "version", "marker", "requires-python")
            if key in package
        ]
        if wheels:
            out += ["wheels = [", *(f"    {_file(one)}," for one in wheels), "]"]
        elif "sdist" in package:
            out.append(f"sdist = {_file(package['sdist'])}")
    return "\n".join(out) + "\n"


def _file(entry: dict[str, Any]) -> str:
    tail = urlsplit(entry["url"]).path.removeprefix("/")
    sha256 = entry["hashes"]["sha256"]
    return (
        f'{{ url = "{FILES}{tail}", size = {entry["size"]}, hashes = {{ sha256 = "{sha256}" }} }}'
    )
