"""Case 14's repository."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.helpers import case

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def origin(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The repository, and its commits by name."""
    out = tmp_path / "out"
    subprocess.run(["sh", case("14") / "setup.sh", out], check=True, capture_output=True)
    pins = dict(line.split(" ") for line in (out / "pins.txt").read_text().splitlines())
    return out / "origin.git", pins
