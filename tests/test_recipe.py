from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from builder import recipe
from builder.arch import Arch
from builder.errors import PatchError, UsageError
from builder.series import load_series
from tests.helpers import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from builder.context import Context


@pytest.fixture
def own(context: Context, tmp_path: Path) -> Context:
    """A context with recipes and patches that a test may spoil."""
    for name in ("recipes", "patches"):
        shutil.copytree(ROOT / name, tmp_path / "root" / name)
    return context.with_(root=tmp_path / "root")


def edit(context: Context, old: str, new: str, name: str = "recipes/vllm.toml") -> None:
    path = context.root / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_pins_of_vllm(context: Context) -> None:
    pin = recipe.load(context, "vllm").pin()
    assert pin.version == "0.22.1"
    assert pin.commit == "0decac0d96c42b49572498019f0a0e3600f50398"
    assert (pin.torch, pin.cuda, pin.cuda_tag) == ("2.11.0", "13.0", "cu130")


@pytest.mark.parametrize(
    ("engine", "hint"),
    [("vlm", "did you mean vllm?"), ("Vllm", "did you mean vllm?"), ("x", "known")],
)
def test_unknown_engine(context: Context, engine: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        recipe.load(context, engine)
    assert hint in str(caught.value)


def test_unknown_pin(context: Context) -> None:
    with pytest.raises(UsageError, match=r"did you mean 0\.22\.1\?"):
        recipe.load(context, "vllm").pin("0.22.11")
    assert recipe.load(context, "vllm").pin("v0.22.1").version == "0.22.1"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('torch = "2.11.0"', "torch = 2.11.0", ["not TOML", "line"]),
        ('torch = "2.11.0"', "torch = 2.11", [":12:", "pins.0.torch"]),
        ('torch = "2.11.0"', 'trch = "2.11.0"', ["trch", "did you mean 'torch'?"]),
        ('torch = "2.11.0"\n', "", ["pins.0", "torch is required"]),
        (
            "0decac0d96c42b49572498019f0a0e3600f50398",
            "0decac0",
            [":10:", "pins.0.commit", "0decac0"],
        ),
        ("size = 36246058", "size = -1", [":23:", "pins.0.sdist.size"]),
        ('version = "0.22.1"', 'version = "latest"', [":8:", "not a version"]),
        ('engine = "vllm"', 'engine = "llm"', ["engine is 'llm'"]),
        ('patches = ["genesis-quant", ', 'patches = ["genesis", ', ["'genesis' does not exist"]),
        (
            '"genesis-quant", "marlin-pad", "tolist-cudagraph"',
            '"genesis-quant", "marlin-pad"',
            ["tolist-cudagraph", "not in 'patches'"],
        ),
        (
            '"genesis-quant", "marlin-pad", "tolist-cudagraph"',
            '"tolist-cudagraph", "genesis-quant", "marlin-pad"',
            ["tolist-cudagraph needs"],
        ),
    ],
)
def test_malformed_recipe(own: Context, old: str, new: str, words: list[str]) -> None:
    """The message names file, line and field."""
    edit(own, old, new)
    with pytest.raises(UsageError) as caught:
        load_series(own, "vllm", recipe.load(own, "vllm").pin(), Arch(8, 6))
    for word in ["vllm", *words]:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_patch_without_a_file_for_a_pin_needs_porting(own: Context) -> None:
    (own.patches / "vllm" / "genesis-quant" / "0.22.1.patch").unlink()
    with pytest.raises(PatchError, match="port it"):
        load_series(own, "vllm", recipe.load(own, "vllm").pin(), Arch(8, 6))


def test_patches_that_are_being_written_are_passed_over(own: Context) -> None:
    pin = recipe.load(own, "vllm").pin()
    (own.patches / "vllm" / "marlin-pad" / "0.22.1.patch").unlink()
    found = load_series(own, "vllm", pin, Arch(8, 6), authoring=True)
    assert [member.patch.id for member in found] == [
        "genesis-quant", "tolist-cudagraph", "card-check",
    ]  # fmt: skip


def test_file_outside_the_range_is_an_error(own: Context) -> None:
    edit(own, 'applies = ">=0.22.1"', 'applies = ">=0.23"', "patches/vllm/genesis-quant/patch.toml")
    with pytest.raises(UsageError, match="outside 'applies'"):
        load_series(own, "vllm", recipe.load(own, "vllm").pin(), Arch(8, 6))


def test_series_depends_on_the_card(context: Context) -> None:
    pin = recipe.load(context, "vllm").pin()
    found = [member.patch.id for member in load_series(context, "vllm", pin, Arch(8, 6))]
    assert found == ["genesis-quant", "marlin-pad", "tolist-cudagraph", "card-check"]
    (only,) = load_series(context, "vllm", pin, Arch(8, 9))
    assert only.patch.id == "card-check", "what is cut to a card says so on every other"


def test_order_must_satisfy_dependencies(own: Context) -> None:
    home = own.patches / "vllm"
    shutil.copytree(home / "genesis-quant", home / "second")
    edit(own, 'id = "genesis-quant"', 'id = "second"\ndepends = ["genesis-quant"]',
         "patches/vllm/second/patch.toml")  # fmt: skip
    pin = recipe.load(own, "vllm").pin()
    wrong = pin.model_copy(update={"patches": ("second", *pin.patches)})
    with pytest.raises(UsageError, match="needs genesis-quant before it"):
        load_series(own, "vllm", wrong, Arch(8, 6))
    right = pin.model_copy(update={"patches": (*pin.patches, "second")})
    assert [m.patch.id for m in load_series(own, "vllm", right, Arch(8, 6))] == [*right.patches]


def test_no_registry_host_is_named() -> None:
    """Sources come by name, version and hash; hosts are the user's setting."""
    for path in [*ROOT.glob("recipes/**/*"), *ROOT.glob("builder/**/*.py"), *ROOT.glob("ci/*")]:
        if path.is_file():
            assert "pypi." + "org" not in path.read_text(), path
