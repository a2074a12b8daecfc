"""Scratch memory is reserved before anything is captured, is bounded, and never moves.

vLLM's own profiling run, capture and lock come first; then batches that are larger than what
was captured, and a long continuation, must run and be right, at the addresses that graphs
know. 256 requests with three drafts each on the geometry of a 27B model stay within 64 MiB.

Fault F: unpatched, the scratch first grows while graphs are captured, and the engine dies on
the first larger request ("Workspace is locked").

Emulation: Triton's interpreter and recorded graphs on a CPU.
"""

from sm86kit.pretend import pretend

pretend()

import torch  # noqa: E402
from sm86kit.eager import relative_error, worst_of  # noqa: E402
from sm86kit.engine import CPU, Engine, start  # noqa: E402
from sm86kit.proof import Proof  # noqa: E402
from sm86kit.request import Request  # noqa: E402
from vllm.v1.attention.backends import turboquant_attn as backend  # noqa: E402
from vllm.v1.worker import workspace  # noqa: E402

GATE = 2.0**-10
MIB = 1 << 20


def sizes():
    manager = workspace.current_workspace_manager()
    return [manager._workspace_size_bytes(one) for one in manager._current_workspaces]


def address():
    return workspace.current_workspace_manager()._current_workspaces[0].data_ptr()


def try_step(proof, name, engine, requests, of, gate):
    try:
        _, results = engine.step(requests)
    except AssertionError as error:
        proof.fail(f"{name}: AssertionError: {str(error)[:110]}")
        return
    errors = [
        relative_error(result, request.expected(of))
        for request, result in zip(requests, results, strict=True)
    ]
    proof.figure(name, errors)
    worst = worst_of(errors)
    proof.require(worst <= gate, f"{name}: relative errors {errors}")


def after_the_lock(proof):
    engine = start(k=0, seqs=8, tokens=192, length=256, sizes=(1, 2))
    engine._dummy_run(engine.max_num_tokens, is_profile=True)
    reserved = sizes()[0]
    proof.figure("reserved_bytes", reserved)
    proof.require(reserved > 0, "nothing is reserved in the profiling run")
    before = address() if reserved else 0
    engine.capture_model()
    proof.require(sizes()[0] == reserved, "the scratch grows while graphs are captured")
    rows = [Request(engine, 16, 1, 6 + n, prompt=1) for n in range(8)]
    try_step(proof, "8 decodes, 2 captured", engine, rows, "cache", GATE)
    # a float16 copy of the dequantised prefix: 2^-11 of each key and value
    long = [Request(engine, 170, 130, 170)]
    try_step(proof, "continuation of 130 behind 40", engine, long, "mixed", 4 * GATE)
    proof.require(address() == before, "the scratch moves while graphs know its address")


def one_decode_after_speculative_capture(proof):
    engine = start(k=3, seqs=8, sizes=(4,))
    engine._dummy_run(engine.max_num_tokens, is_profile=True)
    engine.capture_model()
    rows = [Request(engine, 16, 1, 10, prompt=1)]
    try_step(proof, "K=3, one decode of one token", engine, rows, "cache", GATE)


def bounded(proof):
    """24 heads, 4 KV heads of 256: as many floats would need 808 MB without a bound."""
    engine = start(k=3, seqs=256, tokens=2048, length=2048, splits=32, sizes=(4,))
    big = Engine(engine.vllm_config, Hq=24, Hk=4, D=256, blocks=64)
    workspace.reset_workspace_manager()
    workspace.init_workspace_manager(CPU, 2)
    big._dummy_run(big.max_num_tokens, is_profile=True)
    found = sizes()
    proof.figure("scratch_of_27b_bytes", found)
    proof.require(
        all(0 < one <= 64 * MIB + 1 * MIB for one in found),
        f"scratch of each ubatch: {found} bytes",
    )
    workspace.lock_workspace()
    for rows in (1, 4, 85, 256, 1024):
        splits = getattr(big.impl, "_plan_decode", lambda n: (n, 32))(rows)
        shapes = (
            ((splits[0], 24, splits[1], 257), torch.float32), ((splits[0], 24), torch.float32),
        )  # fmt: skip
        try:
            workspace.current_workspace_manager().get_simultaneous(*shapes)
        except AssertionError as error:
            proof.fail(f"{rows} rows of a 27B model: AssertionError: {str(error)[:100]}")


def main():
    proof = Proof()
    proof.watch(backend, "merge_attn_states")
    with torch.inference_mode():
        after_the_lock(proof)
        one_decode_after_speculative_capture(proof)
        bounded(proof)
    proof.finish(backend, workspace)


main()
