"""Experts of any intermediate size load on Marlin and give exact results; aligned ones as before.

vLLM's own FusedMoE layers (GPTQ, AWQ, compressed-tensors) choose their method, convert and run
on one rank; FP8 and MXFP8 experts go through vLLM's own preparation and `fused_marlin_moe`.
Weights, scales and inputs are small integers times powers of two, so that each product is exact
and a result is right only if it is equal, bit for bit, to the same experts written down here.

Emulation: Marlin's operators in float64 on a CPU.
"""

from sm86kit.proof import Proof, quick, use_package

use_package()

import hashlib  # noqa: E402
import itertools  # noqa: E402
import types  # noqa: E402

import torch  # noqa: E402
from sm86kit import marlin, marlin_moe, one_process  # noqa: E402
from sm86kit.believe import believe  # noqa: E402

believe()
marlin.register()
marlin_moe.register()

import vllm.model_executor.layers.fused_moe.oracle.int_wna16 as oracle  # noqa: E402
import vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe.compressed_tensors_moe_wna16_marlin as ct_moe  # noqa: E402, E501
import vllm.model_executor.layers.quantization.utils.marlin_utils as utils  # noqa: E402
import vllm.model_executor.layers.quantization.utils.marlin_utils_fp8 as fp8  # noqa: E402
from compressed_tensors.quantization import QuantizationArgs  # noqa: E402
from vllm.config import set_current_vllm_config  # noqa: E402
from vllm.model_executor.layers.fused_moe import FusedMoE  # noqa: E402
from vllm.model_executor.layers.fused_moe.activation import MoEActivation  # noqa: E402
from vllm.model_executor.layers.fused_moe.experts.marlin_moe import (  # noqa: E402
    fused_marlin_moe,
)
from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQConfig  # noqa: E402
from vllm.model_executor.layers.quantization.awq_marlin import AWQMarlinConfig  # noqa: E402
from vllm.scalar_type import scalar_types  # noqa: E402

marlin.one_rank()
EXPERTS, TOP_K = 3, 2
#: (intermediate, hidden, group) per rank. 352 is Gemma-4-26B-A4B over two cards, 672 Nemotron
#: over four; 32 with groups of 32 has one group, which the padded layer has not.
SHAPES = [(96, 128, 32), (352, 128, 32), (672, 128, -1), (32, 128, 32), (160, 192, 32),
          (200, 64, -1)]  # fmt: skip
if quick():
    SHAPES = [(96, 128, 32), (32, 128, 32), (160, 192, 32)]
ALIGNED = [(64, 128, 64), (128, 256, 128), (192, 128, 32), (64, 128, -1)]
#: sha256 of what unpatched vLLM 0.22.1 makes of the aligned layers.
UNPATCHED = "712d4b25b7cf72390e7b32b2661f6a587c4c07f072ba1ddb818e3f1b17cf47b3"


def make(config, size, hidden, **more):
    return FusedMoE(
        num_experts=EXPERTS, top_k=TOP_K, hidden_size=hidden, intermediate_size=size,
        params_dtype=more.pop("dtype", torch.float16), quant_config=config, renormalize=False,
        prefix=f"model.layers.{next(_numbers)}.mlp.experts", **more,
    )  # fmt: skip


_numbers = itertools.count()


def config_of(kind, group, act_order=False):
    if kind == "awq":
        return AWQMarlinConfig(4, group, True, False, None, {
            "quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True,
        })  # fmt: skip
    full = {"quant_method": "gptq", "bits": 4, "group_size": group, "sym": True,
            "desc_act": act_order}  # fmt: skip
    return AutoGPTQConfig(4, group, act_order, True, False, {}, full)


