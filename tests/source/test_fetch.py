"""Case 14: the pinned commit is not the tip of anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builder.errors import IdentityError
from builder.git import Git
from builder.source.fetch import fetch_commit

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("protocol", ["0", "2"])
@pytest.mark.parametrize(("pin", "text"), [("mid", "rev = 3"), ("side", "rev = side"),
                                           ("old_v05", "rev = 5"), ("tip", "rev = 6")])  # fmt: skip
def test_any_commit_by_its_id(
    pin: str, text: str, protocol: str, origin: tuple[Path, dict[str, str]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A strict server (protocol 0) hands out only tips: everything is then fetched."""
    url, pins = f"file://{origin[0]}", origin[1]
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "protocol.version")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", protocol)
    git = Git.init(tmp_path / "repo.git")
    tree = fetch_commit(git, url, pins[pin])
    assert git.blob(f"{tree}:mini.py").decode() == f"{text}\n"


def test_a_commit_that_is_not_there(origin: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    url, pins = f"file://{origin[0]}", origin[1]
    git = Git.init(tmp_path / "repo.git")
    with pytest.raises(IdentityError, match=f"commit {pins['missing']} not found in {url}"):
        fetch_commit(git, url, pins["missing"])


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    git = Git.init(tmp_path / "repo.git")
    with pytest.raises(IdentityError, match=r"not found in file:///nowhere: "):
        fetch_commit(git, "file:///nowhere", "0" * 40)
