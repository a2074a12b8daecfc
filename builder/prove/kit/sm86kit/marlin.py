"""Marlin's operators on a CPU, reading the format that the CUDA kernels read.

`gptq_marlin_repack` and `marlin_gemm` (vLLM 0.22.1, ``csrc/quantization/marlin``) are
registered for CPU tensors, so vLLM's own linear layers run from loading to result. The
product is that of float64; with small integers as data every result is exact. The layouts
follow the kernels' fragment order (Frantar et al., MARLIN, arXiv 2408.11743), and shapes
that the CUDA code refuses are refused here with its words.
"""

from __future__ import annotations

import torch

_PERM_SCALES = [i + 8 * j for i in range(8) for j in range(8)]
_PERM_SINGLE = [2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)]
_INTERLEAVE = {
    (4, False): [0, 2, 4, 6, 1, 3, 5, 7],
    (4, True): [0, 4, 1, 5, 2, 6, 3, 7],
    (8, False): [0, 2, 1, 3],
    (8, True): [0, 1, 2, 3],
}
_ZERO_POINTS = {4: [0, 2, 4, 6, 1, 3, 5, 7], 8: [0, 2, 1, 3]}

#: One (m, N, K, groups, atomic add) for each product that was asked for.
calls: list[tuple[int, int, int, int, bool]] = []
_types: dict[int, tuple[str, int]] = {}
_libraries: list[torch.library.Library] = []


def has_tile(n: int, k: int) -> bool:
    """Whether a kernel exists: tiles (k, n) are (128,128), (64,256), (64,128), (128,64)."""
    return (n % 64 == 0 and k % 128 == 0) or (n % 128 == 0 and k % 64 == 0)


def bits_of(type_id: int) -> int:
    """Bits of a value of one of vLLM's scalar types."""
    return _types[type_id][1]


