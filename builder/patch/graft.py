"""Applying to a small tree, and moving the commits that come of it onto the whole one.

git reads and writes its whole index for every mail; of thousands of files a series names a
few. So git gets a base that has only those, and its commits are then made again, same
author, message and changes, on top of the real base.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from builder.git import IDENTITY
from builder.source.tree import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from builder.git import Git
    from builder.patch.changes import FileChange
    from builder.patch.view import Entry


def small_base(work: Git, files: Mapping[str, Entry], *, epoch: int) -> str:
    """Check out a commit that has only some files.

    Args:
        work: repository and empty work tree.
        files: by path; those whose bytes a change made come with them.
        epoch: date of the commit.

    Returns:
        The commit, which HEAD is at.
    """
    name, mail = IDENTITY
    stream = [f"commit HEAD\ncommitter {name} <{mail}> {epoch} +0000\ndata 5\nbase\n".encode()]
    for path, entry in files.items():
        where = quoted(os.fsencode(path)) + b"\n"
        if entry.fresh and entry.content is not None:
            body = b"data %d\n%b\n" % (len(entry.content), entry.content)
            stream.append(f"M {entry.mode} inline ".encode() + where + body)
        else:
            stream.append(f"M {entry.mode} {entry.blob} ".encode() + where)
    work("fast-import", "--quiet", stdin=b"".join(stream))
    work("read-tree", "HEAD")
    # nobody else writes here: git need not look at every file again before every mail
    work("-c", "core.ignoreStat=true", "checkout-index", "--force", "--all", "--index")
    return work.text("rev-parse", "HEAD")


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
