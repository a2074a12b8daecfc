"""Marlin's CUDA kernels on padded shapes, against the stand-ins that the CPU proofs use.

    python gpu_operators.py MODULES MARLIN_PAD.py SCALAR_TYPE.py OUT.json

MODULES holds ``_C.abi3.so`` and ``_moe_C.abi3.so`` of vLLM 0.22.1 with code for the GPU at hand;
on an H200 that is the PTX for compute_80, whose kernels sm_86 runs as cubins: sm_86's code, the
H200's dispatch (marlin.cu reads the device's attributes). MARLIN_PAD.py and SCALAR_TYPE.py are
the patched tree's. Needs torch and the kit on PYTHONPATH. Padding holds arbitrary weights and
zero points, and NaN stands behind the inputs; a result is right only if it equals ``x @ w`` of
the unpadded layer, and the stand-in's result, bit for bit. Kinds run side by side, since each
compiles PTX first.
"""

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import torch
from sm86kit import marlin, marlin_moe

KINDS = ["u4b8 f16", "u4b8 bf16", "u4 f16", "u8b128 f16", "fp8 f16", "fp8 bf16", "moe u4b8 f16",
         "moe u4 bf16"]  # fmt: skip
SHAPES = [(96, 5120, 128), (48, 256, 128), (96, 352, 32), (64, 64, 64), (128, 192, 64),
          (8, 128, -1), (200, 208, -1), (40, 1056, 32), (256, 384, 128)]  # fmt: skip
ROWS = [1, 16, 33, 256]
NAMES = {"u4b8": "uint4b8", "u4": "uint4", "u8b128": "uint8b128", "fp8": "float8_e4m3fn"}


