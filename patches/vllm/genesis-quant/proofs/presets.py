"""All four presets store, decode and attend as the reference codec says, whatever the input.

Inputs are those of real models and worse: channel outliers of 20 times, keys above 448 and of
norm above 65504, key bias of 300, values of mean 10 and 1,000 times their range, constant values,
values of 3e4 and beyond float16, zero keys, queries of 1e-5, NaN and Inf. vLLM's store kernel must
write the codec's bytes exactly. Its dequant kernel must round them to float16. Its decode and
reduce kernels must give float64 attention over the bytes that they read, per row and head within
2e-6 + 2e-7 max|score| (float32 sums and scores; queries are given in float32 so that no output
rounding hides an error); outputs in the model's type within one rounding.

Emulation: Triton's interpreter on a CPU, corrected where it differs from a GPU.
"""

from sm86kit.proof import Proof, interpret, quick, use_package

interpret()
use_package()

import math  # noqa: E402

import numpy  # noqa: E402
import torch  # noqa: E402
from sm86kit.believe import believe  # noqa: E402
from sm86kit.turboquant import BLOCK_SIZE, PRESETS, Layout  # noqa: E402

believe()

from sm86kit import codec  # noqa: E402
from sm86kit.faithful import faithful  # noqa: E402
from vllm.v1.attention.ops import triton_decode_attention as reduce  # noqa: E402
from vllm.v1.attention.ops import triton_turboquant_decode as decode  # noqa: E402
from vllm.v1.attention.ops import triton_turboquant_store as store  # noqa: E402

NAN, INF = math.nan, math.inf


