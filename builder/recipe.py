"""A recipe: the pins of one engine. Data only; ``recipes/<engine>.toml``."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Literal

from packaging.version import Version
from pydantic import Field, field_validator

from builder import toml
from builder.errors import UsageError
from builder.pin import Pin, Strict

if TYPE_CHECKING:
    from builder.context import Context


class Recipe(Strict):
    """How one engine is built."""

    schema_version: Literal[1]
    """Version of this file's shape."""
    engine: str
    """The engine's name on the command line."""
    repository: str = Field(pattern=r"^(https|file)://")
    """Where ``--from git`` fetches commits."""
    license: str
    """SPDX expression of upstream's licence."""
    pins: tuple[Pin, ...] = Field(min_length=1)
    """The versions that are built."""

    @field_validator("pins")
    @classmethod
    def _once(cls, pins: tuple[Pin, ...]) -> tuple[Pin, ...]:
        versions = [pin.version for pin in pins]
        for version in versions:
            if versions.count(version) > 1:
                msg = f"version {version} is pinned twice"
                raise ValueError(msg)
        return pins

    def pin(self, version: str | None = None) -> Pin:
        """The pin of a version, the newest one if none is named.

        Raises:
            UsageError: there is no such pin.
        """
        if version is None:
            return max(self.pins, key=lambda pin: Version(pin.version))
        for pin in self.pins:
            if version in {pin.version, pin.tag}:
                return pin
        known = [pin.version for pin in self.pins]
        close = difflib.get_close_matches(version, known, n=1)
        raise UsageError(
            f"{self.engine} has no pin {version!r}",
            fix=f"did you mean {close[0]}?" if close else f"pinned are: {', '.join(known)}",
        )


def names(context: Context) -> list[str]:
    """The engines that have a recipe."""
    return sorted(path.stem for path in context.recipes.glob("*.toml"))


def load(context: Context, engine: str) -> Recipe:
    """The recipe of an engine.

    Raises:
        UsageError: there is none, or it is malformed.
    """
    known = names(context)
    if engine not in known:
        close = difflib.get_close_matches(engine.lower(), known, n=1, cutoff=0.4)
        raise UsageError(
            f"there is no engine {engine!r}",
            fix=f"did you mean {close[0]}?" if close else f"known are: {', '.join(known)}",
        )
    path = context.recipes / f"{engine}.toml"
    recipe = toml.load(path, Recipe)
    if recipe.engine != engine:
        raise UsageError(
            f"{path}: engine is {recipe.engine!r}", fix="name the file after the engine"
        )
    return recipe
