"""Write docs/reference/ from the models and rules: one source for validation and for people.

python ci/reference.py           write
python ci/reference.py --check   fail if a page is not what would be written
"""

from __future__ import annotations

import sys
import types
import typing
from enum import Enum
from pathlib import Path

from pydantic import BaseModel

from builder.audit.finding import RULES
from builder.patch_toml import Patch
from builder.recipe import Recipe

HOME = Path(__file__).resolve().parent.parent / "docs" / "reference"
MADE = "<!-- Made by ci/reference.py from the models; do not edit. -->\n\n"


def models_in(kind: object) -> list[type[BaseModel]]:
    """The models named by a type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [found for part in typing.get_args(kind) for found in models_in(part)]


def words(kind: object) -> str:
    """A type in words."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(f"`{one.value}`" for one in kind)
    if typing.get_origin(kind) is typing.Literal:
        values = [getattr(one, "value", one) for one in typing.get_args(kind)]
        return " or ".join(f"`{one}`" for one in values)
    if typing.get_origin(kind) is typing.Annotated:
        return words(typing.get_args(kind)[0])
    if typing.get_origin(kind) is tuple:
        return f"list of {words(typing.get_args(kind)[0])}"
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        return " or ".join(words(one) for one in typing.get_args(kind))
    names = {str: "text", int: "integer", bool: "true or false"}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return f"table ({kind.__name__})"
    return names.get(kind, getattr(kind, "__name__", str(kind)))  # type: ignore[call-overload]


def page(title: str, intro: str, top: type[BaseModel]) -> str:
    """A page about a model and all below it."""
    text = [f"# {title}\n", MADE + intro.strip() + "\n"]
    todo, done = [top], []
    while todo:
        model = todo.pop(0)
        if model in done:
            continue
        done.append(model)
        about = (model.__doc__ or "").strip().split("\n\n")[0]
        text.append(f"## {model.__name__}\n\n{about}\n")
        text.append("| field | type | default | meaning |\n|---|---|---|---|")
        for name, field in model.model_fields.items():
            default = "required" if field.is_required() else f"`{field.default!r}`"
            meaning = " ".join((field.description or "").split())
            text.append(f"| `{name}` | {words(field.annotation)} | {default} | {meaning} |")
            todo += models_in(field.annotation)
        text.append("")
    return "\n".join(text)


def rules() -> str:
    """The page about the audit's rules."""
    text = [
        "# Audit rules\n",
        MADE + "`sm86 audit WHEEL` checks these. Only errors fail an audit.\n",
    ]
    text.append("| rule | severity | what must hold | what to do |\n|---|---|---|---|")
    text += [f"| {r.id} | {r.severity} | {r.holds} | {r.fix} |" for r in RULES.values()]
    text.append(
        "\nAUD-ABI-001 is checked only with `--against SITE_PACKAGES`, a folder that holds torch."
    )
    return "\n".join(text) + "\n"


PAGES = {
    "recipe.md": lambda: page(
        "Recipe", "`recipes/<engine>.toml`: the pins of one engine. Data, no code.", Recipe
    ),
    "patch.md": lambda: page(
        "patch.toml",
        "`patches/<engine>/<id>/patch.toml`, beside one `<pin>.patch` for each pin it serves.",
        Patch,
    ),
    "audit.md": rules,
}


def main() -> int:
    """Write or check."""
    stale = []
    for name, make in PAGES.items():
        path, text = HOME / name, make()
        if "--check" in sys.argv:
            if not path.is_file() or path.read_text() != text:
                stale.append(name)
        else:
            path.write_text(text)
    if stale:
        print(f"docs/reference/: {', '.join(stale)} is stale; run python ci/reference.py")
    return len(stale)


if __name__ == "__main__":
    sys.exit(main())
