"""vLLM's TurboQuant kernels on a machine that has torch and Triton and nothing else of vLLM.

The three files with the kernels are loaded from the root as they are; what they import of
the rest of vLLM (platform queries, the Triton alias, one division) is stood in for.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

from sm86kit.proof import capability, package_root

_OPS = "vllm.v1.attention.ops"


def _module(name: str, **content: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__dict__.update(content)
    made.__path__ = []
    sys.modules[name] = made
    return made


def _load(name: str) -> types.ModuleType:
    path = package_root() / "vllm/v1/attention/ops" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{_OPS}.{name}", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[f"{_OPS}.{name}"] = made
    spec.loader.exec_module(made)
    return made


def load_turboquant() -> tuple[Any, Any, Any]:
    """The modules of the decode, store and reduce kernels."""
    import torch
    import triton
    import triton.language as tl

    card = capability()
    torch.cuda.get_device_capability = lambda *_args, **_kwargs: card
    for name in ("vllm", "vllm.v1", "vllm.v1.attention", _OPS, "vllm.utils"):
        _module(name)
    platform = types.SimpleNamespace(
        is_rocm=lambda: False,
        is_cuda_alike=lambda: True,
        is_xpu=lambda: False,
        is_cuda=lambda: True,
    )
    _module("vllm.platforms", current_platform=platform)
    _module("vllm.triton_utils", tl=tl, triton=triton)
    _module("vllm.utils.math_utils", cdiv=lambda a, b: -(-a // b))
    quiet = types.SimpleNamespace(info=print, warning=print, warning_once=print)
    _module("vllm.logger", init_logger=lambda _name: quiet)
    reduce = _load("triton_decode_attention")
    decode = _load("triton_turboquant_decode")
    return decode, _load("triton_turboquant_store"), reduce
