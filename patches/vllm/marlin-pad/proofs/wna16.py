"""4- and 8-bit layers of any size load and give exact results; aligned ones are untouched.

vLLM's own linear methods (GPTQ, AWQ, compressed-tensors) make, load, convert and run layers of
one rank; Marlin's operators are those of `sm86kit.marlin`, which read the packed format and
refuse what the CUDA code refuses. Weights, scales, inputs and biases are small integers times
powers of two, so a result is right only if it is equal, bit for bit, to ``x @ w + bias``.

Emulation: Marlin's operators in float64 on a CPU.
"""

from sm86kit.proof import Proof, quick, use_package

use_package()

import hashlib  # noqa: E402
import itertools  # noqa: E402
import os  # noqa: E402

os.environ["VLLM_DISABLED_KERNELS"] = "AllSparkLinearKernel"  # it would take 8 bit, group -1

import torch  # noqa: E402
from sm86kit import marlin  # noqa: E402
from sm86kit.believe import believe  # noqa: E402

believe()
marlin.register()

import vllm.model_executor.kernels.linear.mixed_precision.marlin as kernel  # noqa: E402
import vllm.model_executor.layers.quantization.utils.marlin_utils as utils  # noqa: E402
from vllm.model_executor.layers.quantization.auto_gptq import (  # noqa: E402
    AutoGPTQConfig,
    AutoGPTQLinearMethod,
)
from vllm.model_executor.layers.quantization.awq_marlin import (  # noqa: E402
    AWQMarlinConfig,
    AWQMarlinLinearMethod,
)
from vllm.model_executor.layers.quantization.compressed_tensors.schemes import (  # noqa: E402
    CompressedTensorsWNA16,
)

marlin.one_rank()

#: (outputs, inputs, group) per rank. From the reports: 96 and 48 are Qwen3.5/3.6 in_proj_ba,
#: 32 of 2048 is Qwen3.6-35B-A3B at two cards, K 352 and 1056 are Gemma-like.
SHAPES = [
    (96, 5120, 128), (48, 5120, 128), (32, 2048, 128), (80, 320, 64), (96, 352, 32), (128, 192, 64),
    (64, 128, -1), (8, 128, 128), (64, 64, 64), (256, 64, 32), (40, 1056, 32), (72, 40, -1),
    (200, 208, -1), (24, 96, 32), (128, 64, -1),
]  # fmt: skip
if quick():
    SHAPES = [(96, 352, 32), (64, 64, 64), (128, 192, 64)]
ALIGNED = [(64, 128, 128), (128, 256, 64), (192, 128, -1), (256, 384, 32)]
#: sha256 of what unpatched vLLM 0.22.1 makes of the aligned layers.
UNPATCHED = "e76782724bf800f58c3267d30092afa1688bf1737cc6d80b1061fd1ca786bbcf"
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


