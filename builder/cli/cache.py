"""``sm86 cache``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from builder.cli.common import common, megabytes
from builder.context import is_cache
from builder.errors import UsageError
from builder.store import KINDS, entry_lock, remove_tree

if TYPE_CHECKING:
    from pathlib import Path

    from builder.cli.common import App


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(one.lstat().st_size for one in path.rglob("*") if one.is_file())


@click.command(epilog="Example: sm86 cache --older-than 30")
@click.option("--clear", is_flag=True, help="Delete everything.")
@click.option("--older-than", type=float, metavar="DAYS", help="Delete what was not used since.")
@click.option("--max-size", type=float, metavar="GB", help="Then delete the least recently used.")
@common(writes=True)
def cache(app: App, *, clear: bool, older_than: float | None, max_size: float | None) -> None:
    """Show the cache, or delete from it. Nothing in it is needed for what is installed."""
    home = app.context.cache
    if home.is_dir() and any(home.iterdir()) and not is_cache(home):
        raise UsageError(
            f"{home} is not a cache of this program (no CACHEDIR.TAG of ours)",
            fix="check --cache and SM86_CACHE; nothing was deleted",
        )
    entries = [
        (entry.stat().st_mtime, _size(entry), entry)
        for kind in KINDS
        for entry in sorted((home / kind).glob("*"))
    ]
    now = time.time()
    doomed = [entry for _, _, entry in entries if clear]
    if older_than is not None:
        doomed += [entry for used, _, entry in entries if now - used > older_than * 86400]
    if max_size is not None:
        left = sum(size for _, size, entry in entries if entry not in doomed)
        for _, size, entry in sorted(entries, key=lambda one: one[0]):
            if left > max_size * 1e9 and entry not in doomed:
                doomed.append(entry)
                left -= size
    sizes = {entry: size for _, size, entry in entries}
    freed = sum(sizes[entry] for entry in set(doomed))
    if not app.context.dry_run:
        for entry in set(doomed):
            with entry_lock(app.context, entry):
                entry.unlink(missing_ok=True) if entry.is_file() else remove_tree(entry)
    kinds: dict[str, tuple[int, int]] = {}
    for entry, size in sizes.items():
        count, total = kinds.get(entry.parent.name, (0, 0))
        kinds[entry.parent.name] = (count + 1, total + size)
    app.result(
        "cache",
        {
            "path": str(home),
            "kinds": {kind: {"entries": n, "bytes": size} for kind, (n, size) in kinds.items()},
            "deleted": [str(entry) for entry in sorted(set(doomed))],
            "freed": freed,
        },
    )
    app.table(
        str(home), ["kind", "entries>", "size>"],
        [(kind, count, megabytes(size)) for kind, (count, size) in kinds.items()],
    )  # fmt: skip
    if doomed:
        word = "would free" if app.context.dry_run else "freed"
        app.line(f"{word} {megabytes(freed)} ({len(set(doomed))} entries)")
