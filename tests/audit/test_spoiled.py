from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builder import pipeline
from builder.arch import Arch
from builder.audit.finding import RULES
from builder.audit.patches import defines
from builder.audit.run import audit_wheel
from builder.engines.registry import engine_of
from builder.errors import AuditError
from tests import toy as toys
from tests.helpers import ROOT, case, sm86
from tests.spoil import Copy, faults

if TYPE_CHECKING:
    from pathlib import Path

    from builder.context import Context

SM86 = Arch(8, 6)
PACKAGE = {
    "patched": "vllm/ops.py",
    "upstream": toys.SOURCE["vllm/ops.py"].decode(),
    "module": "vllm/_C.abi3.so",
}


@pytest.mark.parametrize("fault", faults("0+cu130.sm86.1.p0", PACKAGE))
def test_exactly_the_named_rule_fires(fault: str, toy_context: Context, tmp_path: Path) -> None:
    built = pipeline.build(
        toy_context, pipeline.prepare(toy_context, pipeline.Request("vllm", SM86))
    )
    copy = Copy(built.wheel)
    faults(built.result.version, PACKAGE)[fault](copy)
    wheel = copy.write(tmp_path / "spoiled")
    report = audit_wheel(wheel, SM86, engine=engine_of)
    assert {one.rule for one in report.errors} == {fault.split(" ", maxsplit=1)[0]}, report.errors
    assert all(one.fix and "\n" not in one.message for one in report.findings)
    done = sm86("audit", wheel)
    assert done.returncode == 7
    assert fault.split(" ", maxsplit=1)[0] in done.stderr


def test_code_for_other_cards_fails_our_label_only(toy_context: Context, tmp_path: Path) -> None:
    built = pipeline.build(
        toy_context, pipeline.prepare(toy_context, pipeline.Request("vllm", SM86))
    )
    copy = Copy(built.wheel)
    copy.put(PACKAGE["module"], toys.GPU)
    report = audit_wheel(copy.write(tmp_path / "uncut"), SM86, engine=engine_of)
    (found,) = report.errors
    assert (found.rule, found.where) == ("AUD-ARCH-002", "vllm/_C.abi3.so")
    assert "sm_90" in found.message
    official = next(tmp_path.rglob(toys.OFFICIAL))
    theirs = audit_wheel(official, SM86, engine=engine_of)
    assert {one.severity for one in theirs.findings if one.rule == "AUD-ARCH-002"} == {"warning"}


def test_an_untouched_copy_passes(toy_context: Context, tmp_path: Path) -> None:
    """The way of spoiling is not itself what is found."""
    built = pipeline.build(
        toy_context, pipeline.prepare(toy_context, pipeline.Request("vllm", SM86))
    )
    wheel = Copy(built.wheel).write(tmp_path / "copy")
    assert audit_wheel(wheel, SM86, engine=engine_of).errors == ()


VERDICTS = {
    "good-dir": set(),
    "a": {"AUD-VERSION-001"},
    "b": {"AUD-VERSION-001", "AUD-VERSION-002", "AUD-VERSION-004"},
    "c": {"AUD-NAME-001"},
    "e": {"AUD-VERSION-005"},
    "f": {"AUD-VERSION-001", "AUD-VERSION-005"},
    "g": {"AUD-NAME-001"},
    "h": {"AUD-VERSION-005"},
}


@pytest.mark.parametrize("variant", VERDICTS)
def test_name_and_version_in_three_places(variant: str) -> None:
    """Case 20: file name, METADATA and dist-info must agree."""
    (wheel,) = (case("20") / "wheels" / variant).glob("*.whl")
    report = audit_wheel(wheel, SM86, engine=lambda _: None)
    named = {one.rule for one in report.errors if one.rule.startswith(("AUD-N", "AUD-V"))}
    assert bool(named) == bool(VERDICTS[variant]), report.errors
    assert named <= VERDICTS[variant] or variant == "b", report.errors


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "not a wheel"), (b"PK\3\4", "not a wheel"), (None, "no such wheel")],
)
def test_what_is_no_wheel(content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x-1-py3-none-any.whl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AuditError, match=words):
        audit_wheel(path, SM86, engine=lambda _: None)


@pytest.mark.parametrize(
    ("source", "symbol", "there"),
    [
        (b"def f(): pass", "f", True),
        (b"class A:\n    def g(self): pass", "A.g", True),
        (b"X = 1", "X", True),
        (b"f()", "f", False),
        (b"# f", "f", False),
        (b"def f(:\n", "f", True),
    ],
)
def test_symbols_are_definitions(source: bytes, symbol: str, there: bool) -> None:
    assert defines(source, symbol) is there


def test_every_rule_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "audit.md").read_text()
    for rule in RULES:
        assert rule in text, rule
