"""The four TurboQuant presets as a reference codec in torch. Layout of vLLM 0.22.1.

A slot is one token and KV head; numbers of several bytes are little-endian::

    k8v4      [ D bytes E4M3 key | V4 ]
    4bit_nc   [ D/2 bytes indices | norm f16 | V4 ]
    k3v4_nc   [ 3D/8 bytes indices | norm f16 | V4 ]
    3bit_nc   [ 3D/8 bytes indices | norm f16 | V3 ]
    V = [ indices | scale f16 | zero f16 ]; one pad byte if the sum is odd

Four bits: element d in byte d // 2, even d in the low nibble. Three bits: eight elements are one
24-bit word, element d at bit 3 (d mod 8). Keys of the ``_nc`` presets: y = k / (||k|| + 1e-8) H
with H = Sylvester(D) / sqrt(D), index = number of midpoints <= y; midpoints lie between the
Lloyd-Max centroids of N(0, 1/D) (TurboQuant, arXiv 2504.19874); read as ||k|| c / ||c||, still
rotated. Values: index = round((v - zero) / scale) against the float16 scale and zero that are
stored, all three saturating at 65504. A row with NaN or Inf reads back as NaN, except an Inf in
a k8v4 key, which is 448.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from sm86kit.turboquant import Layout

TOP = 65504.0
_tables: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}


def hadamard(dim: int) -> torch.Tensor:
    """Sylvester's matrix over sqrt(D), float32; D is a power of two."""
    matrix = torch.tensor([[1.0]])
    while matrix.shape[0] < dim:
        top, bottom = torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)
        matrix = torch.cat([top, bottom], 0)
    return matrix / math.sqrt(dim)


def tables(dim: int, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Centroids and midpoints, float32, ascending."""
    if (dim, bits) not in _tables:
        from vllm.model_executor.layers.quantization.turboquant.centroids import get_centroids

        centroids = get_centroids(dim, bits).float().sort().values
        _tables[dim, bits] = centroids, (centroids[:-1] + centroids[1:]) / 2
    return _tables[dim, bits]


def pack(index: torch.Tensor, bits: int) -> torch.Tensor:
    """Indices (..., D) as bytes (..., bits * D / 8)."""
    index = index.long()
    if bits == 4:
        return (index[..., 0::2] | index[..., 1::2] << 4).to(torch.uint8)
    word = (index.unflatten(-1, (-1, 8)) << (3 * torch.arange(8))).sum(-1)
    return torch.stack([word >> 8 * i & 255 for i in range(3)], -1).flatten(-2).to(torch.uint8)


def unpack(raw: torch.Tensor, bits: int) -> torch.Tensor:
    """The inverse of `pack`."""
    raw = raw.long()
    if bits == 4:
        return torch.stack([raw & 15, raw >> 4], -1).flatten(-2)
    word = (raw.unflatten(-1, (-1, 3)) << (8 * torch.arange(3))).sum(-1)
    return torch.stack([word >> 3 * i & 7 for i in range(8)], -1).flatten(-2)


def _half_bytes(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float32).to(torch.float16).unsqueeze(-1).view(torch.uint8)


def _half_value(raw: torch.Tensor) -> torch.Tensor:
    return raw.contiguous().view(torch.float16).squeeze(-1).double()


def _at_most(x: torch.Tensor, top: float) -> torch.Tensor:
    """min(x, top) that keeps NaN."""
    return torch.where(x > top, torch.full_like(x, top), x)


def encode_value(value: torch.Tensor, bits: int) -> torch.Tensor:
    """Values (N, Hk, D) as bytes (N, Hk, bits * D / 8 + 4); in float32, as the kernel does."""
    v = value.float()
    levels = 2**bits - 1
    absent = v.isnan()
    low = torch.where(absent, math.inf, v).amin(-1)
    high = torch.where(absent, -math.inf, v).amax(-1)
    low = -_at_most(-_at_most(low, TOP), TOP)
    scale = _at_most((high - low) / levels, TOP).half().float()
    low = low.half().float()
    low = torch.where((v.abs() < math.inf).all(-1), low, math.nan)
    step = torch.where(scale > 0, scale, 1.0)
    index = (v - low[..., None]) / step[..., None] + 0.5
    index = torch.where(index > 0, index, 0.0).clamp(max=levels).trunc()
    return torch.cat([pack(index, bits), _half_bytes(scale), _half_bytes(low)], -1)


def encode_key(key: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Keys (N, Hk, D) as bytes (N, Hk, key bytes); in float32, as the kernel does."""
    if layout.fp8:
        raw = key.float().clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
        return torch.where(key.isnan(), 0x7F, raw.long()).to(torch.uint8)
    _, midpoints = tables(layout.dim, layout.mse_bits)
    flat = key.float().reshape(-1, layout.dim)
    norm = flat.norm(dim=1, keepdim=True)
    y = (flat / (norm + 1e-8)) @ hadamard(layout.dim)
    index = (y[..., None] >= midpoints).sum(-1)
    stored = _at_most(norm.squeeze(1), TOP)
    stored = torch.where((flat.abs() < math.inf).all(-1), stored, math.nan)
    out = torch.cat([pack(index, layout.mse_bits), _half_bytes(stored)], -1)
    return out.unflatten(0, key.shape[:-1])


def encode(key: torch.Tensor, value: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Keys and values (N, Hk, D) as slots (N, Hk, slot bytes)."""
    out = torch.zeros(*key.shape[:2], layout.slot, dtype=torch.uint8)
    out[..., : layout.key_bytes] = encode_key(key, layout)
    end = layout.key_bytes + layout.value_bytes + 4
    out[..., layout.key_bytes : end] = encode_value(value, layout.value_bits)
    return out


def decode(slots: torch.Tensor, layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
    """Slots (..., slot bytes) as keys, rotated except for k8v4, and values, float64."""
    if layout.fp8:
        key = slots[..., : layout.dim].contiguous().view(torch.float8_e4m3fn).double()
    else:
        centroids, _ = tables(layout.dim, layout.mse_bits)
        c = centroids.double()[unpack(slots[..., : layout.mse_bytes], layout.mse_bits)]
        c = c / ((c * c).sum(-1, keepdim=True) + 1e-16).sqrt()
        key = _half_value(slots[..., layout.mse_bytes : layout.mse_bytes + 2])[..., None] * c
    at = layout.key_bytes
    index = unpack(slots[..., at : at + layout.value_bytes], layout.value_bits).double()
    at += layout.value_bytes
    scale, zero = _half_value(slots[..., at : at + 2]), _half_value(slots[..., at + 2 : at + 4])
    return key, index * scale[..., None] + zero[..., None]


def unrotate(key: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Decoded keys in the model's space, float64."""
    return key if layout.fp8 else key @ hadamard(layout.dim).double()
