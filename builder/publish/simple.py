"""Pages of a simple index (PEP 503, 592, 658, 714): read strictly, written in one way."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Final

from packaging.utils import parse_wheel_filename
from pydantic import BaseModel, ConfigDict
from pypi_simple import RepositoryPage, UnsupportedRepoVersionError

from builder.errors import PublishError
from builder.publish.names import link, linked

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHA256: Final = re.compile(r"(?:^|&)sha256=([0-9a-f]{64})(?:&|$)")
_HEAD: Final = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="pypi:repository-version" content="1.0"><title>{title}</title></head><body>\n'
)


class Entry(BaseModel):
    """One wheel on a project's page.

    Attributes:
        file: its name, with a plain ``+``.
        sha256: digest of its bytes.
        requires_python: ``Requires-Python``, or empty.
        metadata: sha256 of its METADATA, served as ``<file>.metadata`` (PEP 658); empty if
            it is not served.
        yanked: why it is yanked (PEP 592); None if it is not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    sha256: str
    requires_python: str = ""
    metadata: str = ""
    yanked: str | None = None

    @property
    def project(self) -> str:
        """Normalised name of the project."""
        return str(parse_wheel_filename(self.file)[0])


def read_page(html: str, *, where: str) -> list[Entry]:
    """The wheels on a project's page.

    Args:
        html: the page.
        where: its place, for messages.

    Raises:
        PublishError: a link is not understood without doubt, or has no sha256.
    """
    try:
        page = RepositoryPage.from_html(html)
    except (UnsupportedRepoVersionError, ValueError) as error:
        raise PublishError(f"{where}: {error}", fix="this index needs a newer reader") from error
    entries = []
    for one in page.links:
        try:
            file = linked(one.url, one.text)
        except PublishError as error:
            raise PublishError(f"{where}: {error.message}", fix=error.fix) from error
        digest = _SHA256.search(one.url.partition("#")[2])
        if digest is None:
            raise PublishError(
                f"{where}: {file} has no sha256", fix="write the page anew from the files"
            )
        metadata = str(one.attrs.get("data-core-metadata", ""))
        entries.append(
            Entry(
                file=file,
                sha256=digest[1],
                requires_python=str(one.attrs.get("data-requires-python", "")),
                metadata=metadata.removeprefix("sha256="),
                yanked=None if "data-yanked" not in one.attrs else str(one.attrs["data-yanked"]),
            )
        )
    return entries


def project_page(project: str, entries: Iterable[Entry]) -> str:
    """A project's page: newest version first, ``%2B`` in addresses, ``+`` in the text."""
    lines = [_HEAD.format(title=f"Links for {project}")]
    for one in sorted(entries, key=_order, reverse=True):
        attributes = [f'href="../../files/{link(one.file)}#sha256={one.sha256}"']
        if one.requires_python:
            attributes.append(f'data-requires-python="{escape(one.requires_python)}"')
        if one.metadata:
            attributes.append(f'data-core-metadata="sha256={one.metadata}"')
        if one.yanked is not None:
            attributes.append(f'data-yanked="{escape(one.yanked)}"')
        lines.append(f"<a {' '.join(attributes)}>{escape(one.file)}</a><br>\n")
    return "".join([*lines, "</body></html>\n"])


def _order(entry: Entry) -> tuple[object, str]:
    return parse_wheel_filename(entry.file)[1], entry.file


def root_page(projects: Iterable[str]) -> str:
    """The page that lists all projects."""
    rows = [f'<a href="{name}/">{name}</a><br>\n' for name in sorted(projects)]
    return "".join([_HEAD.format(title="Simple index"), *rows, "</body></html>\n"])


def install_line(entry: Entry, address: str) -> str:
    """The command that installs exactly this wheel, right for ``pip`` and ``uv pip`` alike.

    The full version is pinned: ``==1.2.0`` also means ``1.2.0+other``, and of a bare name
    pip takes the highest version of all indexes, uv that of the first which has the name.

    Args:
        entry: the wheel.
        address: what the index's folder is served as.
    """
    version = entry.file.split("-")[1]
    return f"pip install --extra-index-url {address}/simple/ {entry.project}=={version}"
