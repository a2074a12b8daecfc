"""The engines that can be built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from builder.engines.vllm import Vllm
from builder.errors import UsageError

if TYPE_CHECKING:
    from builder.engines.base import Engine

_ENGINES: Final[dict[str, Engine]] = {engine.name: engine for engine in (Vllm(),)}


def get_engine(name: str) -> Engine:
    """The engine of that name.

    Raises:
        UsageError: a recipe names an engine that this program does not know.
    """
    if name not in _ENGINES:
        raise UsageError(f"engine {name!r} has a recipe but no code", fix="update the builder")
    return _ENGINES[name]
