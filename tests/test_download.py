from __future__ import annotations

import hashlib
import http.server
import io
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

import pytest
from rich.console import Console

from builder import download, index
from builder.errors import IdentityError
from builder.pin import Artifact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.context import Context

BODY = bytes(range(256)) * 8000
NAME = "demo-1.tar.gz"
ARTIFACT = Artifact(
    project="Demo", file=NAME, sha256=hashlib.sha256(BODY).hexdigest(), size=len(BODY)
)


class Server(http.server.BaseHTTPRequestHandler):
    """An index whose file server misbehaves as told, one behaviour for each request."""

    plan: ClassVar[list[str]] = []
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        if self.path.startswith("/simple/"):
            page = f'<html><body><a href="/files/{NAME}">{NAME}</a></body></html>'.encode()
            self.answer(200 if "/demo/" in self.path else 404, page, "text/html")
            return
        part = self.headers.get("Range", "")
        self.asked.append(part)
        how = self.plan.pop(0) if self.plan else "whole"
        start = int(part.removeprefix("bytes=").rstrip("-")) if part and how != "no-resume" else 0
        if how.isdigit():
            self.answer(int(how), b"no")
        elif how == "redirect":
            self.send_response(302)
            self.send_header("Location", "/files/again")
            self.end_headers()
        elif how == "slow":
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(BODY) - start))
            self.end_headers()
            self.wfile.write(BODY[start : start + len(BODY) // 2])
            self.wfile.flush()
            time.sleep(3)
        elif how == "wrong":
            self.answer(200, b"x" * len(BODY))
        elif how == "longer":
            self.answer(200, BODY + b"more")
        else:
            body = BODY[start:]
            cut = len(body) // 2 if how in {"cut", "reset"} else len(body)
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:cut])
            if how == "reset":
                self.connection.close()

    def answer(self, code: int, body: bytes, kind: str = "application/octet-stream") -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Server]]:
    with serving() as port:
        for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
            monkeypatch.setenv(name, "")
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple/")
        yield Server


@contextmanager
def serving() -> Iterator[int]:
    Server.plan, Server.asked = [], []
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    try:
        yield httpd.server_address[1]
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


@pytest.mark.parametrize(
    "plan",
    [["whole"], ["redirect"], ["cut"], ["reset", "cut"], ["503"], ["429", "500"],
     ["cut", "no-resume"], ["cut", "416"]],
)  # fmt: skip
def test_arrives_whole_in_the_end(plan: list[str], server: type[Server], context: Context) -> None:
    server.plan = list(plan)
    path = download.fetch(context, ARTIFACT)
    assert path.read_bytes() == BODY
    assert download.fetch(context.with_(offline=True), ARTIFACT) == path
    if plan == ["cut"]:
        resumed = int(server.asked[1].removeprefix("bytes=").rstrip("-"))
        assert 0 < resumed <= len(BODY) // 2, "what had arrived is kept"


@pytest.mark.parametrize(
    ("plan", "words"),
    [(["404"], "answers 404"), (["403"], "answers 403"), (["wrong"], "pinned is"),
     (["longer"], "longer than the pinned")],
)  # fmt: skip
def test_never_a_bad_file_in_the_cache(
    plan: list[str], words: str, server: type[Server], context: Context
) -> None:
    server.plan = list(plan)
    with pytest.raises(IdentityError, match=words):
        download.fetch(context, ARTIFACT)
    assert download.cached(context, ARTIFACT) is None
    assert download.fetch(context, ARTIFACT).read_bytes() == BODY


def test_a_file_that_is_on_no_index(server: type[Server], context: Context) -> None:
    other = ARTIFACT.model_copy(update={"file": "other-1.tar.gz"})
    with pytest.raises(IdentityError, match="is on none of 1 index"):
        download.fetch(context, other)


@pytest.mark.parametrize(
    ("env", "config", "first"),
    [
        ({}, "", "public"),
        ({"PIP_INDEX_URL": "https://a.invalid/simple"}, "", "https://a.invalid/simple"),
        ({"UV_DEFAULT_INDEX": "name=https://b.invalid/s?x=1"}, "", "https://b.invalid/s?x=1"),
        ({}, "[global]\nindex-url = https://c.invalid/simple\n", "https://c.invalid/simple"),
        ({"PIP_INDEX_URL": "https://a.invalid/"}, "[global]\nindex-url = https://c.invalid/\n",
         "https://a.invalid/"),
    ],
)  # fmt: skip
def test_the_persons_index_settings(
    env: dict[str, str], config: str, first: str, tmp_path: Path
) -> None:
    path = tmp_path / "pip.conf"
    path.write_text(config)
    base = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path), "PIP_CONFIG_FILE": str(path)}
    found = index.settings(base | env).indexes
    assert len(found) == 1
    assert found[0] == first or (first == "public" and found[0].startswith("https://"))


def test_find_links_come_first(
    context: Context, server: type[Server], tmp_path, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / NAME).write_bytes(BODY)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    assert download.fetch(context, ARTIFACT).read_bytes() == BODY
    assert server.asked == []


def test_a_server_that_falls_silent(
    server: type[Server], context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing for longer than the limit: the connection is given up, what came is kept."""
    monkeypatch.setattr(download, "_TIMEOUT", (5, 0.5))
    server.plan = ["slow"]
    assert download.fetch(context, ARTIFACT).read_bytes() == BODY
    assert 0 < int(server.asked[1].removeprefix("bytes=").rstrip("-")) <= len(BODY) // 2


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_for_terminals(terminal: bool, server: type[Server], context: Context) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100)
    download.fetch(context.with_(console=console), ARTIFACT)
    drawn = "\x1b[" in out.getvalue()
    assert drawn == terminal
    assert "downloading demo-" in out.getvalue()
    quiet = io.StringIO()
    other = ARTIFACT.model_copy(update={"file": NAME})
    download.fetch(
        context.with_(
            console=Console(file=quiet, force_terminal=terminal), verbosity=-1,
            cache=context.cache.parent / "second",
        ),
        other,
    )  # fmt: skip
    assert quiet.getvalue() == ""
