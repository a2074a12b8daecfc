"""What a long series costs, measured against plain ``git am`` in the same run.

Compared is the clock, the best of several rounds by turns: it is what a user waits for, and one
quiet round for each is enough. Processor time is printed beside it.
"""

from __future__ import annotations

import random
import resource
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from builder.git import Git
from builder.patch.apply import apply_mails
from builder.patch.mail import parse

if TYPE_CHECKING:
    from pathlib import Path

    from builder.context import Context
    from builder.patch.mail import Mail

FILES, PATCHES, ROUNDS, LIMIT = 4000, 321, 5, 1.2
EPOCH = 1_700_000_000


def content(dice: random.Random) -> bytes:
    return b"".join(b"line %06d of some length, as code has\n" % dice.randrange(10**6)
                    for _ in range(dice.randrange(20, 120)))  # fmt: skip


def long_series(folder: Path) -> tuple[Git, str, list[Path]]:
    """A tree of 4,000 files and 321 patches of one to three files each; seeded."""
    dice = random.Random(86)
    files = {f"pkg/d{n % 200}/m{n}.py": content(dice) for n in range(FILES)}
    stream = [commit("base", files)]
    for number in range(PATCHES):
        changed = {}
        for name in dice.sample(sorted(files), dice.randrange(1, 4)):
            text = files[name].splitlines(keepends=True)
            text[dice.randrange(len(text))] = b"changed by %d\n" % number
            files[name] = changed[name] = b"".join(text)
        stream.append(commit(f"change {number}", changed))
    git = Git.init(folder / "repo.git")
    git("fast-import", "--quiet", stdin=b"".join(stream))
    base = git.text("rev-list", "--max-parents=0", "refs/heads/all")
    git("format-patch", "-q", "--full-index", "--zero-commit", "--no-signature", "--no-numbered",
        "--stat=80", "-o", folder / "mails", f"{base}..refs/heads/all")  # fmt: skip
    return git, base, sorted((folder / "mails").iterdir())


def commit(message: str, files: dict[str, bytes]) -> bytes:
    """A commit in the language of ``git fast-import``."""
    lines = [f"commit refs/heads/all\ncommitter t <t@example.invalid> {EPOCH} +0000\n".encode(),
             b"data %d\n%b\n" % (len(message), message.encode())]  # fmt: skip
    lines += [b"M 100644 inline %b\ndata %d\n%b\n" % (name.encode(), len(data), data)
              for name, data in files.items()]  # fmt: skip
    return b"".join(lines)


class Spent(NamedTuple):
    """Seconds of processor time and of the clock."""

    processor: float
    clock: float

    def __sub__(self, other: tuple[float, float]) -> Spent:
        return Spent(self[0] - other[0], self[1] - other[1])


def spent() -> Spent:
    """So far, by this process and its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Spent(sum(one.ru_utime + one.ru_stime for one in used), time.perf_counter())


def by_git(folder: Path, repo: Git, base: str, mails: list[Path]) -> tuple[Spent, str]:
    """Apply, as a person would; the checkout is not counted."""
    work = folder / "work"
    person = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid",
              "-c", "advice.detachedHead=false"]  # fmt: skip
    subprocess.run([*person, "clone", "-q", "--shared", "-n", repo.dir, work], check=True)
    subprocess.run([*person, "-C", work, "checkout", "-q", base], check=True)
    started = spent()
    subprocess.run([*person, "-C", work, "am", "-q", "--keep-cr", *mails], check=True)
    seconds = spent() - started
    tree = subprocess.run(
        ["git", "-C", work, "rev-parse", "HEAD^{tree}"], check=True, capture_output=True, text=True
    ).stdout.strip()
    return seconds, tree


@pytest.mark.timing
def test_a_long_series_costs_little_more_than_git_am(context: Context, tmp_path: Path) -> None:
    repo, base, files = long_series(tmp_path)
    repo("update-ref", "refs/heads/pristine", base)
    ours: list[Spent] = []
    gits: list[Spent] = []
    for number in range(ROUNDS):
        (tmp_path / f"round-{number}").mkdir()
        seconds, tree = by_git(tmp_path / f"round-{number}", repo, base, files)
        gits.append(seconds)
        started = spent()
        mails: list[Mail] = [mail for file in files for mail in parse(file)]
        applied = apply_mails(context, repo, base, mails, epoch=EPOCH)
        ours.append(spent() - started)
        assert repo.text("rev-parse", f"{applied[-1].commit}^{{tree}}") == tree
    best, plain = min(one.clock for one in ours), min(one.clock for one in gits)
    print(f"\n{best / plain:.3f} of git am's time; ours {ours}, git am {gits}")
    assert best <= LIMIT * plain, (ours, gits)
