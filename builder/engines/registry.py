"""The engines that can be built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from packaging.utils import canonicalize_name

from builder.engines.llama_cpp import LlamaCpp
from builder.engines.vllm import Vllm
from builder.errors import UsageError

if TYPE_CHECKING:
    from builder.engines.base import Engine

_ENGINES: Final[dict[str, Engine]] = {engine.name: engine for engine in (LlamaCpp(), Vllm())}


def get_engine(name: str) -> Engine:
    """The engine of that name.

    Raises:
        UsageError: a recipe names an engine that this program does not know.
    """
    if name not in _ENGINES:
        raise UsageError(f"engine {name!r} has a recipe but no code", fix="update the builder")
    return _ENGINES[name]


def engine_of(project: str) -> Engine | None:
    """The engine whose distribution has this name, if there is one."""
    wanted = canonicalize_name(project)
    found = (one for one in _ENGINES.values() if canonicalize_name(one.distribution) == wanted)
    return next(found, None)
