"""The one JSON document that a command prints, at its end, with the error if there was one."""

from __future__ import annotations

import json
from typing import Any, Final

import click

#: Version of the shape of every ``--json`` output.
JSON_SCHEMA: Final = 1
_pending: dict[str, Any] = {}


def set_result(command: str, data: dict[str, Any]) -> None:
    """What the command found."""
    _pending.update({"schema_version": JSON_SCHEMA, "command": command} | data)


def add_error(error: dict[str, Any]) -> None:
    """What it failed with."""
    _pending.setdefault("schema_version", JSON_SCHEMA)
    _pending["error"] = error


def flush_result() -> None:
    """Print the document, if there is one."""
    if _pending:
        click.echo(json.dumps(_pending, indent=1, default=str))
        _pending.clear()
