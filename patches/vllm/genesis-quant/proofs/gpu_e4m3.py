"""The k8v4 preset on a GPU: every byte, and attention against float64 eager mode.

Needs torch, Triton and a CUDA card only. On a card newer than sm_86 the sm_86 code is emulated.
Errors are ||out - ref|| / ||ref|| of one decode step, batch 2, 512 tokens, 24 query heads on 4 KV
heads of size 256 (the attention of Qwen3.6-27B), Gaussian keys of the given standard deviation.
"""

import torch
from sm86kit.bare import load_turboquant
from sm86kit.emulate import emulate
from sm86kit.proof import Proof
from sm86kit.turboquant import BLOCK_SIZE, Layout

HOW = emulate()
decode, store, reduce_ = load_turboquant()
GPU = torch.device("cuda")
DIM, HEADS, QUERIES, BATCH, TOKENS = 256, 4, 24, 2, 512
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def cache_for(layout: Layout, tokens: int) -> torch.Tensor:
    shape = (-(-tokens // BLOCK_SIZE), BLOCK_SIZE, layout.heads, layout.slot)
    return torch.zeros(shape, dtype=torch.uint8, device=GPU)


def store_into(
    cache: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, layout: Layout
) -> None:
    slots = torch.arange(keys.shape[0], device=GPU)
    store.triton_turboquant_store(
        keys,
        values,
        cache,
        slots,
        torch.eye(DIM, device=GPU),
        torch.zeros(1, device=GPU),
        0,
        layout.key_bytes,
        layout.value_bits,
        key_fp8=True,
    )


def innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__


def check_bytes(proof: Proof, name: str) -> None:
    layout = Layout("k8v4", DIM, heads=1)
    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    keys = bits.view(DTYPES[name]).reshape(256, 1, DIM)
    cache = cache_for(layout, 256)
    try:
        store_into(cache, keys.to(GPU), torch.zeros_like(keys).to(GPU), layout)
    except Exception as error:  # noqa: BLE001
        proof.figure(f"{name}_wrong_bytes", "does not compile")
        proof.fail(f"store {name}: does not compile: {innermost(error)}")
        return
    got = cache.view(-1, layout.slot)[:256, :DIM].cpu().flatten()
    plain = keys.flatten().float()
    want = plain.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    want[plain.isnan()] = 0x7F  # as cvt.rn.satfinite.e4m3x2 makes it, whatever the NaN's sign
    wrong = int((got != want).sum())
    proof.figure(f"{name}_wrong_bytes", wrong)
    proof.require(wrong == 0, f"store {name}: {wrong} of 65536 bytes differ from E4M3")


def check_dequant(proof: Proof) -> None:
    layout = Layout("k8v4", DIM, heads=1)
    raw = (torch.arange(256)[:, None] + torch.arange(DIM)).remainder(256).to(torch.uint8)
    cache = cache_for(layout, 256)
    cache.view(-1, layout.slot)[:, :DIM] = raw.to(GPU)
    table = torch.arange(cache.shape[0], dtype=torch.int32, device=GPU)[None]
    keys = torch.zeros(1, 1, 256, DIM, dtype=torch.float16, device=GPU)
    values = torch.zeros_like(keys)
    decode._tq_full_dequant_kv[(256, 1)](
        cache,
        table,
        torch.zeros(1, device=GPU),
        keys,
        values,
        *keys.stride()[:3],
        *values.stride()[:3],
        *cache.stride()[:3],
        table.stride(0),
        **layout.read_constants(),
        num_warps=4,
    )
    got, want = keys[0, 0].float().cpu(), raw.view(torch.float8_e4m3fn).float()
    wrong = int((~torch.where(want.isnan(), got.isnan(), got == want)).sum())
    proof.figure("dequant_wrong", wrong)
    proof.require(wrong == 0, f"dequant: {wrong} of {got.numel()} values decode wrongly")


def check_attention(proof: Proof, name: str, deviation: float) -> None:
    layout = Layout("k8v4", DIM, heads=HEADS)
    dtype, seed = DTYPES[name], torch.Generator().manual_seed(86)
    keys = (torch.randn(BATCH * TOKENS, HEADS, DIM, generator=seed) * deviation).to(dtype)
    values = torch.randn(BATCH * TOKENS, HEADS, DIM, generator=seed).to(dtype)
    query = torch.randn(BATCH, QUERIES, DIM, generator=seed).to(dtype)
    cache = cache_for(layout, BATCH * TOKENS)
    label = f"k8v4 {name} key std {deviation:g}"
    try:
        store_into(cache, keys.to(GPU), values.to(GPU), layout)
        blocks = TOKENS // BLOCK_SIZE
        table = torch.arange(BATCH * blocks, dtype=torch.int32, device=GPU).view(BATCH, blocks)
        out = decode.triton_turboquant_decode_attention(
            query.to(GPU),
            cache,
            table,
            torch.full((BATCH,), TOKENS, dtype=torch.int32, device=GPU),
            torch.eye(DIM, device=GPU),
            torch.zeros(1, device=GPU),
            DIM**-0.5,
            0,
            layout.key_bytes,
            layout.value_bits,
            key_fp8=True,
        )
    except Exception:  # noqa: BLE001
        proof.figure(label, "does not compile")
        return
    k = keys.double().view(BATCH, TOKENS, HEADS, DIM).repeat_interleave(QUERIES // HEADS, 2)
    v = values.double().view(BATCH, TOKENS, HEADS, DIM).repeat_interleave(QUERIES // HEADS, 2)

    def eager(rows: torch.Tensor) -> torch.Tensor:
        weights = torch.einsum("bhd,bthd->bht", query.double(), rows) * DIM**-0.5
        return torch.einsum("bht,bthd->bhd", weights.softmax(-1), v)

    reference = eager(k)
    error = ((out.cpu().double() - reference).norm() / reference.norm()).item()
    proof.figure(label, round(error, 4))


def main() -> None:
    proof = Proof()
    proof.figure("how", HOW)
    proof.figure("torch", torch.__version__)
    proof.figure("driver_cuda", torch.version.cuda)
    for name in DTYPES:
        check_bytes(proof, name)
    check_dequant(proof)
    for name in DTYPES:
        for deviation in (0.5, 1.0, 2.0, 4.0):
            check_attention(proof, name, deviation)
    proof.finish()


main()
