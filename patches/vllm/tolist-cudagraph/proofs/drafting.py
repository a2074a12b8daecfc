"""Drafting with TurboQuant: chains after rejections, and draft models with an extra slot.

vLLM's own proposer follows a verify step of vLLM's own runner. Each sampled token's attention
must be that of float64 eager attention over what the drafter's cache holds, within 2^-10. The
host's lengths are exact, or optimistic as with asynchronous scheduling; the verify step runs
eagerly, or as the padded replay of a graph.

Emulation: Triton's interpreter and recorded graphs on a CPU.
"""

from sm86kit.pretend import pretend

pretend()

import torch  # noqa: E402
from sm86kit import capture  # noqa: E402
from sm86kit.drafter import draft  # noqa: E402
from sm86kit.eager import worst_of  # noqa: E402
from sm86kit.engine import start  # noqa: E402
from sm86kit.proof import Proof  # noqa: E402
from sm86kit.request import Request  # noqa: E402
from vllm.v1.attention.backends import turboquant_attn as backend  # noqa: E402
from vllm.v1.worker import workspace  # noqa: E402

GATE = 2.0**-10


def compare(proof, name, engine, rows, **how):
    capture.syncs.clear()
    try:
        steps = draft(engine, rows, **how)
    except Exception as error:  # noqa: BLE001
        proof.fail(f"{name}: {type(error).__name__}: {str(error)[:160]}")
        return
    proof.figure(name, steps)
    worst = worst_of(one for errors in steps for one in errors)
    proof.require(worst <= GATE, f"{name}: relative errors {steps} against eager attention")


def main():
    proof = Proof()
    proof.watch(backend, "tq_token_map")
    with torch.inference_mode():
        for name, ahead in (("exact lengths", 0), ("optimistic lengths", 3)):
            engine = start(k=3, async_spec=bool(ahead))
            rows = [
                Request(engine, 32, 4, n, upper=n + ahead, prompt=9) for n in (17, 20)
            ]  # fmt: skip
            compare(proof, f"chain, {name}", engine, rows, extra=False, rejected=[2, 0])
        engine = start(k=3)
        rows = [Request(engine, 32, 4, n, prompt=9) for n in (17, 20)]
        compare(proof, "draft model", engine, rows, extra=True, rejected=[2, 0])
        engine = start(k=3, sizes=(4, 16))
        workspace.current_workspace_manager().lock = lambda: None  # has a proof of its own
        try:
            engine.capture_model()
        except (capture.HostReadError, AssertionError, RuntimeError) as error:
            proof.fail(f"capture fails: {error}")
        rows = [Request(engine, 32, 4, n, prompt=9) for n in (17, 20, 12)]
        how = {"extra": False, "rejected": [2, 0, 3], "eager": False}
        compare(proof, "chain after a padded replay", engine, rows, **how)
    proof.finish(backend)


main()