class Experts:
    """Exact weights of some experts, (E, hidden, 2 size) and (E, size, hidden)."""

    def __init__(self, size, hidden, group, *, parts=2, bits=4, free_points=False, dtype):
        self.size, self.hidden, self.parts, self.dtype = size, hidden, parts, dtype
        self.made = {}
        for name, k, n in (("w13", hidden, parts * size), ("w2", size, hidden)):
            groups = 1 if group == -1 else k // group
            values = torch.randint(0, 1 << bits, (EXPERTS, k, n))
            scales = 2.0 ** (torch.randint(-7, -3, (EXPERTS, groups, n)) - (bits - 4))
            points = torch.full((EXPERTS, groups, n), 1 << bits - 1)
            if free_points:
                points = torch.randint(0, 1 << bits, (EXPERTS, groups, n))
            whole = values.double() - points.double().repeat_interleave(k // groups, 1)
            whole = whole * scales.double().repeat_interleave(k // groups, 1)
            self.made[name] = values, scales.to(dtype), points, whole
        self.bias = None

    def with_bias(self):
        shapes = (self.parts * self.size, self.hidden)
        self.bias = [torch.randint(-8, 8, (EXPERTS, n)).to(self.dtype) / 8 for n in shapes]
        return self

    def expected(self, x, weights, ids):
        out = torch.zeros(x.shape[0], ids.shape[1], self.hidden, dtype=self.dtype)
        w13, w2 = self.made["w13"][3], self.made["w2"][3]
        for row, slot in itertools.product(range(x.shape[0]), range(ids.shape[1])):
            expert = int(ids[row, slot])
            both = x[row].double() @ w13[expert]
            both = both.to(self.dtype)  # the kernels round before they add the bias
            both = both if self.bias is None else both + self.bias[0][expert]
            inner = activation(both.float(), self.parts).to(self.dtype)
            one = (inner.double() @ w2[expert]).to(self.dtype)
            one = one if self.bias is None else one + self.bias[1][expert]
            out[row, slot] = one * weights[row, slot].to(self.dtype)
        return out.float().sum(1).to(self.dtype)


def activation(both, parts):
    if parts == 1:
        return torch.relu(both).square()
    gate, up = both.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def routed(rows, hidden, dtype):
    x = torch.randint(-2, 3, (rows, hidden)).to(dtype)
    ids = torch.stack([torch.randperm(EXPERTS)[:TOP_K] for _ in range(rows)]).int()
    return x, 2.0 ** -torch.randint(0, 3, (rows, TOP_K)).float(), ids


def compare(proof, name, out, want):
    if out.shape != want.shape:
        proof.fail(f"{name}: a result of shape {tuple(out.shape)}")
    elif not torch.equal(out, want):
        wrong = int((out != want).sum())
        proof.fail(f"{name}: {wrong} of {out.numel()} results differ from the experts' own")


def fill(layer, kind, experts):
    for name in ("w13", "w2"):
        values, scales, points, _ = experts.made[name]
        if kind == "awq":
            getattr(layer, f"{name}_qweight").data.copy_(marlin_moe.awq_pack(values))
            getattr(layer, f"{name}_qzeros").data.copy_(marlin_moe.awq_pack(points))
        else:
            words = marlin.pack(values.transpose(1, 2).contiguous(), 4).transpose(1, 2)
            getattr(layer, f"{name}_qweight").data.copy_(words)
        getattr(layer, f"{name}_scales").data.copy_(scales)
    if experts.bias is not None:
        for name, bias in zip(("w13_bias", "w2_bias"), experts.bias, strict=True):
            layer.register_parameter(name, torch.nn.Parameter(bias.clone(), requires_grad=False))


def check_chosen(proof, kind, size, hidden, group, dtype, *, bias=False):
    """A layer of GPTQ or AWQ, from the choice of its method to its result."""
    name = f"{kind} I={size} H={hidden} g={group}{' bias' if bias else ''} {dtype}"
    try:
        layer = make(config_of(kind, group), size, hidden, dtype=dtype)
    except RuntimeError as error:
        proof.fail(f"{name}: cannot be made: {' '.join(str(error).split())[:200]}")
        return
    method = type(layer.quant_method).__name__
    if method not in ("AutoGPTQMoEMethod", "AWQMarlinMoEMethod"):
        proof.fail(f"{name}: served by {method}, not Marlin")
        return
    experts = Experts(size, hidden, group, free_points=kind == "awq", dtype=dtype)
    if bias:
        experts.with_bias()
    fill(layer, kind, experts)
    try:
        layer.quant_method.process_weights_after_loading(layer)
        for rows in (1, 7):
            x, weights, ids = routed(rows, hidden, dtype)
            out = layer.quant_method.apply(layer, x.clone(), weights, ids, None, None)
            compare(proof, f"{name} {rows} rows", out, experts.expected(x, weights, ids))
    except (RuntimeError, ValueError, AssertionError) as error:
        proof.fail(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")


def ct_layer(size, hidden, group, bits, experts, dtype, act=None):
    """A layer of compressed-tensors, converted."""
    args = QuantizationArgs(
        num_bits=bits, symmetric=True, strategy="channel" if group == -1 else "group",
        group_size=None if group == -1 else group,
    )  # fmt: skip
    layer = make(None, size, hidden, dtype=dtype)
    for name in [n for n, _ in layer.named_parameters()]:
        delattr(layer, name)
    method = ct_moe.CompressedTensorsWNA16MarlinMoEMethod(args, None, layer.moe_config, "layer")
    method.marlin_input_dtype = act
    method.create_weights(
        layer, EXPERTS, hidden, size, dtype, intermediate_size_full=size,
        weight_loader=lambda *_: None,
    )  # fmt: skip
    for name in ("w13", "w2"):
        values, scales, _, _ = experts.made[name]
        words = marlin.pack(values.transpose(1, 2).contiguous(), bits).transpose(1, 2)
        getattr(layer, f"{name}_weight_packed").data.copy_(words)
        getattr(layer, f"{name}_weight_scale").data.copy_(scales)
    method.process_weights_after_loading(layer)
    return lambda x, weights, ids: method.apply(layer, x.clone(), weights, ids, None, None)


def check_ct(proof, size, hidden, group, bits, dtype):
    name = f"ct{bits} I={size} H={hidden} g={group} {dtype}"
    experts = Experts(size, hidden, group, bits=bits, dtype=dtype)
    try:
        apply = ct_layer(size, hidden, group, bits, experts, dtype)
        x, weights, ids = routed(5, hidden, dtype)
        compare(proof, name, apply(x, weights, ids), experts.expected(x, weights, ids))
    except (RuntimeError, ValueError, AssertionError) as error:
        proof.fail(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")


def check_int8(proof):
    """8-bit inputs: as the same experts written into a layer that needs no padding."""
    small = Experts(96, 128, 32, dtype=torch.float16)
    large = Experts(128, 128, 32, dtype=torch.float16)
    for name in ("w13", "w2"):
        for number in (0, 1):
            part, whole = small.made[name][number], large.made[name][number]
            whole.zero_()
            if name == "w13":
                for half in (0, 1):
                    whole[..., half * 128 : half * 128 + 96] = part[..., half * 96 :][..., :96]
            else:
                whole[:, : part.shape[1]] = part
    try:
        layers = [
            ct_layer(size, 128, 32, 4, experts, torch.float16, act=torch.int8)
            for size, experts in ((96, small), (128, large))
        ]
        _, weights, ids = routed(6, 128, torch.float16)
        x = torch.randn(6, 128).half()
        first, second = (apply(x, weights, ids) for apply in layers)
        proof.require(torch.equal(first, second), "int8: differs from experts made with zeros")
    except (RuntimeError, ValueError, AssertionError) as error:
        proof.fail(f"int8: {type(error).__name__}: {' '.join(str(error).split())[:200]}")


def rows_to_int8(x):
    top = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-10)
    return torch.round(x.float() * (127 / top)).to(torch.int8), top / 127


def fp8_layer(size, hidden, scaling, *, parts, dtype):
    """FP8 experts and their scales, as loaded; the layer as far as the preparation reads it."""
    group = {"tensor": -1, "channel": -1, "block": 128, "mx": 32}[scaling]
    experts = Experts(size, hidden, -1, parts=parts, dtype=dtype)
    layer = types.SimpleNamespace(
        num_experts=EXPERTS, hidden_size=hidden, intermediate_size_per_partition=size,
        orig_dtype=dtype, layer_name="model.layers.0.mlp.experts", activation=MoEActivation.SILU,
        moe_config=types.SimpleNamespace(is_lora_enabled=False), w13_weight=torch.empty(0),
    )  # fmt: skip
    if scaling == "block":
        layer.weight_block_size = [128, 128]
    loaded = []
    for name, k, n in (("w13", hidden, parts * size), ("w2", size, hidden)):
        values = torch.randint(-8, 9, (EXPERTS, n, k)).float()
        rows, columns = {
            "tensor": (parts if name == "w13" else 1, 1), "channel": (n, 1),
            "block": (-(-n // 128), -(-k // 128)), "mx": (n, k // 32),
        }[scaling]  # fmt: skip
        powers = torch.randint(-7, -3, (EXPERTS, rows, columns))
        scale = 2.0**powers
        tall, wide = (128, 128) if scaling == "block" else (n // rows, k // columns)
        full = scale.repeat_interleave(tall, 1)[:, :n].repeat_interleave(wide, 2)[..., :k]
        experts.made[name] = (None, None, None, (values * full).double().transpose(1, 2))
        shown = (powers + 127).to(torch.uint8) if scaling == "mx" else scale
        loaded += [values.to(torch.float8_e4m3fn), shown]
    w13, s13, w2, s2 = loaded
    return layer, experts, group, (w13, w2, s13, s2)


def check_fp8(proof, size, hidden, scaling, *, parts=2):
    dtype = torch.bfloat16 if scaling == "mx" else torch.float16
    name = f"fp8 {scaling} I={size} H={hidden}{' ungated' if parts == 1 else ''}"
    layer, experts, _, loaded = fp8_layer(size, hidden, scaling, parts=parts, dtype=dtype)
    prepare = fp8.prepare_fp8_moe_layer_for_marlin
    if scaling == "mx":
        prepare = fp8.prepare_mxfp8_moe_layer_for_marlin
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        w13, w2, s13, s2 = prepare(layer, *loaded)
        x, weights, ids = routed(5, hidden, dtype)
        kind = MoEActivation.SILU if parts == 2 else MoEActivation.RELU2_NO_MUL
        out = fused_marlin_moe(
            x, w13, w2, None, None, s13, s2, weights, ids, activation=kind,
            quant_type_id=scalar_types.float8_e4m3fn.id, workspace=layer.workspace,
        )  # fmt: skip
        compare(proof, name, out, experts.expected(x, weights, ids))
    except (RuntimeError, ValueError, AssertionError) as error:
        proof.fail(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
    finally:
        torch.set_default_dtype(before)


def check_refusals(proof, cfg):
    """What would be wrong when padded goes where it went before, or is refused by name."""

    def method(kind, size, group, act_order=False, **more):
        made = make(config_of(kind, group, act_order), size, 128, **more)
        return type(made.quant_method).__name__

    marlin_methods = ("AutoGPTQMoEMethod", "AWQMarlinMoEMethod")
    for act_order, size, want in ((False, 128, True), (True, 128, True), (True, 96, False)):
        taken = method("gptq4", size, 32, act_order) in marlin_methods
        words = "is not taken" if want else "is padded"
        proof.require(taken == want, f"act-order={act_order} I={size}: {words}")
    for size, want in ((128, True), (96, False)):
        taken = method("gptq4", size, 32, activation="swigluoai") in marlin_methods
        proof.require(taken == want, f"swigluoai I={size}: taken by Marlin: {taken}")
    proof.require(method("gptq4", 160, 128) not in marlin_methods, "a cut group is taken")
    cfg.lora_config = types.SimpleNamespace()
    try:
        for size, want in ((128, True), (96, False)):
            taken = utils.check_moe_marlin_supports_layer(make(None, size, 128), 32)
            proof.require(taken == want, f"LoRA I={size}: taken by Marlin: {taken}")
    finally:
        cfg.lora_config = None
    layer, _, _, loaded = fp8_layer(96, 128, "tensor", parts=2, dtype=torch.float16)
    layer.moe_config.is_lora_enabled = True
    try:
        fp8.prepare_fp8_moe_layer_for_marlin(layer, *loaded)
        proof.fail("fp8 LoRA I=96: is not refused")
    except ValueError as error:
        named = "model.layers.0.mlp.experts" in str(error) and "LoRA" in str(error)
        proof.require(named, f"fp8 LoRA: the refusal does not say where: {error}")


def check_aligned(proof):
    """Sizes that have a tile: the converted bytes are those of unpatched vLLM."""
    digest = hashlib.sha256()
    for number, ((size, hidden, group), kind) in enumerate(
        itertools.product(ALIGNED, ("gptq4", "awq"))
    ):
        if kind == "awq" and group == -1:
            continue
        torch.manual_seed(number)
        layer = make(config_of(kind, group), size, hidden)
        experts = Experts(size, hidden, group, free_points=kind == "awq", dtype=torch.float16)
        fill(layer, kind, experts)
        layer.quant_method.process_weights_after_loading(layer)
        for name, value in sorted(layer.named_parameters()):
            if name.endswith("_qzeros") and kind != "awq":
                continue  # never written for symmetric weights
            digest.update(f"{kind} {size} {hidden} {group} {name} {tuple(value.shape)}".encode())
            digest.update(value.detach().contiguous().view(torch.uint8).numpy().tobytes())
    for scaling in ("tensor", "block", "mx"):
        torch.manual_seed(86)
        layer, _, _, loaded = fp8_layer(128, 256, scaling, parts=2, dtype=torch.float16)
        prepare = fp8.prepare_fp8_moe_layer_for_marlin
        if scaling == "mx":
            prepare = fp8.prepare_mxfp8_moe_layer_for_marlin
        for value in prepare(layer, *loaded):
            digest.update(value.contiguous().view(torch.uint8).numpy().tobytes())
    proof.figure("aligned_sha256", digest.hexdigest())
    proof.require(digest.hexdigest() == UNPATCHED, "aligned: other bytes than unpatched vLLM's")


def main():
    proof = Proof()
    utils.per_token_quant_int8 = rows_to_int8
    proof.watch(oracle, "pad_moe_wna16")
    total = 0
    with one_process.engine() as cfg, set_current_vllm_config(cfg):
        for (size, hidden, group), kind in itertools.product(SHAPES, ("gptq4", "awq")):
            if kind == "awq" and group == -1:
                continue  # vLLM has no such experts
            torch.manual_seed(size * hidden)
            dtype = (torch.float16, torch.bfloat16)[total % 2]
            check_chosen(proof, kind, size, hidden, group, dtype, bias=total % 3 == 0)
            total += 1
        for (size, hidden, group), bits in itertools.product(SHAPES, (4, 8)):
            torch.manual_seed(size * hidden)
            check_ct(proof, size, hidden, group, bits, torch.float16)
            total += 1
        for size, hidden in [(96, 128), (100, 128), (352, 128), (160, 192), (128, 128)]:
            for scaling, parts in (("tensor", 2), ("channel", 2), ("tensor", 1), ("mx", 2)):
                if scaling == "mx" and size % 32:
                    continue
                torch.manual_seed(size * hidden)
                check_fp8(proof, size, hidden, scaling, parts=parts)
                total += 1
        check_fp8(proof, 128, 256, "block")
        check_int8(proof)
        check_refusals(proof, cfg)
        check_aligned(proof)
    proof.figure("layers", total + 1)
    proof.finish(oracle, ct_moe, fp8, utils)


main()