def stored(keys, values, layout, cache=None):
    tokens = keys.shape[0]
    if cache is None:
        blocks = -(-tokens // BLOCK_SIZE)
        cache = torch.zeros(blocks, BLOCK_SIZE, layout.heads, layout.slot, dtype=torch.uint8)
    turn, middle = torch.eye(layout.dim), torch.zeros(1)
    if not layout.fp8:
        turn, middle = codec.hadamard(layout.dim), codec.tables(layout.dim, layout.mse_bits)[1]
    store.triton_turboquant_store(
        keys, values, cache, torch.arange(tokens), turn, middle, layout.mse_bits,
        layout.key_bytes, layout.value_bits, key_fp8=layout.fp8,
    )  # fmt: skip
    return cache


def centroids(layout):
    return torch.zeros(1) if layout.fp8 else codec.tables(layout.dim, layout.mse_bits)[0]


def dequantised(cache, layout, tokens):
    table = torch.arange(cache.shape[0], dtype=torch.int32)[None]
    k = torch.zeros(1, layout.heads, tokens, layout.dim, dtype=torch.float16)
    v = torch.zeros_like(k)
    decode._tq_full_dequant_kv[(tokens, layout.heads)](
        cache, table, centroids(layout), k, v, *k.stride()[:3], *v.stride()[:3],
        *cache.stride()[:3], table.stride(0), **layout.read_constants(), num_warps=4,
    )  # fmt: skip
    return k[0].transpose(0, 1), v[0].transpose(0, 1)


def attended(query, cache, layout, lengths, table, splits=3):
    turn = torch.eye(layout.dim) if layout.fp8 else codec.hadamard(layout.dim)
    return decode.triton_turboquant_decode_attention(
        query, cache, table, lengths, turn, centroids(layout), layout.dim**-0.5,
        layout.mse_bits, layout.key_bytes, layout.value_bits, key_fp8=layout.fp8,
        norm_correction=PRESETS[layout.preset][2], max_num_kv_splits=splits,
    )  # fmt: skip


def reference(query, slots, layout, lengths):
    """float64 attention of queries (B, Hq, D) over slots (T, 1, slot): output and scores."""
    keys, values = codec.decode(slots, layout)
    keys = codec.unrotate(keys, layout)
    scores = torch.einsum("bhd,td->bht", query.double(), keys[:, 0]) * layout.dim**-0.5
    hidden = torch.arange(len(slots))[None] >= lengths[:, None]
    scores = scores.masked_fill(hidden[:, None], -INF)
    return torch.einsum("bht,td->bhd", scores.softmax(-1), values[:, 0]), scores


def inputs(dtype, dim, dice):
    """Keys and values (12, 1, D): one token for each kind of input."""
    big = dtype is torch.bfloat16

    def normal():
        return torch.randn(1, 1, dim, generator=dice)

    def uniform():
        return torch.rand(1, 1, dim, generator=dice)

    loud_key, loud_value = normal(), normal()
    loud_key[..., 3] *= 20
    loud_value[..., 5] *= 20
    far = 1e5 if big else 1e4
    pairs = [
        (normal(), normal()),
        (normal() * 2, normal() * 0.02),
        (loud_key, loud_value),
        (normal() * 1000, normal() * 1e-6),
        (normal() + 300, 10 + uniform()),
        (torch.sign(normal()) * 300 + normal(), 1000 + normal()),
        (torch.zeros(1, 1, dim), torch.full((1, 1, dim), 0.7)),
        (normal() * 1e-7, torch.full((1, 1, dim), 3e4)),
        (normal() * 1e4, (uniform() * 2 - 1) * 3e4),
        (normal() * far, normal() * far),
        (normal(), normal() + (1e5 if big else 6e4)),
        (normal() * 1e3, (normal() - 1) * (1e6 if big else 1e4)),
    ]
    return tuple(torch.cat(part).to(dtype) for part in zip(*pairs, strict=True))


def check_bytes(proof, name, keys, values, layout):
    cache = stored(keys, values, layout)
    got = cache.reshape(-1, 1, layout.slot)[: len(keys)]
    want = codec.encode(keys, values, layout)
    wrong = int((got != want).sum())
    proof.figure(f"{name} wrong bytes", [wrong, got.numel()])
    rows = (got != want).sum((1, 2)).nonzero().flatten().tolist()
    proof.require(
        wrong == 0, f"bytes {name}: {wrong} of {got.numel()} differ from the codec, in rows {rows}"
    )
    return cache, got


def check_dequant(proof, name, cache, slots, layout):
    keys, values = codec.decode(slots, layout)
    found = dequantised(cache, layout, len(slots))
    for what, got, want in zip(("key", "value"), found, (keys, values), strict=True):
        limited = want.clamp(-codec.TOP, codec.TOP)
        half_step = limited.abs() * 2**-11 + 2**-25
        off = ((got.double() - limited).abs() / half_step).nan_to_num(nan=INF).max().item()
        proof.require(off <= 1.01, f"dequant {name}: a {what} is off by {off:.3g} roundings")


def check_attention(proof, name, query, cache, slots, layout, lengths, dtype):
    table = torch.zeros(2, 1, dtype=torch.int32)
    out = attended(query.float(), cache, layout, lengths, table)
    want, scores = reference(query, slots, layout, lengths)
    largest = scores.masked_fill(scores.isinf(), 0).abs().amax(-1)
    gate = 2e-6 + 2e-7 * largest
    error = ((out.double() - want).norm(dim=-1) / want.norm(dim=-1)).nan_to_num(nan=INF)
    worst = (error / gate).flatten().argmax()
    got, allowed = error.flatten()[worst].item(), gate.flatten()[worst].item()
    proof.figure(f"{name} attention", [float(f"{got:.2g}"), float(f"{allowed:.2g}")])
    proof.require(got <= allowed, f"attention {name}: error {got:.2e} above {allowed:.2e}")
    if out.abs().max() > codec.TOP and dtype is torch.float16:
        return
    plain = attended(query, cache, layout, lengths, table)
    step = 2**-11 if dtype is torch.float16 else 2**-8
    rounding = out.double().abs() * step * 1.01 + 2**-25
    off = ((plain.double() - out.double()).abs() / rounding).nan_to_num(nan=INF).max().item()
    proof.require(off <= 1, f"attention {name}: the output is off by {off:.3g} roundings")


def check_preset(proof, preset, dim, dtype):
    name = f"{preset} {str(dtype)[6:]} D={dim}"
    layout = Layout(preset, dim, heads=1)
    dice = torch.Generator().manual_seed(86 + dim)
    keys, values = inputs(dtype, dim, dice)
    cache, slots = check_bytes(proof, name, keys, values, layout)
    check_dequant(proof, name, cache, slots, layout)
    query = torch.randn(2, 2, dim, generator=dice).to(dtype)
    query[1] *= 1e-5
    n = len(keys)
    lengths = torch.tensor([n, n - 1], dtype=torch.int32)
    check_attention(proof, f"{name} hard", query, cache, slots, layout, lengths, dtype)
    plain = [torch.randn(12, 1, dim, generator=dice).to(dtype) for _ in range(2)]
    slots = codec.encode(*plain, layout)
    cache = torch.full((1, 16, 1, layout.slot), 0x5A, dtype=torch.uint8)  # behind the length
    cache[0, :12] = slots
    lengths = torch.tensor([12, 7], dtype=torch.int32)
    check_attention(proof, f"{name} normal", query, cache, slots, layout, lengths, dtype)


def check_nan(proof, preset):
    """What is not a number reads back as NaN, and only there."""
    dim, dice = 64, torch.Generator().manual_seed(7)
    layout = Layout(preset, dim, heads=1)
    keys, values = (torch.randn(8, 1, dim, generator=dice) for _ in range(2))
    keys[1, 0, 5], keys[2, 0, 5] = NAN, INF
    values[3, 0, 5], values[4, 0, 5], values[5, 0, 5], values[6] = NAN, INF, -INF, NAN
    cache = stored(keys.half(), values.half(), layout)
    bad_keys = {1} if layout.fp8 else {1, 2}  # E4M3 saturates an Inf at 448

    def broken(x):
        return set(x.reshape(8, -1).isnan().any(-1).nonzero().flatten().tolist())

    each = cache.reshape(-1, 1, 1, layout.slot)[:8]
    query = torch.randn(8, 1, dim, generator=dice)
    table = torch.arange(8, dtype=torch.int32)[:, None]
    out = attended(query, each, layout, torch.ones(8, dtype=torch.int32), table, splits=2)
    k, v = dequantised(cache, layout, 8)
    for what, got, want in (
        ("output", out, bad_keys | {3, 4, 5, 6}), ("key", k, bad_keys), ("value", v, {3, 4, 5, 6}),
    ):  # fmt: skip
        found = sorted(broken(got))
        proof.require(set(found) == want, f"nan {preset}: {what} is NaN in rows {found}")
    for at in (0, 5):  # in the first split, and in the last
        more = [torch.randn(6, 1, dim, generator=dice).half() for _ in range(2)]
        more[0][at, 0, 0] = NAN
        lengths = torch.tensor([6], dtype=torch.int32)
        table = torch.zeros(1, 1, dtype=torch.int32)
        got = attended(query[:1], stored(*more, layout), layout, lengths, table)
        proof.require(got.isnan().all(), f"nan {preset}: a NaN key at {at} of 6 is lost")


def check_strides(proof, preset):
    dice = torch.Generator().manual_seed(5)
    layout = Layout(preset, 64, heads=2)
    keys, values = (torch.randn(20, 2, 64, generator=dice).half() for _ in range(2))
    want = stored(keys, values, layout)
    page = 16 * 2 * layout.slot
    memory = torch.full((2 * (page + 48),), 0xEE, dtype=torch.uint8)
    shape = (2, 16, 2, layout.slot)
    padded = torch.as_strided(memory, shape, (page + 48, 2 * layout.slot, layout.slot, 1))
    padded.zero_()
    heads_first = torch.zeros(2, 2, 16, layout.slot, dtype=torch.uint8).transpose(1, 2)
    for name, cache in (("padded pages", padded), ("heads first", heads_first)):
        try:
            stored(keys, values, layout, cache)
            proof.require(torch.equal(cache, want), f"strides {preset}: {name}: other bytes")
        except RuntimeError as error:
            proof.fail(f"strides {preset}: {name}: {str(error)[:80]}")
    untouched = bool((memory.view(2, -1)[:, page:] == 0xEE).all())
    proof.require(untouched, f"strides {preset}: wrote between pages")


def check_reduce(proof):
    """The second stage alone: rows without tokens, with NaN, and ordinary ones."""
    dim, splits = 64, 4
    dice = torch.Generator().manual_seed(9)
    parts = torch.randn(5, 2, splits, dim + 1, generator=dice)
    parts[3, :, 0], parts[4, :, 1, dim] = NAN, -INF
    lengths = torch.tensor([7, 0, 1, 8, 9], dtype=torch.int32)
    for half, dtype in ((1, torch.float16), (0, torch.bfloat16), (0, torch.float32)):
        out, lse = torch.full((5, 2, dim), 7.0, dtype=dtype), torch.full((5, 2), 7.0)
        reduce._fwd_kernel_stage2[(5, 2)](
            parts, out, lse, lengths, *parts.stride()[:3], *out.stride()[:2], lse.stride(0),
            NUM_KV_SPLITS=splits, BLOCK_DV=dim, Lv=dim, OUTPUT_FP16=half, num_warps=4,
            num_stages=2,
        )  # fmt: skip
        for row, length in enumerate(lengths.tolist()):
            each = -(-length // splits)
            used = [i for i in range(splits) if min(each * (i + 1), length) > each * i]
            if not used:
                right = bool((out[row] == 0).all() and (lse[row] == -INF).all())
                shown = f"{out[row].flatten()[0].item()} and lse {lse[row, 0].item()}"
                proof.require(right, f"a row without tokens gives {shown}")
                continue
            if row == 3:
                proof.require(out[row].isnan().all(), "the second stage hides a NaN")
                continue
            kept = parts[row][:, used].double()
            weights = kept[..., dim].softmax(-1)
            want = torch.einsum("hs,hsd->hd", weights, kept[..., :dim])
            error = ((out[row].double() - want).norm() / want.norm()).item()
            sums = torch.allclose(lse[row].double(), kept[..., dim].logsumexp(-1), atol=1e-5)
            gate = 5e-4 if half else 5e-3
            proof.require(error < gate and sums, f"second stage: row {row} is off by {error:.2g}")


def main():
    proof = Proof()
    faithful()
    numpy.seterr(all="ignore")
    proof.watch(store, "_quantize_value")
    for preset in PRESETS:
        check_preset(proof, preset, 64, torch.float16)
        check_preset(proof, preset, 128, torch.bfloat16)
        if not quick():
            check_preset(proof, preset, 128, torch.float16)
            check_preset(proof, preset, 256, torch.bfloat16)
        check_nan(proof, preset)
        check_strides(proof, preset)
    check_reduce(proof)
    proof.finish(decode, store, reduce)


main()
