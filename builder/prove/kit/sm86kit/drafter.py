"""Drafting behind a verify step: the real `propose` over one TurboQuant layer. vLLM 0.22.1."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

import torch
from vllm.config import CUDAGraphMode
from vllm.forward_context import get_forward_context
from vllm.v1.spec_decode import llm_base_proposer
from vllm.v1.worker.utils import AttentionGroup

from sm86kit.capture import device
from sm86kit.eager import attend, relative_error
from sm86kit.engine import CPU

if TYPE_CHECKING:
    from sm86kit.engine import Engine
    from sm86kit.request import Request

_Names = types.SimpleNamespace


class Drafter(llm_base_proposer.SpecDecodeBaseProposer):  # type: ignore[misc]
    """vLLM's proposer around one TurboQuant layer with a cache of its own."""

    NAME = "draft.0.attn"

    def __init__(self, engine: Engine, extra: bool):
        cfg = engine.vllm_config
        self.vllm_config, self.speculative_config = cfg, cfg.speculative_config
        self.method = "draft_model" if extra else "mtp"
        self.pass_hidden_states_to_model = not extra
        self.num_speculative_tokens = engine.num_spec_tokens
        self.parallel_drafting = False
        self.extra_slots_per_request = 1
        self.net_num_new_slots_per_request = 1 if extra else 0
        self.needs_extra_input_slots = extra
        self.constant_draft_positions = False
        self.use_local_argmax_reduction = False
        self._enable_probabilistic_draft_probs = False
        self.uses_mrope, self.uses_xdrope_dim, self.draft_uses_xdrope_dim = False, 0, 0
        self.supports_mm_inputs, self.allowed_attn_types = False, None
        self.device, self.max_model_len, self.block_size = CPU, engine.max_model_len, 16
        n = engine.max_num_tokens
        self.input_ids = device(torch.zeros(n, dtype=torch.int32))
        self.positions = device(torch.zeros(n, dtype=torch.int64))
        self.hidden_states = device(torch.zeros(n, engine.Hq * engine.D, dtype=engine.dtype))
        self.arange = device(torch.arange(n, dtype=torch.int32))
        self.token_arange_np = self.arange.numpy().copy()
        self.is_rejected_token_mask = torch.zeros(n, dtype=torch.bool)
        self.is_masked_token_mask = torch.zeros(n, dtype=torch.bool)
        self._slot_mapping_buffer = torch.zeros(n, dtype=torch.int64)
        self.parallel_drafting_token_id = 0
        self._draft_attn_layer_names = {self.NAME}
        self.run, self.impl, self.layer = engine, engine.impl, torch.nn.Module()
        self.cache = device(torch.zeros_like(engine.cache))
        g = torch.Generator().manual_seed(7)

        def mk(heads):
            table = torch.randn(engine.Hq * engine.D, heads, engine.D, generator=g)
            return table.to(engine.dtype)

        self.Eq, self.Ek, self.Ev = mk(engine.Hq), mk(engine.Hk), mk(engine.Hk)
        spec = engine.kv_cache_config.kv_cache_groups[0].kv_cache_spec
        group = AttentionGroup(engine.backend, [self.NAME], spec, 0)
        group.create_metadata_builders(cfg, CPU, 16)
        self.draft_attn_groups = [group]
        for value in vars(group.get_metadata_builder()).values():
            if isinstance(value, torch.Tensor):
                device(value)
        self.trace: list[tuple[torch.Tensor, ...]] = []

    def _determine_batch_execution_and_padding(self, num_tokens, **_):
        return CUDAGraphMode.NONE, num_tokens, None

    def model(self, input_ids, positions, **_):
        ctx = get_forward_context()
        ids = input_ids.long()
        q, k, v = self.Eq[ids], self.Ek[ids], self.Ev[ids]
        out = torch.empty_like(q)
        self.impl.do_kv_cache_update(self.layer, k, v, self.cache, ctx.slot_mapping[self.NAME])
        self.impl.forward(self.layer, q, k, v, self.cache, ctx.attn_metadata[self.NAME], output=out)
        self.trace.append((q, out.clone(), self.cache.clone(), positions.clone()))
        return out.view(out.shape[0], -1)


def draft(
    engine: Engine, rows: list[Request], *, extra: bool, rejected: list[int], eager: bool = True
) -> list[list[float]]:
    """One verify step and the drafting that follows it.

    Args:
        engine: the engine.
        rows: verify rows of 1 + K tokens.
        extra: a draft model, which gets one slot more a row; else a chain as of MTP.
        rejected: how many drafts of each row were rejected.
        eager: run the verify step outside of CUDA graphs.

    Returns:
        For each draft step and row, the relative error of the sampled token's attention
        against eager attention over the drafter's cache.
    """
    drafter = Drafter(engine, extra)
    model = drafter.model

    class Model:
        def __call__(self, **words):
            return model(**words)

        def compute_logits(self, hidden):
            return hidden.float()

    object.__setattr__(drafter, "model", Model())
    flat = drafter.cache.view(-1, *drafter.cache.shape[2:])
    for row in rows:  # what the drafter has of each prompt
        before = row.length - row.q
        flat[row.slots()[:before]] = row.bytes[:before]
    drafter.impl._ensure_on_device(drafter.layer, CPU)
    engine.drafter = drafter
    engine.step(rows, eager=eager)
    gone = device(torch.tensor(rejected, dtype=torch.int32))
    valid = torch.tensor([row.q for row in rows], dtype=torch.int32) - gone
    drafts = torch.tensor([row.q - 1 for row in rows]).cumsum(0).to(torch.int32)
    common, sampled, gone_gpu = drafter.prepare_inputs_padded(
        engine.last_cad, _Names(cu_num_draft_tokens=drafts), valid
    )
    tokens = common.num_actual_tokens
    drafter.propose(
        target_token_ids=torch.arange(tokens, dtype=torch.int32) + 5,
        target_positions=engine.positions[:tokens],
        target_hidden_states=drafter.hidden_states[:tokens],
        next_token_ids=torch.arange(len(rows), dtype=torch.int32) + 40,
        token_indices_to_sample=sampled,
        common_attn_metadata=common,
        sampling_metadata=_Names(all_greedy=True),
        num_rejected_tokens_gpu=gone_gpu,
    )
    engine.drafter = None
    more = 1 if extra else 0
    cache, found = engine.cache, []
    for step, (queries, out, seen, _positions) in enumerate(drafter.trace):
        errors, begin = [], 0
        for place, row in enumerate(rows):
            keys = row.length - rejected[place] + step + more
            at = begin + row.q - 1 - rejected[place] + more if step == 0 else place
            begin += row.q + more
            engine.cache = seen
            k, v = row.cached(keys)
            want = attend(queries[at : at + 1], k, v, engine.scale)[0]
            errors.append(relative_error(out[at : at + 1], want))
        found.append(errors)
    engine.cache = cache
    return found
