"""FP8 weights of any size load and give exact results on cards that have no FP8.

vLLM's own preparation and product (`marlin_utils_fp8`) run on layers with one scale, one for
each part of a fused layer, one for each output, and one for each block of 128 x 128. Weights
are small integers and scales powers of two, so a result is right only if it is equal, bit for
bit, to ``x @ w + bias``.

Emulation: Marlin's operators in float64 on a CPU.
"""

from sm86kit.proof import Proof, quick, use_package

use_package()

import itertools  # noqa: E402

import torch  # noqa: E402
from sm86kit import marlin  # noqa: E402
from sm86kit.believe import believe  # noqa: E402

believe()
marlin.register()

import vllm.model_executor.layers.quantization.utils.marlin_utils_fp8 as fp8  # noqa: E402

marlin.one_rank()

#: (outputs, inputs) per rank; 576 = 384 + 192 is a fused layer, K 352 and 1056 are Gemma-like.
SHAPES = [(96, 512), (48, 256), (8, 128), (128, 352), (64, 1056), (200, 72), (64, 64), (576, 1088)]
if quick():
    SHAPES = [(64, 1056), (64, 64), (96, 512)]
ALIGNED = [(64, 128), (128, 192), (256, 384)]


def widths(n):
    return [n * 2 // 3, n - n * 2 // 3] if n % 3 == 0 else [n]


class Case:
    """A layer with its exact weights, ready to be prepared."""

    def __init__(self, n, k, scaling, *, k_first, dtype, bias):
        self.n, self.k, self.dtype, self.k_first = n, k, dtype, k_first
        layer = self.layer = torch.nn.Module()
        layer.output_size_per_partition, layer.input_size_per_partition = n, k
        layer.orig_dtype = dtype
        layer.logical_widths = widths(n) if scaling == "part" or n == 576 else [n]
        values = torch.randint(-8, 9, (n, k)).float()
        bits = values.to(torch.float8_e4m3fn)
        shown = bits.t() if k_first else bits
        layer.weight = torch.nn.Parameter(shown, requires_grad=False)
        powers = {
            "tensor": (1,), "part": (len(layer.logical_widths),), "channel": (n, 1),
            "block": (-(-n // 128), -(-k // 128)),
        }[scaling]  # fmt: skip
        scale = 2.0 ** torch.randint(-3, 3, powers)
        name = "weight_scale_inv" if scaling == "block" else "weight_scale"
        if scaling == "block":
            layer.weight_block_size = [128, 128]
            full = scale.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
            scale = scale.t() if k_first else scale
        elif scaling == "part":
            full = scale.repeat_interleave(torch.tensor(layer.logical_widths))[:, None]
        else:
            full = scale.reshape(-1, 1)
        setattr(layer, name, torch.nn.Parameter(scale.to(dtype), requires_grad=False))
        self.weights = (values.double() * full.double()).t()
        self.bias = torch.randint(-8, 8, (n,)).to(dtype) / 8 if bias else None
        if bias:
            layer.bias = torch.nn.Parameter(self.bias.clone(), requires_grad=False)

    def run(self, x):
        scale = getattr(self.layer, "weight_scale", None)
        scale = self.layer.weight_scale_inv if scale is None else scale
        return fp8.apply_fp8_marlin_linear(
            x, self.layer.weight, scale, self.layer.workspace, self.n, self.k,
            self.layer.bias if self.bias is not None else None,
        )  # fmt: skip

    def expected(self, x):
        out = x.double() @ self.weights
        out = out.to(self.dtype)  # the kernels round before they add the bias
        return out if self.bias is None else out + self.bias


def check(proof, n, k, scaling, number):
    k_first = bool(number % 2) and scaling != "block"
    dtype = (torch.float16, torch.bfloat16)[number // 2 % 2]
    name = f"{scaling} n={n} k={k} {'(k, n)' if k_first else '(n, k)'} {dtype}"
    torch.manual_seed(number)
    case = Case(n, k, scaling, k_first=k_first, dtype=dtype, bias=number % 3 == 0)
    try:
        fp8.prepare_fp8_layer_for_marlin(case.layer, size_k_first=k_first)
        for rows in (0, 5):
            x = torch.randint(-2, 3, (rows, k)).to(dtype)
            out = case.run(x)
            if out.shape != (rows, n) or not out.is_contiguous():
                proof.fail(f"{name}: {rows} rows give a result of shape {tuple(out.shape)}")
            elif not torch.equal(out, case.expected(x)):
                wrong = int((out != case.expected(x)).sum())
                proof.fail(f"{name}: {wrong} of {out.numel()} results differ from x @ w")
    except (RuntimeError, ValueError, AssertionError) as error:
        proof.fail(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")


def check_fused_blocks(proof):
    """Parts that end inside a block have scales that cannot be told apart: refused."""
    torch.manual_seed(0)
    case = Case(288, 256, "block", k_first=False, dtype=torch.float16, bias=False)
    case.layer.logical_widths = [96, 96, 96]
    case.layer.prefix = "model.layers.0.qkv_proj"
    try:
        fp8.prepare_fp8_layer_for_marlin(case.layer, size_k_first=False)
    except ValueError as error:
        named = "model.layers.0.qkv_proj" in str(error) and "blocks of 128" in str(error)
        proof.require(named, f"fused blocks: the refusal does not say where: {error}")
    except RuntimeError as error:
        proof.fail(f"fused blocks: {error}")
    else:
        proof.fail("fused blocks: parts of 96 outputs are taken although they cut blocks of 128")


def main():
    proof = Proof()
    proof.watch(fp8, "marlin_padded_nk")
    kinds = ("tensor", "part", "channel", "block")
    table = list(itertools.product(SHAPES + ALIGNED, kinds))
    for number, ((n, k), scaling) in enumerate(table):
        check(proof, n, k, scaling, number)
    check_fused_blocks(proof)
    proof.figure("layers", len(table))
    proof.finish(fp8)


main()
