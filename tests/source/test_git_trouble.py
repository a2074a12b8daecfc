"""Git in bad surroundings: damaged caches and servers, foreign settings, submodules."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from builder import pipeline
from builder.arch import Arch
from builder.errors import IdentityError
from builder.git import Git
from builder.source.fetch import fetch_commit
from builder.source.pristine import Origin, SourceResult, fetch_source
from tests import toy as toys
from tests.helpers import files

if TYPE_CHECKING:
    from pathlib import Path

    from builder.context import Context
    from tests.toy import Toy


def git(*words: str | Path, cwd: Path) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    return subprocess.run(
        ["git", *identity, *words], cwd=cwd, check=True, capture_output=True, text=True
    ).stdout.strip()


def get(context: Context, url: str, commit: str) -> tuple[Git, SourceResult]:
    pin = pipeline.prepare(context, pipeline.Request("vllm", Arch(8, 6))).pin
    return fetch_source(
        context, pin.model_copy(update={"commit": commit}), origin=Origin("git"),
        repository=url, package="mini.py",
    )  # fmt: skip


def test_a_damaged_cached_clone_is_fetched_again(
    origin: tuple[Path, dict[str, str]], toy_context: Context
) -> None:
    """Case 14 f: any one file of it gone."""
    url, commit = f"file://{origin[0]}", origin[1]["mid"]
    repository, first = get(toy_context, url, commit)
    objects = sorted(path for path in (repository.dir / "objects").rglob("*") if path.is_file())
    assert objects
    for number, victim in enumerate(objects):
        victim.chmod(0o644)
        if number % 2:
            victim.write_bytes(victim.read_bytes()[:-1])
        else:
            victim.unlink()
        repository, again = get(toy_context, url, commit)
        assert again.tree == first.tree
        assert repository.blob(f"{again.commit}:mini.py") == b"rev = 3\n"


def test_a_cached_clone_is_not_fetched_twice(
    origin: tuple[Path, dict[str, str]], toy_context: Context
) -> None:
    get(toy_context, f"file://{origin[0]}", origin[1]["mid"])
    shutil.rmtree(origin[0])
    get(toy_context, f"file://{origin[0]}", origin[1]["mid"])


@pytest.mark.parametrize("kind", ["blob", "tree"])
def test_a_server_that_has_lost_objects(
    kind: str, origin: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """Neither what it refuses to send nor what it leaves out is taken for the commit."""
    server, commit = origin[0], origin[1]["mid"]
    pack = next((server / "objects" / "pack").glob("*.pack"), None)
    if pack is not None:
        moved = pack.rename(server / "old.pack")
        subprocess.run(
            ["git", f"--git-dir={server}", "unpack-objects", "-q"],
            stdin=moved.open("rb"), check=True,
        )  # fmt: skip
        for left in (server / "objects" / "pack").iterdir():
            left.unlink()
    name = git("rev-parse", f"{commit}:mini.py" if kind == "blob" else f"{commit}^{{tree}}",
               cwd=server)  # fmt: skip
    (server / "objects" / name[:2] / name[2:]).unlink()
    with pytest.raises(IdentityError, match=f"commit {commit}"):
        fetch_commit(Git.init(tmp_path / "repo.git"), f"file://{server}", commit)


def test_submodules_are_refused(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    git("init", "-q", "-b", "main", cwd=work)
    (work / "f").write_text("x")
    git("add", "f", cwd=work)
    git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},third/lib", cwd=work)
    git("commit", "-q", "-m", "x", cwd=work)
    commit = git("rev-parse", "HEAD", cwd=work)
    with pytest.raises(IdentityError, match=r"has submodules \(third/lib\)"):
        fetch_commit(Git.init(tmp_path / "repo.git"), f"file://{work}/.git", commit)


HOSTILE = {
    "core.autocrlf": "true", "core.eol": "crlf", "core.hooksPath": "{hooks}",
    "core.attributesFile": "{attributes}", "core.excludesFile": "{ignore}",
    "core.fsmonitor": "{hooks}/fsmonitor", "core.quotePath": "false", "core.abbrev": "4",
    "commit.gpgSign": "true", "tag.gpgSign": "true", "gpg.program": "/nonexistent",
    "commit.template": "/nonexistent", "init.templateDir": "{template}",
    "init.defaultObjectFormat": "sha256", "safe.bareRepository": "explicit",
    "user.useConfigOnly": "true", "transfer.fsckObjects": "true",
    "fetch.prune": "true", "fetch.recurseSubmodules": "true", "remote.pushDefault": "x",
    "diff.external": "/bin/false", "diff.noprefix": "true", "diff.context": "0",
    "color.ui": "always", "format.signature": "mine", "format.subjectPrefix": "MINE",
    "am.threeWay": "true", "apply.whitespace": "error-all", "i18n.commitEncoding": "latin1",
    "alias.am": "!false", "pager.diff": "/bin/false", "merge.renames": "false",
}  # fmt: skip


def hostile(folder: Path) -> dict[str, str]:
    """A person's git, with everything set that could change a result."""
    names = {key: folder / key for key in ("hooks", "attributes", "ignore", "template")}
    (folder / "template" / "hooks").mkdir(parents=True)
    names["hooks"].mkdir()
    for hook in ("pre-commit", "applypatch-msg", "post-applypatch", "commit-msg", "fsmonitor",
                 "reference-transaction", "post-index-change"):  # fmt: skip
        for home in (names["hooks"], folder / "template" / "hooks"):
            (home / hook).write_text(f"#!/bin/sh\ntouch {folder}/hook-ran\nexit 1\n")
            (home / hook).chmod(0o755)
    names["attributes"].write_text("* text eol=crlf ident\n*.py filter=gone diff=gone\n")
    names["ignore"].write_text("*\n")
    config = folder / "gitconfig"
    for key, value in HOSTILE.items():
        subprocess.run(["git", "config", "--file", config, key, value.format(**names)], check=True)
    return {
        "GIT_CONFIG_GLOBAL": str(config), "HOME": str(folder), "GIT_DIR": "/nonexistent",
        "GIT_WORK_TREE": "/nonexistent", "GIT_INDEX_FILE": "/nonexistent/index",
        "GIT_OBJECT_DIRECTORY": "/nonexistent", "GIT_COMMON_DIR": "/nonexistent",
        "GIT_NAMESPACE": "x", "GIT_TEMPLATE_DIR": str(folder / "template"),
        "GIT_EXTERNAL_DIFF": "/bin/false", "GIT_CEILING_DIRECTORIES": "/",
        "GIT_AUTHOR_DATE": "yesterday", "GIT_LITERAL_PATHSPECS": "1", "GIT_TRACE": "1",
        "GIT_DEFAULT_HASH": "sha256", "GIT_ATTR_SOURCE": "HEAD", "EMAIL": "",
    }  # fmt: skip


