"""vLLM's engine around one TurboQuant layer, on a CPU: the real runner, builder and backend.

Real: configuration objects, TurboQuantMetadataBuilder and TurboQuantAttentionImpl with all their
kernels (Triton's interpreter), WorkspaceManager, BlockTable, AttentionGroup, CudagraphDispatcher,
and of GPUModelRunner: `_dummy_run`, `_warmup_and_capture`, `_build_attention_metadata`,
`_get_slot_mappings`, `_determine_batch_execution_and_padding`, `calculate_reorder_batch_threshold`
and the choice of the graph mode. Stood in for: the platform (`sm86kit.believe`), FlashAttention
(`sm86kit.eager`), the model (one attention layer over persistent inputs) and CUDA graphs
(`sm86kit.capture`). vLLM 0.22.1.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm.config import CUDAGraphMode, set_current_vllm_config
from vllm.forward_context import get_forward_context, set_forward_context
from vllm.v1.attention.backends import turboquant_attn
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
from vllm.v1.kv_cache_interface import KVCacheGroupSpec, TQFullAttentionSpec
from vllm.v1.utils import CpuGpuBuffer
from vllm.v1.worker import gpu_model_runner, workspace
from vllm.v1.worker.block_table import MultiGroupBlockTable
from vllm.v1.worker.utils import AttentionGroup

from sm86kit import capture
from sm86kit.capture import device
from sm86kit.config import make_config

if TYPE_CHECKING:
    from sm86kit.request import Request

CPU = torch.device("cpu")
LAYER = "model.layers.0.self_attn.attn"
#: A block that belongs to nobody; stale rows of the block table point to it.
STALE = 61
_Names = types.SimpleNamespace


class Engine(gpu_model_runner.GPUModelRunner):  # type: ignore[misc]
    """GPUModelRunner without a GPU: only what the methods in use read."""

    def __init__(self, cfg, Hq=2, Hk=1, D=32, blocks=64, async_spec=False):
        self.vllm_config = cfg
        for part in ("compilation", "scheduler", "cache", "parallel", "model", "speculative",
                     "load", "observability"):  # fmt: skip
            setattr(self, f"{part}_config", getattr(cfg, f"{part}_config"))
        self.lora_config = None
        self.device, self.pin_memory, self.dtype = CPU, False, cfg.model_config.dtype
        self.max_model_len = cfg.model_config.max_model_len
        self.max_num_tokens = cfg.scheduler_config.max_num_batched_tokens
        self.max_num_reqs = cfg.scheduler_config.max_num_seqs
        k = cfg.speculative_config.num_speculative_tokens if cfg.speculative_config else 0
        self.num_spec_tokens, self.uniform_decode_query_len = k, 1 + k
        self.use_async_spec_decode = self.use_async_scheduling = async_spec
        self.prepare_inputs_event = None
        self.dcp_world_size = 1
        self.is_pooling_model = self.supports_mm_inputs = self.enable_prompt_embeds = False
        self.uses_mrope = self.is_mm_prefix_lm = self.use_aux_hidden_state_outputs = False
        self.routed_experts_initialized = self.eep_eplb_suppressed = False
        self.layerwise_nvtx_hooks_registered = True
        self.uses_xdrope_dim = 0
        self.kv_sharing_fast_prefill_eligible_layers = set()
        self.drafter = None
        self.arange_np = np.arange(max(self.max_num_reqs + 1, self.max_num_tokens), dtype="int64")
        n, r = self.max_num_tokens, self.max_num_reqs

        def buffer(size, dtype):
            b = CpuGpuBuffer(size, dtype=dtype, device=CPU, pin_memory=False)
            b.gpu = torch.zeros_like(b.cpu)  # its own memory, as on a card
            device(b.gpu)
            return b

        self.input_ids = buffer(n, torch.int32)
        self.positions = device(torch.zeros(n, dtype=torch.int64))
        self.query_start_loc = buffer(r + 1, torch.int32)
        self.query_pos = buffer(n, torch.int64)
        self.seq_lens = device(torch.zeros(r, dtype=torch.int32))
        self.optimistic_seq_lens_cpu = torch.zeros(r, dtype=torch.int32)
        self.num_accepted_tokens = buffer(r, torch.int32)
        self.num_decode_draft_tokens = buffer(r, torch.int32)

        self.backend = turboquant_attn.TurboQuantAttentionBackend
        with set_current_vllm_config(cfg):
            self.impl = turboquant_attn.TurboQuantAttentionImpl(
                Hq, D, D**-0.5, Hk, kv_cache_dtype=cfg.cache_config.cache_dtype
            )
        self.layer = torch.nn.Module()
        slot = self.impl.tq_config.slot_size_aligned
        spec = TQFullAttentionSpec(
            block_size=16, num_kv_heads=Hk, head_size=D, head_size_v=D,
            dtype=torch.uint8, tq_slot_size=slot,
        )  # fmt: skip
        self.kv_cache_config = _Names(
            kv_cache_groups=[KVCacheGroupSpec([LAYER], spec)],
            has_mamba_layers=False,
            num_blocks=blocks,
        )
        self.cache = device(torch.zeros(
            self.backend.get_kv_cache_shape(blocks, 16, Hk, D, cfg.cache_config.cache_dtype),
            dtype=torch.uint8,
        ))  # fmt: skip
        tables = MultiGroupBlockTable(
            r, self.max_model_len, n, False, CPU, block_sizes=[16], kernel_block_sizes=[16]
        )
        for t in tables.block_tables:
            t.block_table.gpu = device(torch.zeros_like(t.block_table.cpu))
            t.slot_mapping.gpu = device(torch.zeros_like(t.slot_mapping.cpu))
        self.input_batch = _Names(
            block_table=tables,
            num_reqs=0,
            req_ids=[],
            lora_id_to_lora_request={},
            num_computed_tokens_cpu_tensor=torch.zeros(r, dtype=torch.int32),
            num_prompt_tokens_cpu_tensor=torch.zeros(r, dtype=torch.int32),
        )
        self.Hq, self.Hk, self.D, self.scale = Hq, Hk, D, D**-0.5
        self.q = device(torch.zeros(n, Hq, D, dtype=self.dtype))
        self.k = device(torch.zeros(n, Hk, D, dtype=self.dtype))
        self.v = device(torch.zeros(n, Hk, D, dtype=self.dtype))
        self.graphs: dict[Any, capture.Graph] = {}
        self.attn_groups = [[AttentionGroup(self.backend, [LAYER], spec, 0)]]
        self.cudagraph_dispatcher = CudagraphDispatcher(cfg)
        self._check_and_update_cudagraph_mode(
            [{self.backend}], self.kv_cache_config.kv_cache_groups
        )
        for group in self.attn_groups[0]:
            group.create_metadata_builders(cfg, CPU, 16)
        for value in vars(self.builder).values():
            if isinstance(value, torch.Tensor):
                device(value)
        self.calculate_reorder_batch_threshold()

    @property
    def builder(self):
        return self.attn_groups[0][0].get_metadata_builder()

    def layer_forward(self):
        ctx = get_forward_context()
        n = ctx.batch_descriptor.num_tokens if ctx.batch_descriptor else self.now
        md = ctx.attn_metadata[LAYER] if ctx.attn_metadata else None
        q, k, v = self.q[:n], self.k[:n], self.v[:n]
        out = torch.empty_like(q)
        slots = ctx.slot_mapping.get(LAYER) if ctx.slot_mapping else None
        if slots is not None:
            self.impl.do_kv_cache_update(self.layer, k, v, self.cache, slots)
        self.impl.forward(self.layer, q, k, v, self.cache, md, output=out)
        return out

    def model(self, input_ids=None, **_):
        ctx = get_forward_context()
        self.now = input_ids.shape[0]
        if ctx.cudagraph_runtime_mode != CUDAGraphMode.FULL:
            out = self.layer_forward()
        elif (desc := ctx.batch_descriptor) in self.graphs:
            out = self.graphs[desc].replay()
        else:
            md = ctx.attn_metadata[LAYER]
            host = [
                t for name, t in vars(md).items() if isinstance(t, torch.Tensor) and "cpu" in name
            ]
            graph = capture.Graph(host)
            graph.capture(self.layer_forward)
            self.graphs[desc] = graph
            out = graph.output
        return out.reshape(out.shape[0], -1)

    def capture_model(self):
        for mode, descs in self.cudagraph_dispatcher.get_capture_descs():
            for desc in descs:
                self._warmup_and_capture(desc, cudagraph_runtime_mode=mode)
        workspace.lock_workspace()

    def step(
        self, rows: list[Request], *, eager: bool = False
    ) -> tuple[CUDAGraphMode, list[torch.Tensor]]:
        """Run a batch as the engine would: graph mode and the output of each request."""
        R = len(rows)
        q_lens = torch.tensor([r.q for r in rows], dtype=torch.int32)
        ends = q_lens.cumsum(0).to(torch.int32)
        N = int(ends[-1])
        self.query_start_loc.np[0] = 0
        self.query_start_loc.np[1 : R + 1] = ends
        self.query_start_loc.np[R + 1 :].fill(int(ends[-1]))
        self.query_start_loc.copy_to_gpu()
        self.optimistic_seq_lens_cpu[:R] = torch.tensor([r.upper for r in rows])
        self.optimistic_seq_lens_cpu[R:].fill_(0)
        self.seq_lens[:R] = torch.tensor([r.length for r in rows], dtype=torch.int32)
        self.seq_lens[R:].fill_(0)
        ib = self.input_batch
        ib.num_reqs = R
        ib.num_computed_tokens_cpu_tensor[:R] = torch.tensor([r.upper - r.q for r in rows])
        ib.num_prompt_tokens_cpu_tensor[:R] = torch.tensor([r.prompt for r in rows])
        table = ib.block_table[0]
        for i, r in enumerate(rows):
            table.block_table.np[i, :] = 0
            table.block_table.np[i, : len(r.blocks)] = r.blocks
        table.block_table.np[R:] = STALE
        table.block_table.gpu[:] = STALE
        ib.block_table.commit_block_table(R)
        positions = torch.cat([torch.arange(r.length - r.q, r.length) for r in rows])
        self.positions[:N] = positions
        slots = torch.cat([r.slots()[r.length - r.q : r.length] for r in rows])
        table.slot_mapping.gpu[:N] = slots
        table.slot_mapping.gpu[N:] = -1
        for buf, name in ((self.q, "queries"), (self.k, "keys"), (self.v, "values")):
            buf[N:] = 1e3
            buf[:N] = torch.cat([getattr(r, name)[r.length - r.q : r.length] for r in rows])
        mode, desc, _, _, _ = self._determine_batch_execution_and_padding(
            num_tokens=N, num_reqs=R, num_scheduled_tokens_np=q_lens.numpy().astype(np.int32),
            max_num_scheduled_tokens=int(q_lens.max()), use_cascade_attn=False, force_eager=eager,
        )  # fmt: skip
        pad = mode == CUDAGraphMode.FULL
        by_group, by_layer = self._get_slot_mappings(desc.num_tokens, desc.num_reqs or R, N, None)
        md, cad = self._build_attention_metadata(
            num_tokens=N,
            num_tokens_padded=desc.num_tokens if pad else None,
            num_reqs=R,
            num_reqs_padded=(desc.num_reqs or R) if pad else None,
            max_query_len=int(q_lens.max()),
            slot_mappings=by_group,
            use_spec_decode=self.num_spec_tokens > 0,
        )
        self.last_cad, self.last_md = cad, md
        with set_forward_context(
            md, self.vllm_config, num_tokens=desc.num_tokens, cudagraph_runtime_mode=mode,
            batch_descriptor=desc, slot_mapping=by_layer,
        ):  # fmt: skip
            out = self.model(input_ids=self.input_ids.gpu[: desc.num_tokens])
        self.last_padding = out.view(-1, self.Hq, self.D)[N:]
        split = out[:N].view(-1, self.Hq, self.D).split(q_lens.tolist())
        return mode, list(split)


def start(*, async_spec: bool = False, **settings: Any) -> Engine:
    """A new engine with a workspace of its own; blocks of nobody hold what no one may read."""
    from sm86kit.request import Request

    Request.free, Request.pooled = 1, 0
    capture.forget()
    workspace.reset_workspace_manager()
    workspace.init_workspace_manager(CPU, 1)
    gpu_model_runner.get_pp_group = lambda: _Names(is_first_rank=True, is_last_rank=True)
    engine = Engine(make_config(**settings), async_spec=async_spec)
    engine.cache[0] = engine.cache[STALE] = 0x5A
    return engine
