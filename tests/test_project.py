"""The project as a whole: docs, the distribution, the promises of the README."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

from builder import errors
from tests.helpers import ROOT, sm86

if TYPE_CHECKING:
    from pathlib import Path

    from tests.toy import Toy


def test_reference_pages_are_what_the_models_say() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "ci" / "reference.py", "--check"], check=False, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_links_in_the_docs_lead_somewhere() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    assert len(pages) > 8
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_readme_lists_every_command_patch_and_exit_code() -> None:
    text = (ROOT / "README.md").read_text()
    data = json.loads(sm86("list", "--json").stdout)
    for engine in data["engines"]:
        for patch in engine["patches"]:
            assert f"`{patch['id']}`" in text
    for name in ("list", "doctor", "build", "audit", "inspect", "patch", "prove",
                 "verify-installed", "lock", "cache"):  # fmt: skip
        assert f"sm86 {name}" in text
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.BuilderError)}
    for code in codes - {124}:
        assert f"| {code} |" in text


def test_ci_runs_the_readmes_lines() -> None:
    readme, run = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()
    for line in ("ci/setup && .venv/bin/python -m builder build vllm --arch sm_86",
                 "ci/setup && ci/test"):  # fmt: skip
        assert line in readme
        assert line in run


def test_the_builder_from_its_own_wheel(toy: Toy, tmp_path: Path) -> None:
    """Built, installed elsewhere, run outside the checkout: data files and all."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "builder/_data/recipes/vllm.toml" in names
    assert "builder/_data/patches/vllm/genesis-quant/0.22.1.patch" in names
    assert "builder/prove/kit/sm86kit/aot.py" in names
    assert not [name for name in names if name.startswith(("tests/", "wheels/"))]
    lint = subprocess.run(
        # recipes and patches are data: equal files and scripts in odd places are meant
        [sys.executable, "-m", "check_wheel_contents", "--ignore", "W002,W004", wheel],
        check=False,
        capture_output=True,
        text=True,
    )
    assert lint.returncode == 0, lint.stdout
    env = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", env], check=True)
    site = next((env / "lib").glob("python*")) / "site-packages"
    paths = [path for path in sys.path if path.endswith("site-packages")]
    (site / "outer.pth").write_text("\n".join(paths) + "\n")
    subprocess.run(
        [env / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", "--no-index",
         "--force-reinstall", wheel],
        check=True,
    )  # fmt: skip
    done = subprocess.run(
        [env / "bin" / "sm86", "list", "--json"], cwd=tmp_path, check=True, capture_output=True,
        text=True,
    )  # fmt: skip
    known = [one["engine"] for one in json.loads(done.stdout)["engines"]]
    assert known == ["llama.cpp", "vllm"]
    built = subprocess.run(
        [env / "bin" / "sm86", "build", "vllm", "--arch", "sm_86", "--root", toy.root,
         "--cache", tmp_path / "c", "--out", tmp_path / "o", "--json"],
        cwd=tmp_path, env=toy.env | {"PATH": "/usr/bin:/bin"}, check=True, capture_output=True,
        text=True,
    )  # fmt: skip
    assert json.loads(built.stdout)["wheel"].startswith(str(tmp_path))
