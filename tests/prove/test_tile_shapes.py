"""Case 27: the shapes that the proof of marlin-pad goes through are the case's own."""

from __future__ import annotations

import ast
import json

import pytest

from tests.helpers import ROOT, case

SHARDS = ROOT / "patches/vllm/marlin-pad/proofs/shards.py"
#: The case pads these; the kernel has a tile of 64 inputs for them (outputs divide by 128).
SERVED_AS_THEY_ARE = {(4096, 10944, 1), (4096, 64, 1)}


def table() -> dict[tuple[int, int, int, int], tuple[tuple[int, int] | None, int]]:
    """The proof's table: padded sizes and the number of cards that works, by shape."""
    assigned = {
        node.targets[0].id: node.value
        for node in ast.parse(SHARDS.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    rows = ast.literal_eval(assigned["TABLE"])
    return {(n, k, cards, group): (padded, works) for n, k, cards, _, group, padded, works in rows}


@pytest.mark.parametrize(
    "row", json.loads((case("27") / "shapes.json").read_text()),
    ids=lambda row: f"{row['n']}x{row['k']} over {row['tp']}",
)  # fmt: skip
def test_every_shape_of_the_case(row: dict[str, object]) -> None:
    n, k, cards, group = (int(str(row[key])) for key in ("n", "k", "tp", "group"))
    verdict, shapes = row["verdict"], row["shapes"]
    if n % cards:
        assert verdict == "REFUSE"  # vLLM's own division refuses it before any kernel is asked
        return
    padded, works = table()[n, k, cards, group]
    if verdict == "REFUSE":
        assert padded is None
        assert 0 < works < cards
    elif (n, k, cards) in SERVED_AS_THEY_ARE:
        assert verdict == "PAD-OR-REFUSE"
        assert padded == (n, k)
        assert n % 128 == 0
        assert k % 64 == 0
    elif isinstance(shapes, dict):
        assert padded == (shapes["padded_n"], shapes["padded_k"])
    else:
        assert verdict == "DEPENDS"
        assert padded == (64, k)
