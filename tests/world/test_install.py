"""Installed with pip and with uv: importable, alive, proven, and missed when replaced."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uv

from builder.installed import site_packages
from builder.native.dynamic import undefined
from tests.helpers import sm86
from tests.world.stub import write_stub

if TYPE_CHECKING:
    from tests.world.conftest import Build

pytestmark = pytest.mark.world

IMPORTS = """
import torch, vllm
print(vllm.__version__)
import vllm._C, vllm._C_stable_libtorch, vllm._moe_C, vllm.cumem_allocator, vllm.spinloop
import vllm.vllm_flash_attn._vllm_fa2_C
from sm86kit.believe import believe
believe()
from vllm.vllm_flash_attn import flash_attn_interface as fa
assert fa.FA2_AVAILABLE and not fa.FA3_AVAILABLE, (fa.FA2_AVAILABLE, fa.FA3_AVAILABLE)
from vllm.v1.attention.ops import flashmla
assert flashmla.is_flashmla_dense_supported()[0] is False
from vllm.utils import deep_gemm
assert deep_gemm.is_deep_gemm_supported() is False
import vllm.platforms.cuda
import vllm.v1.attention.backends.flash_attn
import vllm.v1.attention.backends.triton_attn
import vllm.v1.attention.backends.turboquant_attn
import vllm.model_executor.layers.fused_moe
import vllm.model_executor.layers.quantization.auto_gptq
import vllm.model_executor.layers.quantization.awq_marlin
import vllm.v1.worker.gpu_model_runner
import vllm.entrypoints.openai.api_server
print("modules", sorted(name for name in dir(torch.ops._C) if not name.startswith("_"))[:1])
"""


@pytest.fixture(params=["uv", "pip"])
def python(request: pytest.FixtureRequest) -> Path:
    """Interpreter of each installation in turn."""
    found = request.getfixturevalue(f"with_{request.param}")
    assert isinstance(found, Path)
    return found


def test_imports_without_what_was_left_out(python: Path, build: Build, tmp_path: Path) -> None:
    """The compiled modules load, and an sm_86 card's paths live without the missing ones."""
    site = site_packages(python)
    modules = [*(site / "vllm").glob("*.so"), *(site / "vllm" / "vllm_flash_attn").glob("*.so")]
    assert len(modules) == 6
    symbols = {name for path in modules for name in undefined(path.read_bytes())}
    driver = [name for name in symbols if name.startswith("cu") and name[2:3].isupper()]
    assert "cuTensorMapEncodeTiled" in driver
    write_stub(tmp_path / "libcuda.so.1", "libcuda.so.1", driver)
    kit = Path(__file__).resolve().parents[2] / "builder" / "prove" / "kit"
    env = os.environ | {
        "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(kit), "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HOME": str(tmp_path),
    }  # fmt: skip
    done = subprocess.run(
        [python, "-W", "ignore", "-c", IMPORTS], env=env, cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[0] == build.report["version"]


def test_alive(python: Path, build: Build) -> None:
    done = sm86("verify-installed", "vllm", "--python", python, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["version"] == build.report["version"]
    assert found["patches"] == ["genesis-quant", "marlin-pad", "tolist-cudagraph", "card-check"]


def test_proven(with_uv: Path, cache: Path) -> None:
    """Both installers unpack the same files (see `test_alive`): one of them is proven."""
    proven = sm86(
        "prove", "vllm", "--installed", "--python", with_uv, "--json", "-q", "--cache", cache
    )
    assert proven.returncode == 0, proven.stderr
    runs = json.loads(proven.stdout)["runs"]
    proofs = ("e4m3-bytes", "aot-sm86", "presets", "refusals", "wna16", "fp8", "shards", "moe",
              "verify-rows", "drafting", "scratch", "cards")  # fmt: skip
    assert {(run["proof"], run["subject"], run["ok"]) for run in runs} == {
        (proof, "installed", True) for proof in proofs
    }


def test_symbols_are_in_the_pinned_torch(with_uv: Path, build: Build) -> None:
    done = sm86("audit", build.wheel, "--against", site_packages(with_uv), "--json")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "AUD-ABI-001" in json.loads(done.stdout)["reports"][0]["checked"]


def test_the_right_number_of_packages(with_uv: Path, with_pip: Path) -> None:
    """What is installed is what was locked, with either installer."""
    listing = (
        "import importlib.metadata as m;"
        "print(*{d.name.lower().replace('_', '-') for d in m.distributions()})"
    )
    both = []
    for python in (with_uv, with_pip):
        done = subprocess.run(
            [python, "-I", "-c", listing], check=True, capture_output=True, text=True
        )
        both.append(set(done.stdout.split()))
    both = [names - {"pip", "setuptools"} for names in both]
    assert both[0] == both[1]
    assert len(both[0]) == 187, "186 locked packages besides setuptools, and the wheel"


def test_the_lock_file_resolves_to_the_same(with_uv: Path, build: Build) -> None:
    """PEP 751: uv finds every file of it already installed."""
    lock = next(path for path in build.report["locks"] if path.endswith(".toml"))
    done = subprocess.run(
        [uv.find_uv_bin(), "pip", "sync", "--dry-run", "--preview", "--python", with_uv, lock],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Would make no changes" in done.stderr, done.stderr


def test_a_later_upgrade_is_noticed(with_pip: Path, official: Path) -> None:
    """Last of these: it spoils the environment, as `pip install -U vllm` would."""
    subprocess.run(
        [with_pip, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", "--no-index",
         official],
        check=True,
    )  # fmt: skip
    done = sm86("verify-installed", "vllm", "--python", with_pip)
    assert done.returncode == 7
    assert "vllm 0.22.1" in done.stderr
    assert "another installation has replaced it" in done.stderr
