"""Layers split over several cards: what fits, what is padded, what is refused and how.

A shard that cuts a group of scales cannot be served rightly by any kernel: its scales are
loaded shifted. It must be refused while the layer is made, by a line that names the layer, its
shard, the tile and the largest number of cards that works; the same for values that share a
packed word. Everything else is served, padded where the kernel has no tile.

No emulation: nothing is computed.
"""

from sm86kit.proof import Proof, use_package

use_package()

import torch  # noqa: E402
from sm86kit import marlin  # noqa: E402
from sm86kit.believe import believe  # noqa: E402

believe()
marlin.register()

import vllm.model_executor.layers.quantization.auto_gptq as gptq  # noqa: E402
import vllm.model_executor.layers.quantization.awq_marlin as awq  # noqa: E402
import vllm.model_executor.layers.quantization.utils.marlin_utils as utils  # noqa: E402

try:
    import vllm.model_executor.layers.quantization.utils.marlin_pad as pad
except ModuleNotFoundError:  # unpatched: nothing is padded
    pad = None

marlin.one_rank()

LAYER = "model.layers.3.mlp.down_proj"
#: (outputs, inputs, cards, split along, group, padded N and K for GPTQ or None, cards that work)
TABLE = [
    (128, 4096, 1, "n", 128, (128, 4096), 0),
    (64, 4096, 2, "n", 128, (64, 4096), 0),
    (128, 4096, 2, "n", 128, (64, 4096), 0),
    (96, 2048, 2, "n", 128, (64, 2048), 0),
    (48, 2048, 1, "n", 128, (64, 2048), 0),
    (8, 1024, 1, "n", 128, (64, 1024), 0),
    (20, 1024, 2, "n", 128, (64, 1024), 0),
    (4096, 29568, 4, "k", 128, None, 3),
    (4096, 29568, 2, "k", 128, None, 1),
    (4096, 10944, 1, "k", 64, (4096, 10944), 0),
    (64, 4096, 2, "n", -1, (64, 4096), 0),
    (4096, 64, 1, "k", 32, (4096, 64), 0),
    (4096, 64, 1, "k", 128, None, 1),
]


def make(kind, parts, k, full_n, full_k, group, dtype):
    """The kernel that a layer gets, or the error that refuses it."""
    layer = torch.nn.Module()
    layer.prefix = LAYER
    if kind == "awq":
        method = awq.AWQMarlinLinearMethod(awq.AWQMarlinConfig(4, group, True, False, None, {}))
    else:
        config = gptq.AutoGPTQConfig(4, group, False, True, False, {}, {})
        method = gptq.AutoGPTQLinearMethod(config)
    method.input_dtype = None
    try:
        method.create_weights(
            layer, k, parts, full_k, full_n, dtype, weight_loader=lambda *_: None
        )  # fmt: skip
    except (ValueError, AssertionError) as error:
        return None, " ".join(str(error).split())
    return method.kernel, ""


def check_refusal(proof, name, kernel, why, *, shard, works):
    if kernel is not None:
        proof.fail(f"{name}: taken by {type(kernel).__name__} although the shard is cut wrongly")
        return
    for word in (LAYER, shard, "K % 128", f"is {works}."):
        proof.require(word in why, f"{name}: the refusal does not say {word!r}: {why[:300]}")


def check_table(proof):
    for n, k, cards, along, group, padded, works in TABLE:
        part_n, part_k = (n // cards, k) if along == "n" else (n, k // cards)
        for kind, dtype in (
            ("gptq", torch.float16),
            ("gptq", torch.bfloat16),
            ("awq", torch.float16),
        ):
            name = f"{kind} {dtype}: {n} x {k} over {cards} along {along}, group {group}"
            kernel, why = make(kind, [part_n], part_k, n, k, group, dtype)
            if padded is None:
                check_refusal(proof, name, kernel, why, shard=f"K = {part_k} of {k}", works=works)
            elif kind == "awq" and part_n % 8:
                check_refusal(proof, name, kernel, why, shard=f"N = {part_n}", works=1)
            elif kernel is None or type(kernel).__name__ != "MarlinLinearKernel":
                used = f"served by {type(kernel).__name__}" if kernel else f"refused: {why[-300:]}"
                proof.fail(f"{name}: {used}")
            else:
                got = pad.marlin_padded_nk(part_n, part_k, group) if pad else (part_n, part_k)
                proof.require(got == padded, f"{name}: padded to {got}, not {padded}")
                proof.require(marlin.has_tile(*got), f"{name}: {got} has no tile")


def check_words(proof):
    """Parts of a fused AWQ layer whose columns share a word: 12 + 12 loses columns."""
    kernel, why = make("awq", [12, 12], 256, 48, 256, 128, torch.float16)
    check_refusal(proof, "awq 12+12", kernel, why, shard="N = 12+12", works=1)
    layer = torch.nn.Module()
    for parts, k, group, takes in (
        ([24, 24], 256, 128, True), ([12, 12], 256, 128, False), ([64], 192, 128, False),
        ([64], 192, 64, True), ([96], 5120, 128, True),
    ):  # fmt: skip
        layer.output_partition_sizes, layer.output_size_per_partition = parts, sum(parts)
        layer.input_size_per_partition = layer.input_size = k
        got = utils.check_marlin_supports_layer(layer, group)
        proof.require(got == takes, f"AWQ {parts} x {k} group {group}: Marlin {got}, not {takes}")


def check_every_size(proof):
    """The padded size is the least with a tile and whole groups, and never a smaller one."""
    if pad is None:
        return
    padded = pad.marlin_padded_nk
    count = 0
    for n in range(1, 300):
        for k in range(8, 520, 8):
            for group in (-1, 32, 64, 128):
                if group > 0 and k % group:
                    continue
                count += 1
                big_n, big_k = padded(n, k, group)
                whole = group < 0 or big_k % group == 0
                fits = marlin.has_tile(big_n, big_k) and whole and big_n >= n and big_k >= k
                least = min(
                    a * b
                    for a in range(-(-n // 64) * 64, n + 128, 64)
                    for b in range(-(-k // 64) * 64, k + 128, 64)
                    if marlin.has_tile(a, b) and (group < 0 or b % group == 0)
                )
                if not fits or big_n * big_k != least:
                    proof.fail(f"{n} x {k} group {group}: padded to {big_n} x {big_k}")
                    return
    proof.figure("sizes", count)


def main():
    proof = Proof()
    proof.watch(gptq, "require_whole_groups")
    check_table(proof)
    check_words(proof)
    check_every_size(proof)
    proof.finish(gptq, awq, utils)


main()