def by_path(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def permuted(values, order):
    return values.reshape(-1, len(order))[:, order].reshape(values.shape).contiguous()


class Layer:
    """A padded weight in the kernel's format, and what it stands for."""

    def __init__(self, kind, dtype, n, k, group, padded):
        self.n, self.k, self.dtype, self.kind = n, k, dtype, kind
        self.N, self.K = padded
        self.bits = 4 if kind in ("u4b8", "u4") else 8
        groups = 1 if group == -1 else self.K // group
        real = 1 if group == -1 else k // group
        if kind == "fp8":
            values = torch.randint(-8, 9, (self.K, self.N)).float().to(torch.float8_e4m3fn)
            values = values.view(torch.uint8).int()
        else:
            values = torch.randint(0, 1 << self.bits, (self.K, self.N), dtype=torch.int32)
        scales = torch.zeros(groups, self.N)
        scales[:real, :n] = 2.0 ** torch.randint(-7 - self.bits, -3 - self.bits, (real, n))
        points = torch.full((groups, self.N), 1 << self.bits - 1)
        self.zeros = None
        if kind == "u4":
            points = torch.randint(0, 16, (groups, self.N))
            ordered = permuted(permuted(points, marlin._PERM_SCALES), marlin._ZERO_POINTS[4])
            self.zeros = marlin.pack(ordered, 4)
        order = marlin._PERM_SINGLE if groups == 1 else marlin._PERM_SCALES
        factor = {torch.float16: 2.0**8, torch.bfloat16: 2.0**120}[dtype] if kind == "fp8" else 1
        self.scales = permuted((scales * factor).to(dtype), order)
        self.bias = torch.randint(-8, 8, (n,)).to(dtype) / 8
        whole = torch.zeros(self.N, dtype=dtype)
        whole[:n] = self.bias
        self.kernel_bias = permuted(whole, marlin._PERM_SINGLE)
        # as loaded: 32 / bits values along K in a word; with AWQ along N
        self.loaded = marlin.pack(values.t().contiguous(), self.bits).t().contiguous()
        self.packed = marlin.repacked(values, self.bits, False)
        spread = self.K // groups
        if kind == "fp8":
            plain = values.to(torch.uint8).view(torch.float8_e4m3fn).double()
        else:
            plain = values.double() - points.double().repeat_interleave(spread, 0)
        self.weights = (plain * scales.double().repeat_interleave(spread, 0))[:k, :n]

    def inputs(self, rows):
        x = torch.randint(-2, 3, (rows, self.k)).to(self.dtype)
        # padded inputs in a buffer with NaN behind each row
        wide = torch.full((rows, self.K + 64), float("nan"), dtype=self.dtype)
        wide[:, : self.K] = 0
        wide[:, : self.k] = x
        return x, wide


def dense(kind, dtype, type_id, pad):
    found = {"cases": 0, "repack_differs": 0, "differs_from_xw": 0, "differs_from_stand_in": 0}
    perm, sms = torch.empty(0, dtype=torch.int32), torch.cuda.get_device_properties(0)
    workspace = torch.zeros(sms.multi_processor_count, dtype=torch.int32, device="cuda")
    for n, k, group in SHAPES:
        if kind == "fp8" and group not in (-1, 128):
            continue
        torch.manual_seed(n * k)
        layer = Layer(kind, dtype, n, k, group, pad.marlin_padded_nk(n, k, group))
        made = torch.ops._C.gptq_marlin_repack(
            layer.loaded.cuda(), perm.cuda(), layer.K, layer.N, layer.bits, False
        )
        found["repack_differs"] += not torch.equal(made.cpu(), layer.packed)
        for rows in ROWS:
            x, wide = layer.inputs(rows)
            for bias in (None, layer.kernel_bias):
                rest = [layer.scales, None, None, layer.zeros, None, None]
                on = [None if one is None else one.cuda() for one in (bias, *rest)]
                a = wide.cuda()[:, : layer.K]
                sizes = (type_id, rows, layer.N, layer.K, True, False, True, False)
                out = torch.ops._C.marlin_gemm(a, None, made, *on, workspace, *sizes).cpu()
                stand_in = marlin._gemm(wide[:, : layer.K], None, layer.packed, bias, *rest,
                                        workspace, *sizes)  # fmt: skip
                want = x.double() @ layer.weights
                want = want.to(dtype) if bias is None else want.to(dtype) + layer.bias
                found["cases"] += 1
                case = [n, k, group, rows, bias is not None]
                differs(found, "differs_from_xw", out[:, :n], want, case)
                differs(found, "differs_from_stand_in", out, stand_in, case)
    return found


def differs(found, name, out, want, case):
    """Count a difference, and keep the first with its size."""
    if not torch.equal(out, want):
        found[name] += 1
        worst = float((out.double() - want.double()).abs().max())
        found.setdefault(f"first_{name}", [*case, worst, float(want.double().abs().max())])


def experts(kind, dtype, type_id, pad):
    """Both products of an expert layer: (N, K) = (2 size, hidden) and (hidden, size)."""
    found = {"cases": 0, "differs_from_stand_in": 0}
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    workspace = torch.zeros(4 * sms, dtype=torch.int32, device="cuda")
    for size, hidden, group in [(96, 128, 32), (352, 256, 32), (672, 128, -1), (160, 192, 32)]:
        if kind == "u4" and group == -1:
            continue
        padded = pad.marlin_moe_padded_size(size, hidden, group)
        for n, k, N, K in [(2 * size, hidden, 2 * padded, hidden), (hidden, size, hidden, padded)]:
            torch.manual_seed(n * k)
            layers = [Layer(kind, dtype, n, k, group, (N, K)) for _ in range(3)]
            packed, scales = (torch.stack([getattr(one, name) for one in layers])
                              for name in ("packed", "scales"))  # fmt: skip
            zeros = None if kind != "u4" else torch.stack([one.zeros for one in layers])
            for rows in (1, 33):
                x = torch.zeros(rows, K, dtype=dtype)
                x[:, :k] = torch.randint(-2, 3, (rows, k)).to(dtype)
                ids = torch.stack([torch.randperm(3)[:2] for _ in range(rows)]).int()
                weights = 2.0 ** -torch.randint(0, 3, (rows, 2)).float()
                block = 16
                order = torch.zeros(2 * rows + 3 * block, dtype=torch.int32)
                owners = torch.zeros(2 * rows // block + 4, dtype=torch.int32)
                total = torch.zeros(1, dtype=torch.int32)
                marlin_moe._align(ids, 3, block, order, owners, total, None)
                c = torch.zeros(2 * rows, N, dtype=dtype)
                words = (block, 2, True, type_id, rows, N, K, True, False, True, False, -1, -1, -1)
                args = (x, c, packed, None, scales, None, None, zeros, None, None)
                tail = (order, owners, total, weights)
                gpu = [None if one is None else one.cuda() for one in args]
                out = torch.ops._moe_C.moe_wna16_marlin_gemm(
                    *gpu, workspace, *(one.cuda() for one in tail), *words
                )
                stand_in = marlin_moe._gemm(*args, workspace, *tail, *words)
                found["cases"] += 1
                found["differs_from_stand_in"] += not torch.equal(out.cpu(), stand_in)
    return found


def one_kind(words, modules, pad_file, types_file, out):
    *where, kind, dtype = words.split(" ")
    pad, types = by_path(pad_file, "marlin_pad"), by_path(types_file, "scalar_type")
    for short, name in NAMES.items():
        entry = getattr(types.scalar_types, name)
        marlin._types[entry.id] = (name, entry.size_bits)
        if short == kind:
            type_id = entry.id
    torch.ops.load_library(str(Path(modules) / f"{'_moe_C' if where else '_C'}.abi3.so"))
    started = time.perf_counter()
    run = experts if where else dense
    try:
        found = run(kind, {"f16": torch.float16, "bf16": torch.bfloat16}[dtype], type_id, pad)
    except Exception as error:  # noqa: BLE001  (the report says what went wrong with which kind)
        found = {"error": f"{type(error).__name__}: {str(error)[:400]}"}
    found["seconds"] = round(time.perf_counter() - started, 1)
    Path(f"{out}.{words.replace(' ', '-')}").write_text(json.dumps(found))


def main():
    if len(sys.argv) > 5:
        return one_kind(sys.argv[5], *sys.argv[1:5])
    out = Path(sys.argv[4])
    running = {
        kind: subprocess.Popen([sys.executable, *sys.argv[:5], kind], stderr=subprocess.PIPE)
        for kind in KINDS
    }
    report = {
        "command": "python gpu_operators.py MODULES MARLIN_PAD.py SCALAR_TYPE.py OUT.json",
        "card": torch.cuda.get_device_name().replace("NVIDIA ", "an "), "torch": torch.__version__,
        "emulated": "kernels of compute_80, as on sm_86; tile choice by this card's attributes",
        "kinds": {},
    }  # fmt: skip
    deadline = time.monotonic() + 400
    for kind, process in running.items():
        try:
            _, said = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            report["kinds"][kind] = {"error": "not done in 400 s"}
            continue
        part = Path(f"{out}.{kind.replace(' ', '-')}")
        report["kinds"][kind] = (
            json.loads(part.read_text()) if part.is_file() else {"error": said.decode()[-400:]}
        )
        part.unlink(missing_ok=True)
        out.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    out.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    print(out.read_text())
    return 0


main()
