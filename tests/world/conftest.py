"""The real thing, made once: the wheel, the locked environment, two installations."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uv

from builder import recipe
from builder.context import Context
from builder.download import fetch
from builder.prove.world import base_python, world
from tests.helpers import sm86

if TYPE_CHECKING:
    from collections.abc import Iterator

NEED = 30_000_000_000


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with room, deleted afterwards."""
    path = tmp_path_factory.mktemp("world")
    free = shutil.disk_usage(path).free
    assert free > NEED, (
        f"{path} has {free / 1e9:.0f} GB free and these tests need {NEED / 1e9:.0f} GB: free some,"
        " set TMPDIR to another disk, or run 'ci/test unit'"
    )
    yield path
    shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class Build:
    """A real build.

    Attributes:
        wheel: the wheel.
        report: what ``sm86 build --json`` printed.
    """

    wheel: Path
    report: dict[str, Any]

    @property
    def requirements(self) -> Path:
        """The hashed requirements file beside it."""
        return Path(self.report["locks"][0])


def build_from_scratch(folder: Path) -> Build:
    """Build with an empty cache."""
    done = sm86(
        "build", "vllm", "--arch", "sm_86", "--json", "--cache", folder / "cache",
        "--out", folder / "wheels",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return Build(Path(report["wheel"]), report)


@pytest.fixture(scope="session")
def build(home: Path) -> Build:
    """The wheel."""
    return build_from_scratch(home / "one")


@pytest.fixture(scope="session")
def cache(home: Path, build: Build) -> Path:
    """The cache of that build."""
    return home / "one" / "cache"


@pytest.fixture(scope="session")
def official(cache: Path) -> Path:
    """Upstream's official wheel."""
    context = Context(cache=cache, offline=True)
    return fetch(context, recipe.load(context, "vllm").pin().wheel)


@pytest.fixture(scope="session")
def locked(cache: Path) -> Path:
    """Interpreter of the locked environment."""
    context = Context(cache=cache)
    return world(context, recipe.load(context, "vllm").pin())


def environment() -> dict[str, str]:
    """The person's index settings, as they are."""
    return dict(os.environ)


@pytest.fixture(scope="session")
def with_uv(home: Path, build: Build) -> Path:
    """Interpreter of a clean environment into which uv installed the requirements file."""
    program, place = uv.find_uv_bin(), home / "uv"
    subprocess.run([program, "venv", "-q", "--python", base_python(), place], check=True)
    python = place / "bin" / "python"
    subprocess.run(
        [program, "pip", "install", "-q", "--python", python, "--require-hashes", "-r",
         build.requirements],
        check=True, env=environment(),
    )  # fmt: skip
    return python


@pytest.fixture(scope="session")
def with_pip(home: Path, build: Build) -> Path:
    """Interpreter of a clean environment into which pip installed the requirements file."""
    place = home / "pip"
    subprocess.run([base_python(), "-m", "venv", place], check=True)
    python = place / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-cache-dir", "--disable-pip-version-check",
         "--require-hashes", "-r", build.requirements],
        check=True, env=environment(),
    )  # fmt: skip
    return python
