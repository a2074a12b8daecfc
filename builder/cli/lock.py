"""``sm86 lock``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from builder import recipe
from builder.cli.common import common
from builder.errors import UsageError
from builder.lock import resolve
from builder.store import write_atomic

if TYPE_CHECKING:
    from datetime import datetime

    from builder.cli.common import App


@click.command(epilog="Example: sm86 lock vllm --exclude-newer 2026-06-06")
@click.argument("engine")
@click.option("--pin", metavar="VERSION", help="Pinned version (default: the newest).")
@click.option(
    "--exclude-newer", required=True, type=click.DateTime(["%Y-%m-%d"]),
    help="Take nothing that was uploaded on or after this day.",
)  # fmt: skip
@click.option("--check", is_flag=True, help="Only compare with the lock that is there.")
@common(writes=True)
def lock(app: App, engine: str, pin: str | None, exclude_newer: datetime, *, check: bool) -> None:
    """Resolve and hash everything that the wheel needs; written below recipes/locks/."""
    found = recipe.load(app.context, engine).pin(pin)
    day = exclude_newer.date()
    made = resolve(app.context, found, engine=engine, day=day)
    path = app.context.recipes / "locks" / found.lock
    files = {path: made.requirements, path.with_suffix(".pylock.toml"): made.pylock}
    same = all(one.is_file() and one.read_text() == text for one, text in files.items())
    if not (check or app.context.dry_run or same):
        for one, text in files.items():
            write_atomic(one, text)
    count = made.pylock.count("[[packages]]") - 1
    app.result("lock", {"files": [str(one) for one in files], "same": same, "packages": count})
    app.line(f"{path}: {count} packages, {'unchanged' if same else 'changed'}")
    if check and not same:
        raise UsageError(f"{path} is not what is resolved for {day}", fix="run without --check")
