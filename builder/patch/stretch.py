"""A long series in stretches that git applies side by side.

The state of every file between two changes is known before git begins (`View`), so a stretch
can start from there at once; what git makes of it is compared with the prediction as ever.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from builder.errors import PatchError
from builder.git import Git
from builder.patch.graft import small_base
from builder.run import end_all

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from builder.patch.mail import Mail
    from builder.patch.view import Entry, View

#: Shorter stretches cost more to begin than they save.
_SHORTEST: Final = 80
#: The objects are packed at the end, so compressing each one first is waste; and nobody else
#: writes into the work tree, so git need not look at every file again before every mail.
_QUICK: Final = (
    "-c", "core.looseCompression=0", "-c", "core.preloadIndex=false", "-c", "core.ignoreStat=true",
)  # fmt: skip
_AM: Final = (
    *_QUICK, "am", "--quiet", "--keep-cr", "--keep-non-patch", "--no-3way", "--no-scissors",
    "--whitespace=nowarn", "--no-gpg-sign",
)  # fmt: skip


@dataclass(frozen=True)
class Stretch:
    """Consecutive changes and the files that they name, as they are before the first.

    Attributes:
        mails: the changes.
        files: by path.
    """

    mails: tuple[Mail, ...]
    files: dict[str, Entry]


def named(mails: Sequence[Mail]) -> list[str]:
    """Every path that changes name, before or after, once."""
    paths = (path for mail in mails for item in mail.files for path in (item.old, item.new))
    return list(dict.fromkeys(path for path in paths if path))


def starts(mails: Sequence[Mail]) -> dict[int, Sequence[Mail]]:
    """Where stretches begin, and their changes; one stretch where a change is binary."""
    count = max(1, min(os.cpu_count() or 1, len(mails) // _SHORTEST))
    if any(item.binary for mail in mails for item in mail.files):
        count = 1  # what it comes to is only in git
    bounds = [len(mails) * part // count for part in range(count + 1)]
    return {first: mails[first:last] for first, last in itertools.pairwise(bounds)}


def begin(mails: Sequence[Mail], view: View) -> Stretch:
    """A stretch that starts from what the view shows now."""
    return Stretch(tuple(mails), view.files(named(mails)))


def am(git: Git, place: Path, stretches: Sequence[Stretch], *, epoch: int) -> tuple[Git, list[str]]:
    """Apply stretches, each to a small tree of its own.

    Args:
        git: repository that holds the files' blobs as they were at first.
        place: empty folder for repositories and work trees.
        stretches: in order.
        epoch: committer date, and author date of mails without one.

    Returns:
        A repository that has the objects of all, and one commit for each change, in order.

    Raises:
        PatchError: git refuses a change.
    """

    def one(number: int) -> tuple[Git, list[str]]:
        stretch = stretches[number]
        local = Git.init(place / f"git-{number}")
        work = Git(local.dir, place / f"tree-{number}")
        (place / f"tree-{number}").mkdir()
        local.borrow(git)
        base = small_base(work, stretch.files, epoch=epoch)
        _am(work, stretch.mails, epoch)
        made = local.text("rev-list", "--reverse", f"{base}..HEAD").split()
        if len(made) != len(stretch.mails):
            raise PatchError(
                f"git made {len(made)} commits of {len(stretch.mails)}", fix="report this"
            )
        return local, made

    with ThreadPoolExecutor(len(stretches)) as pool:
        try:
            parts = list(pool.map(one, range(len(stretches))))
        except BaseException:
            end_all()
            raise
    (first, _), *others = parts
    first.borrow(git, *(local for local, _ in others))
    return first, [commit for _, made in parts for commit in made]


def _am(work: Git, mails: Sequence[Mail], epoch: int) -> None:
    box = b"".join(mail.canonical(epoch) + b"\n" for mail in mails)
    ended = work(*_AM, stdin=box, env={"GIT_COMMITTER_DATE": f"@{epoch} +0000"}, check=False)
    if ended.code != 0:
        current = work("am", "--show-current-patch=raw", check=False).out
        at = next((m for m in mails if f"] {m.subject}\n".encode() in current), mails[0])
        raise PatchError(
            f"{at.name}: git am refuses it: {ended.last_words}",
            fix="make it again with 'git format-patch' or 'sm86 patch export'",
        )
