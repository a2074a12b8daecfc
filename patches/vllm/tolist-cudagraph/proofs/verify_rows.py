"""With speculation, every row sees exactly its own keys: in CUDA graphs, eagerly, in mixed batches.

vLLM's own runner captures graphs over one TurboQuant layer, and runs batches through them and
beside them. While capturing, reading a device tensor on the host raises; replay repeats what
was recorded, with other lengths and block tables in the same buffers, padded batches among
them. Every result must be that of float64 eager attention over the bytes in the cache, within
what float32 sums and a float16 result leave (2^-10, relative, in the norm).

Faults (each shown red on its own line): A, a graph holds attention over the step's own tokens;
B, optimistic lengths of the host let rows see drafts that were rejected; C, a continuation
beside a fresh prompt loses its prefix; G, constants are first made inside a capture.

Emulation: Triton's interpreter and recorded graphs on a CPU.
"""

from sm86kit.pretend import pretend

pretend()

import torch  # noqa: E402
from sm86kit import capture  # noqa: E402
from sm86kit.eager import relative_error, worst_of  # noqa: E402
from sm86kit.engine import start  # noqa: E402
from sm86kit.proof import Proof  # noqa: E402
from sm86kit.request import Request  # noqa: E402
from vllm.v1.attention.backends import turboquant_attn as backend  # noqa: E402
from vllm.v1.attention.ops import triton_turboquant_decode as kernels  # noqa: E402
from vllm.v1.worker import workspace  # noqa: E402

GATE = 2.0**-10


def compare(proof, name, requests, results, of="cache"):
    kinds = of if isinstance(of, list) else [of] * len(requests)
    errors = [
        relative_error(result, request.expected(kind))
        for request, result, kind in zip(requests, results, kinds, strict=True)
    ]
    proof.figure(name, errors)
    worst = worst_of(errors)
    proof.require(worst <= GATE, f"{name}: relative errors {errors} against eager attention")


def captured(proof, name, engine):
    """Capture as the runner does; False if that fails."""
    try:
        engine.capture_model()
    except (capture.HostReadError, AssertionError, RuntimeError) as error:
        proof.fail(f"{name}: capture fails: {type(error).__name__}: {str(error)[:160]}")
        return False
    return True


def replayed(proof):
    """A and G: three verify rows in a graph of four, whose tail rows are stale."""
    engine = start(k=3, sizes=(4, 16))
    workspace.current_workspace_manager().lock = lambda: None  # the lock has a proof of its own
    if not captured(proof, "graph", engine):
        return
    requests = [Request(engine, 32, 4, n, prompt=9) for n in (20, 32, 13)]
    mode, results = engine.step(requests)
    proof.require(mode.name == "FULL", f"graph: the batch runs as {mode.name}")
    compare(proof, "graph replayed", requests, results)
    pad = engine.last_padding
    proof.require(bool((pad == 0).all()), "graph replayed: rows of padding are not 0")
    # other lengths, tables and tokens in the same buffers
    for request, n in zip(requests, (12, 29, 18), strict=True):
        request.length = request.upper = n
        request.store(n - 4)
    mode, results = engine.step(requests)
    compare(proof, "graph replayed with other lengths", requests, results)
    mode, direct = engine.step(requests, eager=True)
    errors = [relative_error(a, b) for a, b in zip(results, direct, strict=True)]
    proof.require(max(errors) == 0, f"graph and eager results differ: {errors}")
    made = [name for name in ("_arange_cache", "_cu_2") if hasattr(engine.impl, name)]
    proof.require(not made, f"constants are first made while capturing: {', '.join(made)}")


def continued_after_capture(proof):
    """G: an eager continuation behind a capture that nothing has replayed."""
    engine = start(k=3, sizes=(4,))
    workspace.current_workspace_manager().lock = lambda: None
    if not captured(proof, "continuation after capture", engine):
        return
    request = Request(engine, 32, 6, 18, prompt=40)
    try:
        _, results = engine.step([request], eager=True)
    except Exception as error:  # noqa: BLE001
        proof.fail(f"continuation after capture: {type(error).__name__}: {str(error)[:120]}")
        return
    compare(proof, "continuation after capture", [request], results)


def optimistic(proof):
    """B: three drafts were rejected; what they left behind the true length is loud."""
    for preset in ("turboquant_4bit_nc", "turboquant_k8v4"):
        engine = start(k=3, async_spec=True, preset=preset)
        request = Request(engine, 32, 4, 18, upper=21, prompt=10)
        request.store(24, 18, loud=30)
        _, results = engine.step([request], eager=True)
        compare(proof, f"rejected drafts, {preset}", [request], results)
    engine = start(k=3, async_spec=True)
    requests = [
        Request(engine, 32, 1, 12, upper=14, prompt=10),
        Request(engine, 32, 4, 18, upper=21, prompt=10),
        Request(engine, 32, 2, 25, upper=28, prompt=10),
    ]
    for request in requests:
        request.store(request.length + 4, request.length, loud=30)
    capture.syncs.clear()
    _, results = engine.step(requests, eager=True)
    compare(proof, "rejected drafts, rows of 1, 4 and 2 tokens", requests, results)
    proof.require(not capture.syncs, f"lengths are read from the device: {capture.syncs}")