class Case:
    """A layer with its exact weights, ready to be converted."""

    def __init__(self, kind, n, k, group, *, dtype=torch.float16, bias=False, act=None):
        self.kind, self.n, self.k, self.dtype = kind, n, k, dtype
        groups = 1 if group == -1 else k // group
        bits = 8 if kind == "gptq8" else 4
        self.layer = torch.nn.Module()
        self.layer.prefix = f"{kind} n={n} k={k} g={group}"
        loader = {"weight_loader": lambda *_: None}
        if kind == "awq":
            self.method = AWQMarlinLinearMethod(AWQMarlinConfig(4, group, True, False, None, {}))
        elif kind.startswith("ct"):
            self.method = None
            symmetric = kind == "ct"
            scheme = CompressedTensorsWNA16(
                strategy="channel" if group == -1 else "group", num_bits=4,
                group_size=None if group == -1 else group, symmetric=symmetric, layer_name="layer",
            )  # fmt: skip
            self.scheme = scheme
            scheme.create_weights(
                self.layer, output_size=n, input_size=k, output_partition_sizes=[n],
                input_size_per_partition=k, params_dtype=dtype, **loader,
            )  # fmt: skip
        else:
            self.method = AutoGPTQLinearMethod(
                AutoGPTQConfig(bits, group, False, True, False, {}, {})
            )
        if self.method is not None:
            self.method.input_dtype = act
            self.method.create_weights(self.layer, k, [n], k, n, dtype, **loader)
        values = torch.randint(0, 1 << bits, (k, n))
        scales = torch.randint(1, 9, (groups, n)).to(dtype) / 64
        points = torch.full((groups, n), 8 if bits == 4 else 128)
        if kind in ("awq", "ct-zp"):
            points = torch.randint(0, 16, (groups, n))
        self.fill(values, scales, points, bits)
        spread = k // groups
        self.weights = values.double() - points.double().repeat_interleave(spread, 0)
        self.weights = self.weights * scales.double().repeat_interleave(spread, 0)
        self.bias = None
        if bias:
            self.bias = torch.randint(-8, 8, (n,)).to(dtype) / 8
            self.layer.bias = torch.nn.Parameter(self.bias.clone(), requires_grad=False)

    def fill(self, values, scales, points, bits):
        layer = self.layer
        if self.kind == "awq":
            for name, what in (("qweight", values), ("qzeros", points)):
                order = what.reshape(what.shape[0], -1, 8)[:, :, AWQ_ORDER].reshape(what.shape)
                getattr(layer, name).data.copy_(marlin.pack(order, 4))
            layer.scales.data.copy_(scales)
        elif self.kind.startswith("ct"):
            layer.weight_packed.data.copy_(marlin.pack(values.t().contiguous(), 4))
            layer.weight_scale.data.copy_(scales.t())
            if self.kind == "ct-zp":
                packed = marlin.pack(points.contiguous(), 4).t()
                layer.weight_zero_point.data.copy_(packed)
        else:
            layer.qweight.data.copy_(marlin.pack(values.t().contiguous(), bits).t())
            layer.scales.data.copy_(scales)

    def convert(self):
        maker = self.method or self.scheme
        maker.process_weights_after_loading(self.layer)

    def run(self, x, bias=None):
        if self.method is not None:
            return self.method.apply(self.layer, x, bias)
        return self.scheme.apply_weights(self.layer, x, bias)

    def inputs(self, rows):
        return torch.randint(-2, 3, (rows, self.k)).to(self.dtype)

    def expected(self, x):
        out = x.double() @ self.weights
        out = out.to(self.dtype)  # the kernels round before they add the bias
        return out if self.bias is None else out + self.bias


