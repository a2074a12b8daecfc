from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from builder.errors import PatchError
from builder.git import Git, environment
from builder.patch.apply import apply_mails
from builder.patch.author import format_commit
from builder.patch.directory import apply_to_directory, recover
from builder.patch.mail import parse_bytes
from builder.source.tree import export, write_tree
from tests.helpers import files

if TYPE_CHECKING:
    from pathlib import Path


def commit(git: Git, folder: Path, parents: tuple[str, ...] = ()) -> str:
    return git.commit_tree(
        write_tree(git, folder), "change\n\nwhy\n\nPatch: x\n", epoch=0, parents=parents
    )


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git.init(tmp_path / "repo.git")


def make(folder: Path, content: dict[str, bytes], *, executable: tuple[str, ...] = ()) -> Path:
    for name, data in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if name in executable else 0o644)
    return folder


BEFORE = {"a.txt": b"1\n2\n3\n", "b.bin": bytes(range(256)) * 3, "run.sh": b"x\n", "gone": b"g\n",
          "crlf.txt": b"1\r\n2\r\n", "no-end": b"z"}  # fmt: skip
AFTER = {"a.txt": b"1\nTWO\n3\n", "b.bin": bytes(reversed(range(256))) * 3, "run.sh": b"x\n",
         "new/dir/f": b"", "crlf.txt": b"1\r\nzwei\r\n", "no-end": b"z\nmore"}  # fmt: skip


def test_export_then_apply_gives_identical_bytes(git: Git, tmp_path: Path) -> None:
    """Text, binary, mode, CRLF, missing final newline, new empty file, removed file."""
    base = commit(git, make(tmp_path / "before", BEFORE))
    after = commit(git, make(tmp_path / "after", AFTER, executable=("run.sh",)), (base,))
    mail = format_commit(git, after)
    (applied,) = apply_mails(git, base, parse_bytes(mail, name="p"), epoch=0)
    same = (
        git.text("rev-parse", f"{after}^{{tree}}"),
        git.text("rev-parse", f"{applied.commit}^{{tree}}"),
    )
    assert same[0] == same[1]
    assert format_commit(git, applied.commit) == mail, "export is byte-stable"
    (tmp_path / "out").mkdir()
    export(git, applied.commit, tmp_path / "out")
    assert files(tmp_path / "out") == AFTER
    assert os.access(tmp_path / "out" / "run.sh", os.X_OK)
    target = make(tmp_path / "dir", BEFORE)
    (tmp_path / "p.patch").write_bytes(mail)
    apply_to_directory(target, [tmp_path / "p.patch"], dry_run=False)
    assert files(target) == AFTER
    assert not (target / "gone").exists()
    assert os.access(target / "run.sh", os.X_OK)


def test_a_patch_edited_by_hand_is_noticed(git: Git, tmp_path: Path) -> None:
    """git applies it gladly; the stated result's id says otherwise."""
    base = commit(git, make(tmp_path / "before", BEFORE))
    after = commit(git, make(tmp_path / "after", BEFORE | {"a.txt": b"1\nTWO\n3\n"}), (base,))
    mail = format_commit(git, after).replace(b"+TWO", b"+TWO!")
    with pytest.raises(PatchError, match="the patch states"):
        apply_mails(git, base, parse_bytes(mail, name="p"), epoch=0)


def test_a_file_changed_elsewhere_is_noticed(git: Git, tmp_path: Path) -> None:
    """The lines around the hunk are the same, the file is not."""
    long = {"a.txt": b"".join(b"%d\n" % i for i in range(30))}
    base = commit(git, make(tmp_path / "before", long))
    changed = {"a.txt": long["a.txt"].replace(b"25\n", b"fixed\n")}
    after = commit(
        git, make(tmp_path / "after", {"a.txt": long["a.txt"].replace(b"3\n", b"T\n", 1)}), (base,)
    )
    other = commit(git, make(tmp_path / "other", changed))
    mails = parse_bytes(format_commit(git, after), name="p")
    with pytest.raises(PatchError, match="has changed since the patch was made"):
        apply_mails(git, other, mails, epoch=0)


