from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builder.errors import PatchError
from builder.git import Git, environment
from builder.patch import directory
from builder.patch.apply import apply_mails
from builder.patch.author import format_commit
from builder.patch.directory import apply_to_directory
from builder.patch.mail import parse_bytes
from builder.source.tree import export, write_tree
from tests import toy as toys
from tests.helpers import files

if TYPE_CHECKING:
    from builder.context import Context


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


def test_export_then_apply_gives_identical_bytes(
    context: Context, git: Git, tmp_path: Path
) -> None:
    """Text, binary, mode, CRLF, missing final newline, new empty file, removed file."""
    base = commit(git, make(tmp_path / "before", BEFORE))
    after = commit(git, make(tmp_path / "after", AFTER, executable=("run.sh",)), (base,))
    mail = format_commit(git, after)
    (applied,) = apply_mails(context, git, base, parse_bytes(mail, name="p"), epoch=0)
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
    apply_to_directory(context, target, [tmp_path / "p.patch"], dry_run=False)
    assert files(target) == AFTER
    assert not (target / "gone").exists()
    assert os.access(target / "run.sh", os.X_OK)


def test_a_patch_edited_by_hand_is_noticed(context: Context, git: Git, tmp_path: Path) -> None:
    """git applies it gladly; the stated result's id says otherwise."""
    base = commit(git, make(tmp_path / "before", BEFORE))
    after = commit(git, make(tmp_path / "after", BEFORE | {"a.txt": b"1\nTWO\n3\n"}), (base,))
    mail = format_commit(git, after).replace(b"+TWO", b"+TWO!")
    with pytest.raises(PatchError, match="the patch states"):
        apply_mails(context, git, base, parse_bytes(mail, name="p"), epoch=0)


def test_a_file_changed_elsewhere_is_noticed(context: Context, git: Git, tmp_path: Path) -> None:
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
        apply_mails(context, git, other, mails, epoch=0)


def test_wrong_mode_is_noticed(context: Context, git: Git, tmp_path: Path) -> None:
    base = commit(git, make(tmp_path / "before", BEFORE))
    after = commit(git, make(tmp_path / "after", BEFORE | {"run.sh": b"y\n"}), (base,))
    other = commit(git, make(tmp_path / "other", BEFORE, executable=("run.sh",)))
    with pytest.raises(PatchError, match="has mode 100755, the patch expects 100644"):
        apply_mails(context, git, other, parse_bytes(format_commit(git, after), name="p"), epoch=0)


def test_partly_upstream(context: Context, git: Git, tmp_path: Path) -> None:
    text = [b"%d\n" % i for i in range(40)]
    base = commit(git, make(tmp_path / "before", {"a": b"".join(text)}))
    both = [b"x\n" if i in {5, 30} else line for i, line in enumerate(text)]
    after = commit(git, make(tmp_path / "after", {"a": b"".join(both)}), (base,))
    half = [b"x\n" if i == 5 else line for i, line in enumerate(text)]
    other = commit(git, make(tmp_path / "other", {"a": b"".join(half)}))
    with pytest.raises(PatchError, match="already in the tree"):
        apply_mails(context, git, other, parse_bytes(format_commit(git, after), name="p"), epoch=0)


def test_a_failing_second_mail_leaves_nothing(context: Context, git: Git, tmp_path: Path) -> None:
    tree = make(tmp_path / "tree", {"a": b"1\n"})
    good = b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n"
    bad = b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+3\n"
    (tmp_path / "1.patch").write_bytes(good)
    (tmp_path / "2.patch").write_bytes(bad)
    with pytest.raises(PatchError, match=r"2\.patch"):
        apply_to_directory(
            context, tree, [tmp_path / "1.patch", tmp_path / "2.patch"], dry_run=False
        )
    assert files(tree) == {"a": b"1\n"}


def test_a_link_out_of_the_tree_is_not_followed(context: Context, git: Git, tmp_path: Path) -> None:
    outside = make(tmp_path / "outside", {"f": b"1\n"})
    tree = make(tmp_path / "tree", {"a": b"1\n"})
    (tree / "link").symlink_to(outside)
    patch = tmp_path / "p.patch"
    patch.write_bytes(b"--- a/link/f\n+++ b/link/f\n@@ -1 +1 @@\n-1\n+2\n")
    with pytest.raises(PatchError):
        apply_to_directory(context, tree, [patch], dry_run=False)
    assert files(outside) == {"f": b"1\n"}


PLAIN = b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n"


def two_files(tmp_path: Path) -> tuple[Path, Path]:
    """A folder and a patch that changes, makes and removes files in it."""
    tree = make(tmp_path / "tree", {"a": b"1\n", "gone/b": b"1\n"})
    patch = tmp_path / "p.patch"
    patch.write_bytes(
        PLAIN
        + b"--- a/gone/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"
        + b"--- /dev/null\n+++ b/new/c\n@@ -0,0 +1 @@\n+3\n"
    )
    return tree, patch


