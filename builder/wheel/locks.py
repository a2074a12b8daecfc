"""The files that a wheel travels with: hashed requirements and unhashed constraints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from builder.errors import UsageError
from builder.store import write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)((?:\s*;[^\\]*)?)")


def write_locks(
    lock: Path | None, wheel: Path, *, distribution: str, version: str, sha256: str, origin: str
) -> list[Path]:
    """Write requirements, constraints and, where it can be, a lock file (PEP 751) beside a wheel.

    Args:
        lock: the committed lock of everything that the wheel needs; None if that is nothing.
        wheel: the wheel.
        distribution: its distribution.
        version: its version.
        sha256: its digest.
        origin: address that the official wheel was fetched from; the lock file's other
            addresses follow from it. Empty if it came from a local folder.

    Returns:
        The files written.

    Raises:
        UsageError: the lock is missing or pins nothing.
    """
    try:
        text = lock.read_text() if lock else ""
    except FileNotFoundError:
        raise UsageError(f"{lock}: no such lock", fix="make it with 'sm86 lock'") from None
    pins = [found for line in text.splitlines() if (found := _PIN.match(line)) is not None]
    if lock and not pins:
        raise UsageError(f"{lock}: pins nothing", fix="make it again with 'sm86 lock'")
    body = "\n".join(_without_extras_too(text))
    requirements = (
        f"# {distribution} {version} and everything it needs, with hashes.\n"
        "#   pip install -r THIS_FILE\n"
        "#   uv pip install -r THIS_FILE\n"
        "# The wheel is looked for in this file's folder; else give --find-links or an index.\n"
        "--find-links .\n"
        f"{distribution}=={version} \\\n    --hash=sha256:{sha256}\n"
        f"{body.strip()}\n"
    )
    constraints = (
        f"# What {distribution} {version} was locked with; pip refuses hashes here.\n"
         f"{distribution}=={version}\n"
        + "".join(f"{name}=={pinned}{marker.rstrip()}\n" for name, pinned, marker in
                  (found.groups() for found in pins))
    )  # fmt: skip
    out = wheel.parent
    written = [out / f"requirements-{version}.txt", out / f"constraints-{version}.txt"]
    for path, content in zip(written, (requirements, constraints), strict=True):
        write_atomic(path, content)
    text = _pylock(lock.with_suffix(".pylock.toml"), wheel, version, sha256, origin) if lock else ""
    if text:
        # PEP 751 allows no dot in a lock file's own name
        name = re.sub(r"[^A-Za-z0-9]+", "-", f"{distribution}-{version}")
        written.append(out / f"pylock.{name}.toml")
        write_atomic(written[-1], text)
    return written


def _without_extras_too(text: str) -> Iterator[str]:
    """The lock's lines; a requirement with extras also as one without.

    pip before 24 does not take ``name[extra]==1 --hash`` as a pin of ``name`` itself.
    """
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for number, line in enumerate(lines):
        yield line
        if line.endswith("\\"):
            continue
        start = number
        while start > 0 and lines[start - 1].endswith("\\"):
            start -= 1
        plain = re.sub(r"^([A-Za-z0-9._-]+)\[[^\]]*\]==", r"\1==", lines[start])
        if plain != lines[start]:
            yield from (plain, *lines[start + 1 : number + 1])


def _pylock(committed: Path, wheel: Path, version: str, sha256: str, origin: str) -> str:
    """The committed lock file with the index's host put in and our wheel for upstream's."""
    if not committed.is_file() or not origin:
        return ""
    text = committed.read_text()
    anchor = re.search(r'url = "\{files\}/([^"]+_x86_64\.whl)"', text)
    if anchor is None or not origin.endswith(anchor[1]):
        return ""
    ours = (
        f'version = "{version}"\n'
        f'wheels = [{{ path = "{wheel.name}", size = {wheel.stat().st_size},'
        f' hashes = {{ sha256 = "{sha256}" }} }}]\n'
    )
    head, first, *rest = text.split("[[packages]]\n")
    named = first.splitlines()[0] + "\n"
    return "[[packages]]\n".join([head, named + ours + "\n", *rest]).replace(
        "{files}/", origin.removesuffix(anchor[1])
    )
