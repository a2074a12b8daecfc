"""git with nothing of the user's in it: no configuration, hooks, identity, attributes, prompts.

Every call names its repository (and work tree) explicitly, so a folder that happens to lie
inside somebody's repository is never confused with it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from builder.run import Done, ProgramError, run, which

if TYPE_CHECKING:
    from collections.abc import Sequence

_NO_ROOM: Final = 64 << 10
IDENTITY: Final = ("sm86-builder", "builder@sm86.invalid")
#: Of git's own variables, those that say how a server is reached.
_REACH: Final = ("GIT_CONFIG", "GIT_SSH", "GIT_SSL", "GIT_PROXY", "GIT_HTTP", "GIT_ALLOW_PROTOCOL")
_CONFIG: Final = Path(__file__).resolve().parent / "gitconfig"
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
        env = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("GIT_") or key.startswith(_REACH)
        }
    else:
        env |= {"GIT_CONFIG_GLOBAL": str(_CONFIG), "GIT_CONFIG_NOSYSTEM": "1", "HOME": os.devnull}
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "dir", self.dir.absolute())
        if self.tree is not None:
            object.__setattr__(self, "tree", self.tree.absolute())

    @classmethod
    def init(cls, path: Path) -> Git:
        """Make an empty bare repository whose contents are never converted."""
        which("git", package="git")
        run(
            ["git", "init", "--quiet", "--bare", "--template=", path],
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
        words: list[str | Path] = ["git", f"--git-dir={self.dir}"]
        if self.tree is not None:
            words.append(f"--work-tree={self.tree}")
        done = run(
            [*words, *args],
            cwd=self.tree or self.dir,
            env=environment(network=network) | (env or {}),
            stdin=stdin,
            check=False,
            timeout=timeout,
        )
        if done.code != 0 and shutil.disk_usage(self.dir).free < _NO_ROOM:
            # git seldom says why it could not write
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.dir))
        if check and done.code != 0:
            raise ProgramError(done)
        return done

    def borrow(self, *others: Git) -> None:
        """Use other repositories' objects, and those that they borrow themselves, uncopied."""
        paths: list[Path] = []
        for other in others:
            own = other.dir / "objects"
            note = own / "info" / "alternates"
            paths.append(own)
            if note.is_file():
                # git follows relative paths at the first level only
                paths += [(own / line).resolve() for line in note.read_text().splitlines()]
        info = self.dir / "objects" / "info"
        info.mkdir(exist_ok=True)
        (info / "alternates").write_text("".join(f"{path}\n" for path in dict.fromkeys(paths)))

    def text(self, *args: str | Path) -> str:
        """Standard output of a git command, stripped."""
        return self(*args).text

    def blob(self, spec: str) -> bytes:
        """The bytes of a blob, for example ``<commit>:path``."""
        return self("cat-file", "blob", spec).out

    def objects(self, ids: Sequence[str]) -> list[bytes]:
        """The content of many objects; one run of git for all."""
        asked = "".join(f"{one}\n" for one in ids).encode()
        out, at, found = self("cat-file", "--batch", stdin=asked).out, 0, []
        for _ in ids:
            end = out.index(b"\n", at)
            size = int(out[at:end].split(b" ")[2])
            found.append(out[end + 1 : end + 1 + size])
            at = end + size + 2
        return found

    def commit_tree(
        self, tree: str, message: str, *, epoch: int, parents: Sequence[str] = ()
    ) -> str:
        """Make a commit with our identity and a fixed date; the same input gives the same id."""
        date = {"GIT_AUTHOR_DATE": f"@{epoch} +0000", "GIT_COMMITTER_DATE": f"@{epoch} +0000"}
        flags = [word for parent in parents for word in ("-p", parent)]
        return self("commit-tree", tree, *flags, stdin=message.encode(), env=date).text


def git_blob(data: bytes) -> str:
    """The id that git gives to these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