def pack(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Values along the last dimension as int32 words, the first in the lowest bits."""
    per_word = 32 // bits
    words = values.reshape(*values.shape[:-1], -1, per_word).to(torch.int64)
    words = (words << (torch.arange(per_word) * bits)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def unpack(words: torch.Tensor, bits: int) -> torch.Tensor:
    """The inverse of `pack`."""
    shifts = torch.arange(32 // bits, dtype=torch.int32) * bits
    return ((words[..., None] >> shifts) & ((1 << bits) - 1)).flatten(-2)


def _fragment_order(bits: int, a_8bit: bool) -> torch.Tensor:
    """Where each of the 1,024 values of a tile comes from, in the order of the threads."""
    order: list[int] = []
    for lane in range(32):
        column, quad = lane // 4, lane % 4
        if a_8bit:
            rows = [4 * quad + d for d in range(4)] + [4 * (quad + 4) + d for d in range(4)]
        else:
            rows = [2 * quad, 2 * quad + 1, 2 * (quad + 4), 2 * (quad + 4) + 1]
        block = [16 * row + column + 8 * half for half in (0, 1) for row in rows]
        step = 512 if a_8bit else 256
        order += [place + step * j for j in range(1024 // step) for place in block]
    return (
        torch.tensor(order)
        .reshape(-1, len(_INTERLEAVE[bits, a_8bit]))[:, _INTERLEAVE[bits, a_8bit]]
        .flatten()
    )


def _tiled(values: torch.Tensor, a_8bit: bool) -> torch.Tensor:
    k, n = values.shape
    height = 32 if a_8bit else 16
    return values.reshape(k // height, height, n // 16, 16).permute(0, 2, 1, 3)


def repacked(values: torch.Tensor, bits: int, a_8bit: bool) -> torch.Tensor:
    """(K, N) integers in the kernel's format, (K / 16, N * 16 / values per word) int32."""
    k, n = values.shape
    flat = _tiled(values, a_8bit).reshape(-1, 1024)[:, _fragment_order(bits, a_8bit)]
    return pack(flat.reshape(k // 16, n * 16), bits)


def unrepacked(words: torch.Tensor, bits: int, k: int, n: int, a_8bit: bool) -> torch.Tensor:
    """The inverse of `repacked`."""
    flat = unpack(words, bits).reshape(-1, 1024)
    tiles = torch.empty_like(flat)
    tiles[:, _fragment_order(bits, a_8bit)] = flat
    height = 32 if a_8bit else 16
    return tiles.reshape(k // height, n // 16, height, 16).permute(0, 2, 1, 3).reshape(k, n)


def unpermuted(values: torch.Tensor, order: list[int]) -> torch.Tensor:
    """Undo a permutation of each ``len(order)`` values."""
    flat = values.reshape(-1, len(order))
    plain = torch.empty_like(flat)
    plain[:, order] = flat
    return plain.reshape(values.shape)


def require(holds: object, words: str) -> None:
    """Refuse with the CUDA code's words unless something holds."""
    if not holds:
        raise RuntimeError(words)


def _gptq_repack(b, perm, size_k, size_n, num_bits, is_a_8bit):  # type: ignore[no-untyped-def]
    require(size_k % 16 == 0, f"size_k = {size_k} is not divisible by tile_k_size = 16")
    require(size_n % 64 == 0, f"size_n = {size_n} is not divisible by tile_n_size = 64")
    shape = (size_k * num_bits // 32, size_n)
    require(tuple(b.shape) == shape, f"b_q_weight has shape {tuple(b.shape)}, not {shape}")
    require(b.is_contiguous() and b.dtype == torch.int32, "b_q_weight is not contiguous int32")
    require(not perm.numel(), "act-order is not in this reference")
    values = unpack(b.t().contiguous(), num_bits).t()
    return repacked(values, num_bits, is_a_8bit)


def dequantised(
    b: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, type_id: int,
    *, n: int, k: int, a_8bit: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Weights without their scales (K, N) and the scales (groups, N), both natural order."""
    name, bits = _types[type_id]
    values = unrepacked(b, bits, k, n, a_8bit)
    groups = scales.shape[0]
    if scales.dtype == torch.float8_e8m0fnu:  # in the order of fp8 dequantisation
        scales = unpermuted(scales.view(torch.uint8), [0, 2, 1, 3])
        scales = scales.view(torch.float8_e8m0fnu).float()
    # the kernel chooses by the number of groups that it is given
    plain = unpermuted(scales, _PERM_SINGLE if a_8bit or groups == 1 else _PERM_SCALES)
    if name == "float8_e4m3fn":
        bias = {torch.float16: 2.0**-8, torch.bfloat16: 2.0**-120}.get(scales.dtype, 1.0)
        return values.to(torch.uint8).view(torch.float8_e4m3fn).double() * bias, plain
    if zeros is None or not zeros.numel():
        return values.double() - (8 if bits == 4 else 128), plain
    points = unpack(zeros, bits)
    if not a_8bit:
        points = unpermuted(points, _ZERO_POINTS[bits])
    points = unpermuted(points, _PERM_SCALES)
    return values.double() - points.double().repeat_interleave(k // groups, 0), plain


def product(
    a: torch.Tensor, weights: torch.Tensor, scales: torch.Tensor, *, dtype: torch.dtype,
    a_scales: torch.Tensor | None = None, bias: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """``a @ (weights * scales)`` in float64; int8 inputs with int16 group scales as the kernel.

    The sum is rounded to `dtype` before the bias is added in it, as the kernel does.
    """
    k, groups = weights.shape[0], scales.shape[0]
    if a.dtype == torch.int8 and groups > 1:
        whole = scales.view(torch.int16).to(torch.int64) & 0xFFFF
        size = k // groups
        parts = [
            (a[:, i : i + size].long() @ weights[i : i + size].long()) * whole[i // size]
            for i in range(0, k, size)
        ]
        total = torch.stack(parts).sum(0)
        result = ((total + 2**31) % 2**32 - 2**31).double()  # a 32-bit accumulator
    else:
        result = a.double() @ (weights * scales.double().repeat_interleave(k // groups, 0))
    if a_scales is not None:
        result = result * a_scales.double().reshape(-1, 1)
    rounded = result.to(dtype)
    return rounded if bias is None else rounded + unpermuted(bias, _PERM_SINGLE)


def _gemm(  # type: ignore[no-untyped-def]
    a, c, b, bias, scales, a_scales, global_scale, zeros, g_idx, perm, workspace, type_id,
    size_m, size_n, size_k, is_k_full, atomic, fp32_reduce, zp_float,
):  # fmt: skip
    bits = _types[type_id][1]
    a_8bit = a.dtype in (torch.int8, torch.float8_e4m3fn)
    require(tuple(a.shape) == (size_m, size_k), f"A has shape {tuple(a.shape)}")
    actual = b.shape[1] // 16 * (32 // bits)
    require(b.shape[0] * 16 == size_k, f"b_q_weight has {b.shape[0]} rows for K = {size_k}")
    require(actual == size_n, f"size_n = {size_n}, actual_size_n = {actual}")
    require(a.stride(1) == 1 or not size_m, "A.stride(1) is not 1")
    require(a.stride(0) % 8 == 0 or not size_m, "A.stride(0) must be divisible by 8")
    dtype = scales.dtype if a_8bit else a.dtype
    if size_m == 0:
        return torch.empty(0, size_n, dtype=dtype)
    groups = scales.shape[0]
    require(scales.shape[1] == size_n, f"b_scales dim 1 = {scales.shape[1]} is not {size_n}")
    require(groups <= 1 or size_k % groups == 0, f"K = {size_k} is not divisible by {groups}")
    size = size_k // groups
    require(groups <= 1 or size in (32, 64, 128), f"Unsupported group size {size}")
    require(bias is None or bias.shape == (size_n,), "b_bias.size(0) != size_n")
    require(
        has_tile(size_n, size_k), f"Invalid thread config for MKN = [{size_m}, {size_k}, {size_n}]"
    )
    if zeros is not None and zeros.numel():
        want = (groups, size_n * bits // 32)
        require(tuple(zeros.shape) == want, f"b_zeros has shape {tuple(zeros.shape)}, not {want}")
    calls.append((size_m, size_n, size_k, groups, bool(atomic)))
    weights, plain = dequantised(b, scales, zeros, type_id, n=size_n, k=size_k, a_8bit=a_8bit)
    return product(a, weights, plain, dtype=dtype, a_scales=a_scales, bias=bias)


_C = {
    "gptq_marlin_repack": (
        "(Tensor b_q_weight, Tensor perm, SymInt size_k, SymInt size_n, int num_bits,"
        " bool is_a_8bit) -> Tensor"
    ),
    "marlin_gemm": (
        "(Tensor a, Tensor? c_or_none, Tensor b_q_weight, Tensor? b_bias_or_none, Tensor b_scales,"
        " Tensor? a_scales, Tensor? global_scale, Tensor? b_zeros_or_none, Tensor? g_idx_or_none,"
        " Tensor? perm_or_none, Tensor workspace, int b_type_id, SymInt size_m, SymInt size_n,"
        " SymInt size_k, bool is_k_full, bool use_atomic_add, bool use_fp32_reduce,"
        " bool is_zp_float) -> Tensor"
    ),
}
#: Asked while modules are imported.
_ABSENT = (
    "cutlass_scaled_mm_supports_fp8", "cutlass_scaled_mm_supports_block_fp8",
    "cutlass_group_gemm_supported",
)  # fmt: skip


def register() -> None:
    """Register the operators; call before any of vLLM is imported."""
    library = torch.library.Library("_C", "FRAGMENT")
    for name, schema in _C.items():
        library.define(name + schema)
    library.impl("gptq_marlin_repack", _gptq_repack, "CPU")
    library.impl("marlin_gemm", _gemm, "CPU")
    for name in _ABSENT:
        library.define(f"{name}(int cuda_device_capability) -> bool")
        library.impl(name, lambda _capability: False, "CompositeExplicitAutograd")
    _libraries.append(library)


def one_rank() -> None:
    """Let vLLM's layers be made outside of an engine: one rank, kernels chosen as usual."""
    import vllm.model_executor.kernels.linear as kernels
    import vllm.model_executor.parameter as parameter
    from vllm.scalar_type import scalar_types

    parameter.get_tensor_model_parallel_rank = lambda: 0
    parameter.get_tensor_model_parallel_world_size = lambda: 1
    kernels._get_linear_backend = lambda: "auto"
    for name in ("uint4", "uint4b8", "uint8b128", "float8_e4m3fn"):
        kind = getattr(scalar_types, name)
        _types[kind.id] = (name, kind.size_bits)
