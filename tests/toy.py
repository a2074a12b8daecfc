"""A miniature vLLM: source archive, official wheel, recipe and patch, all made from nothing.

The real pipeline runs on it in a second, without a network: the files lie in a local index.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.arch import Arch
from builder.git import Git
from builder.native import fatbin
from builder.patch.author import format_commit
from builder.source.tree import write_tree
from builder.wheel import archive
from builder.wheel.record import record_line, write_record
from tests.elfmaker import container, cubin, entry, module

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
EPOCH = 1_780_000_000
VERSION_FILE = f"__version__ = version = '1.2.0'\ncommit_id = 'g{COMMIT[:9]}'\n".encode()
SOURCE = {
    "vllm/__init__.py": b"from ._version import __version__\n",
    "vllm/ops.py": b"# ops\nLIMIT = 1.75\n\n\ndef clamp(x):\n    return min(x, LIMIT)\n",
    "vllm/data.json": b"{}\n",
    "csrc/ops.cu": b"// kernels\n",
    ".gitignore": b"*.json\n",
}
PATCHED = SOURCE["vllm/ops.py"].replace(
    b"# ops\nLIMIT = 1.75", b"# ops\n# Changed by sm86-builder (raise-limit)\nLIMIT = 448.0"
)
GPU = module(
    container(entry(80, cubin("_Z5clampf")), entry(90, cubin("_Z5clampf"))),
    container(entry(86, cubin("_Z4corev"), packed=True)),
)
OFFICIAL = "vllm-1.2.0-cp38-abi3-manylinux_2_28_x86_64.whl"
SCRIPT = b"""\
import os
from sm86kit.proof import Proof, use_package

use_package()
import vllm.ops

proof = Proof()
proof.watch(vllm.ops, "clamp")
proof.figure("clamped", vllm.ops.clamp(1000.0))
proof.require(vllm.ops.clamp(1000.0) == 448.0, f"clamped at {vllm.ops.clamp(1000.0)}")
proof.finish(vllm.ops)
"""
RECIPE = """\
schema_version = 1
engine = "vllm"
repository = "{repository}"
license = "Apache-2.0"

[[pins]]
version = "1.2.0"
tag = "v1.2.0"
commit = "{commit}"
released = 2026-06-01T00:00:00Z
torch = "2.11.0"
cuda = "13.0"
revision = 1
patches = ["raise-limit"]
lock = "toy.txt"
kernels = "toy-{{arch}}.json"

[pins.sdist]
project = "vllm"
file = "vllm-1.2.0.tar.gz"
sha256 = "{sdist}"
size = {sdist_size}
root = "vllm-1.2.0"
commit_file = "vllm/_version.py"
commit_pattern = "commit_id = 'g([0-9a-f]+)'"
identity = "abbreviated"
generated = ["PKG-INFO", "vllm/_version.py"]
tree = "{tree}"

[pins.wheel]
project = "vllm"
file = "{official}"
sha256 = "{wheel}"
size = {wheel_size}

[[pins.drop]]
files = ["vllm/big/*"]
why = "no card here can use it"
"""
PATCH = """\
schema_version = 1
id = "raise-limit"
title = "Raise the limit"
why = "1.75 is too low"
applies = ">=1"
capability = "<8.9"
layer = "python"

[upstream]
status = "Pending"
drop_when = "upstream raises it"

[[live]]
file = "vllm/ops.py"
symbol = "LIMIT"

[[proofs]]
id = "limit"
script = "proof.py"
reach = "clamp"
red = "clamped at 1.75"

