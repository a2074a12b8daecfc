"""Case 23: the plus sign of a local version in links; and what an index must never do."""

from __future__ import annotations

import functools
import hashlib
import http.server
import shutil
import subprocess
import sys
import threading
import zipfile
from typing import TYPE_CHECKING

import pytest
import uv
from pypi_simple import RepositoryPage

from builder.errors import PublishError
from builder.publish.names import require_same_names
from builder.publish.simple import install_line, read_page
from builder.publish.static import publish
from tests.helpers import case, files, sm86

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CASE = case("23")
WHEELS = sorted((CASE / "wheels").iterdir())
P3 = "mini-1.2.0+sm86.p3-py3-none-any.whl"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    publish(WHEELS, tmp_path / "index")
    return tmp_path / "index"


@pytest.fixture
def address(index: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            """Say nothing."""

    handler = functools.partial(Quiet, directory=index.parent)
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def install(tool: str, folder: Path, words: list[str]) -> str:
    """Install into a folder and say which version of mini came."""
    start = [sys.executable, "-m", "pip"] if tool == "pip" else [uv.find_uv_bin(), "pip"]
    quiet = ["--no-cache-dir", "--isolated"] if tool == "pip" else ["--no-cache", "--no-config"]
    target = ["--target", str(folder), "--no-deps"]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder.parent), "PIP_CONFIG_FILE": "/dev/null"}
    done = subprocess.run(
        [*start, "install", *quiet, *target, *words],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return next(folder.glob("mini-*.dist-info")).name.removesuffix(".dist-info").split("-")[1]


def links(page: Path) -> set[tuple[str, str, str]]:
    """Text, address and Requires-Python of every link."""
    found = RepositoryPage.from_html(page.read_text()).links
    return {(one.text, one.url, str(one.attrs.get("data-requires-python"))) for one in found}


@pytest.mark.parametrize("project", ["mini", "llama-toy-python"])
def test_the_pages_mean_what_they_should(project: str, index: Path) -> None:
    page = index / "simple" / project / "index.html"
    assert links(page) == links(CASE / "expected" / "simple" / project / "index.html")
    hrefs = [line for line in page.read_text().splitlines() if "href=" in line]
    assert all("+" not in line.split('"')[1] for line in hrefs)
    root = (index / "simple" / "index.html").read_text()
    assert [one.text for one in RepositoryPage.from_html(root).links] == [
        "llama-toy-python",
        "mini",
    ]


@pytest.mark.parametrize("tool", ["pip", "uv"])
@pytest.mark.parametrize(
    ("wanted", "version"),
    [("mini==1.2.0+sm86.p3", "1.2.0+sm86.p3"), ("mini==1.2.0", "1.2.0+sm86.p3"),
     ("mini===1.2.0", "1.2.0"), ("mini", "1.2.0+sm86.p3")],
)  # fmt: skip
def test_installers_take_the_right_wheel(
    tool: str, wanted: str, version: str, address: str, tmp_path: Path
) -> None:
    words = ["--index-url", f"{address}/index/simple/", wanted]
    assert install(tool, tmp_path / "t", words) == version


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_the_printed_line_is_safe_beside_upstreams_index(
    tool: str, address: str, index: Path, tmp_path: Path
) -> None:
    publish(list((CASE / "upstream").iterdir()), tmp_path / "main")
    entry = next(one for one in publish(WHEELS, index) if one.file == P3)
    line = install_line(entry, f"{address}/index")
    main = ["--index-url", f"{address}/main/simple/"]
    printed = line.removeprefix("pip install ").split()
    assert install(tool, tmp_path / "t", [*main, *printed]) == "1.2.0+sm86.p3"
    bare = [*main, "--extra-index-url", f"{address}/index/simple/", "mini"]
    taken = {"pip": "1.2.1", "uv": "1.2.0+sm86.p3"}
    assert install(tool, tmp_path / "u", bare) == taken[tool], "why the full version is printed"


@pytest.mark.parametrize("page", ["raw-plus", "encoded", "encoded-text-too", "lower-case-2b"])
def test_every_spelling_of_plus_is_read(page: str, index: Path) -> None:
    text = (CASE / "read" / f"{page}.html").read_text()
    assert [one.file for one in read_page(text, where=page)] == [P3]
    home = index / "simple" / "mini" / "index.html"
    home.write_text(text)
    publish([CASE / "wheels" / P3], index)
    assert "sm86.p3-py3" in home.read_text()
    assert "href" in home.read_text()
    assert "+" not in home.read_text().split('href="')[1].split('"')[0]


@pytest.mark.parametrize(
    ("page", "words"),
    [("renamed-with-dot", "the host renamed the file"), ("twice-encoded", "is encoded twice")],
)
def test_pages_that_could_mean_something_else_are_refused(
    page: str, words: str, index: Path
) -> None:
    home = index / "simple" / "mini" / "index.html"
    shutil.copy(CASE / "read" / f"{page}.html", home)
    before = files(index)
    with pytest.raises(PublishError) as caught:
        publish(WHEELS, index)
    assert words in str(caught.value)
    assert str(home) in str(caught.value)
    assert files(index) == before


@pytest.mark.parametrize(
    ("listed", "words"),
    [([P3.replace("+", ".")], f"the host renamed {P3} to {P3.replace('+', '.')}"),
     ([P3.replace("+", "_")], "the host renamed"),
     (["mini-1.2.0-py3-none-any.whl"], "does not list"), ([P3], "")],
)  # fmt: skip
def test_renamed_assets_are_noticed(listed: list[str], words: str) -> None:
    if not words:
        require_same_names([P3], listed)
        return
    with pytest.raises(PublishError) as caught:
        require_same_names([P3], listed)
    assert words in str(caught.value)


def test_metadata_is_served_beside_the_wheel(index: Path) -> None:
    page = read_page((index / "simple/mini/index.html").read_text(), where="page")
    for one in page:
        data = (index / "files" / f"{one.file}.metadata").read_bytes()
        assert hashlib.sha256(data).hexdigest() == one.metadata


def test_a_published_file_never_changes(index: Path, tmp_path: Path) -> None:
    other = tmp_path / P3
    with zipfile.ZipFile(CASE / "wheels" / P3) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    before = files(index)
    with pytest.raises(PublishError, match="already published with other bytes"):
        publish([other], index)
    assert files(index) == before


def test_publishing_again_changes_nothing(index: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in index.rglob("*") if path.is_file()}
    publish(WHEELS, index)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_the_command_refuses_what_fails_the_audit(tmp_path: Path) -> None:
    renamed = tmp_path / "mini-9.9.9-py3-none-any.whl"
    shutil.copy(CASE / "wheels" / P3, renamed)
    done = sm86("publish", renamed, "--index", tmp_path / "index")
    assert done.returncode == 9
    assert "AUD-" in done.stderr
    assert not (tmp_path / "index").exists()
