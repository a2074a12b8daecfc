"""Attention in eager mode, and what stands in for FlashAttention's compiled modules."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import torch

from sm86kit import capture

if TYPE_CHECKING:
    from collections.abc import Iterable


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float,
    *, causal: bool = True, dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Eager attention of one request.

    Args:
        q: queries (Q, Hq, D), the last Q tokens of the keys.
        k: keys (K, Hk, D).
        v: values (K, Hk, D).
        scale: factor of the scores.
        causal: whether a query sees only the keys up to its own.
        dtype: what to compute in.

    Returns:
        The output (Q, Hq, D) and the log-sum-exp of the scores (Hq, Q).
    """
    groups = q.shape[1] // k.shape[1]
    k, v = (x.to(dtype).repeat_interleave(groups, 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.to(dtype), k) * scale
    if causal:
        seen = torch.arange(q.shape[0])[:, None] + k.shape[0] - q.shape[0]
        scores = scores.masked_fill(torch.arange(k.shape[0])[None] > seen, float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v), scores.logsumexp(-1)


def relative_error(a: torch.Tensor, b: torch.Tensor) -> float:
    """||a - b|| / ||b||, NaN and Inf included."""
    a, b = a.double().flatten(), b.double().flatten()
    return round(float((a - b).norm() / b.norm()), 5)


def worst_of(errors: Iterable[float]) -> float:
    """The largest of some errors; NaN is larger than any."""
    return max(errors, key=lambda error: (error != error, error))


def _rows(  # type: ignore[no-untyped-def]
    out, lse, q, k, v, cu_q, cu_k, scale, causal
) -> None:
    out.zero_()
    for row in range(cu_q.shape[0] - 1):
        first, last = int(cu_q[row]), int(cu_q[row + 1])
        begin, end = int(cu_k[row]), int(cu_k[row + 1])
        if last > first:
            found, sums = attend(
                q[first:last], k[begin:end], v[begin:end], scale, causal=causal,
                dtype=torch.float32,
            )  # fmt: skip
            out[first:last] = found.to(out.dtype)
            if lse is not None:
                lse[:, first:last] = sums


def flash_attn_varlen_func(  # type: ignore[no-untyped-def]
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None,
    causal=False, fa_version=None, return_softmax_lse=False, out=None, **rest,
):  # fmt: skip
    """FlashAttention's interface over `attend` in float32; recorded while capturing."""
    assert all(value is None for value in rest.values()), rest
    with capture._disable_current_modes():
        out = torch.empty_like(q) if out is None else out
        lse = torch.empty(q.shape[1], q.shape[0]) if return_softmax_lse else None
        if capture.capturing():
            capture.poison(out)
    capture.run_or_record(
        _rows, out, lse, q, k, v, cu_seqlens_q, cu_seqlens_k, softmax_scale, causal
    )
    return (out, lse) if return_softmax_lse else out


def merge_attn_states(  # type: ignore[no-untyped-def]
    output, a, a_lse, b, b_lse, output_lse=None, *_rest
) -> None:
    """The operator of that name: two parts of one softmax, merged by their log-sum-exps."""
    top = torch.maximum(a_lse, b_lse)
    weights = [torch.exp(lse - top) for lse in (a_lse, b_lse)]
    total = weights[0] + weights[1]
    of_a, of_b = ((weight / total).T.unsqueeze(-1) for weight in weights)
    output.copy_(a.float() * of_a + b.float() * of_b)
    if output_lse is not None:
        output_lse.copy_(top + total.log())


def install() -> None:
    """Put the stand-ins where vLLM looks for them; call after `believe`."""
    flash: Any = types.ModuleType("vllm.vllm_flash_attn")
    flash.__path__ = []
    flash.flash_attn_varlen_func = flash_attn_varlen_func
    flash.get_scheduler_metadata = lambda **_: None
    interface: Any = types.ModuleType("vllm.vllm_flash_attn.flash_attn_interface")
    interface.fa_version_unsupported_reason = lambda _version: None
    interface.is_fa_version_supported = lambda version: version == 2
    sys.modules |= {flash.__name__: flash, interface.__name__: interface}

    import vllm._custom_ops as ops

    for name in dir(ops):  # questions that compiled modules answer
        if "supports" in name or name == "cutlass_group_gemm_supported":
            setattr(ops, name, lambda *_a, **_k: False)
    ops.merge_attn_states = merge_attn_states
