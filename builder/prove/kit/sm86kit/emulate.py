"""Triton code for sm_86 on a newer NVIDIA card.

Triton is told that the card is an sm_86 one, so that all of its choices for it are in force.
ptxas assembles the PTX for sm_86, which fails where the real card would; then the PTX itself
is loaded as the binary and compiled by the driver for the card at hand. What this cannot
show are timings, and the exact instructions that ptxas makes for sm_86.
"""

from __future__ import annotations

from typing import Any

from sm86kit.proof import capability


def emulate() -> str:
    """Emulate from now on; returns how, in words: ``native`` on a real card of that kind."""
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.runtime import driver

    major, minor = capability()
    real = torch.cuda.get_device_capability()
    name = torch.cuda.get_device_name()
    if real == (major, minor):
        return "native"
    if real < (major, minor):
        raise RuntimeError(f"{name} (sm_{real[0]}{real[1]}) cannot run sm_{major}{minor} code")
    make_cubin = CUDABackend.make_cubin

    def ptx_as_binary(self: Any, src: Any, metadata: Any, opt: Any, capability: Any) -> bytes:
        make_cubin(self, src, metadata, opt, capability)
        text = src if isinstance(src, bytes) else str(src).encode()
        return text + b"\0"

    CUDABackend.make_cubin = ptx_as_binary
    target = GPUTarget("cuda", 10 * major + minor, 32)
    driver.active.get_current_target = lambda: target
    properties = driver.active.utils.get_device_properties

    def limited(device: int) -> dict[str, int]:
        found: dict[str, int] = properties(device)
        return found | {"max_shared_mem": 101_376}

    driver.active.utils.get_device_properties = limited
    torch.cuda.get_device_capability = lambda *_args, **_kwargs: (major, minor)
    return f"emulated: sm_{major}{minor} code on {name}"
