from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builder import pipeline
from builder.arch import Arch
from builder.audit.run import audit_wheel
from builder.engines.registry import engine_of
from builder.errors import AuditError, CompileError, IdentityError, PatchError
from builder.installed import site_packages, verify_installed
from builder.prove.prove import Series, prove_installed, prove_trees, require_proven
from builder.source import Origin
from builder.wheel import archive
from builder.wheel.record import BuildRecord
from builder.wheel.version import parse_label
from tests import toy as toys
from tests.helpers import sm86

if TYPE_CHECKING:
    from builder.context import Context
    from tests.toy import Toy

SM86 = Arch(8, 6)


def build(context: Context, origin: Origin | None = None) -> pipeline.Built:
    request = pipeline.Request("vllm", SM86, origin=origin or Origin())
    return pipeline.build(context, pipeline.prepare(context, request))


def test_a_wheel_from_nothing(toy_context: Context) -> None:
    built = build(toy_context)
    assert built.wheel.parent == toy_context.out
    label = parse_label(built.result.version)
    assert label is not None
    assert (label.cuda, label.arch, label.revision, label.dirty) == ("cu130", "sm86", 1, False)
    assert built.native.equal == 3
    assert built.native.python_equal == 2
    assert [extra.name for extra in built.native.extras] == ["vllm/_C.abi3.so"]
    assert built.native.dropped == ("vllm/big/foreign.py",)
    assert not built.audit.errors
    names = {entry.name: entry for entry in archive.members(built.wheel)}
    info = f"vllm-{built.result.version}.dist-info"
    assert archive.content(names["vllm/ops.py"]) == toys.PATCHED
    assert built.result.version.encode() in archive.content(names["vllm/_version.py"])
    assert b"unofficial build" in archive.content(names[f"{info}/METADATA"])
    assert b"Tag: cp38-abi3-manylinux_2_28_x86_64" in archive.content(names[f"{info}/WHEEL"])
    assert b"vllm/ops.py (raise-limit)" in archive.content(
        names[f"{info}/licenses/NOTICE.sm86-builder"]
    )
    bill = json.loads(archive.content(names[f"{info}/sboms/sm86-builder.cdx.json"]))
    assert bill["specVersion"] == "1.6"
    assert "vllm/_C.abi3.so" in {part["name"] for part in bill["components"]}
    record = BuildRecord.model_validate_json(archive.content(names[f"{info}/builder.json"]))
    assert record.inputs.startswith(label.inputs)
    assert record.strength == "abbreviated"
    assert str(toy_context.cache) not in record.model_dump_json()


def test_the_same_inputs_give_the_same_bytes(
    toy: Toy, toy_context: Context, tmp_path: Path
) -> None:
    one = build(toy_context)
    again = build(toy_context.with_(cache=tmp_path / "other", out=tmp_path / "elsewhere"))
    assert one.result.sha256 == again.result.sha256
    assert one.wheel.read_bytes() == again.wheel.read_bytes()


def test_another_patch_gives_another_version(toy: Toy, toy_context: Context) -> None:
    one = build(toy_context)
    path = toy.root / "patches/vllm/raise-limit/patch.toml"
    path.write_text(path.read_text().replace("1.75 is too low", "1.75 is far too low"))
    assert build(toy_context).result.version != one.result.version


