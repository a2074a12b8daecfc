"""The real wheel: repeatable, true to its label, and caught when it is not."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from builder.arch import Arch
from builder.audit.run import audit_wheel
from builder.engines.registry import engine_of
from builder.native.fatbin import has_gpu_code, read
from builder.wheel import archive
from builder.wheel.record import BuildRecord
from tests.helpers import ROOT, sm86
from tests.spoil import Copy, faults
from tests.world.conftest import Build, build_from_scratch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.world
SM86 = Arch(8, 6)
STORE = "vllm/v1/attention/ops/triton_turboquant_store.py"


def package(official: Path) -> dict[str, str]:
    upstream = zipfile.ZipFile(official).read(STORE).decode()
    return {"patched": STORE, "upstream": upstream, "module": "vllm/_moe_C.abi3.so"}


def test_built_twice_from_scratch(build: Build, home: Path) -> None:
    again = build_from_scratch(home / "two")
    assert again.report["sha256"] == build.report["sha256"]
    assert again.wheel.read_bytes() == build.wheel.read_bytes()


def test_what_the_wheel_says(build: Build) -> None:
    assert re.fullmatch(
        r"vllm-0\.22\.1\+cu130\.sm86\.1\.p[0-9a-f]{8}-cp38-abi3-manylinux_2_28_x86_64\.whl",
        build.wheel.name,
    )
    assert build.report["size"] < 62.5e6, "official: 261 MB"
    assert build.report["unpacked"] < 130e6, "official: 591 MB"
    assert build.report["audit"]["ours"] is True
    assert build.report["audit"]["findings"] == []
    entries = {entry.name: entry for entry in archive.members(build.wheel)}
    name = next(entry for entry in entries if entry.endswith("/builder.json"))
    record = BuildRecord.model_validate_json(archive.content(entries[name]))
    assert record.commit == "0decac0d96c42b49572498019f0a0e3600f50398"
    assert record.strength == "abbreviated"
    patches = [path.read_text() for path in (ROOT / "patches/vllm").glob("*/0.22.1.patch")]
    named = set(re.findall(r"^\+\+\+ b/(.+)$", "\n".join(patches), re.MULTILINE))
    assert {file.path for file in record.files} == named
    assert len(named) == 19
    gone = [
        name
        for name in entries
        if "deep_gemm/" in name or "_vllm_fa3" in name or "flashmla_" in name
    ]
    assert [name for name in gone if name.endswith(".so")] == []


def test_upstreams_python_is_the_sources(cache: Path) -> None:
    """1,758 Python files: all of the source's, byte for byte, and the generated version file."""
    (note,) = (cache / "native").glob("*/native.json")
    found = json.loads(note.read_text())
    assert found["python_equal"] + 1 == 1758
    assert all(extra["origin"] and len(extra["sha256"]) == 64 for extra in found["extras"])
    assert len(found["dropped"]) == 876


def test_every_entry_is_cuobjdumps(official: Path, tmp_path: Path) -> None:
    """NVIDIA's own reader lists the same code for the same architectures in the same order."""
    program = next(
        path for path in sys.path if path.endswith("site-packages")
    ) + "/nvidia/cu13/bin/cuobjdump"  # fmt: skip
    seen = 0
    with zipfile.ZipFile(official) as wheel:
        for info in wheel.infolist():
            data = wheel.read(info) if info.filename.endswith(".so") else b""
            if not has_gpu_code(data):
                continue
            seen += 1
            path = tmp_path / "module.so"
            path.write_bytes(data)
            for option, ptx in (("--list-elf", False), ("--list-ptx", True)):
                done = subprocess.run(
                    [program, option, path], capture_output=True, text=True, check=False
                )
                theirs = re.findall(r"\.(sm_\d+a?)\.(?:cubin|ptx)", done.stdout)
                ours = [one.code for one in read(data).entries if one.code.ptx is ptx]
                # cuobjdump drops the f of family-specific code, and says sm for PTX too
                names = [f"sm_{code.number}{code.suffix.replace('f', '')}" for code in ours]
                assert names == theirs, info.filename
    assert seen == 7


