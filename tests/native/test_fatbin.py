from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.arch import Arch, Code
from builder.errors import BuilderError
from builder.native.dynamic import needed
from builder.native.elf import DamagedError
from builder.native.fatbin import has_gpu_code, read
from builder.native.kernels import base_name
from tests.elfmaker import container, cubin, elf, entry, module

#: ci/nightly tries more, and others each time.
EXAMPLES = 3 * int(os.environ.get("SM86_EXAMPLES", "100"))
SM86 = Arch(8, 6)
ONE = cubin("_Z3onei", "_ZN4vllm3twoIfEEvPT_")
PTX = b"//\n.version 9.0\n.visible .entry _Z3onei(\n)\n{ ret; }\n"
GOOD = module(
    container(
        entry(75, ONE), entry(80, ONE), entry(86, ONE, packed=True), entry(90, ONE, flags=0x100000)
    ),
    container(entry(90, ONE), entry(80, PTX, ptx=True, packed=True)),
    container(entry(100, ONE, flags=0x1200000)),
)


def test_reads_every_entry() -> None:
    found = read(GOOD)
    assert [str(one.code) for one in found.entries] == [
        "sm_75", "sm_80", "sm_86", "sm_90a", "sm_90", "compute_80", "sm_100f",
    ]  # fmt: skip
    assert [one.compression for one in found.entries] == ["", "", "zstd", "", "", "zstd", ""]
    assert found.totals()[Code(86)][0] == 1
    assert has_gpu_code(GOOD)
    assert not has_gpu_code(elf({".text": b"x"}))


def test_payloads_come_back() -> None:
    found = read(GOOD)
    bodies = [found.payload(one) for one in found.entries]
    assert bodies[2] == ONE
    assert bodies[5] == PTX
    assert bodies[0][: len(ONE)] == ONE


def test_choice_is_the_drivers() -> None:
    units = read(GOOD).containers
    assert [str(one.code) for one in units[0].choice(SM86)] == ["sm_86"]
    assert [str(one.code) for one in units[0].choice(Arch(8, 0))] == ["sm_80"]
    assert [str(one.code) for one in units[0].choice(Arch(8, 9))] == ["sm_86"]
    assert [str(one.code) for one in units[1].choice(SM86)] == ["compute_80"]
    assert units[2].choice(SM86) == ()


def test_functions_that_run() -> None:
    assert read(GOOD).kernels(SM86) == {"one": 2, "vllm::two": 1}


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_Z3onei", "one"),
        ("_ZN4vllm3twoIfEEvPT_", "vllm::two"),
        ("_ZN6marlin6MarlinILl1ELl2EEEvPK4int4", "marlin::Marlin"),
        ("_ZN12_GLOBAL__N_13fooEv", "(anonymous)::foo"),
        ("plain", "plain"),
        ("_Z99short", "_Z99short"),
        ("_Z", "_Z"),
    ],
)
def test_base_names(mangled: str, name: str) -> None:
    assert base_name(mangled) == name


def test_linked_libraries() -> None:
    assert needed(GOOD) == ["libcudart.so.13"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x7fELF\x02\x01",
        GOOD[:70],
        GOOD[:-3],
        GOOD.replace(b"\x50\xed\x55\xba", b"\x51\xed\x55\xba", 1),
        module(container(entry(86, ONE))[:-8]),
        module(container(entry(86, ONE)[:40])),
        module(container(entry(86, ONE, packed=True).replace(b"\x28\xb5\x2f\xfd", b"\0\0\0\0"))),
    ],
)
def test_damage_is_named(data: bytes) -> None:
    with pytest.raises(DamagedError):
        read(data).kernels(SM86)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES == 300)
@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=8))
def test_any_damage_gives_a_result_or_an_error(at: int, noise: bytes) -> None:
    data = GOOD[:at] + noise + GOOD[at + len(noise) :]
    caught: BuilderError | None = None
    found = None
    try:
        found = read(data)
        found.kernels(SM86)
        needed(data)
    except BuilderError as error:
        caught = error
    assert caught.fix if caught else found is not None


@settings(max_examples=EXAMPLES // 3, deadline=None, derandomize=EXAMPLES == 300)
@given(st.integers(0, len(GOOD)))
def test_any_cut_gives_a_result_or_an_error(end: int) -> None:
    caught: BuilderError | None = None
    try:
        read(GOOD[:end]).kernels(SM86)
    except BuilderError as error:
        caught = error
    assert caught is not None or end == len(GOOD)
