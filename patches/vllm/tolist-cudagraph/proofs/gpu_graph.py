"""A real CUDA graph over the token map's buffers: replay with other lengths equals eager mode.

Needs torch, Triton and a CUDA card only. On a card newer than sm_86 the sm_86 code is emulated.
A graph of 4 requests of 1 + 3 tokens is captured once; then lengths, offsets and block tables
change in place, padded batches among them, and every replay must be bit-equal to the same
launch outside of the graph, and within 1.5e-3 of float64 attention over the bytes in the cache.
Padding must be 0.
"""

import torch
from sm86kit import codec
from sm86kit.bare import load_turboquant
from sm86kit.emulate import emulate
from sm86kit.proof import Proof
from sm86kit.turboquant import BLOCK_SIZE, Layout

HOW = emulate()
decode, store, reduce_ = load_turboquant()
GPU = torch.device("cuda")
LAYOUT = Layout("k8v4", 128, heads=2)
QUERIES, REQUESTS, ROWS, BLOCKS, SPLITS = 8, 4, 4, 256, 8
TOKENS = REQUESTS * ROWS


def main():
    proof = Proof()
    proof.figure("how", HOW)
    proof.figure("torch", torch.__version__)
    if not hasattr(decode, "tq_token_map"):
        proof.fail("there is no token map: rows of 1 + K tokens take the host's lengths")
        proof.finish(decode)
        return
    dice = torch.Generator().manual_seed(86)
    shape = (BLOCKS, BLOCK_SIZE, LAYOUT.heads, LAYOUT.slot)
    cache = torch.zeros(shape, dtype=torch.uint8, device=GPU)
    made = [torch.randn(BLOCKS * BLOCK_SIZE, 2, 128, generator=dice).half() for _ in range(2)]
    eye, none = torch.eye(128, device=GPU), torch.zeros(1, device=GPU)
    store.triton_turboquant_store(
        made[0].to(GPU), made[1].to(GPU), cache, torch.arange(BLOCKS * BLOCK_SIZE, device=GPU),
        eye, none, 0, LAYOUT.key_bytes, LAYOUT.value_bits, key_fp8=True,
    )  # fmt: skip
    starts = torch.zeros(REQUESTS + 1, dtype=torch.int32, device=GPU)
    lengths = torch.zeros(REQUESTS, dtype=torch.int32, device=GPU)
    table = torch.zeros(REQUESTS, 64, dtype=torch.int32, device=GPU)
    owner = torch.zeros(TOKENS, dtype=torch.int32, device=GPU)
    seen = torch.zeros(TOKENS, dtype=torch.int32, device=GPU)
    query = torch.zeros(TOKENS, QUERIES, 128, dtype=torch.float16, device=GPU)
    output = torch.zeros_like(query)
    parts = torch.zeros(TOKENS, QUERIES, SPLITS, 129, device=GPU)
    sums = torch.zeros(TOKENS, QUERIES, device=GPU)

    def launch(out):
        decode.triton_turboquant_decode_attention(
            query, cache, table, seen, eye, none, 128**-0.5, 0, LAYOUT.key_bytes,
            LAYOUT.value_bits, key_fp8=True, PiT=eye, mid_o_buf=parts, output_buf=out,
            lse_buf=sums, max_num_kv_splits=SPLITS, token_req=owner,
        )  # fmt: skip

    def batch(rows):
        """Write a batch of (tokens, length) into the buffers, padded to the graph's size."""
        table.copy_(torch.randint(0, BLOCKS, tuple(table.shape), generator=dice))
        query.copy_(torch.randn(tuple(query.shape), generator=dice))
        ends = torch.tensor([0, *(tokens for tokens, _ in rows)]).cumsum(0)
        ends = torch.cat([ends, ends[-1:].expand(REQUESTS - len(rows))]).int()
        starts.copy_(ends)
        lengths.copy_(torch.tensor([n for _, n in rows] + [0] * (REQUESTS - len(rows))))
        decode.tq_token_map(starts, lengths, owner, seen, TOKENS)

    batch([(4, 4)] * 4)
    launch(output)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.set_sync_debug_mode("error")
    with torch.cuda.graph(graph):
        launch(output)
    torch.cuda.set_sync_debug_mode("default")
    worst, unequal, padding = 0.0, 0, 0
    batches = [
        [(4, 37), (4, 1000), (4, 4), (4, 213)], [(4, 600), (4, 5), (4, 21)], [(4, 1024)],
        [(1, 9), (3, 40), (4, 333), (2, 18)],
    ]  # fmt: skip
    for rows in batches:
        batch(rows)
        graph.replay()
        direct = torch.zeros_like(output)
        launch(direct)
        unequal += int(not torch.equal(output, direct))
        flat = cache.cpu().view(-1, LAYOUT.heads, LAYOUT.slot)
        first = 0
        for row, (tokens, length) in enumerate(rows):
            slots = (table[row].cpu().long()[:, None] * 16 + torch.arange(16)).flatten()
            k, v = codec.decode(flat[slots[:length]], LAYOUT)
            k, v = (x.repeat_interleave(QUERIES // 2, 1) for x in (k, v))
            for token in range(tokens):
                n = length - tokens + token + 1
                one = query[first + token].cpu().double()
                scores = torch.einsum("hd,thd->ht", one, k[:n]) * 128**-0.5
                want = torch.einsum("ht,thd->hd", scores.softmax(-1), v[:n])
                got = output[first + token].cpu().double()
                worst = max(worst, ((got - want).norm(dim=-1) / want.norm(dim=-1)).max().item())
            first += tokens
        padding += int((output[first:] != 0).sum())
    proof.figure("batches", len(batches))
    proof.figure("worst error against float64", float(f"{worst:.3g}"))
    proof.require(unequal == 0, f"{unequal} of {len(batches)} replays differ from eager launches")
    proof.require(worst <= 1.5e-3, f"attention is off by {worst:.2e}")
    proof.require(padding == 0, f"{padding} elements of padding are not 0")
    proof.finish(decode, store)


main()
