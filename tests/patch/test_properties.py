"""Random trees and edits: what is exported applies to identical bytes, or not at all.

``SM86_EXAMPLES`` sets the number of examples; ``ci/nightly`` raises it.
"""

from __future__ import annotations

import io
import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from rich.console import Console

from builder.context import Context
from builder.errors import PatchError
from builder.git import Git
from builder.patch.apply import apply_mails
from builder.patch.author import format_commit
from builder.patch.directory import apply_to_directory
from builder.patch.mail import parse_bytes
from builder.source.tree import write_tree
from tests.helpers import files

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = int(os.environ.get("SM86_EXAMPLES", "30"))
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    derandomize=EXAMPLES <= 30,
    phases=[Phase.generate],
)
#: path -> (content, executable)
Files = dict[str, tuple[bytes, bool]]

LINE = st.text(alphabet="ab \t\r-+@\\\u00e9", max_size=5).map(lambda text: text.encode() + b"\n")
TEXT = st.builds(
    lambda lines, end: b"".join(lines) + end,
    st.lists(LINE, max_size=12),
    st.sampled_from([b"", b"no end", b"\r"]),
)
CONTENT = st.one_of(TEXT, TEXT, st.binary(max_size=60).map(lambda data: b"\0" + data), st.just(b""))
NAME = st.text(alphabet="abc.\u00f6 \"'\\\t#-", min_size=1, max_size=4).filter(
    lambda name: name.strip(". ") != "" and name.lower() != ".git"
)
PATH = st.lists(NAME, min_size=1, max_size=3).map("/".join)
FILE = st.tuples(CONTENT, st.booleans())


def consistent(tree: Files) -> bool:
    """No file is another one's folder."""
    return not any(other.startswith(f"{path}/") for path in tree for other in tree)


TREE = st.dictionaries(PATH, FILE, min_size=1, max_size=6).filter(consistent)


@st.composite
def edited(draw: st.DrawFn) -> tuple[Files, Files]:
    """A tree, and what some edits make of it."""
    before = draw(TREE)
    after: Files = {}
    for path, (content, executable) in before.items():
        what = draw(st.sampled_from(["keep", "line", "new", "mode", "gone", "move"]))
        if what == "keep":
            after[path] = (content, executable)
        elif what == "line":
            lines = content.split(b"\n")
            at = draw(st.integers(0, len(lines) - 1))
            lines[at : at + draw(st.integers(0, 1))] = [draw(TEXT).rstrip(b"\n")]
            after[path] = (b"\n".join(lines), executable)
        elif what == "new":
            after[path] = draw(FILE)
        elif what == "mode":
            after[path] = (content, not executable)
        elif what == "move":
            after[draw(PATH)] = (content, executable)
    after |= draw(st.dictionaries(PATH, FILE, max_size=2))
    assume(consistent(after))
    assume(before != after)
    return before, after


def put(folder: Path, tree: Files) -> Path:
    for path, (content, executable) in tree.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        (folder / path).chmod(0o755 if executable else 0o644)
    folder.mkdir(exist_ok=True)
    return folder


def found(folder: Path) -> Files:
    return {
        path: (content, bool((folder / path).stat().st_mode & 0o100))
        for path, content in files(folder).items()
    }


class Bench:
    """A context, a repository and a folder, used for many examples."""

    def __init__(self, home: Path) -> None:
        self.context = Context(cache=home / "cache", console=Console(file=io.StringIO()))
        self.git = Git.init(home / "repo.git")
        self.home = home
        self.mails = 0

    def tree(self, tree: Files) -> Path:
        folder = Path(tempfile.mkdtemp(dir=self.home)) / "t"
        return put(folder, tree)

    def mail(self, before: Path, after: Path) -> tuple[str, str, bytes]:
        """Base commit, tree after, and the exported mail."""
        self.mails += 1
        if self.mails % 50 == 0:  # a repository of a thousand packs makes every git slow
            self.git = Git.init(self.home / f"repo-{self.mails}.git")
        base = self.git.commit_tree(write_tree(self.git, before), "base\n", epoch=1)
        tree = write_tree(self.git, after)
        message = "change: something\n\nWhy.\n\nPatch: x\n"
        commit = self.git.commit_tree(tree, message, epoch=1, parents=(base,))
        return base, tree, format_commit(self.git, commit)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    home = tmp_path_factory.mktemp("bench")
    yield Bench(home)
    shutil.rmtree(home)


@SETTINGS
@given(edited())
def test_export_then_apply_gives_identical_bytes(bench: Bench, pair: tuple[Files, Files]) -> None:
    before, after = (bench.tree(tree) for tree in pair)
    base, tree, mail = bench.mail(before, after)
    (applied,) = apply_mails(bench.context, bench.git, base, parse_bytes(mail, name="p"), epoch=1)
    assert bench.git.text("rev-parse", f"{applied.commit}^{{tree}}") == tree
    assert format_commit(bench.git, applied.commit) == mail
    patch = bench.home / "p.patch"
    patch.write_bytes(mail)
    apply_to_directory(bench.context, before, [patch], dry_run=False)
    assert found(before) == pair[1]
    with pytest.raises(PatchError):
        apply_to_directory(bench.context, before, [patch], dry_run=False)
    assert found(before) == pair[1], "a second time changes nothing"


@SETTINGS
@given(edited(), st.data())
def test_a_flipped_byte_or_a_cut_never_half_applies(
    bench: Bench, pair: tuple[Files, Files], data: st.DataObject
) -> None:
    before, after = (bench.tree(tree) for tree in pair)
    mail = bytearray(bench.mail(before, after)[2])
    at = data.draw(st.integers(0, len(mail) - 1))
    if data.draw(st.booleans()):
        mail[at] = data.draw(st.integers(0, 255))
    else:
        del mail[at:]
    patch = bench.home / "p.patch"
    patch.write_bytes(bytes(mail))
    try:
        apply_to_directory(bench.context, before, [patch], dry_run=False)
        done = True
    except PatchError:
        done = False
    assert found(before) == pair[1 if done else 0], bytes(mail)


@SETTINGS
@given(st.lists(LINE, min_size=3, max_size=8, unique=True), st.data())
def test_another_order_is_detected(bench: Bench, lines: list[bytes], data: st.DataObject) -> None:
    """Two patches to one place: the second does not fit without the first."""
    at = data.draw(st.integers(0, len(lines) - 1))
    versions = []
    for text in (b"first\n", b"second\n"):
        changed = list(lines)
        changed[at] = text
        versions.append(b"".join(changed))
    states = [bench.tree({"f": (body, False)}) for body in (b"".join(lines), *versions)]
    mails = [bench.mail(one, two)[2] for one, two in itertools.pairwise(states)]
    for number, mail in enumerate(mails):
        (bench.home / f"{number}.patch").write_bytes(mail)
    order = [bench.home / "1.patch", bench.home / "0.patch"]
    with pytest.raises(PatchError):
        apply_to_directory(bench.context, states[0], order, dry_run=False)
    assert files(states[0]) == {"f": b"".join(lines)}
    apply_to_directory(bench.context, states[0], order[::-1], dry_run=False)
    assert files(states[0]) == {"f": versions[1]}
