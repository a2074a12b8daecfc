"""Every TurboQuant kernel compiles for sm_86, without spills, within the card's shared memory.

Store, decode and dequant kernels of all presets at head sizes 64, 128 and 256, for float16
and bfloat16 models, are compiled ahead of time by Triton and assembled by ptxas for sm_86.
Registers, spills and shared memory of each are recorded. No GPU is used.
"""

from sm86kit.proof import Proof, use_package

use_package()

from sm86kit.aot import SHARED_LIMIT, DoesNotCompileError, compile_kernel  # noqa: E402
from sm86kit.believe import believe  # noqa: E402
from sm86kit.turboquant import PRESETS, Layout  # noqa: E402

believe()

from vllm.v1.attention.ops import triton_decode_attention as stage2  # noqa: E402
from vllm.v1.attention.ops import triton_turboquant_decode as decode  # noqa: E402
from vllm.v1.attention.ops import triton_turboquant_store as store  # noqa: E402

DTYPES = {"fp16": "*fp16", "bf16": "*bf16"}
CACHE = {"KV_cache_ptr": "*u8", "Slot_mapping_ptr": "*i64"}


def int32(names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), "i32")


def store_jobs(layout: Layout):
    if layout.fp8:
        for name, kind in DTYPES.items():
            types = {"Key_ptr": kind, "Value_ptr": kind} | CACHE
            yield (
                f"store {layout.preset} {name} D={layout.dim}",
                store._tq_fused_store_fp8,
                types,
                layout.store_constants() | {"FP8_E4B15": 1},
                4,
                1,
                ("Key_ptr", "Value_ptr"),
            )
        return
    # the launcher turns keys and values into float32 for these presets, whatever the model's type
    types = {"Y_ptr": "*fp32", "Norms_ptr": "*fp32", "Value_ptr": "*fp32", "Midpoints_ptr": "*fp32"}
    constants = layout.store_constants() | {
        "MSE_BYTES": layout.mse_bytes,
        "MSE_BITS": layout.mse_bits,
        "N_CENTROIDS": 2**layout.mse_bits,
    }
    yield (
        f"store {layout.preset} fp32 D={layout.dim}",
        store._tq_fused_store_mse,
        types | CACHE,
        constants,
        4,
        1,
        ("Y_ptr", "Value_ptr"),
    )


def decode_jobs(layout: Layout):
    queries = DTYPES if layout.fp8 else {"fp32": "*fp32"}
    for name, kind in queries.items():
        types = {
            "Q_rot_ptr": kind,
            "KV_cache_ptr": "*u8",
            "Block_table_ptr": "*i32",
            "Seq_lens_ptr": "*i32",
            "Centroids_ptr": "*fp32",
            "Mid_o_ptr": "*fp32",
        } | int32(
            "stride_qb stride_qh stride_cache_block stride_cache_pos stride_cache_head stride_bt_b"
            " stride_mid_b stride_mid_h stride_mid_s"
        )
        constants = layout.read_constants() | {
            "NUM_KV_SPLITS": 32,
            "KV_GROUP_SIZE": 6,
            "ATTN_SCALE": layout.dim**-0.5,
            "BLOCK_KV": 4,
        }
        yield (
            f"decode {layout.preset} {name} D={layout.dim}",
            decode._tq_decode_stage1,
            types,
            constants,
            1,
            1,
            (),
        )


def dequant_jobs(layout: Layout):
    types = {
        "KV_cache_ptr": "*u8",
        "Block_table_ptr": "*i32",
        "Centroids_ptr": "*fp32",
        "K_out_ptr": "*fp16",
        "V_out_ptr": "*fp16",
    } | int32(
        "stride_ko_b stride_ko_h stride_ko_s stride_vo_b stride_vo_h stride_vo_s"
        " stride_cache_block stride_cache_pos stride_cache_head stride_bt_b"
    )
    yield (
        f"dequant {layout.preset} fp16 D={layout.dim}",
        decode._tq_full_dequant_kv,
        types,
        layout.read_constants(),
        4,
        3,
        (),
    )


def reduce_jobs(dim: int):
    types = {"Mid_O": "*fp32", "lse": "*fp32", "B_Seqlen": "*i32"} | int32(
        "stride_mid_ob stride_mid_oh stride_mid_os stride_obs stride_oh stride_lse_bs"
    )
    for name, kind in DTYPES.items():
        constants = {
            "NUM_KV_SPLITS": 32,
            "BLOCK_DV": dim,
            "Lv": dim,
            "OUTPUT_FP16": int(name == "fp16"),
        }
        yield (
            f"reduce {name} D={dim}",
            stage2._fwd_kernel_stage2,
            types | {"o": kind},
            constants,
            4,
            2,
            (),
        )


def jobs():
    for dim in (64, 128, 256):
        for preset in PRESETS:
            layout = Layout(preset, dim)
            yield from store_jobs(layout)
            yield from decode_jobs(layout)
            yield from dequant_jobs(layout)
        yield from reduce_jobs(dim)


def main() -> None:
    proof = Proof()
    for name, fn, types, constants, warps, stages, aligned in jobs():
        try:
            made = compile_kernel(fn, types, constants, warps=warps, stages=stages, aligned=aligned)
        except DoesNotCompileError as error:
            proof.figure(name, "does not compile")
            proof.fail(f"{name}: does not compile: {error}")
            continue
        proof.figure(name, made.figures())
        proof.reached |= made.functions
        proof.require(made.spills == 0, f"{name}: spills {made.spills} bytes")
        proof.require(
            made.shared <= SHARED_LIMIT, f"{name}: wants {made.shared} bytes of shared memory"
        )
    proof.finish(store, decode)


main()