def test_git_and_sdist_give_the_same_package(
    toy: Toy, toy_context: Context, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    shutil.copytree(toy.tree, work)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run([*git, "init", "-q", "-b", "main", work], check=True)
    subprocess.run([*git, "-C", work, "add", "-f", "."], check=True)
    subprocess.run([*git, "-C", work, "commit", "-q", "-m", "x"], check=True)
    head = subprocess.run([*git, "-C", work, "rev-parse", "HEAD"], check=True, capture_output=True,
                          text=True).stdout.strip()  # fmt: skip
    subprocess.run(
        [*git, "clone", "-q", "--bare", work, toy.root.parent / "upstream.git"], check=True
    )
    recipe = toy.root / "recipes" / "vllm.toml"
    recipe.write_text(recipe.read_text().replace(toys.COMMIT, head))
    context = toy_context
    job = pipeline.prepare(context, pipeline.Request("vllm", SM86, origin=Origin("git")))
    tree = pipeline.patched_tree(context, job)
    assert tree.pristine[1].strength == "full"
    assert tree.pristine[1].tree == job.pin.sdist.tree
    with pytest.raises(IdentityError, match="records commit"):
        pipeline.patched_tree(context, pipeline.prepare(context, pipeline.Request("vllm", SM86)))


def test_a_local_source_is_marked_dirty(toy: Toy, toy_context: Context) -> None:
    built = build(toy_context, Origin("local", toy.tree))
    assert built.result.version.endswith(".dirty")
    assert [one.rule for one in built.audit.findings] == ["AUD-DIRTY-001"]


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ({"vllm/ops.py": b"other\n"}, "vllm/ops.py in .* is not the source's"),
        ({"vllm/ops.py": None}, "lacks vllm/ops.py"),
    ],
)
def test_a_wheel_of_another_commit_is_refused(
    toy: Toy, toy_context: Context, member: dict[str, bytes | None], words: str
) -> None:
    content = toys.official() | member
    path = toy.index / "vllm" / toys.OFFICIAL
    old = (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)
    toys.wheel(path, {k: v for k, v in content.items() if v is not None}, "vllm-1.2.0.dist-info")
    recipe = toy.root / "recipes" / "vllm.toml"
    text = recipe.read_text().replace(old[0], hashlib.sha256(path.read_bytes()).hexdigest())
    recipe.write_text(text.replace(f"size = {old[1]}", f"size = {path.stat().st_size}"))
    with pytest.raises(IdentityError, match=words):
        build(toy_context)


def test_a_wrong_hash_is_refused_and_not_kept(toy: Toy, toy_context: Context) -> None:
    path = toy.index / "vllm" / "vllm-1.2.0.tar.gz"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(IdentityError, match=r"sha256 is .* pinned is"):
        build(toy_context)
    assert not list((toy_context.cache / "downloads").glob("*/*"))


def test_offline_without_a_cache(toy_context: Context) -> None:
    with pytest.raises(IdentityError, match="--offline"):
        build(toy_context.with_(offline=True))
    first = build(toy_context)
    assert build(toy_context.with_(offline=True)).result.sha256 == first.result.sha256


def edit_patch(toy: Toy, old: bytes, new: bytes) -> None:
    path = toy.root / "patches/vllm/raise-limit/1.2.0.patch"
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new))


def test_a_changed_file_must_say_so(toy: Toy, toy_context: Context) -> None:
    text = (toy.root / "patches/vllm/raise-limit/1.2.0.patch").read_bytes()
    start = text.index(b"index ")
    edit_patch(toy, text[start : text.index(b"\n", start) + 1], b"")
    edit_patch(toy, b"sm86-builder (raise-limit)", b"somebody (raise-limit)")
    with pytest.raises(PatchError, match="does not say that it was changed"):
        build(toy_context)


def test_compiled_sources_are_not_patched_silently(toy: Toy, toy_context: Context) -> None:
    edit_patch(toy, b" 1 file changed, 2 insertions(+), 1 deletion(-)\n", b"")
    with (toy.root / "patches/vllm/raise-limit/1.2.0.patch").open("ab") as file:
        file.write(b"--- a/csrc/ops.cu\n+++ b/csrc/ops.cu\n@@ -1 +1 @@\n-// kernels\n+// faster\n")
    with pytest.raises(CompileError, match=r"csrc/ops\.cu"):
        build(toy_context)


def test_a_local_change_reaches_the_wheel(toy: Toy, toy_context: Context) -> None:
    """Added, changed and removed files of a local tree, patched files among them."""
    (toy.tree / "vllm" / "extra.py").write_text("x = 1\n")
    (toy.tree / "vllm" / "__init__.py").write_text("y = 2\n")
    (toy.tree / "vllm" / "data.json").unlink()
    built = build(toy_context, Origin("local", toy.tree))
    entries = {entry.name: entry for entry in archive.members(built.wheel)}
    assert archive.content(entries["vllm/extra.py"]) == b"x = 1\n"
    assert archive.content(entries["vllm/__init__.py"]) == b"y = 2\n"
    assert archive.content(entries["vllm/ops.py"]) == toys.PATCHED
    assert "vllm/data.json" not in entries
    assert "vllm/_C.abi3.so" in entries


