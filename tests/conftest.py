"""Fixtures that every test may use."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from builder.context import Context
from tests.toy import Toy, make

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads or writes the person's own cache or git settings."""
    monkeypatch.setenv("SM86_CACHE", str(tmp_path / "unused-cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "TORCH_CUDA_ARCH_LIST", "CUDAARCHS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """A context of the checkout's recipes with a cache of its own."""
    return Context(
        cache=tmp_path / "cache", out=tmp_path / "out", console=Console(file=io.StringIO())
    )


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """A miniature vLLM."""
    return make(tmp_path / "toy")


@pytest.fixture
def toy_context(toy: Toy, context: Context, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A context of the miniature's recipe, with its index."""
    for key, value in toy.env.items():
        monkeypatch.setenv(key, value)
    return context.with_(root=toy.root)
