"""Finding a named file on the package index that the user has set up.

The settings of pip and uv are honoured: ``PIP_INDEX_URL``, ``UV_DEFAULT_INDEX``, extra
indexes, find-links folders, and pip's configuration files. Only a file with the pinned name
is taken; whether it has the pinned bytes is checked after the download.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from builder.errors import IdentityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pypi_simple import ProjectPage

    from builder.pin import Artifact

#: uv allows ``name=address``.
_NAMED: Final = re.compile(r"^[\w.-]+=")


@dataclass(frozen=True)
class Settings:
    """Where to look, in this order.

    Attributes:
        links: local folders of files (``--find-links``).
        indexes: addresses of simple indexes (PEP 503), ``https`` or ``file``.
    """

    links: tuple[Path, ...]
    indexes: tuple[str, ...]


def _config_files(env: Mapping[str, str]) -> Iterator[Path]:
    given = env.get("PIP_CONFIG_FILE")
    if given == os.devnull:
        return
    for folder in env.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    home = Path(env.get("HOME", "~")).expanduser()
    yield home / ".pip" / "pip.conf"
    yield Path(env.get("XDG_CONFIG_HOME", str(home / ".config"))) / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if given:
        yield Path(given)


def _pip_config(env: Mapping[str, str]) -> dict[str, str]:
    """pip's settings, later files winning, ``[install]`` over ``[global]``."""
    found: dict[str, str] = {}
    parser = configparser.RawConfigParser()
    for path in _config_files(env):
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue
    for section in ("global", "install", "download"):
        if parser.has_section(section):
            found.update(parser.items(section))
    return found


def settings(env: Mapping[str, str] | None = None) -> Settings:
    """The user's index settings; the public index if there are none."""
    import pypi_simple  # noqa: PLC0415  (slow to load)

    env = os.environ if env is None else env
    config = _pip_config(env)
    main = (
        env.get("UV_DEFAULT_INDEX")
        or env.get("UV_INDEX_URL")
        or env.get("PIP_INDEX_URL")
        or config.get("index-url")
        or pypi_simple.PYPI_SIMPLE_ENDPOINT
    )
    extra = (env.get("PIP_EXTRA_INDEX_URL") or config.get("extra-index-url") or "").split()
    links = (env.get("PIP_FIND_LINKS") or config.get("find-links") or "").split()
    folders = [_local(link) for link in links if "://" not in link or link.startswith("file:")]
    return Settings(tuple(folders), tuple(dict.fromkeys([_NAMED.sub("", main), *extra])))


def _local(url: str) -> Path:
    return Path(unquote(urlsplit(url).path)) if url.startswith("file:") else Path(url)


def _page(index: str, project: str) -> ProjectPage:
    import pypi_simple  # noqa: PLC0415  (slow to load)
    import requests  # noqa: PLC0415
    import stamina  # noqa: PLC0415

    def worth_another_try(error: Exception) -> bool:
        if isinstance(error, requests.HTTPError) and error.response is not None:
            return error.response.status_code in {408, 425, 429, 500, 502, 503, 504}
        return isinstance(error, requests.ConnectionError | requests.Timeout)

    for attempt in stamina.retry_context(on=worth_another_try, attempts=4, timeout=60):
        with attempt, pypi_simple.PyPISimple(index) as client:
            return client.get_project_page(project, timeout=30)
    msg = "unreachable"
    raise AssertionError(msg)


def locate(artifact: Artifact, where: Settings) -> str | Path:
    """The address, or the local path, of a file.

    Raises:
        IdentityError: no index has it, or none could be asked.
    """
    import pypi_simple  # noqa: PLC0415  (slow to load)
    import requests  # noqa: PLC0415

    project = canonicalize_name(artifact.project)
    trouble: list[str] = []
    for folder in where.links:
        if (folder / artifact.file).is_file():
            return folder / artifact.file
    for index in where.indexes:
        if index.startswith("file:"):
            path = _local(index) / project / artifact.file
            if path.is_file():
                return path
            continue
        try:
            page = _page(index, project)
        except pypi_simple.NoSuchProjectError:
            continue
        except (
            requests.RequestException,
            pypi_simple.UnsupportedContentTypeError,
            pypi_simple.UnsupportedRepoVersionError,
        ) as error:
            trouble.append(f"{urlsplit(index).hostname}: {type(error).__name__}")
            continue
        for package in page.packages:
            if package.filename == artifact.file:
                return package.url
    asked = f"{len(where.indexes)} index(es)" + (f" ({'; '.join(trouble)})" if trouble else "")
    raise IdentityError(
        f"{artifact.file} is on none of {asked}",
        fix="check the index settings (PIP_INDEX_URL) and the network, or give --source",
    )
