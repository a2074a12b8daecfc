"""vLLM's configuration of an engine with one TurboQuant layer, without a model on disk."""

from __future__ import annotations

import types

import torch
from vllm.config import (
    AttentionConfig,
    CacheConfig,
    CompilationConfig,
    CUDAGraphMode,
    SchedulerConfig,
    VllmConfig,
)

_Names = types.SimpleNamespace


def make_config(

    *, k=3, seqs=8, tokens=64, length=256, preset="turboquant_4bit_nc", splits=2,
    sizes=(4, 8, 16, 32), parallel_drafting=False, dcp=1, dtype=torch.float16,
):  # fmt: skip
    """A configuration with K drafted tokens, as the engine resolves it."""
    cfg = VllmConfig(
        scheduler_config=SchedulerConfig(
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            max_model_len=max(length, tokens),
            is_encoder_decoder=False,
            enable_chunked_prefill=True,
        ),
        compilation_config=CompilationConfig(
            cudagraph_capture_sizes=list(sizes), cudagraph_mode="FULL_AND_PIECEWISE"
        ),
        attention_config=AttentionConfig(tq_max_kv_splits_for_cuda_graph=splits),
        cache_config=CacheConfig(cache_dtype=preset, block_size=16),
    )
    # What needs a model on disk is set afterwards; nothing else is read of these two.
    cfg.model_config = _Names(
        max_model_len=length,
        multimodal_config=None,
        dtype=dtype,
        is_encoder_decoder=False,
        get_vocab_size=lambda: 32,
        uses_mrope=False,
    )
    cfg.scheduler_config.max_model_len = length
    cfg.parallel_config.decode_context_parallel_size = dcp
    if k:
        cfg.speculative_config = _Names(
            num_speculative_tokens=k,
            parallel_drafting=parallel_drafting,
            method="ngram",
            use_eagle=lambda: False,
            uses_draft_model=lambda: False,
            uses_extract_hidden_states=lambda: False,
            enforce_eager=False,
            draft_model_config=None,
        )
    cc = cfg.compilation_config
    cc.cudagraph_mode = CUDAGraphMode.FULL_AND_PIECEWISE
    cc.cudagraph_capture_sizes = list(sizes)
    cc.max_cudagraph_capture_size = max(sizes)
    cc.cudagraph_num_of_warmups = 1
    return cfg
