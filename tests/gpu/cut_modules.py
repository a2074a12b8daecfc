"""Cut modules on a real GPU: the driver takes what stays, and refuses what does not.

    python cut_modules.py FOLDER OUT.json

FOLDER holds ``uncut/``, ``here/`` (cut to the GPU's own architecture), ``cubins/`` (the same
without PTX) and ``foreign/`` (cut to one that it cannot run), each with the same compiled modules
of vLLM, and ``builder/`` beside them. Needs torch and zstandard.
"""

from __future__ import annotations

import ast
import ctypes
import hashlib
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import torch

cuda = ctypes.CDLL("libcuda.so.1")
ATTRIBUTES = {"max_threads": 0, "shared": 1, "const": 2, "local": 3, "registers": 4, "ptx": 5,
              "binary": 6}  # fmt: skip


def load(image: bytes) -> tuple[int, dict[str, dict[str, int]]]:
    """The driver's verdict on a container, and its functions with their attributes."""
    module = ctypes.c_void_p()
    buffer = ctypes.create_string_buffer(image, len(image))
    code = cuda.cuModuleLoadData(ctypes.byref(module), buffer)
    if code:
        return code, {}
    count = ctypes.c_uint()
    cuda.cuModuleGetFunctionCount(ctypes.byref(count), module)
    handles = (ctypes.c_void_p * count.value)()
    cuda.cuModuleEnumerateFunctions(handles, count, module)
    found = {}
    for handle in handles:
        name = ctypes.c_char_p()
        cuda.cuFuncGetName(ctypes.byref(name), ctypes.c_void_p(handle))
        values = {}
        for key, number in ATTRIBUTES.items():
            value = ctypes.c_int()
            cuda.cuFuncGetAttribute(ctypes.byref(value), number, ctypes.c_void_p(handle))
            values[key] = value.value
        found[name.value.decode()] = values
    cuda.cuModuleUnload(module)
    return 0, found


def compare(folder: Path, name: str, arch) -> dict:
    """Every container of a module, uncut and cut: the same functions, or the same refusal."""
    from builder.native import container, fatbin  # noqa: PLC0415
    from builder.native import cut as cutter  # noqa: PLC0415

    whole = fatbin.read((folder / "uncut" / name).read_bytes())
    chosen = [unit.choice(arch) for unit in whole.containers]
    ptx = [any(one.code.ptx for one in entries) for entries in chosen]
    special = [
        any(one.code.suffix and one.code.number == arch.number for one in unit.entries)
        for unit in whole.containers
    ]
    part = fatbin.read((folder / "here" / name).read_bytes())
    before = [verdict(whole, *both) for both in zip(whole.containers, ptx, strict=True)]
    after = [verdict(part, *both) for both in zip(part.containers, ptx, strict=True)]
    same = differ = refused = by_driver = chip = functions = 0
    codes: dict[str, int] = {}
    for old, new, by_ptx, one_chip in zip(before, after, ptx, special, strict=True):
        if by_ptx:
            by_driver += 1
        elif one_chip:  # code for one chip (90a), which an architecture without suffix has not
            chip += 1
        elif new[0]:
            refused += 1
            codes[f"uncut {old[0]}, cut {new[0]}"] = (
                codes.get(f"uncut {old[0]}, cut {new[0]}", 0) + 1
            )
        elif old == new:
            same += 1
            functions += len(new[1])
        else:
            differ += 1
    raw_same = raw = 0
    for entries in chosen:
        for one in entries:
            if one.code.ptx:
                continue
            body = whole.payload(one)
            head = bytearray(whole.data[one.offset : one.offset + one.header])
            struct.pack_into("<QI", head, 8, len(body) + -len(body) % 8, 0)
            struct.pack_into("<Q", head, 40, one.flags & ~0x8000)
            struct.pack_into("<Q", head, 56, 0)
            stored = container.container(bytes(head) + body + bytes(-len(body) % 8))
            loose = fatbin.read(stored)
            packed = container.container(cutter._entry(loose, loose.containers[0].entries[0]))
            raw += 1
            raw_same += len(packed) < len(stored) and load(stored) == load(packed)
    return {
        "containers": len(chosen), "same": same, "functions": functions, "differ": differ,
        "ptx_not_tried": by_driver, "for_one_chip": chip, "nothing_for_the_card": refused,
        "driver_codes": codes, "raw_cubins": raw, "raw_as_zstd_same": raw_same,
    }  # fmt: skip


