"""Reading a TOML file into a model, with errors that name file, line and field."""

from __future__ import annotations

import difflib
import re
import tomllib
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from builder.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

M = TypeVar("M", bound=BaseModel)


def load(path: Path, model: type[M]) -> M:
    """Read and validate a TOML file.

    Raises:
        UsageError: the file is missing, is not TOML, or does not fit the model; the text
            gives file, line and field, and the nearest right name for an unknown field.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file", fix="see 'sm86 list'") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: cannot be read ({error})", fix="it must be UTF-8 text"
        ) from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not TOML: {error}", fix="correct that line") from error
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise UsageError(_first(path, text, model, error), fix="correct that field") from error


def _first(path: Path, text: str, model: type[BaseModel], error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    # a misspelt field is also a missing one: the spelling is what helps
    problem = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    where = problem["loc"]
    field = ".".join(str(part) for part in where)
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        close = difflib.get_close_matches(str(where[-1]), sorted(_fields(model)), n=1)
        message = "unknown field" + (f", did you mean {close[0]!r}?" if close else "")
    elif problem["type"] != "missing":
        message += f" (got {problem['input']!r})"[:120]
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{path}:{_line(text, where)}: {field}: {message}{more}"


def _line(text: str, where: tuple[int | str, ...]) -> int:
    """The line of a field: its key below the right table header, else that header."""
    lines = text.splitlines()
    at, names = 0, [part for part in where if isinstance(part, str)]
    counts = [part for part in where if isinstance(part, int)]
    for depth, name in enumerate(names):
        header = re.compile(rf"\s*\[\[?\s*(?:[\w-]+\.)*{re.escape(name)}\s*\]\]?")
        key = re.compile(rf"\s*{re.escape(name)}\s*=")
        wanted = counts[depth] if depth < len(counts) else 0
        seen = 0
        for number in range(at, len(lines)):
            if key.match(lines[number]):
                return number + 1
            if header.match(lines[number]):
                if seen == wanted:
                    at = number
                    break
                seen += 1
    return at + 1


def _fields(model: type[BaseModel]) -> set[str]:
    names: set[str] = set()
    todo: list[Any] = [model]
    while todo:
        kind = todo.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            for name, info in kind.model_fields.items():
                if name not in names:
                    names.add(name)
                    todo.append(info.annotation)
        else:
            todo.extend(getattr(kind, "__args__", ()))
    return names