def test_wrong_mode_is_noticed(git: Git, tmp_path: Path) -> None:
    base = commit(git, make(tmp_path / "before", BEFORE))
    after = commit(git, make(tmp_path / "after", BEFORE | {"run.sh": b"y\n"}), (base,))
    other = commit(git, make(tmp_path / "other", BEFORE, executable=("run.sh",)))
    with pytest.raises(PatchError, match="has mode 100755, the patch expects 100644"):
        apply_mails(git, other, parse_bytes(format_commit(git, after), name="p"), epoch=0)


def test_partly_upstream(git: Git, tmp_path: Path) -> None:
    text = [b"%d\n" % i for i in range(40)]
    base = commit(git, make(tmp_path / "before", {"a": b"".join(text)}))
    both = [b"x\n" if i in {5, 30} else line for i, line in enumerate(text)]
    after = commit(git, make(tmp_path / "after", {"a": b"".join(both)}), (base,))
    half = [b"x\n" if i == 5 else line for i, line in enumerate(text)]
    other = commit(git, make(tmp_path / "other", {"a": b"".join(half)}))
    with pytest.raises(PatchError, match="already in the tree"):
        apply_mails(git, other, parse_bytes(format_commit(git, after), name="p"), epoch=0)


def test_a_failing_second_mail_leaves_nothing(git: Git, tmp_path: Path) -> None:
    tree = make(tmp_path / "tree", {"a": b"1\n"})
    good = b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n"
    bad = b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+3\n"
    (tmp_path / "1.patch").write_bytes(good)
    (tmp_path / "2.patch").write_bytes(bad)
    with pytest.raises(PatchError, match=r"2\.patch"):
        apply_to_directory(tree, [tmp_path / "1.patch", tmp_path / "2.patch"], dry_run=False)
    assert files(tree) == {"a": b"1\n"}


def test_a_link_out_of_the_tree_is_not_followed(git: Git, tmp_path: Path) -> None:
    outside = make(tmp_path / "outside", {"f": b"1\n"})
    tree = make(tmp_path / "tree", {"a": b"1\n"})
    (tree / "link").symlink_to(outside)
    patch = tmp_path / "p.patch"
    patch.write_bytes(b"--- a/link/f\n+++ b/link/f\n@@ -1 +1 @@\n-1\n+2\n")
    with pytest.raises(PatchError):
        apply_to_directory(tree, [patch], dry_run=False)
    assert files(outside) == {"f": b"1\n"}


def test_a_killed_swap_is_rolled_forward(tmp_path: Path) -> None:
    """A complete journal is finished by the next run; an incomplete one is cleared away."""
    tree = make(tmp_path / "tree", {"a": b"old\n", "b": b"old\n"})
    journal = make(tree / ".sm86-apply", {"0": b"new\n"})
    recover(tree)
    assert files(tree) == {"a": b"old\n", "b": b"old\n"}
    make(journal, {
        "1": b"new\n",
        "journal.json": b'[{"path": "a", "mode": "100644", "file": "0"},'
        b' {"path": "b", "mode": "100755", "file": "1"}, {"path": "c/d", "mode": "0", "file": ""}]',
    })  # fmt: skip
    make(tree, {"c/d": b"x"})
    recover(tree)  # file 0 had been moved before the kill
    assert files(tree) == {"a": b"old\n", "b": b"new\n"}
    assert not (tree / "c").exists()


def test_git_never_reads_the_surroundings(tmp_path: Path) -> None:
    """Inside a repository with a hook and odd attributes, bytes stay bytes."""
    outer = tmp_path / "outer"
    outer.mkdir()
    subprocess.run(["git", "init", "-q", outer], check=True, env=environment())
    make(outer, {".gitattributes": b"* text eol=crlf\n"})
    tree = make(outer / "tree", {"a": b"1\n", ".gitattributes": b"* text eol=crlf\n"})
    patch = tmp_path / "p.patch"
    patch.write_bytes(b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n")
    apply_to_directory(tree, [patch], dry_run=False)
    assert files(tree)["a"] == b"2\n"