def check(proof, case):
    """Convert and run a layer with 0 and 5 rows, with a batch dimension, and strided."""
    name = f"{case.layer.prefix}{' bias' if case.bias is not None else ''} {case.dtype}"
    try:
        case.convert()
        for rows in (0, 5):
            x = case.inputs(rows)
            shown = getattr(case.layer, "bias", None)
            out = case.run(x, None if case.bias is None else shown)
            if out.shape != (rows, case.n) or not out.is_contiguous():
                proof.fail(f"{name}: {rows} rows give a result of shape {tuple(out.shape)}")
            elif not torch.equal(out, case.expected(x)):
                wrong = int((out != case.expected(x)).sum())
                proof.fail(f"{name}: {wrong} of {out.numel()} results differ from x @ w")
            if rows and not torch.equal(
                case.run(x[None], None if case.bias is None else shown)[0], out
            ):
                proof.fail(f"{name}: a batch dimension changes the result")
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        proof.fail(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")


def made(*words, **more):
    """A layer, or why it cannot be made: what vLLM says of Marlin, if it says so."""
    try:
        return Case(*words, **more), ""
    except (RuntimeError, ValueError, AssertionError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        return None, next((line.strip() for line in lines if "Marlin" in line), lines[0])


def check_shapes(proof):
    total = 0
    kinds = ("gptq4", "gptq8", "awq", "ct", "ct-zp")
    for (n, k, group), kind in itertools.product(SHAPES, kinds):
        # other kernels that would serve some of these take float16 only
        dtype = torch.float16 if k in (352, 1056) else torch.bfloat16
        torch.manual_seed(n * k)
        case, why = made(kind, n, k, group, dtype=dtype, bias=bool(total % 2))
        total += 1
        if case is None:
            proof.fail(f"{kind} n={n} k={k} g={group}: refused: {why}")
            continue
        used = type((case.method or case.scheme).kernel).__name__
        if used == "MarlinLinearKernel":
            check(proof, case)
        else:
            proof.fail(f"{case.layer.prefix}: served by {used}, not Marlin")
    proof.figure("layers", total)


def check_int8(proof):
    """8-bit inputs: the scale of a row is that of its real values; float32 sums round."""
    for n, k, group in [(96, 352, 32), (48, 256, 128), (64, 64, 64), (80, 320, 64), (72, 40, -1)]:
        torch.manual_seed(n * k)
        case, why = made("gptq4", n, k, group, act=torch.int8)
        if case is None:
            proof.fail(f"int8 n={n} k={k} g={group}: refused: {why}")
            continue
        try:
            case.convert()
            x = torch.randn(5, k).half()
            whole, scale = rows_to_int8(x)
            want = whole.double() @ case.weights * scale.double()
            error = float((case.run(x).double() - want).norm() / want.norm())
        except (RuntimeError, ValueError, AssertionError, TypeError) as problem:
            proof.fail(f"int8 n={n} k={k} g={group}: {type(problem).__name__}: {problem}")
            continue
        # group scales are rounded to 1/4096 of the largest; with scales >= 1/8 of it that is
        # at most 2^-10 of each
        proof.require(error <= 2**-10, f"int8 n={n} k={k} g={group}: relative error {error:.2e}")


def rows_to_int8(x):
    top = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-10)
    return torch.round(x.float() * (127 / top)).to(torch.int8), top / 127


def check_aligned(proof):
    """Shapes that need nothing: the same bytes as unpatched, and no copy of the input."""
    digest = hashlib.sha256()
    for (n, k, group), kind in itertools.product(ALIGNED, ("gptq4", "gptq8", "awq", "ct", "ct-zp")):
        torch.manual_seed(n * k)
        case = Case(kind, n, k, group, bias=True)
        case.convert()
        x = case.inputs(3)
        marlin.calls.clear()
        out = case.run(x, case.layer.bias)
        same = marlin.calls and marlin.calls[-1][1:3] == (n, k)
        proof.require(same, f"aligned {kind} n={n} k={k}: runs as {marlin.calls[-1:]}")
        proof.require(torch.equal(out, case.expected(x)), f"aligned {kind} n={n} k={k}: is wrong")
        for name, value in sorted(case.layer.named_parameters()):
            if name == "weight_shape" or (kind.startswith("gptq") and name == "qzeros"):
                continue  # never filled, never read
            plain = value.detach().contiguous().view(torch.uint8)
            digest.update(name.encode() + plain.numpy().tobytes())
    found = digest.hexdigest()
    proof.figure("aligned_sha256", found)
    proof.require(found == UNPATCHED, f"aligned layers differ from unpatched: {found}")


def check_bias_of_caller(proof):
    """With skip_bias_add the caller adds the bias: it must stay as it was loaded."""
    torch.manual_seed(0)
    case, why = made("gptq4", 48, 128, 64, dtype=torch.bfloat16, bias=True)
    if case is None:
        proof.fail(f"skip_bias_add: refused: {why}")
        return
    case.layer.skip_bias_add = True
    case.convert()
    proof.require(torch.equal(case.layer.bias, case.bias), "skip_bias_add: the bias was changed")


def main():
    proof = Proof()
    proof.watch(kernel, "marlin_padded_nk")
    utils.per_token_quant_int8 = rows_to_int8
    check_shapes(proof)
    check_int8(proof)
    check_aligned(proof)
    check_bias_of_caller(proof)
    proof.finish(kernel, utils)


main()
