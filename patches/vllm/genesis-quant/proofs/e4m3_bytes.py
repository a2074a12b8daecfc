"""Keys of the k8v4 preset are E4M3 on cards below 8.9, byte for byte.

All 65,536 float16 and all 65,536 bfloat16 inputs go through vLLM's own store launcher; the
stored byte must be torch's ``float8_e4m3fn(clamp(key, -448, 448))``, nearest even, NaN as
0x7F. All 256 bytes then go through vLLM's own decode and dequant kernels and must come back
as torch decodes them. Format: OCP 8-bit Floating Point Specification (OFP8), 1.0.

Emulation: Triton's interpreter on a CPU.
"""

from sm86kit.proof import Proof, interpret, use_package

interpret()
use_package()

import torch  # noqa: E402
from sm86kit.believe import believe  # noqa: E402
from sm86kit.turboquant import BLOCK_SIZE, Layout  # noqa: E402

believe()

from vllm.v1.attention.ops import triton_turboquant_decode as decode  # noqa: E402
from vllm.v1.attention.ops import triton_turboquant_store as store  # noqa: E402

DIM = 256


def empty_cache(layout: Layout, tokens: int) -> torch.Tensor:
    blocks = -(-tokens // BLOCK_SIZE)
    return torch.zeros(blocks, BLOCK_SIZE, layout.heads, layout.slot, dtype=torch.uint8)


def stored_bytes(keys: torch.Tensor, layout: Layout) -> torch.Tensor:
    tokens = keys.shape[0]
    cache = empty_cache(layout, tokens)
    store.triton_turboquant_store(
        keys,
        torch.zeros_like(keys),
        cache,
        torch.arange(tokens),
        torch.eye(DIM),
        torch.zeros(1),
        0,
        layout.key_bytes,
        layout.value_bits,
        key_fp8=True,
    )
    return cache.view(-1, layout.slot)[:tokens, :DIM]


def check_store(proof: Proof, dtype: torch.dtype, layout: Layout) -> None:
    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    keys = bits.view(dtype).reshape(DIM, 1, DIM)
    got = stored_bytes(keys, layout).flatten()
    plain = keys.flatten().float()
    want = plain.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    want[plain.isnan()] = 0x7F  # as cvt.rn.satfinite.e4m3x2 makes it, whatever the NaN's sign
    wrong = (got != want).nonzero().flatten()
    name = str(dtype).removeprefix("torch.")
    proof.figure(f"{name}_wrong_bytes", len(wrong))
    if len(wrong):
        values = keys.flatten().float()[wrong]
        order = (values.nan_to_num(nan=1e30).abs() - 3.0).abs().argsort()
        at = wrong[order[0]]
        proof.fail(
            f"store {name}: {len(wrong)} of 65536 bytes differ from E4M3; for example key"
            f" {keys.flatten()[at].item():.4g} is stored as 0x{got[at]:02X}, not 0x{want[at]:02X}",
        )


def stored(layout: Layout, bytes_of_keys: torch.Tensor) -> torch.Tensor:
    """A cache whose tokens have these key bytes and zero values."""
    cache = empty_cache(layout, len(bytes_of_keys))
    cache.view(-1, layout.slot)[:, :DIM] = bytes_of_keys
    return cache


def decoded(raw: torch.Tensor) -> torch.Tensor:
    return raw.view(torch.float8_e4m3fn).float()


#: Token b has byte b + i in place i of its key: every byte stands in every place.
ALL = (torch.arange(256)[:, None] + torch.arange(DIM)[None, :]).remainder(256).to(torch.uint8)
#: The same without the two NaN bytes.
FINITE = torch.tensor([byte for byte in range(256) if byte & 0x7F != 0x7F], dtype=torch.uint8)[
    (torch.arange(256)[:, None] + torch.arange(DIM)[None, :]).remainder(254)
]


def compare(proof: Proof, what: str, got: torch.Tensor, raw: torch.Tensor) -> None:
    """Decoded values against torch's, value by value."""
    want = decoded(raw)
    same = torch.where(want.isnan(), got.isnan(), got == want)
    wrong = int((~same).sum())
    proof.figure(f"{what}_wrong", wrong)
    if wrong:
        at = tuple((~same).nonzero()[0].tolist())
        proof.fail(
            f"{what}: {wrong} of {same.numel()} values decode wrongly; for example"
            f" 0x{int(raw[at]):02X} as {got[at].item():.4g}, not {want[at].item():.4g}"
        )


def check_dequant(proof: Proof, layout: Layout) -> None:
    cache = stored(layout, ALL)
    table = torch.arange(cache.shape[0], dtype=torch.int32)[None]
    keys = torch.zeros(1, 1, 256, DIM, dtype=torch.float16)
    values = torch.zeros_like(keys)
    decode._tq_full_dequant_kv[(256, 1)](
        cache,
        table,
        torch.zeros(1),
        keys,
        values,
        *keys.stride()[:3],
        *values.stride()[:3],
        *cache.stride()[:3],
        table.stride(0),
        **layout.read_constants(),
        num_warps=4,
    )
    compare(proof, "dequant", keys[0, 0].float(), ALL)


def scores(layout: Layout, raw: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Request b sees token b alone; its score is the query times the key."""
    cache = stored(layout, raw).view(256, 1, 1, layout.slot)  # one token a block
    tokens = torch.arange(256, dtype=torch.int32)
    queries = query.expand(256, 1, DIM).contiguous()
    partial = torch.zeros(256, 1, 1, DIM + 1)
    constants = layout.read_constants() | {"BLOCK_SIZE": 1}
    decode._tq_decode_stage1[(256, 1, 1)](
        queries,
        cache,
        tokens[:, None],
        torch.ones(256, dtype=torch.int32),
        torch.zeros(1),
        partial,
        *queries.stride()[:2],
        *cache.stride()[:3],
        1,
        *partial.stride()[:3],
        **constants,
        NUM_KV_SPLITS=1,
        KV_GROUP_SIZE=1,
        ATTN_SCALE=1.0,
        BLOCK_KV=4,
        num_warps=1,
        num_stages=1,
    )
    # the row maximum passes over a NaN score, but the row itself must be NaN
    return torch.where(partial[:, 0, 0, 0].isnan(), float("nan"), partial[:, 0, 0, DIM])


def check_decode(proof: Proof, layout: Layout) -> None:
    """Every byte alone in two places (one-hot queries), then all places at once.

    A one-hot query would turn a NaN elsewhere in the key into 0 x NaN, so the other places of
    those tokens hold 0. The bound for a full query is that of a float32 sum of D products:
    D x 2^-24 x sum |q k|.
    """
    for place in (0, 101):
        raw = torch.zeros_like(ALL)
        raw[:, place] = ALL[:, place]
        query = torch.zeros(DIM)
        query[place] = 1.0
        compare(proof, f"decode_{place}", scores(layout, raw, query), ALL[:, place])
    signs = torch.randint(0, 2, (DIM,), generator=torch.Generator().manual_seed(86)) * 2.0 - 1.0
    got = scores(layout, FINITE, signs).double()
    keys = decoded(FINITE).double()
    bound = DIM * 2.0**-24 * keys.abs().sum(1)
    excess = ((got - keys @ signs.double()).abs() / bound).nan_to_num(nan=float("inf")).max().item()
    proof.figure("decode_sum_error_over_bound", excess if excess < 1e9 else "inf")
    proof.require(excess <= 1.0, f"decode: a score is off by {excess:.3g} times the bound")


def main() -> None:
    proof = Proof()
    proof.watch(store, "_tq_key_to_e4m3_bytes")
    proof.watch(decode, "_tq_key_from_e4m3_bytes")
    layout = Layout("k8v4", DIM, heads=1)
    for dtype in (torch.float16, torch.bfloat16):
        check_store(proof, dtype, layout)
    check_dequant(proof, layout)
    check_decode(proof, layout)
    proof.finish(store, decode)


main()
