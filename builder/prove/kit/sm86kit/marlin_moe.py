"""Marlin's mixture-of-experts operators on a CPU, over `sm86kit.marlin`.

`moe_wna16_marlin_gemm`, `moe_align_block_size`, `moe_sum` (vLLM 0.22.1, ``csrc/moe``) and the
gated activations are registered for CPU tensors, so vLLM's own expert layers run from loading
to result. Blocks of sorted rows go expert by expert, as the kernel takes them; shapes that the
CUDA code refuses are refused here with its words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sm86kit import marlin

if TYPE_CHECKING:
    from collections.abc import Callable

#: One (rows, N, K, groups) for each product that was asked for.
calls: list[tuple[int, int, int, int]] = []
_AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
_libraries: list[torch.library.Library] = []


def awq_pack(values: torch.Tensor) -> torch.Tensor:
    """4-bit values (..., N) as AWQ's words (..., N / 8)."""
    order = values.reshape(*values.shape[:-1], -1, 8)[..., _AWQ_ORDER].reshape(values.shape)
    return marlin.pack(order, 4)


def _awq_repack(b, size_k, size_n, num_bits, is_a_8bit):  # type: ignore[no-untyped-def]
    marlin.require(size_k % 16 == 0, f"size_k = {size_k} is not divisible by tile_k_size = 16")
    marlin.require(size_n % 64 == 0, f"size_n = {size_n} is not divisible by tile_n_size = 64")
    shape = (size_k, size_n * num_bits // 32)
    marlin.require(tuple(b.shape) == shape, f"b_q_weight has shape {tuple(b.shape)}, not {shape}")
    marlin.require(b.is_contiguous(), "b_q_weight is not contiguous")
    shown = marlin.unpack(b, num_bits)
    values = torch.empty_like(shown).reshape(size_k, -1, 8)
    values[..., _AWQ_ORDER] = shown.reshape(size_k, -1, 8)
    return marlin.repacked(values.reshape(size_k, size_n), num_bits, is_a_8bit)


def _align(ids, experts, block, rows, owners, total, expert_map):  # type: ignore[no-untyped-def]
    """Rows sorted by expert, each expert's padded to whole blocks with a row that is not."""
    flat, none = ids.flatten().long(), ids.numel()
    if expert_map is not None:
        flat = expert_map[flat].long()
    rows.fill_(none)
    at = 0
    for expert in range(experts):
        mine = (flat == expert).nonzero().flatten()
        if len(mine):
            rows[at : at + len(mine)] = mine.to(rows.dtype)
            blocks = -(-len(mine) // block)
            owners[at // block : at // block + blocks] = expert
            at += blocks * block
    total.fill_(at)


def _gemm(  # type: ignore[no-untyped-def]
    a, c, b, bias, scales, a_scales, global_scale, zeros, g_idx, perm, workspace, rows, owners,
    total, topk_weights, block, top_k, mul, type_id, size_m, size_n, size_k, is_k_full, atomic,
    fp32_reduce, zp_float, thread_k, thread_n, blocks_per_sm,
):  # fmt: skip
    need, bits = marlin.require, marlin.bits_of(type_id)
    need(tuple(a.shape) == (size_m, size_k), f"A has shape {tuple(a.shape)}")
    need(b.shape[1] * 16 == size_k, f"Shape mismatch: {b.shape[1]} rows for K = {size_k}")
    actual = b.shape[2] // 16 * (32 // bits)
    need(actual == size_n, f"size_n = {size_n}, actual_size_n = {actual}")
    need(c.shape == (size_m * top_k, size_n), f"c has shape {tuple(c.shape)}")
    need(all(x.is_contiguous() for x in (a, b, c, scales)), "A, B, C or b_scales not contiguous")
    need(scales.shape[2] == size_n, f"b_scales dim 2 = {scales.shape[2]} is not {size_n}")
    groups = scales.shape[1]
    need(groups <= 1 or size_k % groups == 0, f"K = {size_k} is not divisible by {groups}")
    need(groups <= 1 or size_k // groups in (32, 64, 128), f"Unsupported groups {groups}")
    need(not g_idx.numel() if g_idx is not None else True, "act-order is not in this reference")
    need(
        marlin.has_tile(size_n, size_k),
        f"Invalid thread config for MKN = [{size_m}, {size_k}, {size_n}]",
    )
    need(bias is None or bias.shape[1] == size_n, "b_bias.size(1) != size_n")
    if zeros is not None and zeros.numel():
        want = (b.shape[0], groups, size_n * bits // 32)
        need(tuple(zeros.shape) == want, f"b_zeros has shape {tuple(zeros.shape)}, not {want}")
    calls.append((size_m * top_k, size_n, size_k, groups))
    a_8bit = a.dtype in (torch.int8, torch.float8_e4m3fn)
    sizes = {"n": size_n, "k": size_k, "a_8bit": a_8bit}
    ready = {}
    for start in range(0, int(total), block):
        expert = int(owners[start // block])
        mine = rows[start : start + block].long()
        mine = mine[mine < size_m * top_k]
        if expert < 0 or not len(mine):
            continue
        if expert not in ready:
            points = zeros[expert] if zeros is not None and zeros.numel() else None
            ready[expert] = marlin.dequantised(b[expert], scales[expert], points, type_id, **sizes)
        weights, plain = ready[expert]
        source = mine // top_k
        out = marlin.product(
            a[source], weights, plain, dtype=c.dtype,
            a_scales=None if a_scales is None else a_scales[source],
            bias=None if bias is None else bias[expert],
        )  # fmt: skip
        if mul:
            out = out * topk_weights.flatten()[mine].to(c.dtype)[:, None]
        c[mine] = out
    return c


def _gated(act: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., None]:
    def apply(output: torch.Tensor, both: torch.Tensor) -> None:
        gate, up = both.float().chunk(2, -1)
        output.copy_((act(gate) * up).to(output.dtype))

    return apply


def _sum(parts, output):  # type: ignore[no-untyped-def]
    output.copy_(parts.float().sum(1).to(output.dtype))


_C = {
    "awq_marlin_repack": (
        (
            "(Tensor b_q_weight, SymInt size_k, SymInt size_n, int num_bits, bool is_a_8bit)"
            " -> Tensor"
        ),
        _awq_repack,
    ),
    "silu_and_mul": ("(Tensor! result, Tensor input) -> ()", _gated(torch.nn.functional.silu)),
    "gelu_and_mul": ("(Tensor! out, Tensor input) -> ()", _gated(torch.nn.functional.gelu)),
}
_MOE_C = {
    "moe_align_block_size": (
        (
            "(Tensor topk_ids, int num_experts, int block_size, Tensor! sorted_token_ids,"
            " Tensor! experts_ids, Tensor! num_tokens_post_pad, Tensor? maybe_expert_map) -> ()"
        ),
        _align,
    ),
    "moe_sum": ("(Tensor input, Tensor! output) -> ()", _sum),
    "moe_wna16_marlin_gemm": (
        (
            "(Tensor! a, Tensor? c_or_none, Tensor! b_q_weight, Tensor? b_bias_or_none,"
            " Tensor! b_scales, Tensor? a_scales, Tensor? global_scale, Tensor? b_zeros_or_none,"
            " Tensor? g_idx_or_none, Tensor? perm_or_none, Tensor! workspace,"
            " Tensor sorted_token_ids, Tensor! expert_ids, Tensor! num_tokens_past_padded,"
            " Tensor! topk_weights, int moe_block_size, int top_k, bool mul_topk_weights,"
            " int b_type_id, int size_m, int size_n, int size_k, bool is_full_k,"
            " bool use_atomic_add, bool use_fp32_reduce, bool is_zp_float, int thread_k,"
            " int thread_n, int blocks_per_sm) -> Tensor"
        ),
        _gemm,
    ),
}


def register() -> None:
    """Register the operators beside `marlin.register`; call before any of vLLM is imported."""
    for space, table in (("_C", _C), ("_moe_C", _MOE_C)):
        library = torch.library.Library(space, "FRAGMENT")
        for name, (schema, function) in table.items():
            library.define(name + schema)
            library.impl(name, function, "CPU")
        _libraries.append(library)
