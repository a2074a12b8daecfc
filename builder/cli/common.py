"""What all commands share: options, output for people and for programs."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click
from rich.console import Console
from rich.table import Table

from builder.cli.result import set_result
from builder.context import Context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

P = ParamSpec("P")
T = TypeVar("T")


class App:
    """A command's context and its way of printing results."""

    def __init__(self, context: Context, *, as_json: bool) -> None:
        self.context = context
        self.as_json = as_json
        self._out = Console(highlight=False)

    def result(self, command: str, data: dict[str, Any]) -> None:
        """Keep the result to be printed as JSON at the end, if that was asked for."""
        if self.as_json:
            set_result(command, data)

    def line(self, text: str) -> None:
        """Print a line of the result for people."""
        if not self.as_json:
            click.echo(text)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table of the result for people."""
        if self.as_json:
            return
        table = Table(title=title or None, title_justify="left", show_edge=False, pad_edge=False)
        for column in columns:
            name, right, _ = column.partition(">")
            table.add_column(name, justify="right" if right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(str(cell) for cell in row))
        if not self._out.is_terminal:
            self._out.width = 160
        self._out.print(table)


def common(*, writes: bool = False) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add the options that every command has; the command gets an `App` first.

    Args:
        writes: the command changes something, so it has ``--dry-run``.
    """
    options = [
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option(
            "--root", type=click.Path(path_type=Path, file_okay=False),
            help="Folder with recipes/ and patches/ (default: this checkout or the package's own).",
        ),
        click.option(
            "--cache", type=click.Path(path_type=Path, file_okay=False), envvar="SM86_CACHE",
            help="Folder for downloads and stage results.",
        ),
        click.option("--offline", is_flag=True, help="Never open a network connection."),
        click.option("-v", "--verbose", count=True, help="Say more; -vv shows tracebacks."),
        click.option("-q", "--quiet", is_flag=True, help="Say nothing but the result."),
    ]  # fmt: skip
    if writes:
        options.append(
            click.option("--dry-run", is_flag=True, help="Say what would be done, do nothing.")
        )

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def inner(
            *, as_json: bool, root: Path | None, cache: Path | None, offline: bool, verbose: int,
            quiet: bool, **words: Any,
        ) -> T:  # fmt: skip
            given: dict[str, Any] = {"root": root, "cache": cache}
            context = Context(
                **{key: value for key, value in given.items() if value is not None},
                offline=offline,
                dry_run=bool(words.pop("dry_run", False)),
                verbosity=-1 if quiet else verbose,
            )
            return function(App(context, as_json=as_json), **words)

        for option in reversed(options):
            inner = option(inner)
        return inner

    return decorate


def megabytes(size: float) -> str:
    """A size for people."""
    return f"{size / 1e6:,.1f} MB"