def behind_a_prompt(proof):
    """B: another group of layers orders the batch, so verify rows stand behind a long prompt."""
    engine = start(k=3, tokens=128, async_spec=True)
    requests = [
        Request(engine, 32, 1, 12, upper=14, prompt=10),
        Request(engine, 32, 6, 20, prompt=200),
        Request(engine, 32, 4, 18, upper=21, prompt=10),
    ]
    for request in (requests[0], requests[2]):
        request.store(request.length + 4, request.length, loud=30)
    _, results = engine.step(requests, eager=True)
    compare(proof, "verify rows behind a prompt", requests, results)


def beside_a_prompt(proof):
    """C: a continuation beside a fresh prompt that is longer than its context."""
    engine = start(k=0)
    rows = [Request(engine, 18, 5, 18, prompt=40), Request(engine, 24, 24, 24)]
    _, results = engine.step(rows, eager=True)
    compare(proof, "continuation beside a prompt", rows, results, ["cache", "raw"])
    engine = start(k=3)
    rows = [Request(engine, 18, 4, 18, prompt=10), Request(engine, 24, 24, 24)]
    _, results = engine.step(rows, eager=True)
    compare(proof, "verify row beside a prompt", rows, results, ["cache", "raw"])
    engine = start(k=0)
    rows = [Request(engine, 9, 9, 9), Request(engine, 16, 16, 16)]
    _, results = engine.step(rows, eager=True)
    compare(proof, "two prompts", rows, results, "raw")


def thresholds(proof):
    """What the builder takes for a decode is what it declares graphs for."""
    for name, settings, want in (
        ("K=3", {}, "UNIFORM_BATCH"),
        ("K=3, drafted in parallel", {"parallel_drafting": True}, "UNIFORM_BATCH"),
        ("K=3, two context ranks", {"dcp": 2}, "UNIFORM_SINGLE_TOKEN_DECODE"),
        ("no speculation", {"k": 0}, "UNIFORM_BATCH"),
    ):
        engine = start(**settings)
        spec = engine.kv_cache_config.kv_cache_groups[0].kv_cache_spec
        declared = engine.builder.get_cudagraph_support(engine.vllm_config, spec).name
        proof.require(declared == want, f"{name}: graphs declared {declared}, not {want}")
        rows = engine.uniform_decode_query_len
        fits = declared != "UNIFORM_BATCH" or engine.builder.reorder_batch_threshold >= rows
        proof.require(fits, f"{name}: graphs for rows of {rows} tokens, which are no decodes")


def shared_lengths(proof):
    """Building for a capture leaves the runner's own lengths alone: other groups read them."""
    engine = start(k=3)
    engine.seq_lens[:] = 0
    engine.query_start_loc.np[:3] = [0, 4, 8]
    engine.query_start_loc.copy_to_gpu()
    engine.seq_lens[:2] = engine.optimistic_seq_lens_cpu[:2] = 4
    by_group, _ = engine._get_slot_mappings(8, 2, 8, None)
    try:
        engine._build_attention_metadata(
            num_tokens=8, num_tokens_padded=8, num_reqs=2, max_query_len=4,
            for_cudagraph_capture=True, slot_mappings=by_group,
        )  # fmt: skip
    except AssertionError as error:
        proof.fail(f"building for a capture fails: {error}")
    found = engine.seq_lens[:3].tolist()
    proof.require(found == [4, 4, 0], f"capture changes the runner's lengths to {found}")


def stale_offsets(proof):
    """A dummy run leaves stale offsets behind its requests: the map stays inside the batch."""
    make = getattr(kernels, "tq_token_map", None)
    if make is None:
        proof.fail("stale offsets: lengths of rows are taken from the host")
        return
    rows, lengths = torch.full((12,), -7, dtype=torch.int32), torch.full((12,), -7).int()
    starts = torch.tensor([0, 4, 20, 33, 47], dtype=torch.int32)
    make(starts, torch.tensor([9, 0, 0, 0], dtype=torch.int32), rows, lengths, 8)
    found = lengths.tolist()
    proof.require(
        found == [6, 7, 8, 9, 0, 0, 0, 0, -7, -7, -7, -7], f"stale offsets: lengths {found}"
    )


def main():
    proof = Proof()
    with torch.inference_mode():
        for check in (
            replayed, continued_after_capture, optimistic, behind_a_prompt, beside_a_prompt,
            thresholds, shared_lengths, stale_offsets,
        ):  # fmt: skip
            proof.watch(backend, "tq_token_map")
            check(proof)
    proof.finish(backend)


main()
