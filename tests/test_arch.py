from __future__ import annotations

import csv

import pytest

from builder.arch import Arch, Code, parse_list, parse_one, parse_target
from builder.errors import UsageError
from tests.helpers import case, sm86

ROWS = list(csv.DictReader((case("16") / "arch.csv").read_text("utf-8").splitlines()))
#: What may be taken or refused, and is taken here.
TAKEN = ("compute_86", "sm_80")


@pytest.mark.parametrize("row", ROWS, ids=[repr(row["input"]) for row in ROWS])
def test_spelling(row: dict[str, str]) -> None:
    """Case 16: the table of spellings, for both engines' forms."""
    if "refuse" in row["verdict"] and row["input"] not in TAKEN:
        with pytest.raises(UsageError) as caught:
            parse_target(row["input"])
        assert caught.value.exit_code == 2
        assert caught.value.fix
        return
    archs = parse_list(row["input"])
    assert " ".join(arch.torch for arch in archs) == row["torch_list"]
    assert ";".join(arch.cmake for arch in archs) == row["cmake_list"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sm_68", "did you mean sm_86?"),
        ("ampere", "sm_80 (A100) and sm_86"),
        ("rtx3090", "RTX 3090"),
        ("3090", "RTX 3090"),
        ("native", "never look at this machine's card"),
        ("", "empty"),
        ("  ", "empty"),
        ("8,6", "8.6 with a point"),
        ("86-virtual", "only PTX"),
        ("sm_86a", "there is no sm_86a"),
        ("sm_90a", "not an Ampere card"),
        ("\uff18.\uff16", "ASCII"),
        ("sm_12.1", "not an architecture"),
    ],
)
def test_refusal_says_what_to_use(text: str, words: str) -> None:
    with pytest.raises(UsageError, match="use ") as caught:
        parse_list(text)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["sm_75", "sm_90", "sm_120"])
def test_no_build_for_cards_the_patches_are_not_for(text: str) -> None:
    assert parse_one(text).name == text
    with pytest.raises(UsageError, match="Ampere and Ada"):
        parse_target(text)


def test_one_wheel_one_architecture() -> None:
    with pytest.raises(UsageError, match="names 2 architectures"):
        parse_target("sm_86,sm_89")
    assert parse_target("sm_86 8.6") == Arch(8, 6)


@pytest.mark.parametrize(
    ("code", "runs"),
    [
        (Code(86), True),
        (Code(80), True),
        (Code(87), False),
        (Code(89), False),
        (Code(75), False),
        (Code(90, suffix="a"), False),
        (Code(75, ptx=True), True),
        (Code(86, ptx=True), True),
        (Code(89, ptx=True), False),
    ],
)
def test_what_a_card_runs(code: Code, runs: bool) -> None:
    assert Arch(8, 6).runs(code) is runs


def test_command_line_wins_over_the_environment() -> None:
    """Case 16 b: a clash is reported and the old value is not used."""
    clash = dict(line.split("=") for line in (case("16") / "env-clash.txt").read_text().splitlines()
                 if "=" in line)  # fmt: skip
    done = sm86("build", "vllm", "--arch", "sm_86", "--plan", "--json", env=clash)
    assert done.returncode == 0, done.stderr
    assert '"arch": "sm_86"' in done.stdout
    for name in clash:
        assert name in done.stderr


def test_a_build_keeps_no_ptx_for_later_cards() -> None:
    assert parse_one("8.6+PTX").ptx
    with pytest.raises(UsageError, match="PTX for later ones is not kept") as refused:
        parse_target("8.6+PTX")
    assert "sm_86" in refused.value.fix
