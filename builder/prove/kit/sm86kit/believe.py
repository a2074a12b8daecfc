"""Makes vLLM's modules on a machine without a GPU believe in a card of capability 8.6.

Only what is asked of the platform changes; the modules under proof are the real ones.
"""

from __future__ import annotations

from typing import Any

CAPABILITY = (8, 6)


def believe_sm86() -> None:
    """Install the belief; call before any of vLLM is imported."""
    import torch
    from triton.backends.nvidia.driver import CudaDriver

    CudaDriver.is_active = staticmethod(lambda: True)
    torch.cuda.get_device_capability = lambda *_args, **_kwargs: CAPABILITY

    import vllm.platforms
    from vllm.platforms.interface import DeviceCapability, Platform, PlatformEnum

    class Sm86Platform(Platform):  # type: ignore[misc]
        """A CUDA platform that was never initialised."""

        _enum = PlatformEnum.CUDA
        device_name = "cuda"
        device_type = "cuda"
        dispatch_key = "CUDA"

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return DeviceCapability(*CAPABILITY)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return "NVIDIA GeForce RTX 3090 (no device: believed)"

    vllm.platforms._current_platform = Sm86Platform()
