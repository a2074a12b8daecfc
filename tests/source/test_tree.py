from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from builder.errors import IdentityError
from builder.git import Git
from builder.source.tree import export, write_tree
from tests.helpers import files

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_comes_back_byte_for_byte(tmp_path: Path) -> None:
    """Ignored files, CRLF, attributes, odd names, links, an executable, a nested .git."""
    folder = tmp_path / "in"
    content = {
        ".gitignore": b"*\n",
        ".gitattributes": b"* text eol=crlf ident\n*.x filter=lfs\n",
        "a.txt": b"1\n2\r\n$Id$\n",
        "b.x": b"\0\r\n",
        "gr\u00f6\u00dfe 1.txt": b"u\n",
        "empty": b"",
        "sub/deep/f": b"x",
    }
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "run").write_bytes(b"#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("a.txt")
    (folder / "sub" / ".git").write_text("gitdir: elsewhere\n")
    git = Git.init(tmp_path / "repo.git")
    tree = write_tree(git, folder)
    (folder / "sub" / ".git").unlink()
    assert write_tree(git, folder) == tree
    out = tmp_path / "out"
    out.mkdir()
    export(git, tree, out)
    assert files(out) == files(folder)
    assert (out / "link").is_symlink()
    assert (out / "run").stat().st_mode & 0o100
    part = tmp_path / "part"
    part.mkdir()
    export(git, tree, part, only="sub")
    assert files(part) == {"sub/deep/f": b"x"}
    without = write_tree(git, folder, skip=["sub/*", "run"])
    assert without != tree
    assert "sub" not in git.text("ls-tree", "--name-only", without)


@pytest.mark.parametrize(
    "name", ["a\nb", "a\rb", "end\r", 'q"uote', "back\\slash", "\x7f", "tab\t"]
)
def test_odd_names(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / name).write_bytes(b"x")
    git = Git.init(tmp_path / "repo.git")
    (tmp_path / "out").mkdir()
    export(git, write_tree(git, folder), tmp_path / "out")
    assert files(tmp_path / "out") == {name: b"x"}


def test_an_empty_folder_is_the_empty_tree(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    git = Git.init(tmp_path / "repo.git")
    assert write_tree(git, tmp_path / "in") == "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def test_what_is_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    with pytest.raises(IdentityError, match="neither a file nor a link"):
        write_tree(Git.init(tmp_path / "repo.git"), folder)
