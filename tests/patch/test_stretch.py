"""Stretches side by side give the commits that one run of git gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builder.git import Git
from builder.patch import stretch
from builder.patch.apply import apply_mails
from builder.patch.mail import parse_bytes
from builder.source.tree import write_tree
from tests import toy as toys

if TYPE_CHECKING:
    from pathlib import Path

    from builder.context import Context

EPOCH = 1_700_000_000
BEFORE = {"a": b"1\n2\n3\n", "d/b": b"x\ny\n", "gone": b"g\n"}
DIFFS = (
    b"--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n",
    b"--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-g\n",
    b"--- /dev/null\n+++ b/gone/new\n@@ -0,0 +1 @@\n+n\n",
    b"--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n-1\n+one\n two\n 3\n",
    (
        b"diff --git a/d/b b/d/c\nsimilarity index 50%\nrename from d/b\nrename to d/c\n"
        b"--- a/d/b\n+++ b/d/c\n@@ -1,2 +1,2 @@\n x\n-y\n+z\n"
    ),
    b"--- a/d/c\n+++ b/d/c\n@@ -1,2 +1,3 @@\n x\n z\n+end\n",
)


@pytest.mark.parametrize("shortest", [1, 2, 3])
def test_stretches(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shortest: int
) -> None:
    toys.put(tmp_path / "tree", BEFORE)
    git = Git.init(tmp_path / "git")
    base = git.commit_tree(write_tree(git, tmp_path / "tree"), "tree\n", epoch=EPOCH)
    mails = [mail for n, diff in enumerate(DIFFS) for mail in parse_bytes(diff, name=f"{n}.patch")]
    whole = apply_mails(context, git, base, mails, epoch=EPOCH)
    monkeypatch.setattr(stretch, "_SHORTEST", shortest)
    monkeypatch.setattr(stretch.os, "cpu_count", lambda: 6)
    assert len(stretch.starts(mails)) == len(DIFFS) // shortest
    parts = apply_mails(context, git, base, mails, epoch=EPOCH)
    assert f" {EPOCH} +0000\ncommitter" in git.text("cat-file", "commit", whole[0].commit)
    assert [one.commit for one in parts] == [one.commit for one in whole]
    assert [one.files for one in parts] == [one.files for one in whole]
    assert git.blob(f"{parts[-1].commit}:d/c") == b"x\nz\nend\n"
    assert git.blob(f"{parts[-1].commit}:a") == b"one\ntwo\n3\n"
