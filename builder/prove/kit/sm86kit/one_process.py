"""vLLM's groups of ranks with one rank each, so that whole layers can be made in a script."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def engine() -> Iterator[Any]:
    """A default configuration, and groups and scratch memory on the CPU, for its duration."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state
    from vllm.v1.worker.workspace import init_workspace_manager

    cfg = VllmConfig()
    with tempfile.TemporaryDirectory() as folder, set_current_vllm_config(cfg):
        meeting = f"file://{Path(folder) / 'ranks'}"
        parallel_state.init_distributed_environment(1, 0, meeting, 0, backend="gloo")
        parallel_state.initialize_model_parallel(1, 1)
        init_workspace_manager(torch.device("cpu"))
        try:
            yield cfg
        finally:
            parallel_state.destroy_model_parallel()
            parallel_state.destroy_distributed_environment()