@pytest.mark.parametrize("protocol", ["0", "2"])
def test_a_build_does_not_see_the_persons_git(
    protocol: str, toy: Toy, toy_context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a repository, in somebody else's repository, with hooks, signing and filters set."""
    work = tmp_path / "work"
    shutil.copytree(toy.tree, work)
    git("init", "-q", "-b", "main", cwd=work)
    git("add", "-f", ".", cwd=work)
    git("commit", "-q", "-m", "x", cwd=work)
    git("commit", "-q", "--allow-empty", "-m", "newer", cwd=work)
    git("clone", "-q", "--bare", work, toy.root.parent / "upstream.git", cwd=tmp_path)
    recipe = toy.root / "recipes" / "vllm.toml"
    text = recipe.read_text().replace(toys.COMMIT, git("rev-parse", "HEAD~1", cwd=work))
    recipe.write_text(text)

    def build(name: str) -> dict[str, bytes]:
        context = toy_context.with_(cache=tmp_path / name / "cache")
        request = pipeline.Request("vllm", Arch(8, 6), origin=Origin("git"))
        job = pipeline.prepare(context, request)
        tree = pipeline.patched_tree(context, job)
        commit = tree.patched.commit
        found = tree.git.text("ls-tree", "-r", commit).encode()
        return {"commit": commit.encode(), "tree": found}

    plain = build("plain")
    outer = tmp_path / "hostile"
    outer.mkdir()
    git("init", "-q", cwd=outer)
    person = hostile(tmp_path / "person") | {
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.version",
        "GIT_CONFIG_VALUE_0": protocol,
    }  # fmt: skip
    for key, value in person.items():
        monkeypatch.setenv(key, value)
    before = files(outer)
    assert build("hostile") == plain
    assert not (tmp_path / "person" / "hook-ran").exists()
    assert {k: v for k, v in files(outer).items() if not k.startswith("cache/")} == before


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to somebody else takes root")
def test_a_repository_of_somebody_else(origin: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """git refuses to serve it (safe.directory): its reason and what to do are passed on."""
    for path in (origin[0], *origin[0].rglob("*")):
        os.chown(path, 12345, 12345)
    with pytest.raises(IdentityError) as caught:
        fetch_commit(Git.init(tmp_path / "repo.git"), f"file://{origin[0]}", origin[1]["mid"])
    assert "safe.directory" in str(caught.value)
    assert "\n" not in str(caught.value)
