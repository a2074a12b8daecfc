"""Geometry and launch parameters of vLLM's TurboQuant kernels (vLLM 0.22.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

#: name -> (key bits, value bits, norm correction); 8 key bits are E4M3.
PRESETS = {
    "k8v4": (8, 4, False),
    "4bit_nc": (4, 4, True),
    "k3v4_nc": (3, 4, True),
    "3bit_nc": (3, 3, True),
}
BLOCK_SIZE = 16


def next_power_of_2(number: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << (number - 1).bit_length()


@dataclass(frozen=True)
class Layout:
    """How one token and head is stored.

    Attributes:
        preset: name of the preset.
        dim: head size D.
        heads: KV heads Hk.
    """

    preset: str
    dim: int
    heads: int = 4

    @property
    def key_bits(self) -> int:
        return PRESETS[self.preset][0]

    @property
    def value_bits(self) -> int:
        return PRESETS[self.preset][1]

    @property
    def fp8(self) -> bool:
        return self.key_bits == 8

    @property
    def mse_bits(self) -> int:
        return 0 if self.fp8 else self.key_bits

    @property
    def mse_bytes(self) -> int:
        return math.ceil(self.dim * self.mse_bits / 8)

    @property
    def key_bytes(self) -> int:
        """Bytes of a stored key: D for E4M3, else indices and a float16 norm."""
        return self.dim if self.fp8 else self.mse_bytes + 2

    @property
    def value_bytes(self) -> int:
        return math.ceil(self.dim * self.value_bits / 8)

    @property
    def slot(self) -> int:
        """Bytes of a slot: key, value, float16 scale and zero, rounded up to even."""
        size = self.key_bytes + self.value_bytes + 4
        return size + size % 2

    def strides(self) -> dict[str, int]:
        return {
            "stride_cache_block": BLOCK_SIZE * self.heads * self.slot,
            "stride_cache_pos": self.heads * self.slot,
            "stride_cache_head": self.slot,
        }

    def store_constants(self) -> dict[str, Any]:
        """Constants of both store kernels, save the key's own."""
        return self.strides() | {
            "D": self.dim,
            "H": self.heads,
            "BLOCK_SIZE": BLOCK_SIZE,
            "BLOCK_D": next_power_of_2(self.dim),
            "KPS": self.key_bytes,
            "VQB": self.value_bits,
            "VAL_DATA_BYTES": self.value_bytes,
            "BLOCK_VAL": next_power_of_2(self.value_bytes),
            "BLOCK_GRP": next_power_of_2(self.dim // 8),
        }

    def read_constants(self) -> dict[str, Any]:
        """Constants that decode and dequant kernels share."""
        return {
            "HEAD_DIM": self.dim,
            "BLOCK_SIZE": BLOCK_SIZE,
            "NUM_KV_HEADS": self.heads,
            "MSE_BYTES": self.mse_bytes,
            "KPS": self.key_bytes,
            "VQB": self.value_bits,
            "VAL_DATA_BYTES": self.value_bytes,
            "MSE_BITS": self.mse_bits,
            "KEY_FP8": int(self.fp8),
            "BLOCK_D": next_power_of_2(self.dim),
            "NORM_CORRECTION": int(PRESETS[self.preset][2]),
            "FP8_E4B15": 1,
        }
