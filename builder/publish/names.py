"""The names of wheels in links: a local version's ``+`` on its way through hosts and pages.

A ``+`` in an address is a blank to some object stores, so links say ``%2B``; some release
hosts rename what they are given. What comes back is therefore never guessed at: it is the
name that was sent, or an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion

from builder.errors import PublishError

#: A release, then a word that no version has without a plus sign.
_RENAMED: Final = re.compile(r"\d+(?:\.\d+)*[._ ]+(?!a\d|b\d|rc\d|post\d|dev\d)[a-z]\w+")

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def link(file: str) -> str:
    """A file's name as the last part of an address."""
    return quote(file, safe="")


def linked(url: str, text: str) -> str:
    """The file that a link stands for.

    Args:
        url: the link's address; any of ``+``, ``%2B`` and ``%2b`` is a plus sign.
        text: what the page shows for it, encoded or not.

    Raises:
        PublishError: the address is encoded twice, is not a wheel's, or the text names
            another file.
    """
    raw = urlsplit(url).path.rpartition("/")[2]
    file = unquote(raw)
    if "%" in file:
        raise PublishError(
            f"the link {raw} is encoded twice", fix="write the page anew from the files"
        )
    require_wheel(file)
    if unquote(text.strip()) != file:
        raise PublishError(
            f"the page shows {text.strip()} for a link to {file}",
            fix="write the page anew from the files",
        )
    return file


def require_wheel(file: str) -> None:
    """Refuse what is not a wheel's file name.

    Raises:
        PublishError: it is not; a version as hosts rename it gets its own message.
    """
    try:
        parse_wheel_filename(file)
    except (InvalidWheelFilename, InvalidVersion) as error:
        version = [*file.split("-"), ""][1]
        if _RENAMED.match(version):
            raise PublishError(
                f"{file}: {version} is not a version",
                fix="the host renamed the file ('+' became another sign): serve it from a host"
                " that keeps names",
            ) from error
        raise PublishError(f"{file} is not a wheel's file name", fix="remove it") from error


def require_same_names(sent: Iterable[str], listed: Sequence[str]) -> None:
    """Compare what was uploaded with what the host says it has.

    Args:
        sent: the files' names.
        listed: the names of the host's list of assets.

    Raises:
        PublishError: a file is missing, or stands there under another name.
    """
    for file in sent:
        if file in listed:
            continue
        close = [name for name in listed if _letters(name) == _letters(file)]
        if close:
            raise PublishError(
                f"the host renamed {file} to {close[0]}",
                fix="do not link to it: use a host that keeps '+', or upload it again",
            )
        raise PublishError(f"the host does not list {file}", fix="upload it again")


def _letters(name: str) -> str:
    """What no host changes: letters and digits, an encoded plus sign not counted."""
    return "".join(one for one in unquote(name).lower() if one.isalnum())