def test_a_plan_before_the_build(toy_context: Context) -> None:
    job = pipeline.prepare(toy_context, pipeline.Request("vllm", SM86))
    before = pipeline.plan(toy_context, job)
    assert [item["file"] for item in before["downloads"]] == ["vllm-1.2.0.tar.gz", toys.OFFICIAL]
    assert not (toy_context.cache / "downloads").exists()
    pipeline.build(toy_context, job)
    assert pipeline.plan(toy_context, job)["downloads"] == []


def test_proofs_on_trees(toy_context: Context, toy: Toy) -> None:
    job = pipeline.prepare(toy_context, pipeline.Request("vllm", SM86))
    tree = pipeline.patched_tree(toy_context, job)
    series = Series(job.engine, job.pin, SM86, job.members)

    def run() -> dict[str, bool]:
        report = prove_trees(
            toy_context, series, git=tree.git, patched=tree.patched, python=Path(sys.executable)
        )
        if report.bad:
            with pytest.raises(Exception, match=r"raise-limit/limit"):
                require_proven(report)
        return {one.subject: one.ok for one in report.runs}

    assert run() == {"red": True, "green": True, "mutant": True}
    script = toy.root / "patches/vllm/raise-limit/proof.py"
    good = script.read_text()
    script.write_text(good.replace("== 448.0", "< 1e9"))
    assert run() == {"red": False, "green": True, "mutant": False}, "a proof that cannot fail"
    script.write_text(good.replace("import vllm.ops", "import nothing.like.this"))
    assert run() == {"red": False, "green": False, "mutant": False}, "an ImportError is no red"
    script.write_text(good.replace('proof.watch(vllm.ops, "clamp")', ""))
    assert run() == {"red": True, "green": False, "mutant": True}, "never reached the patch"


def test_installed_and_later_replaced(toy_context: Context, toy: Toy, tmp_path: Path) -> None:
    built = build(toy_context)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    pip = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, built.wheel], check=True)
    site = site_packages(python)
    assert verify_installed("vllm", site=site).patches == ("raise-limit",)
    job = pipeline.prepare(toy_context, pipeline.Request("vllm", SM86))
    series = Series(job.engine, job.pin, SM86, job.members)
    report = prove_installed(toy_context, series, site=site, python=python)
    assert [(one.subject, one.ok) for one in report.runs] == [("installed", True)]
    (site / "vllm" / "ops.py").write_bytes(toys.SOURCE["vllm/ops.py"])
    with pytest.raises(AuditError, match="raise-limit is not live"):
        verify_installed("vllm", site=site)
    subprocess.run([*pip, "--force-reinstall", toy.index / "vllm" / toys.OFFICIAL], check=True)
    done = sm86("verify-installed", "vllm", "--python", python)
    assert done.returncode == 7
    assert "vllm 1.2.0" in done.stderr
    assert "another installation has replaced it" in done.stderr


def test_two_builds_at_once(toy: Toy, tmp_path: Path) -> None:
    words = [
        sys.executable, "-m", "builder", "build", "vllm", "--arch", "sm_86", "--root", toy.root,
        "--cache", tmp_path / "cache", "--out", tmp_path / "out", "--json",
    ]  # fmt: skip
    both = [
        subprocess.Popen(
            words, env=os.environ | toy.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    results = [(one.communicate(timeout=120), one.returncode) for one in both]
    assert [code for _, code in results] == [0, 0], results
    digests = {json.loads(out)["sha256"] for (out, _), _ in results}
    assert len(digests) == 1
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.endswith(".tmp")]


def test_foreign_wheels_can_be_audited(toy: Toy) -> None:
    report = audit_wheel(toy.index / "vllm" / toys.OFFICIAL, SM86, engine=engine_of)
    assert not report.ours
    assert {one.rule for one in report.findings} == {"AUD-TAG-001", "AUD-ARCH-002", "AUD-OURS-001"}
