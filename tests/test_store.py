from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from builder.errors import TimeLimitError, ToolError
from builder.run import ProgramError, run
from builder.store import StageResult, canonical, digest, remove_tree, stage, write_atomic
from tests.helpers import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from builder.context import Context


class Note(StageResult):
    value: int


def make_note(work: Path) -> Note:
    (work / "file").write_text("made")
    return Note(stage="demo", key="k", value=1)


def test_a_stage_is_made_once(context: Context) -> None:
    calls: list[Path] = []

    def make(work: Path) -> Note:
        calls.append(work)
        return make_note(work)

    first, _ = stage(context, "demo", key="k", result=Note, make=make)
    second, note = stage(context, "demo", key="k", result=Note, make=make)
    assert first == second
    assert (second / "file").read_text() == "made"
    assert note.value == 1
    assert len(calls) == 1
    assert (context.cache / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172")


@pytest.mark.parametrize(
    "damage",
    ["note missing", "note cut", "note of another key", "file gone", "file cut", "list gone"],
)
def test_a_damaged_entry_is_made_again(context: Context, damage: str) -> None:
    entry, _ = stage(context, "demo", key="k", result=Note, make=make_note)
    note = entry / "demo.json"
    if damage == "note missing":
        note.unlink()
    elif damage == "note cut":
        note.write_bytes(note.read_bytes()[:20])
    elif damage == "file gone":
        (entry / "file").unlink()
    elif damage == "file cut":
        (entry / "file").write_text("mad")
    elif damage == "list gone":
        (entry / "files.json").unlink()
    else:
        note.write_text(note.read_text().replace('"k"', '"other"'))
    (entry / "stray").touch()
    again, found = stage(context, "demo", key="k", result=Note, make=make_note)
    assert found.value == 1
    assert (again / "file").read_text() == "made"
    assert not (again / "stray").exists()


def test_a_failing_stage_leaves_nothing(context: Context) -> None:
    def make(work: Path) -> Note:
        (work / "file").touch()
        msg = "broken"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="broken"):
        stage(context, "demo", key="k", result=Note, make=make)
    assert list((context.cache / "demo").iterdir()) == []


def test_a_killed_run_is_swept(context: Context) -> None:
    entry, _ = stage(context, "demo", key="k", result=Note, make=make_note)
    left = entry.with_name(f".{entry.name}.99999.part")
    entry.rename(left)
    stage(context, "demo", key="k", result=Note, make=make_note)
    assert [path.name for path in (context.cache / "demo").iterdir()] == [entry.name]


def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"
    write_atomic(target, "one")
    write_atomic(target, b"two")
    assert target.read_bytes() == b"two"
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_read_only_trees_can_be_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "f").touch()
    remove_tree(tree)
    remove_tree(tree)
    assert not tree.exists()


def test_digests_do_not_depend_on_order() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert canonical({"ä": 1}) == b'{"\\u00e4":1}'


def test_a_program_that_fails_is_quoted() -> None:
    with pytest.raises(ProgramError, match="last words"):
        run(["sh", "-c", "echo first; echo last words >&2; exit 3"])
    assert run(["sh", "-c", "exit 3"], check=False).code == 3
    with pytest.raises(ToolError, match="not on PATH"):
        run(["no-such-program-anywhere"])


def test_a_time_limit_ends_the_whole_group(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    started = time.monotonic()
    with pytest.raises(TimeLimitError):
        run(["sh", "-c", f"(sleep 4; touch {mark}) & sleep 60"], timeout=0.5)
    assert time.monotonic() - started < 4
    time.sleep(4.5)
    assert not mark.exists(), "the grandchild was ended too"


def test_programs_get_no_standard_input_and_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert run(["cat"], log=log).out == b""
    assert run(["cat"], stdin=b"given").out == b"given"
    assert log.read_text().startswith("$ cat\n# exit 0 after ")


def test_interrupt_ends_children_and_exits_130(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(
        "import sys\nfrom builder.cli import main, list as listing\nfrom builder.run import run\n"
        "import builder.recipe\n"
        "def slow(*_):\n    print('ready', flush=True)\n    run(['sleep', '77'])\n"
        "builder.recipe.names = slow\nsys.exit(main.main(['list']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert time.monotonic() - started < 2
    assert err.strip() == "sm86: interrupted; run again: finished steps are kept"
