"""Where things are and how this run behaves: one frozen object, made once and passed down."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import platformdirs
from rich.console import Console

from builder.errors import UsageError

_TAG: Final = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This is a cache of sm86-builder (see bford.info/cachedir).\n"
)


def _default_root() -> Path:
    """The folder of ``recipes/`` and ``patches/``: the checkout, else the package's data."""
    package = Path(__file__).resolve().parent
    if (package.parent / "recipes").is_dir() and (package.parent / "pyproject.toml").is_file():
        return package.parent
    return package / "_data"


def _default_cache() -> Path:
    given = os.environ.get("SM86_CACHE")
    return Path(given) if given else Path(platformdirs.user_cache_dir("sm86-builder"))


def is_cache(folder: Path) -> bool:
    """Whether a folder carries the tag that this program puts into its caches."""
    tag = folder / "CACHEDIR.TAG"
    return tag.is_file() and tag.read_text() == _TAG


@dataclass(frozen=True)
class Context:
    """Paths and settings of one run.

    Attributes:
        root: folder with ``recipes/`` and ``patches/``.
        cache: folder for downloads and stage results; safe to delete.
        out: folder that finished wheels go to.
        offline: never open a network connection.
        dry_run: say what would be done, do nothing.
        verbosity: -1 quiet, 0 normal, 1 verbose, 2 with tracebacks.
        console: standard error; progress and messages go there, results to standard output.
    """

    root: Path = field(default_factory=_default_root)
    cache: Path = field(default_factory=_default_cache)
    out: Path = field(default_factory=lambda: Path("wheels"))
    offline: bool = False
    dry_run: bool = False
    verbosity: int = 0
    console: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))

    def __post_init__(self) -> None:
        for name in ("root", "cache", "out"):
            object.__setattr__(self, name, getattr(self, name).absolute())
        for name in ("recipes", "patches"):
            if not (self.root / name).is_dir():
                raise UsageError(
                    f"{self.root} has no {name}/ folder",
                    fix="give the folder of the recipes with --root",
                )

    @property
    def recipes(self) -> Path:
        """Folder of the recipes."""
        return self.root / "recipes"

    @property
    def patches(self) -> Path:
        """Folder of the patches."""
        return self.root / "patches"

    def cache_dir(self, name: str) -> Path:
        """A folder below the cache, made if missing; the cache carries a CACHEDIR.TAG."""
        path = self.cache / name
        path.mkdir(parents=True, exist_ok=True)
        tag = self.cache / "CACHEDIR.TAG"
        if not tag.exists():
            tag.write_text(_TAG)
        return path

    def say(self, text: str, *, level: int = 0) -> None:
        """Print a line to standard error if the verbosity is at least `level`."""
        if self.verbosity >= level:
            self.console.print(text, markup=False, soft_wrap=True)

    def with_(self, **changes: object) -> Context:
        """A copy with some fields replaced."""
        return replace(self, **changes)  # type: ignore[arg-type]
