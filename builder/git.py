"""git with nothing of the user's in it: no configuration, hooks, identity, attributes, prompts.

Every call names its repository (and work tree) explicitly, so a folder that happens to lie
inside somebody's repository is never confused with it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from builder.run import Done, run, which

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

IDENTITY: Final = ("sm86-builder", "builder@sm86.invalid")
_CONFIG: Final = {
    "advice.detachedHead": "false",
    "am.threeWay": "false",
    "apply.whitespace": "nowarn",
    "commit.gpgSign": "false",
    "core.abbrev": "40",
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.excludesFile": os.devnull,
    "core.fileMode": "true",
    "core.fsmonitor": "false",
    "core.fsync": "none",
    "core.hooksPath": os.devnull,
    "core.quotePath": "true",
    "core.safecrlf": "false",
    "core.symlinks": "true",
    "core.untrackedCache": "false",
    "diff.algorithm": "myers",
    "diff.context": "3",
    "diff.interHunkContext": "0",
    "diff.mnemonicPrefix": "false",
    "diff.noprefix": "false",
    "diff.renames": "true",
    "diff.suppressBlankEmpty": "false",
    "format.attach": "false",
    "format.encodeEmailHeaders": "true",
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "init.defaultBranch": "pristine",
    "maintenance.auto": "false",
    "safe.directory": "*",
}
#: Highest-precedence attributes: whatever the tree's own .gitattributes say, bytes stay bytes.
_ATTRIBUTES: Final = "* -text -eol -filter -ident -working-tree-encoding !diff -export-subst\n"


def environment(*, network: bool = False) -> dict[str, str]:
    """The environment for git: of the user's, only what reaching a server needs.

    Args:
        network: keep the user's own configuration (credentials, proxies, mirrors).
    """
    keep = {"PATH", "TMPDIR", "LD_LIBRARY_PATH"}
    env = {key: value for key, value in os.environ.items() if key in keep}
    if network:
        gone = (
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_INDEX",
            "GIT_OBJECT",
            "GIT_ALTERNATE",
            "GIT_COMMON",
        )
        env = {key: val for key, val in os.environ.items() if not key.startswith(gone)}
    else:
        env |= {"GIT_CONFIG_GLOBAL": os.devnull, "HOME": os.devnull, "XDG_CONFIG_HOME": os.devnull}
        env |= {"GIT_CONFIG_NOSYSTEM": "1"}
    name, mail = IDENTITY
    return env | {
        "GIT_ASKPASS": "true",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_AUTHOR_EMAIL": mail,
        "GIT_AUTHOR_NAME": name,
        "GIT_COMMITTER_EMAIL": mail,
        "GIT_COMMITTER_NAME": name,
        "GIT_EDITOR": "true",
        "GIT_TERMINAL_PROMPT": "0",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }


@dataclass(frozen=True)
class Git:
    """A repository, and a work tree if one is needed.

    Attributes:
        dir: the repository (``.git`` folder or bare repository).
        tree: the work tree, or None for commands that need none.
    """

    dir: Path
    tree: Path | None = None

    @classmethod
    def init(cls, path: Path) -> Git:
        """Make an empty bare repository whose contents are never converted."""
        which("git", package="git")
        run(
            ["git", *_options(), "init", "--quiet", "--bare", "--template=", path],
            env=environment(),
        )
        (path / "info").mkdir(exist_ok=True)
        (path / "info" / "attributes").write_text(_ATTRIBUTES)
        return cls(path)

    def __call__(
        self,
        *args: str | Path,
        stdin: bytes | None = None,
        env: dict[str, str] | None = None,
        check: bool = True,
        timeout: float | None = None,
        network: bool = False,
    ) -> Done:
        """Run a git command here.

        Raises:
            ProgramError: git failed and `check` is true.
        """
        words: list[str | Path] = ["git", *_options(), f"--git-dir={self.dir}"]
        if self.tree is not None:
            words.append(f"--work-tree={self.tree}")
        return run(
            [*words, *args],
            cwd=self.tree or self.dir,
            env=environment(network=network) | (env or {}),
            stdin=stdin,
            check=check,
            timeout=timeout,
        )

    def text(self, *args: str | Path) -> str:
        """Standard output of a git command, stripped."""
        return self(*args).text

    def blob(self, spec: str) -> bytes:
        """The bytes of a blob, for example ``<commit>:path``."""
        return self("cat-file", "blob", spec).out

    def commit_tree(
        self, tree: str, message: str, *, epoch: int, parents: Sequence[str] = ()
    ) -> str:
        """Make a commit with our identity and a fixed date; the same input gives the same id."""
        date = {"GIT_AUTHOR_DATE": f"@{epoch} +0000", "GIT_COMMITTER_DATE": f"@{epoch} +0000"}
        flags = [word for parent in parents for word in ("-p", parent)]
        return self("commit-tree", tree, *flags, stdin=message.encode(), env=date).text


def _options() -> list[str]:
    return [word for key, value in _CONFIG.items() for word in ("-c", f"{key}={value}")]
