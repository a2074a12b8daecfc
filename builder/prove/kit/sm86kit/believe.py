"""Makes vLLM's modules on a machine without a GPU believe in a card of some capability.

Only what is asked of the platform changes; the modules under proof are the real ones.
"""

from __future__ import annotations

from typing import Any

from sm86kit.proof import capability


def believe() -> None:
    """Install the belief; call before any of vLLM is imported."""
    import torch
    from triton.backends.nvidia.driver import CudaDriver

    card = capability()
    CudaDriver.is_active = staticmethod(lambda: True)
    torch.cuda.get_device_capability = lambda *_args, **_kwargs: card

    import vllm.platforms
    from vllm.platforms.interface import DeviceCapability, Platform, PlatformEnum

    class BelievedPlatform(Platform):  # type: ignore[misc]
        """A CUDA platform that was never initialised."""

        _enum = PlatformEnum.CUDA
        device_name = "cuda"
        device_type = "cuda"
        dispatch_key = "CUDA"

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return DeviceCapability(*card)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return f"NVIDIA card of capability {card[0]}.{card[1]} (no device: believed)"

        @classmethod
        def support_static_graph_mode(cls) -> bool:
            return True

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return 82  # a 3090's streaming multiprocessors

    vllm.platforms._current_platform = BelievedPlatform()