@pytest.mark.parametrize(
    ("module", "kept"),
    [("vllm/_moe_C.abi3.so", 22), ("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", 52)],
)
def test_what_is_left_of_a_module_is_upstreams(
    build: Build, official: Path, tmp_path: Path, module: str, kept: int
) -> None:
    """NVIDIA's own reader extracts the same cubins, byte for byte, and no others."""
    program = next(
        path for path in sys.path if path.endswith("site-packages")
    ) + "/nvidia/cu13/bin/cuobjdump"  # fmt: skip
    found: dict[str, list[str]] = {}
    for name, wheel in (("upstream", official), ("ours", build.wheel)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "m.so").write_bytes(zipfile.ZipFile(wheel).read(module))
        subprocess.run(
            [program, "-xelf", "all", "m.so"], cwd=folder, check=True, capture_output=True
        )
        found[name] = sorted(
            hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.glob("m.*.cubin")
            if name == "ours" or path.name.split(".")[2] in {"sm_80", "sm_86"}
        )
    assert len(found["ours"]) == kept
    assert set(found["ours"]) <= set(found["upstream"])


def test_payloads_are_cuobjdumps(official: Path, tmp_path: Path) -> None:
    """What we decompress is what NVIDIA's own reader extracts."""
    program = next(
        path for path in sys.path if path.endswith("site-packages")
    ) + "/nvidia/cu13/bin/cuobjdump"  # fmt: skip
    data = zipfile.ZipFile(official).read("vllm/_moe_C.abi3.so")
    (tmp_path / "m.so").write_bytes(data)
    subprocess.run([program, "-xelf", "all", "m.so"], cwd=tmp_path, check=True, capture_output=True)
    theirs = [
        (path.name.split(".")[2], hashlib.sha256(path.read_bytes()).hexdigest())
        for path in tmp_path.glob("m.*.cubin")
    ]
    found = read(data)
    ours = [
        (f"sm_{one.code.number}{one.code.suffix.replace('f', '')}",
         hashlib.sha256(found.payload(one)).hexdigest())
        for one in found.entries
        if not one.code.ptx
    ]  # fmt: skip
    assert len(ours) == 88
    assert sorted(ours) == sorted(theirs)


def test_what_the_official_wheel_holds(official: Path) -> None:
    done = sm86("audit", official, "--arch", "sm_86", "--json")
    (report,) = json.loads(done.stdout.split("\n{\n")[0])["reports"]
    rules = {one["rule"] for one in report["findings"]}
    assert "AUD-TAG-001" in rules, "WHEEL says linux_x86_64, the file name manylinux_2_28"
    assert "AUD-ARCH-001" in rules, "FlashAttention 3 and FlashMLA have nothing for sm_86"
    runs = {one["path"]: one["runs"] for one in report["modules"] if one["archs"]}
    assert runs["vllm/_C.abi3.so"] is True
    assert runs["vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so"] is False
    assert len(runs) == 7
    shown = sm86("inspect", official).stdout
    assert "sm_90a" in shown
    assert "118,978,456" in shown


@pytest.mark.parametrize(
    "fault", faults("0+cu130.sm86.1.p0", dict.fromkeys(("patched", "module"), ""))
)
def test_exactly_the_named_rule_fires(
    fault: str, build: Build, official: Path, tmp_path: Path
) -> None:
    copy = Copy(build.wheel)
    faults(build.report["version"], package(official))[fault](copy)
    wheel = copy.write(tmp_path)
    report = audit_wheel(wheel, SM86, engine=engine_of)
    wheel.unlink()
    assert {one.rule for one in report.errors} == {fault.split(" ", maxsplit=1)[0]}, report.errors
