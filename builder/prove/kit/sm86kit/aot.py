"""Compiling Triton kernels ahead of time for a card, without a GPU.

``triton.compile`` takes an explicit target; ptxas then assembles the PTX for the real
card, so registers, spills and shared memory are those of an RTX 3090.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sm86kit.proof import capability

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Shared memory that one block may use on compute capability 8.6 and 8.9, in bytes
#: (CUDA C++ Programming Guide, "Compute Capabilities").
SHARED_LIMIT = 101_376


@dataclass(frozen=True)
class Compiled:
    """What a compiled kernel takes of the card.

    Attributes:
        registers: registers of one thread.
        spills: bytes of register spills, stores and loads together.
        shared: bytes of shared memory of one block.
        functions: names of the functions compiled in.
    """

    registers: int
    spills: int
    shared: int
    functions: frozenset[str]

    def figures(self) -> dict[str, int]:
        """The numbers, for a report."""
        return {"registers": self.registers, "shared": self.shared, "spills": self.spills}


class DoesNotCompileError(Exception):
    """A kernel that Triton or ptxas refuses; the text is the innermost reason."""


def compile_kernel(
    fn: Any,
    types: Mapping[str, str],
    constants: Mapping[str, Any],
    *,
    warps: int,
    stages: int,
    aligned: Sequence[str] = (),
) -> Compiled:
    """Compile a kernel for the capability that the proof is for.

    Args:
        fn: the ``@triton.jit`` function.
        types: Triton type of each argument that is not constant.
        constants: values of the constant arguments.
        warps: number of warps of a block.
        stages: number of pipeline stages.
        aligned: arguments that are divisible by 16.

    Raises:
        DoesNotCompileError: the kernel is refused.
    """
    import triton
    import triton.backends.nvidia as nvidia
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    major, minor = capability()
    number = 10 * major + minor
    names = fn.arg_names
    signature = {
        n: "constexpr" if n in constants else types[n]
        for n in names
        if n in constants or n in types
    }
    source = ASTSource(
        fn=fn,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    try:
        made = triton.compile(
            source,
            target=GPUTarget("cuda", number, 32),
            options={"num_warps": warps, "num_stages": stages},
        )
    except Exception as error:
        raise DoesNotCompileError(_innermost(error)) from error
    ptxas = Path(nvidia.__file__).parent / "bin" / "ptxas"
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(made.asm["ptx"])
        file.flush()
        done = subprocess.run(
            [str(ptxas), "-v", f"--gpu-name=sm_{number}", file.name, "-o", "/dev/null"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        raise DoesNotCompileError(f"ptxas: {done.stderr.strip().splitlines()[-1]}")
    registers = re.search(r"Used (\d+) registers", done.stderr)
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", done.stderr)
    if registers is None:
        raise DoesNotCompileError("ptxas reports no registers")
    return Compiled(
        registers=int(registers[1]),
        spills=sum(map(int, spills)),
        shared=int(made.metadata.shared),
        functions=frozenset(_functions(made.asm["source"])),
    )


def _functions(source: str) -> Iterator[str]:
    """Names of the functions in Triton's first representation, before inlining."""
    for name in re.findall(r'tt\.func (?:private |public )?@"?([\w.]+)', source):
        last = name.rpartition(".")[2]
        yield last[0] + last[1:].split("__")[0]


def _innermost(error: BaseException) -> str:
    inner: BaseException = error
    while inner.__cause__ is not None:
        inner = inner.__cause__
    lines = [line for line in str(inner).splitlines() if line.strip()]
    return f"{type(inner).__name__}: {lines[-1].strip() if lines else ''}"