[[proofs.mutants]]
id = "half"
file = "vllm/ops.py"
find = "448.0"
replace = "224.0"
reason = "clamped at 224"
"""


@dataclass(frozen=True)
class Toy:
    """Where the parts lie.

    Attributes:
        root: folder with recipes/ and patches/.
        index: folder of the local index.
        tree: the source tree.
    """

    root: Path
    index: Path
    tree: Path

    @property
    def env(self) -> dict[str, str]:
        """Environment in which the index is the only one."""
        return {
            "PIP_INDEX_URL": f"file://{self.index}", "PIP_FIND_LINKS": "",
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_EXTRA_INDEX_URL": "", "UV_DEFAULT_INDEX": "", "UV_INDEX_URL": "",
        }  # fmt: skip


def put(folder: Path, content: dict[str, bytes]) -> Path:
    """Write files."""
    for name, data in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def sdist(path: Path, content: dict[str, bytes], root: str = "vllm-1.2.0") -> None:
    """Write a source archive."""
    with tarfile.open(path, "w:gz") as tar:
        for name, data in content.items():
            info = tarfile.TarInfo(f"{root}/{name}")
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))


def wheel(path: Path, content: dict[str, bytes], info: str) -> None:
    """Write a wheel with a right RECORD."""
    rows = [record_line(name, data) for name, data in content.items()]
    name = f"{info}/RECORD"
    members = [archive.pack(key, data) for key, data in content.items()]
    members.append(archive.pack(name, write_record([*rows, (name, "", "")])))
    archive.write(path, members, epoch=EPOCH)


def official(extra: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """Members of the official wheel, without RECORD."""
    info = "vllm-1.2.0.dist-info"
    package = {name: data for name, data in SOURCE.items() if name.startswith("vllm/")}
    return {
        **package,
        "vllm/_version.py": VERSION_FILE,
        "vllm/_C.abi3.so": GPU,
        "vllm/big/foreign.py": b"x = 1\n",
        f"{info}/METADATA": b"Metadata-Version: 2.4\nName: vllm\nVersion: 1.2.0\nSummary: toy\n"
        b"License-Expression: Apache-2.0\nLicense-File: LICENSE\n\nText.\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\n"
        b"Tag: cp38-abi3-linux_x86_64\n",
        f"{info}/entry_points.txt": b"[console_scripts]\nvllm = vllm:main\n",
        f"{info}/licenses/LICENSE": b"Apache\n",
        **(extra or {}),
    }


def make(folder: Path) -> Toy:
    """Make everything below a folder."""
    tree = put(folder / "tree", SOURCE)
    index = folder / "index" / "vllm"
    index.mkdir(parents=True)
    sdist(
        index / "vllm-1.2.0.tar.gz", SOURCE | {"vllm/_version.py": VERSION_FILE, "PKG-INFO": b"x\n"}
    )
    wheel(index / OFFICIAL, official(), "vllm-1.2.0.dist-info")
    git = Git.init(folder / "git")
    before = write_tree(git, tree)
    base = git.commit_tree(before, "base\n", epoch=EPOCH)
    after = put(folder / "after", SOURCE | {"vllm/ops.py": PATCHED})
    message = "ops: raise the limit\n\nToo low.\n\nUpstream-Status: Pending\nPatch: raise-limit\n"
    commit = git.commit_tree(write_tree(git, after), message, epoch=EPOCH, parents=(base,))
    archives = {name: (index / name).read_bytes() for name in ("vllm-1.2.0.tar.gz", OFFICIAL)}
    text = RECIPE.format(
        commit=COMMIT, tree=before, official=OFFICIAL, repository=f"file://{folder}/upstream.git",
        sdist=hashlib.sha256(archives["vllm-1.2.0.tar.gz"]).hexdigest(),
        sdist_size=len(archives["vllm-1.2.0.tar.gz"]),
        wheel=hashlib.sha256(archives[OFFICIAL]).hexdigest(), wheel_size=len(archives[OFFICIAL]),
    )  # fmt: skip
    kernels = {"vllm/_C.abi3.so": dict(fatbin.read(GPU).kernels(Arch(8, 6)))}
    put(
        folder / "root",
        {
            "recipes/vllm.toml": text.encode(),
            "recipes/locks/toy.txt": b"# a lock\nsix==1.17.0 \\\n    --hash=sha256:"
            + b"0" * 64
            + b"\n",
            "recipes/kernels/toy-sm_86.json": json.dumps(kernels).encode(),
            "patches/vllm/raise-limit/patch.toml": PATCH.encode(),
            "patches/vllm/raise-limit/1.2.0.patch": format_commit(git, commit),
            "patches/vllm/raise-limit/proof.py": SCRIPT,
        },
    )
    return Toy(folder / "root", folder / "index", tree)
