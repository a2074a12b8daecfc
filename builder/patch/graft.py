"""Applying to a small tree, and moving the commits that come of it onto the whole one.

git reads and writes its whole index for every mail; of thousands of files a series names a
few. So git gets a base that has only those, and its commits are then made again, same
author, message and changes, on top of the real base.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from builder.source.tree import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from builder.git import Git
    from builder.patch.changes import FileChange


def small_base(work: Git, files: Mapping[str, tuple[str, str]], *, epoch: int) -> str:
    """Check out a commit that has only some files.

    Args:
        work: repository and empty work tree.
        files: mode and blob id of each file by path.
        epoch: date of the commit.

    Returns:
        The commit, which HEAD is at.
    """
    lines = (
        f"{mode} {blob}\t".encode() + os.fsencode(path) + b"\0"
        for path, (mode, blob) in files.items()
    )
    work("read-tree", "--empty")
    work("update-index", "-z", "--index-info", stdin=b"".join(lines))
    commit = work.commit_tree(work.text("write-tree"), "base\n", epoch=epoch)
    work("update-ref", "--no-deref", "HEAD", commit)
    work("checkout-index", "--force", "--all")
    return commit


def graft(
    git: Git, base: str, commits: Sequence[str], changes: Mapping[str, Sequence[FileChange]]
) -> list[str]:
    """Make commits again on another base.

    Args:
        git: repository that holds all of them.
        base: commit to start from.
        commits: the commits, oldest first.
        changes: what each of them changes, renames not followed.

    Returns:
        The new commits.
    """
    stream: list[bytes] = []
    bodies = git.objects(commits)
    for number, commit in enumerate(commits, 1):
        head, _, message = bodies[number - 1].partition(b"\n\n")
        people = [
            line for line in head.split(b"\n") if line.startswith((b"author ", b"committer "))
        ]
        stream += [
            b"commit refs/graft\nmark :%d\n%b\n" % (number, b"\n".join(people)),
            b"data %d\n%b\n" % (len(message), message),
            f"from {base}\n".encode() if number == 1 else b"",
        ]
        # a file that makes room for a folder of its name goes first
        for one in sorted(changes[commit], key=lambda change: change.status != "D"):
            path = quoted(os.fsencode(one.path))
            if one.status == "D":
                stream.append(b"D %b\n" % path)
            else:
                stream.append(f"M {one.new_mode} {one.new_blob} ".encode() + path + b"\n")
        stream.append(b"\nget-mark :%d\n" % number)
    return git("fast-import", "--quiet", "--force", stdin=b"".join(stream)).text.split()