def verdict(module, unit, skip: bool) -> tuple[int, dict[str, dict[str, int]]]:
    """As `load`; PTX is skipped, since compiling a unit of templates takes minutes."""
    if skip:
        return -1, {}
    return load(bytes(module.data[unit.offset : unit.offset + unit.size]))


OPS = """
import sys, hashlib, torch
torch.manual_seed(86)
torch.ops.load_library(sys.argv[1])
moe = torch.ops._moe_C
def digest(*xs):
    torch.cuda.synchronize()
    return hashlib.sha256(b"".join(x.cpu().contiguous().view(torch.uint8).numpy().tobytes()
                                   for x in xs)).hexdigest()
out = {}
gate = torch.randn(37, 64, device="cuda")
w = torch.empty(37, 8, device="cuda"); ids = torch.empty(37, 8, dtype=torch.int32, device="cuda")
src = torch.empty(37, 8, dtype=torch.int32, device="cuda")
moe.topk_softmax(w, ids, src, gate, False, None)
out["topk_softmax"] = digest(w, ids)
x = torch.randn(37, 8, 256, device="cuda", dtype=torch.float16)
y = torch.empty(37, 256, device="cuda", dtype=torch.float16)
moe.moe_sum(x, y)
out["moe_sum"] = digest(y)
rows = torch.zeros(37 * 8 + 64 * 15, dtype=torch.int32, device="cuda")
owner = torch.zeros(rows.numel() // 16 + 1, dtype=torch.int32, device="cuda")
total = torch.zeros(1, dtype=torch.int32, device="cuda")
moe.moe_align_block_size(ids, 64, 16, rows, owner, total, None)
out["moe_align_block_size"] = digest(owner, total)
print("RESULT", out)
"""
STABLE = """
import sys, hashlib, torch
torch.manual_seed(86)
torch.ops.load_library(sys.argv[1])
x = torch.randn(37, 512, device="cuda", dtype=torch.float16)
q = torch.empty(37, 512, device="cuda", dtype=torch.int8)
s = torch.empty(37, 4, device="cuda", dtype=torch.float32)
torch.ops._C.per_token_group_quant_int8(x, q, s, 128, 1e-10, -128.0, 127.0)
torch.cuda.synchronize()
both = q.cpu().numpy().tobytes() + s.cpu().numpy().tobytes()
print("RESULT", {"per_token_group_quant_int8": hashlib.sha256(both).hexdigest()})
"""


def run_ops(script: str, file: Path, loading: str) -> dict:
    env = os.environ | {"CUDA_MODULE_LOADING": loading}
    started = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, file], env=env, capture_output=True, text=True,
            check=False, timeout=40,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": "not done in 40 s"}
    seconds = round(time.perf_counter() - started, 2)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return {"results": ast.literal_eval(line[7:]), "seconds": seconds}
    words = [line for line in done.stderr.splitlines() if "Error: " in line]
    return {"error": words[-1] if words else done.stderr[-300:], "seconds": seconds}


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    sys.path.insert(0, str(folder))
    from builder.arch import Arch  # noqa: PLC0415

    torch.zeros(1, device="cuda")
    major, minor = torch.cuda.get_device_capability()
    card = torch.cuda.get_device_name().replace("NVIDIA ", "an ")
    result = {
        "command": "python cut_modules.py FOLDER OUT.json",
        "card": card, "capability": [major, minor],
        "torch": torch.__version__, "modules": {}, "ops": {},
    }  # fmt: skip

    def save() -> None:
        out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")

    for kind in ("uncut", "here", "cubins", "foreign"):
        # eager loading compiles all PTX, which takes longer than anybody waits
        for loading in ("LAZY", "EAGER") if kind in {"cubins", "foreign"} else ("LAZY",):
            for name, script in (("_moe_C", OPS), ("_C_stable_libtorch", STABLE)):
                file = folder / kind / f"{name}.abi3.so"
                result["ops"][f"{name} {kind} {loading}"] = run_ops(script, file, loading)
                save()
    for file in sorted((folder / "here").iterdir()):
        result["modules"][file.name] = compare(folder, file.name, Arch(major, minor))
        result["modules"][file.name]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
        save()
    print(json.dumps(result, indent=1))


main()
