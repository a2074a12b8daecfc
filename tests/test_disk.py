"""A full disk, one that cannot be written, and folders without rights."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.helpers import ROOT, files, sm86

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.toy import Toy

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root")


@contextmanager
def disk(path: Path, size: str) -> Iterator[None]:
    """A disk of that size at a path."""
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


def resize(path: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", path], check=True)


@pytest.mark.parametrize("size", ["64k", "128k", "192k"])
def test_full_disk(size: str, toy: Toy, tmp_path: Path) -> None:
    """One line, exit 5, nothing half-written; with room again it ends as it should."""
    small = tmp_path / "small"
    words = ["build", "vllm", "--arch", "sm_86", "--root", toy.root, "--out", tmp_path / "out"]
    env = toy.env | {"TMPDIR": str(small)}
    with disk(small, size):
        done = sm86(*words, "--cache", small / "cache", env=env)
        assert done.returncode == 5, done.stderr
        assert "disk is full" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "out").exists() or files(tmp_path / "out") == {}
        resize(small, "size=64m")
        again = sm86(*words, "--cache", small / "cache", env=env)
        assert again.returncode == 0, again.stderr
    good = sm86(*words[:-1], tmp_path / "good", "--cache", tmp_path / "cache", env=env)
    assert good.returncode == 0
    assert files(tmp_path / "out") == files(tmp_path / "good")


@pytest.mark.parametrize("size", ["4k", "8k"])
def test_output_disk_full(size: str, toy: Toy, tmp_path: Path) -> None:
    """Neither the wheel nor, where that alone fits, its locks."""
    small = tmp_path / "small"
    words = ["build", "vllm", "--arch", "sm_86", "--root", toy.root, "--cache", tmp_path / "cache"]
    with disk(small, size):
        done = sm86(*words, "--out", small / "out", env=toy.env)
        assert done.returncode == 5, done.stderr
        assert files(small / "out") == {}


def test_no_room_is_said_before_the_work(toy: Toy, tmp_path: Path) -> None:
    small = tmp_path / "small"
    words = ["build", "vllm", "--arch", "sm_86", "--root", toy.root, "--out", tmp_path / "out"]
    with disk(small, "12k"):
        done = sm86(*words, "--cache", small / "cache", env=toy.env)
        assert done.returncode == 5
        assert "the build needs" in done.stderr
        assert not (small / "cache" / "downloads").exists()


def test_read_only_disk(toy: Toy, tmp_path: Path) -> None:
    small = tmp_path / "small"
    words = ["build", "vllm", "--arch", "sm_86", "--root", toy.root, "--cache", tmp_path / "cache"]
    with disk(small, "16m"):
        resize(small, "ro")
        done = sm86(*words, "--out", small / "out", env=toy.env)
        assert done.returncode == 1
        assert "Read-only file system" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("which", ["cache", "out", "tree"])
def test_a_folder_without_rights(which: str, toy: Toy, tmp_path: Path) -> None:
    """As root without the right to override permissions, which is how others are."""
    closed = tmp_path / "closed"
    (closed / "sub").mkdir(parents=True)
    (closed / "sub" / "f").write_bytes(b"1\n")
    (closed / "a").write_bytes(b"1\n")
    (closed / "sub").chmod(0o555)
    patch = tmp_path / "p.patch"
    patch.write_bytes(
        b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n--- a/sub/f\n+++ b/sub/f\n@@ -1 +1 @@\n-1\n+2\n"
    )
    words: list[str | Path] = ["build", "vllm", "--arch", "sm_86", "--root", toy.root]
    if which == "tree":
        words = ["patch", "apply", "--tree", closed, patch, "--cache", tmp_path / "c"]
    else:
        cache, out = (closed / "sub" / "x", tmp_path / "o") if which == "cache" else (
            tmp_path / "c", closed / "sub" / "x")  # fmt: skip
        words += ["--cache", cache, "--out", out]
    done = subprocess.run(
        ["setpriv", "--inh-caps=-all", "--bounding-set=-all", sys.executable, "-m", "builder",
         *words],
        cwd=ROOT, env=os.environ | toy.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == (4 if which == "tree" else 1), done.stderr
    assert "Permission denied" in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("sm86: ")]) == 1
    assert files(closed) == {"a": b"1\n", "sub/f": b"1\n"}
