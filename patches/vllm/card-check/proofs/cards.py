"""A build with a label is refused on cards that it has no code for, and taken on all others.

vLLM's real `VllmConfig` is made on its real CUDA platform; only what NVML would say of the cards is
stood in for.
"""

from sm86kit.proof import Proof, use_package

use_package()

import sys  # noqa: E402
import types  # noqa: E402

from sm86kit.believe import believe  # noqa: E402

believe()  # something to import vLLM with; the platform under proof replaces it

for name in ("vllm._C", "vllm._C_stable_libtorch"):
    sys.modules[name] = types.ModuleType(name)  # they need a driver

import vllm.platforms  # noqa: E402
from vllm.config import ParallelConfig, VllmConfig  # noqa: E402
from vllm.platforms import cuda  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402

OURS = "0.22.1+cu130.sm{}.1.p00000000"
#: build, cards, cards that are used, whether they are served
TABLE = [
    ("86", [(8, 6)], 1, True), ("86", [(8, 9)], 1, True), ("86", [(8, 0)], 1, False),
    ("86", [(8, 7)], 1, False), ("86", [(7, 5)], 1, False), ("86", [(9, 0)], 1, False),
    ("86", [(12, 0)], 1, False), ("80", [(8, 0)], 1, True), ("80", [(8, 6)], 1, True),
    ("89", [(8, 6)], 1, False), ("89", [(8, 9)], 1, True), ("86", [(8, 6), (12, 0)], 2, False),
    ("86", [(8, 6), (12, 0)], 1, True), ("86", [(8, 6), (8, 6)], 2, True),
]  # fmt: skip


def configure(version, cards, used):
    """What making a configuration says: empty, or the refusal."""

    class Cards(cuda.CudaPlatformBase):
        @classmethod
        def device_count(cls):
            return len(cards)

        @classmethod
        def get_device_capability(cls, device_id=0):
            return DeviceCapability(*cards[device_id])

        @classmethod
        def get_device_name(cls, device_id=0):
            return f"card {device_id}"

    vllm.platforms._current_platform = Cards()
    if hasattr(cuda, "VLLM_VERSION"):
        cuda.VLLM_VERSION = version
    config = VllmConfig()
    config.parallel_config = ParallelConfig()
    config.parallel_config.world_size = used
    try:
        Cards.check_and_update_config(config)
        return ""
    except ValueError as error:
        return str(error)


def main():
    proof = Proof()
    proof.watch(cuda, "require_served_cards")
    for build, cards, used, served in TABLE:
        shown = " and ".join(f"{major}.{minor}" for major, minor in cards)
        count = f", {('one', 'two')[used - 1]} used" if len(cards) > 1 else ""
        name = f"sm{build} on {shown}{count}"
        try:
            said = configure(OURS.format(build), cards, used)
        except ValueError as error:  # VllmConfig itself asks the first card
            said = str(error)
        if served:
            proof.require(not said, f"{name}: is refused: {said}")
        else:
            proof.require(said, f"{name}: is taken")
            wanted = (f"compute capability {build[0]}.{build[1]} only", "CUDA_VISIBLE_DEVICES")
            proof.require(
                not said or all(words in said for words in wanted),
                f"{name}: the refusal does not say what to do: {said}",
            )
    for version in ("0.22.1", "0.22.1+cu130", "dev", "0.22.1.dev3+gabc.sm86"):
        said = configure(version, [(9, 0)], 1)
        proof.require(not said, f"{version} on 9.0: is refused: {said}")
    proof.figure("cases", len(TABLE) + 4)
    proof.finish(cuda)


main()
