"""What TurboQuant's kernels do not know is refused, by name, before a model answers wrongly.

ALiBi, sliding windows, soft caps, sinks and other than decoder attention were accepted and
ignored. Head sizes are refused where a preset cannot store them, and only there: those with a
rotation need a power of two, all need a multiple of 8. Layers to leave out of the cache may be
named (``sliding_window``) as well as numbered.

No emulation: nothing is computed.
"""

from sm86kit.proof import Proof, interpret, use_package

interpret()
use_package()

import dataclasses  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402
from sm86kit.believe import believe  # noqa: E402
from sm86kit.turboquant import PRESETS  # noqa: E402

os.environ["HF_HUB_OFFLINE"] = "1"
believe()

from sm86kit import eager  # noqa: E402

eager.install()

from vllm.config import VllmConfig, set_current_vllm_config  # noqa: E402
from vllm.engine import arg_utils  # noqa: E402
from vllm.model_executor.models import registry  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402
from vllm.v1.attention.backend import AttentionType  # noqa: E402
from vllm.v1.attention.backends import turboquant_attn as backend  # noqa: E402

#: Arguments of an attention layer, and the word that a refusal must have; empty if taken.
ARGUMENTS = [
    ({}, ""),
    ({"sliding_window": 4096}, "sliding window"),
    ({"alibi_slopes": [0.5, 0.25]}, "ALiBi"),
    ({"logits_soft_cap": 50.0}, "soft cap"),
    ({"logits_soft_cap": 0.0}, ""),
    ({"sinks": torch.zeros(4)}, "sinks"),
    ({"sinks": None}, ""),
    ({"attn_type": AttentionType.ENCODER_ONLY}, "attention of type"),
    ({"chunk_lookback": -1}, ""),
]


def check_arguments(proof):
    for words, reason in ARGUMENTS:
        name = ", ".join(f"{key}={value}" for key, value in words.items()) or "no argument"
        try:
            backend.TurboQuantAttentionImpl(
                4, 128, 128**-0.5, 2, kv_cache_dtype="turboquant_k8v4", **words
            )
        except NotImplementedError as error:
            proof.require(reason and reason in str(error), f"{name}: refused with {error}")
        else:
            proof.require(not reason, f"{name} is accepted and ignored")


def check_head_sizes(proof):
    for size in (64, 80, 96, 100, 112, 120, 128, 192, 256):
        for preset in PRESETS:
            power = size & (size - 1) == 0
            takes = size % 8 == 0 and (power or preset == "k8v4")
            reasons = backend.TurboQuantAttentionBackend.validate_configuration(
                head_size=size, dtype=torch.float16, kv_cache_dtype=f"turboquant_{preset}",
                block_size=None, use_mla=False, has_sink=False, use_sparse=False,
                use_mm_prefix=False, use_per_head_quant_scales=False,
                device_capability=DeviceCapability(8, 6), attn_type="decoder",
            )  # fmt: skip
            proof.require(
                bool(reasons) != takes, f"head size {size}, {preset}: {reasons or 'accepted'}"
            )
            try:
                backend.TurboQuantAttentionImpl(
                    4, size, size**-0.5, 2, kv_cache_dtype=f"turboquant_{preset}"
                )
                made = True
            except NotImplementedError as error:
                made = False
                proof.require(str(size) in str(error), f"head size {size}: {error}")
            proof.require(made == takes, f"head size {size}, {preset}: made {made}, not {takes}")


def check_skip_list(proof):
    """Through the real EngineArgs, for a small Mistral configuration."""
    info = registry._ModelInfo.from_model_cls(torch.nn.Linear)
    info = dataclasses.replace(
        info, architecture="MistralForCausalLM", is_text_generation_model=True, supports_pp=True,
        attn_type="decoder",
    )  # fmt: skip
    registry._LazyRegisteredModel.inspect_model_cls = lambda _self: info
    config = {
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 256,
        "intermediate_size": 512, "num_hidden_layers": 12, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 128, "sliding_window": None,
        "max_position_embeddings": 1024, "torch_dtype": "float16",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        for given, want in (
            (["10", "9"], ["9", "10"]),
            (["sliding_window", "10", "9"], ["9", "10", "sliding_window"]),
        ):
            try:
                made = arg_utils.EngineArgs(
                    model=folder, skip_tokenizer_init=True, kv_cache_dtype="turboquant_k8v4",
                    kv_cache_dtype_skip_layers=given, enforce_eager=True,
                ).create_engine_config()  # fmt: skip
            except ValueError as error:
                proof.fail(f"skip list {given}: ValueError: {str(error)[:100]}")
                continue
            found = made.cache_config.kv_cache_dtype_skip_layers
            kept = [one for one in found if one in want]
            ordered = [int(one) for one in found if one.isdecimal()]
            proof.require(
                kept == want and ordered == sorted(ordered), f"skip list {given} becomes {found}"
            )


def main():
    proof = Proof()
    proof.watch(backend, "_head_size_reason")
    with set_current_vllm_config(VllmConfig()):
        check_arguments(proof)
        check_head_sizes(proof)
    check_skip_list(proof)
    proof.finish(backend, arg_utils)


main()
