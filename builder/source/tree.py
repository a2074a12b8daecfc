"""A folder as a git tree, byte for byte.

Files are hashed without filters and put into the index by us, so upstream's ignore files
lose nothing, attributes convert nothing, and a nested ``.git`` is never followed.
"""

from __future__ import annotations

import os
import secrets
import shutil
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

from builder.errors import IdentityError
from builder.git import Git, git_blob

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ESCAPED: Final = {byte: b"\\%03o" % byte for byte in (*range(32), 34, 92, 127)}


def walk(folder: Path, *, skip: Sequence[str] = ()) -> Iterator[tuple[str, Path]]:
    """Every file and link below a folder as (relative POSIX path, path), sorted.

    Args:
        folder: where to look; ``.git`` entries are passed over at every level.
        skip: shell patterns of relative paths to leave out.

    Raises:
        IdentityError: something is neither a file nor a link.
    """
    found: list[tuple[str, Path]] = []
    for base, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(base) / name).is_symlink()]
        folders[:] = [name for name in folders if name != ".git" and name not in links]
        for name in [*files, *links]:
            if name == ".git":
                continue
            path = Path(base) / name
            relative = path.relative_to(folder).as_posix()
            if any(fnmatchcase(relative, pattern) for pattern in skip):
                continue
            if not path.is_symlink() and not path.is_file():
                raise IdentityError(f"{relative}: neither a file nor a link", fix="remove it")
            found.append((relative, path))
    yield from sorted(found, key=lambda item: os.fsencode(item[0]))


def write_tree(git: Git, folder: Path, *, skip: Sequence[str] = ()) -> str:
    """Store a folder in a repository and return the id of its tree."""
    entries = list(walk(folder, skip=skip))
    plain = [(name, path) for name, path in entries if not path.is_symlink()]
    paths = b"".join(quoted(os.fsencode(path.absolute())) + b"\n" for _, path in plain)
    ids = git("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=paths).text.split()
    lines: list[bytes] = []
    for (name, path), blob in zip(plain, ids, strict=True):
        mode = "100755" if path.stat().st_mode & 0o100 else "100644"
        lines.append(f"{mode} {blob}\t".encode() + os.fsencode(name))
    for name, path in entries:
        if path.is_symlink():
            target = os.fsencode(path.readlink())
            blob = git("hash-object", "-w", "--no-filters", "--stdin", stdin=target).text
            lines.append(f"120000 {blob}\t".encode() + os.fsencode(name))
    index = git.dir / f"import.{secrets.token_hex(4)}.index"
    env = {"GIT_INDEX_FILE": str(index)}
    try:
        git("read-tree", "--empty", env=env)
        stdin = b"".join(line + b"\0" for line in lines)
        git("update-index", "-z", "--index-info", stdin=stdin, env=env)
        return git("write-tree", env=env).text
    finally:
        index.unlink(missing_ok=True)


def quoted(path: bytes) -> bytes:
    """A path in git's C quoting, so that no byte of it is taken for a line's end."""
    return b'"' + b"".join(_ESCAPED.get(byte, bytes([byte])) for byte in path) + b'"'


def export(git: Git, treeish: str, folder: Path, *, only: str = "") -> None:
    """Write a tree's files into a folder that exists, byte for byte.

    Args:
        git: the repository.
        treeish: commit or tree.
        folder: where to write.
        only: a path inside the tree to which to limit it.
    """
    index = folder.parent / f".{folder.name}.{secrets.token_hex(4)}.index"
    env = {"GIT_INDEX_FILE": str(index)}
    work = Git(git.dir, folder)
    try:
        work("read-tree", treeish, env=env)
        if only:
            names = work("ls-files", "-z", "--", only, env=env).out
            work("checkout-index", "--force", "-z", "--stdin", stdin=names, env=env)
        else:
            work("checkout-index", "--force", "--all", env=env)
    finally:
        index.unlink(missing_ok=True)


def sync(git: Git, treeish: str, folder: Path) -> int:
    """Make a folder equal to a tree, writing only what differs.

    Files that stay keep their times, so a compiler's dependency check finds nothing to do for
    them.

    Args:
        git: the repository.
        treeish: commit or tree.
        folder: the folder; made if missing.

    Returns:
        How many files were written or removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    listing = git("ls-tree", "-r", "-z", treeish).out.decode("utf-8", "surrogateescape")
    wanted: dict[str, tuple[str, str]] = {}
    for record in filter(None, listing.split("\0")):
        meta, _, name = record.partition("\t")
        mode, _, blob = meta.split(" ")
        wanted[name] = (mode, blob)
    there = dict(walk(folder))
    stale = [path for name, path in there.items() if name not in wanted]
    for path in stale:
        path.unlink()
    todo = [
        (name, mode, blob)
        for name, (mode, blob) in wanted.items()
        if name not in there or _entry(there[name]) != (mode, blob)
    ]
    for (name, mode, _), data in zip(todo, git.objects([one[2] for one in todo]), strict=True):
        _write(folder, name, mode, data)
    return len(stale) + len(todo)


def _entry(path: Path) -> tuple[str, str]:
    """Mode and blob id of a file or link."""
    if path.is_symlink():
        return "120000", git_blob(os.fsencode(path.readlink()))
    mode = "100755" if path.stat().st_mode & 0o100 else "100644"
    return mode, git_blob(path.read_bytes())


def _write(folder: Path, name: str, mode: str, data: bytes) -> None:
    path = folder
    for part in name.split("/")[:-1]:
        path /= part
        if path.is_symlink() or path.is_file():
            path.unlink()  # the tree has a folder where a file or link was
    path = folder / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if mode == "120000":
        path.symlink_to(os.fsdecode(data))
        return
    path.write_bytes(data)
    path.chmod(0o755 if mode == "100755" else 0o644)
