"""The real-world faults of kinds K1 to K6, fed through `sm86 patch apply` as a person would.

Where a case leaves a choice, these are ours: offsets and fuzz are never used; line endings
are never converted; an already applied patch is an error with advice; a folder without a
series file is taken in the order of the numbers before its names.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.helpers import case, files, sm86

if TYPE_CHECKING:
    from pathlib import Path


def tree_of(number: str, variant: str) -> Path:
    folder = case(number)
    return folder / variant / "tree" if (folder / variant / "tree").exists() else folder / "tree"


APPLIES = [
    ("03", "b", "expected"),
    ("05", "c", "expected"),
    ("07", "a", "expected"),
    ("07", "b", "expected"),
    ("07", "c", "expected"),
    ("07", "d", "expected"),
    ("07", "e", "expected"),
    ("08", "a", "expected"),
    ("08", "b", "expected"),
    ("08", "d", "expected"),
    ("12", "a", "../expected"),
    ("12", "b", "../expected"),
    ("12", "e", "../expected"),
]


@pytest.mark.parametrize(("number", "variant", "expected"), APPLIES)
def test_applies(number: str, variant: str, expected: str, tmp_path: Path) -> None:
    folder = case(number) / variant
    tree = shutil.copytree(tree_of(number, variant), tmp_path / "tree")
    patch = folder / "input.patch" if (folder / "input.patch").exists() else folder
    done = sm86("patch", "apply", "--tree", tree, patch, "--json")
    assert done.returncode == 0, done.stderr
    assert files(tree) == files(folder / expected)
    listed = json.loads(done.stdout)["patches"]
    two = number == "12" or (number, variant) == ("07", "b")
    assert len(listed) == (2 if two else 1)
    again = sm86("patch", "apply", "--tree", tree, patch)
    assert again.returncode == 4, "a series does not apply twice"
    assert files(tree) == files(folder / expected)


REFUSES = [
    ("01", "a", ["mini/kv.py", "hunk 1", "page_bytes_decode", "line 16", "limit = 64", "line 5",
                 "-8", "changed since"]),
    ("01", "b", ["mini/cfg.py", "hunk 1", "alpha = 1"]),
    ("03", "a", ["already applied", "drop the patch"]),
    ("05", "a", ["line endings", "CRLF", "LF"]),
    ("05", "b", ["the patch file itself has CRLF"]),
    ("05", "d", ["line endings", "mixed"]),
    ("08", "c", ["csrc/quant/tile.cu does not exist", "csrc/stable/tile.cu"]),
    ("12", "c", ["0002-use-hook.patch", "not in its 'series'"]),
    ("12", "d", ["0002-use-hook.patch", "does not exist"]),
]  # fmt: skip


@pytest.mark.parametrize(("number", "variant", "words"), REFUSES)
def test_refuses(number: str, variant: str, words: list[str], tmp_path: Path) -> None:
    folder = case(number) / variant
    tree = shutil.copytree(tree_of(number, variant), tmp_path / "tree")
    before = files(tree)
    patch = folder / "input.patch" if (folder / "input.patch").exists() else folder
    done = sm86("patch", "apply", "--tree", tree, patch)
    assert done.returncode == 4
    assert files(tree) == before, "nothing may change, nothing may be left behind"
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize("name", ["with-git-header.patch", "plain.patch"])
def test_tree_inside_another_repository(name: str, tmp_path: Path) -> None:
    """Case 10: the outer repository is neither read nor touched."""
    folder = case("10")
    subprocess.run(["sh", folder / "setup.sh", tmp_path / "made"], check=True)
    outer = tmp_path / "made" / "outer"
    done = sm86("patch", "apply", "--tree", outer / "work" / "mini-1.0", folder / name)
    assert done.returncode == 0, done.stderr
    assert files(outer / "work" / "mini-1.0") == files(folder / "expected")
    status = ["git", "-C", outer, "status", "--porcelain", "--ignored"]
    said = subprocess.run(status, check=True, capture_output=True, text=True).stdout
    assert said == "!! work/\n"


@pytest.mark.parametrize(
    "settings",
    [
        {"core.autocrlf": "true"},
        {"core.hooksPath": "/nonexistent", "commit.gpgSign": "true"},
        {"apply.whitespace": "fix", "am.threeWay": "true"},
        {"diff.noprefix": "true", "diff.renames": "copies"},
    ],
)
def test_the_persons_git_settings_do_not_matter(settings: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "gitconfig"
    for key, value in settings.items():
        subprocess.run(["git", "config", "--file", config, key, value], check=True)
    tree = shutil.copytree(case("05") / "c" / "tree", tmp_path / "tree")
    env = {"GIT_CONFIG_GLOBAL": str(config), "GIT_DIR": "/nonexistent", "GIT_AUTHOR_NAME": ""}
    done = sm86("patch", "apply", "--tree", tree, case("05") / "c" / "input.patch", env=env)
    assert done.returncode == 0, done.stderr
    assert files(tree) == files(case("05") / "c" / "expected")


def test_dry_run_changes_nothing(tmp_path: Path) -> None:
    tree = shutil.copytree(case("07") / "a" / "tree", tmp_path / "tree")
    before = files(tree)
    done = sm86("patch", "apply", "--dry-run", "--tree", tree, case("07") / "a" / "input.patch")
    assert done.returncode == 0
    assert files(tree) == before
