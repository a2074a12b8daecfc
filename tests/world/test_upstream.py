"""vLLM's own tests of the modules that the patches touch, as far as they run without a GPU."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import sm86

pytestmark = pytest.mark.world

#: What passes on the unpatched tree; a test that is gone or skipped counts as a failure.
NODES = Path(__file__).with_name("upstream_nodes.txt").read_text().splitlines()


def test_nothing_that_passed_fails(locked: Path, cache: Path, tmp_path: Path) -> None:
    tree, tools = tmp_path / "vllm", tmp_path / "tools"
    done = sm86("patch", "checkout", "vllm", tree, "--cache", cache)
    assert done.returncode == 0, done.stderr
    version = importlib.metadata.version("pytest")
    subprocess.run(
        [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", locked, "--target", tools,
         f"pytest=={version}"],
        check=True, capture_output=True,
    )  # fmt: skip
    run = subprocess.run(
        [locked, "-m", "pytest", "--noconftest", "-q", "-rA", "-p", "no:cacheprovider",
         *sorted({node.split("::")[0] for node in NODES})],
        cwd=tree, env=os.environ | {"PYTHONPATH": f"{tree}:{tools}", "HOME": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    passed = set(re.findall(r"^PASSED (\S.*)$", run.stdout, re.MULTILINE))
    assert len(NODES) == 104
    assert set(NODES) - passed == set(), run.stdout[-2000:]
