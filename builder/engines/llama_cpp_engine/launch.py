"""Starting the compiled programs: each console script is one function here."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import NoReturn

from ._version import form

_BIN = Path(__file__).resolve().parent / "bin"
#: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
_CAPABILITY = (75, 76)


def no_gpu() -> str:
    """Why no GPU can be used although this build is for one, in one line; else empty.

    Asked are the environment and the driver; no context is made on any card.
    """
    if not form.startswith("cu"):
        return ""
    toolkit, _, arch = form.partition(".")
    if os.environ.get("CUDA_VISIBLE_DEVICES", "unset").strip() in {"", "-1"}:
        return "CUDA_VISIBLE_DEVICES hides every GPU: running on the CPU"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver (libcuda.so.1) on this machine: running on the CPU"
    version = ctypes.c_int(0)
    driver.cuDriverGetVersion(ctypes.byref(version))
    major = version.value // 1000
    if 0 < major < int(toolkit[2:-1]):
        return (
            f"the NVIDIA driver supports CUDA {major}, this build needs {toolkit[2:-1]}:"
            " install a newer driver; running on the CPU"
        )
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "the NVIDIA driver finds no GPU: running on the CPU"
    found = []
    for number in range(count.value):
        capability = [ctypes.c_int(0), ctypes.c_int(0)]
        for value, attribute in zip(capability, _CAPABILITY, strict=True):
            driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, number)
        found.append((capability[0].value, capability[1].value))
    wanted = (int(arch[2:-1]), int(arch[-1]))
    if not any(one[0] == wanted[0] and one[1] >= wanted[1] for one in found):
        shown = ", ".join(f"{one[0]}.{one[1]}" for one in found)
        return f"this build is for compute capability {wanted[0]}.{wanted[1]}, here is {shown}"
    return ""


def _start(program: str) -> NoReturn:
    word = no_gpu()
    if word:
        print(f"llama-cpp-engine: {word}", file=sys.stderr, flush=True)
    os.execv(_BIN / program, [program, *sys.argv[1:]])  # noqa: S606  (that is the point)


def bench() -> NoReturn:
    """``llama-bench``."""
    _start("llama-bench")


def cli() -> NoReturn:
    """``llama-cli``."""
    _start("llama-cli")


def perplexity() -> NoReturn:
    """``llama-perplexity``."""
    _start("llama-perplexity")


def quantize() -> NoReturn:
    """``llama-quantize``."""
    _start("llama-quantize")


def server() -> NoReturn:
    """``llama-server``."""
    _start("llama-server")


def test_backend_ops() -> NoReturn:
    """``test-backend-ops``: every operator of a backend against the CPU's."""
    _start("test-backend-ops")