@pytest.mark.parametrize("stop", range(4))
def test_a_killed_run_is_finished_by_the_next(
    stop: int, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before the first, second or third file, or after the last."""
    tree, patch = two_files(tmp_path)
    put, count = directory._put, iter(range(99))

    def killed(*words: object) -> None:
        if next(count) == stop:
            raise KeyboardInterrupt
        put(*words)  # type: ignore[arg-type]

    if stop < 3:
        monkeypatch.setattr(directory, "_put", killed)
        with pytest.raises(KeyboardInterrupt):
            apply_to_directory(context, tree, [patch], dry_run=False)
        monkeypatch.undo()
        with pytest.raises(PatchError, match="interrupted run"):
            apply_to_directory(context, tree, [patch], dry_run=True)
        assert apply_to_directory(context, tree, [patch], dry_run=False) == []
    else:
        assert len(apply_to_directory(context, tree, [patch], dry_run=False)) == 1
    assert files(tree) == {"a": b"2\n", "new/c": b"3\n"}
    assert not (tree / "gone").exists()
    assert not any((context.cache / "apply").iterdir())


def test_an_edit_in_between_is_not_lost(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, patch = two_files(tmp_path)
    write = directory._write_journal

    def edited(*words: object) -> None:
        write(*words)  # type: ignore[arg-type]
        (tree / "a").write_bytes(b"mine\n")

    monkeypatch.setattr(directory, "_write_journal", edited)
    with pytest.raises(PatchError, match="was changed while"):
        apply_to_directory(context, tree, [patch], dry_run=False)
    assert files(tree) == {"a": b"mine\n", "gone/b": b"1\n"}


def test_a_file_that_cannot_be_written_undoes_all(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, patch = two_files(tmp_path)
    put, count = directory._put, iter(range(99))

    def refused(*words: object) -> None:
        if next(count) == 2:
            raise PermissionError(13, "Permission denied", "new/c")
        put(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(directory, "_put", refused)
    with pytest.raises(PatchError, match="nothing was changed"):
        apply_to_directory(context, tree, [patch], dry_run=False)
    assert files(tree) == {"a": b"1\n", "gone/b": b"1\n"}


def test_a_journal_planted_in_the_folder_is_only_a_file(context: Context, tmp_path: Path) -> None:
    tree = make(tmp_path / "tree", {"a": b"1\n", ".sm86-apply/journal.json": b"[]"})
    (tmp_path / "p.patch").write_bytes(PLAIN)
    apply_to_directory(context, tree, [tmp_path / "p.patch"], dry_run=False)
    assert files(tree) == {"a": b"2\n", ".sm86-apply/journal.json": b"[]"}


def test_a_file_becomes_a_folder_and_a_link_a_file(
    context: Context, git: Git, tmp_path: Path
) -> None:
    before = make(tmp_path / "before", {"a": b"1\n", "d/x": b"2\n"})
    (before / "l").symlink_to("a")
    after = make(tmp_path / "after", {"a/b": b"1\n", "d": b"2\n", "l": b"text\n"})
    base = commit(git, before)
    mail = format_commit(git, commit(git, after, (base,)))
    (tmp_path / "p.patch").write_bytes(mail)
    apply_to_directory(context, before, [tmp_path / "p.patch"], dry_run=False)
    assert files(before) == files(after)
    assert not (before / "l").is_symlink()


def test_the_folder_may_be_named_relatively(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = make(tmp_path / "tree", {"a": b"1\n"})
    (tmp_path / "p.patch").write_bytes(PLAIN)
    monkeypatch.chdir(tmp_path)
    here = context.with_(cache=Path("cache"))
    apply_to_directory(here, Path("tree"), [Path("p.patch")], dry_run=False)
    assert files(tree) == {"a": b"2\n"}


def test_git_never_reads_the_surroundings(context: Context, tmp_path: Path) -> None:
    """Inside a repository with a hook and odd attributes, bytes stay bytes."""
    outer = tmp_path / "outer"
    outer.mkdir()
    subprocess.run(["git", "init", "-q", outer], check=True, env=environment())
    make(outer, {".gitattributes": b"* text eol=crlf\n"})
    tree = make(outer / "tree", {"a": b"1\n", ".gitattributes": b"* text eol=crlf\n"})
    patch = tmp_path / "p.patch"
    patch.write_bytes(b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n")
    apply_to_directory(context, tree, [patch], dry_run=False)
    assert files(tree)["a"] == b"2\n"


def test_a_mode_change_in_a_folder_whose_name_ends_in_a_blank(
    context: Context, tmp_path: Path
) -> None:
    """git writes such a patch and cannot read its head, which names the file without quotes."""
    tree = tmp_path / "tree"
    toys.put(tree, {"odd /run": b"1\n"})
    patch = tmp_path / "p.patch"
    patch.write_bytes(b"diff --git a/odd /run b/odd /run\nold mode 100644\nnew mode 100755\n")
    (applied,) = apply_to_directory(context, tree, [patch], dry_run=False)
    assert (tree / "odd /run").stat().st_mode & 0o111
    assert [change.path for change in applied.files] == ["odd /run"]


@pytest.mark.parametrize("mode", [b"\x8b00644", b"10064", b"100648", b""])
def test_a_mode_that_is_none(context: Context, tmp_path: Path, mode: bytes) -> None:
    patch = tmp_path / "p.patch"
    patch.write_bytes(b"diff --git a/x b/x\ndeleted file mode %b\n--- a/x\n+++ /dev/null\n" % mode)
    toys.put(tmp_path / "tree", {"x": b"1\n"})
    with pytest.raises(PatchError, match="a file mode that is none"):
        apply_to_directory(context, tmp_path / "tree", [patch], dry_run=False)


def test_an_address_that_is_not_ascii(tmp_path: Path) -> None:
    mail = (
        b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
        b"From: Ann <ann\xef\xbf\xbd@example.invalid>\nSubject: [PATCH] x\n\n---\n"
        b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n+2\n"
    )
    with pytest.raises(PatchError, match="is not ASCII"):
        parse_bytes(mail, name="p")
