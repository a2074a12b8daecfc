"""A request in the engine's cache, and what its attention must be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sm86kit import codec
from sm86kit.eager import attend
from sm86kit.turboquant import Layout

if TYPE_CHECKING:
    from sm86kit.engine import Engine

_pool: dict[str, tuple[torch.Tensor, ...]] = {}


def _random(engine: Engine, tokens: int = 320) -> tuple[torch.Tensor, ...]:
    """Keys, values and queries, and the bytes that the store kernel makes of keys and values."""
    name = engine.cache_config.cache_dtype
    if name not in _pool:
        dice = torch.Generator().manual_seed(1)
        k, v, q = (
            torch.randn(tokens, heads, engine.D, generator=dice).to(engine.dtype)
            for heads in (engine.Hk, engine.Hk, engine.Hq)
        )
        blocks = -(-tokens // 16)
        cache = torch.zeros(blocks, 16, engine.Hk, engine.cache.shape[-1], dtype=torch.uint8)
        engine.impl.do_kv_cache_update(engine.layer, k, v, cache, torch.arange(tokens))
        _pool[name] = (k, v, q, cache.view(-1, *cache.shape[2:])[:tokens].clone())
    return _pool[name]


class Request:
    """A request: what it holds, and what one step schedules of it.

    Args:
        engine: the engine.
        total: tokens that exist.
        q: tokens of this step.
        length: true length after this step.
        upper: the host's optimistic length (drafts taken as accepted); exact if None.
        prompt: length of the prompt.
    """

    free = 1  # block 0 is the null block
    pooled = 0

    def __init__(
        self, engine: Engine, total: int, q: int, length: int,
        *, upper: int | None = None, prompt: int | None = None,
    ) -> None:  # fmt: skip
        blocks = -(-total // 16)
        self.engine, self.q, self.length = engine, q, length
        self.blocks = list(range(Request.free, Request.free + blocks))
        Request.free += blocks
        begin = Request.pooled
        Request.pooled += total
        self.keys, self.values, self.queries, self.bytes = (
            x[begin : begin + total] for x in _random(engine)
        )
        assert len(self.keys) == total, "the pool of random tokens is too small"
        self.upper = length if upper is None else upper
        self.prompt = length if prompt is None else prompt
        engine.impl._ensure_on_device(engine.layer, torch.device("cpu"))
        self.store(length - q)

    def slots(self) -> torch.Tensor:
        """The cache slot of each token."""
        return (torch.tensor(self.blocks)[:, None] * 16 + torch.arange(16)).flatten()

    def store(self, stop: int, start: int = 0, loud: float = 1.0) -> None:
        """Store tokens [start, stop), times a factor."""
        if stop <= start:
            return
        engine = self.engine
        if loud == 1.0:
            flat = engine.cache.view(-1, *engine.cache.shape[2:])
            flat[self.slots()[start:stop]] = self.bytes[start:stop]
            return
        engine.impl.do_kv_cache_update(
            engine.layer, self.keys[start:stop] * loud, self.values[start:stop] * loud,
            engine.cache, self.slots()[start:stop],
        )  # fmt: skip

    def cached(self, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values (float64) of the bytes in the cache, decoded by torch alone."""
        engine = self.engine
        preset = engine.cache_config.cache_dtype.removeprefix("turboquant_")
        layout = Layout(preset, engine.D, engine.Hk)
        data = engine.cache.view(-1, *engine.cache.shape[2:])[self.slots()[:tokens]]
        k, v = codec.decode(data, layout)
        return codec.unrotate(k, layout), v

    def expected(self, of: str = "cache") -> torch.Tensor:
        """Eager float64 attention of this step's queries.

        Args:
            of: ``cache`` (the bytes that lie there), ``raw`` (keys and values before they were
                stored), ``local`` (this step's tokens only), or ``mixed`` (raw tokens of this
                step behind a cached prefix).
        """
        n, first = self.length, self.length - self.q
        if of == "local":
            k, v = self.keys[first:n], self.values[first:n]
        elif of == "raw":
            k, v = self.keys[:n], self.values[:n]
        else:
            k, v = self.cached(n)
            if of == "mixed":
                k, v = k.clone(), v.clone()
                k[first:], v[first:] = self.keys[first:n], self.values[first:n]
        return attend(self.queries[first:n], k, v, self.engine.scale)[0]
