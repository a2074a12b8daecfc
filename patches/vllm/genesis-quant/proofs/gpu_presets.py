"""The four presets on a GPU: stored bytes, dequantised rows and attention against eager mode.

Needs torch, Triton and a CUDA card only. On a card newer than sm_86 the sm_86 code is emulated.
Values must be the codec's bytes exactly; keys of the presets with a rotation may differ where
cuBLAS lands on the other side of a midpoint (counted). Attention: float64 over the bytes that
the kernels read, relative per row and head, gates 1.5e-3 (float16) and 4e-3 (bfloat16), plus
4e-4 of the scores' standard deviation for the presets with a rotation.
"""

import importlib.util
import sys

import torch
from sm86kit.bare import load_turboquant
from sm86kit.emulate import emulate
from sm86kit.proof import Proof, package_root
from sm86kit.turboquant import BLOCK_SIZE, PRESETS, Layout

HOW = emulate()
decode, store, reduce_ = load_turboquant()
NAME = "vllm.model_executor.layers.quantization.turboquant.centroids"
spec = importlib.util.spec_from_file_location(
    NAME, package_root() / (NAME.replace(".", "/") + ".py")
)
sys.modules[NAME] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[NAME])

from sm86kit import codec  # noqa: E402

GPU = torch.device("cuda")
TOKENS, HEADS, QUERIES = 512, 4, 24


def check(proof, preset, dim, dtype, std):
    name = f"{preset} {str(dtype)[6:]} D={dim} key std {std}"
    layout = Layout(preset, dim, heads=HEADS)
    dice = torch.Generator().manual_seed(86)
    keys = (torch.randn(TOKENS, HEADS, dim, generator=dice) * std).to(dtype)
    values = (torch.randn(TOKENS, HEADS, dim, generator=dice) + 3).to(dtype)
    shape = (TOKENS // BLOCK_SIZE, BLOCK_SIZE, HEADS, layout.slot)
    cache = torch.zeros(shape, dtype=torch.uint8, device=GPU)
    turn, middle, centres = torch.eye(dim), torch.zeros(1), torch.zeros(1)
    if not layout.fp8:
        turn = codec.hadamard(dim)
        centres, middle = codec.tables(dim, layout.mse_bits)
    turn, middle, centres = (x.to(GPU) for x in (turn, middle, centres))
    store.triton_turboquant_store(
        keys.to(GPU), values.to(GPU), cache, torch.arange(TOKENS, device=GPU), turn, middle,
        layout.mse_bits, layout.key_bytes, layout.value_bits, key_fp8=layout.fp8,
    )  # fmt: skip
    got = cache.cpu().view(-1, HEADS, layout.slot)
    differ = got != codec.encode(keys, values, layout)
    wrong_keys = int(differ[..., : layout.key_bytes].sum())
    wrong_values = int(differ[..., layout.key_bytes :].sum())
    proof.figure(f"{name} wrong key and value bytes", [wrong_keys, wrong_values, differ.numel()])
    proof.require(wrong_values == 0, f"{name}: {wrong_values} value bytes differ from the codec")
    allowed = 0 if layout.fp8 else differ.numel() // 1000
    proof.require(wrong_keys <= allowed, f"{name}: {wrong_keys} key bytes differ from the codec")
    query = torch.randn(1, QUERIES, dim, generator=dice).to(dtype)
    out = decode.triton_turboquant_decode_attention(
        query.to(GPU), cache, torch.arange(shape[0], dtype=torch.int32, device=GPU)[None],
        torch.tensor([TOKENS], dtype=torch.int32, device=GPU), turn, centres, dim**-0.5,
        layout.mse_bits, layout.key_bytes, layout.value_bits, key_fp8=layout.fp8,
        norm_correction=PRESETS[preset][2], PiT=turn,
    )  # fmt: skip
    k, v = codec.decode(got, layout)
    k = codec.unrotate(k, layout).repeat_interleave(QUERIES // HEADS, 1)
    v = v.repeat_interleave(QUERIES // HEADS, 1)
    scores = torch.einsum("hd,thd->ht", query[0].double(), k) * dim**-0.5
    want = torch.einsum("ht,thd->hd", scores.softmax(-1), v)
    error = ((out[0].cpu().double() - want).norm(dim=-1) / want.norm(dim=-1)).max().item()
    gate = 1.5e-3 if dtype is torch.float16 else 4e-3
    gate += 0 if layout.fp8 else 4e-4 * scores.std(dim=-1).max().item()
    proof.figure(f"{name} attention error and gate", [float(f"{error:.3g}"), float(f"{gate:.3g}")])
    proof.require(error <= gate, f"{name}: attention is off by {error:.2e}, gate {gate:.2e}")


def main():
    proof = Proof()
    proof.figure("how", HOW)
    proof.figure("torch", torch.__version__)
    for preset in PRESETS:
        for dim in (128, 256):
            for dtype in (torch.float16, torch.bfloat16):
                for std in (0.5, 4):
                    try:
                        check(proof, preset, dim, dtype, std)
                    except Exception as error:  # noqa: BLE001
                        kind = type(error).__name__
                        proof.fail(f"{preset} {dtype} D={dim}: {kind}: {str(error)[:120]}")
    proof.finish(decode, store)


main()
