"""The source stage: sdist, git or a local copy in, one pristine commit out."""

from __future__ import annotations

import hashlib
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from builder.download import fetch
from builder.errors import IdentityError, UsageError
from builder.git import Git
from builder.pin import Strength
from builder.source.fetch import fetch_commit
from builder.source.tree import walk, write_tree
from builder.source.unpack import unpack
from builder.store import StageResult, digest, file_sha256, remove_tree, stage

if TYPE_CHECKING:
    from pathlib import Path

    from builder.context import Context
    from builder.pin import Pin

_SCHEMA: Final = 2
#: A commit object with its signature takes a few KB.
_MAX_COMMIT: Final = 1 << 20


@dataclass(frozen=True)
class Origin:
    """Where the source is to come from.

    Attributes:
        kind: the index's source archive, the repository, or something local.
        path: the local folder or archive.
    """

    kind: Literal["sdist", "git", "local"] = "sdist"
    path: Path | None = None


class SourceResult(StageResult):
    """What the source stage found.

    Attributes:
        commit: id of the pristine commit in ``repo.git``; depends on the tree alone.
        tree: id of its tree.
        package_tree: id of the folder in it that becomes the wheel.
        strength: how firmly it is tied to the pinned commit.
        origin: what it was made from, in words.
        sha256: digest of the archive, if it was one.
    """

    commit: str
    tree: str
    package_tree: str
    strength: Strength
    origin: str
    sha256: str = ""


def fetch_source(
    context: Context, pin: Pin, *, origin: Origin, repository: str, package: str
) -> tuple[Git, SourceResult]:
    """Bring a pin's source and check that it is what the pin says.

    Args:
        context: paths and settings.
        pin: the version.
        origin: where from.
        repository: address of upstream's repository.
        package: folder of the tree that becomes the wheel.

    Returns:
        The repository that holds the pristine commit, and the stage's result.

    Raises:
        IdentityError: what came is not what was pinned.
        UsageError: the local source does not exist.
    """
    what: dict[str, object] = {
        "schema": _SCHEMA,
        "kind": origin.kind,
        "epoch": pin.epoch,
        "generated": pin.sdist.generated,
        "package": package,
    }
    if origin.kind == "sdist":
        what |= {"sha256": pin.sdist.sha256, "commit": pin.commit, "tree": pin.sdist.tree}
    elif origin.kind == "git":
        what |= {"url": repository, "commit": pin.commit}
    else:
        what |= {"local": _local_digest(origin, pin)}

    def make(work: Path) -> SourceResult:
        git = Git.init(work / "repo.git")
        if origin.kind == "git":
            if context.offline:
                raise IdentityError(
                    f"commit {pin.commit} is not in the cache and --offline forbids fetching it",
                    fix="run once without --offline",
                )
            context.say(f"fetching {pin.commit[:12]} from {repository}")
            tree, strength = fetch_commit(git, repository, pin.commit), Strength.FULL
            made_from, sha = f"git {repository} {pin.commit}", ""
        elif origin.kind == "sdist":
            archive = fetch(context, pin.sdist)
            tree = _from_archive(git, archive, work, pin, check=True)
            strength, made_from, sha = (
                pin.sdist.identity,
                f"sdist {pin.sdist.file}",
                pin.sdist.sha256,
            )
        else:
            tree, made_from, sha = _from_local(git, origin, work, pin)
            strength = Strength.DIRTY
        message = f"{pin.sdist.project} {pin.version}\n\nUpstream commit {pin.commit}.\n"
        commit = git.commit_tree(tree, message, epoch=pin.epoch)
        git("update-ref", "refs/heads/pristine", commit)
        part = git("rev-parse", "--verify", "--quiet", f"{commit}:{package}", check=False)
        if part.code != 0:
            raise IdentityError(f"{made_from} has no folder {package}/", fix="check --source")
        if strength is Strength.FULL and tree != pin.sdist.tree:
            context.say(
                "note: the repository's tree and the sdist's differ outside generated files"
                f" ({tree[:12]}, {pin.sdist.tree[:12]})"
            )
        return SourceResult(
            stage="source", key=key, commit=commit, tree=tree, package_tree=part.text,
            strength=strength, origin=made_from, sha256=sha,
        )  # fmt: skip

    key = digest(what)
    entry, result = stage(context, "source", key=key, result=SourceResult, make=make)
    return Git(entry / "repo.git"), result


def _local_digest(origin: Origin, pin: Pin) -> str:
    path = origin.path
    if path is None or not path.exists():
        raise UsageError(f"--source {path}: no such file or folder", fix="check the path")
    if path.is_file():
        return file_sha256(path)
    files = {
        name: (str(file.readlink()) if file.is_symlink() else file_sha256(file))
        + oct(file.lstat().st_mode & 0o100)
        for name, file in walk(path, skip=pin.sdist.generated)
    }
    return digest(files)


def _from_archive(git: Git, archive: Path, work: Path, pin: Pin, *, check: bool) -> str:
    folder = work / "unpacked"
    folder.mkdir()
    try:
        unpack(archive, folder)
        root = folder / pin.sdist.root
        if not root.is_dir():
            tops = sorted(path for path in folder.iterdir() if path.is_dir())
            if check or len(tops) != 1:
                raise IdentityError(
                    f"{archive.name} has no folder {pin.sdist.root}/", fix="check the recipe"
                )
            root = tops[0]
        recorded = ""
        if check and pin.sdist.commit_object:
            recorded = commit_tree_id(folder / pin.sdist.commit_object, pin)
        elif check:
            _recorded_commit(root, pin)
        tree = write_tree(git, root, skip=pin.sdist.generated)
    finally:
        remove_tree(folder)
    if recorded and recorded != pin.sdist.tree:
        raise IdentityError(
            f"commit {pin.commit} has tree {recorded}, pinned is {pin.sdist.tree}",
            fix="correct the pin's tree",
        )
    if check and tree != pin.sdist.tree:
        raise IdentityError(
            f"{archive.name} unpacks to tree {tree}, pinned is {pin.sdist.tree}",
            fix="a file was added, lost or changed while unpacking; run again",
        )
    return tree


def commit_tree_id(objects: Path, pin: Pin) -> str:
    """The tree of the pinned commit, from the commit's own object (git's loose format).

    Nothing of the stranger's repository is run or trusted: the object is named by the SHA-1 of
    its bytes, so one that has the pinned name is the pinned commit.

    Args:
        objects: folder of objects that came in the archive.
        pin: the version.

    Raises:
        IdentityError: the object is missing, or is not the pinned commit.
    """
    path = objects / pin.commit[:2] / pin.commit[2:]
    fix = "the archive is of another commit: correct the pin"
    if path.is_symlink() or not path.is_file():
        raise IdentityError(f"{pin.sdist.file} does not hold commit {pin.commit}", fix=fix)
    packer = zlib.decompressobj()
    try:
        data = packer.decompress(path.read_bytes(), _MAX_COMMIT)
    except zlib.error as error:
        raise IdentityError(f"{pin.sdist.file}: damaged git object: {error}", fix=fix) from error
    found = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    head = re.match(rb"commit \d+\0tree ([0-9a-f]{40})\n", data)
    if found != pin.commit or head is None:
        raise IdentityError(f"{pin.sdist.file}: the object named {pin.commit} is {found}", fix=fix)
    return head[1].decode()


def _recorded_commit(root: Path, pin: Pin) -> None:
    file = root / pin.sdist.commit_file
    found = re.search(pin.sdist.commit_pattern, file.read_text()) if file.is_file() else None
    if found is None:
        raise IdentityError(
            f"{pin.sdist.file}: {pin.sdist.commit_file} records no commit", fix="check the recipe"
        )
    if len(found[1]) < 7 or not pin.commit.startswith(found[1]):
        raise IdentityError(
            f"{pin.sdist.file} records commit {found[1]}, pinned is {pin.commit}",
            fix="the archive is of another commit: correct the pin",
        )


def _from_local(git: Git, origin: Origin, work: Path, pin: Pin) -> tuple[str, str, str]:
    path = origin.path
    assert path is not None  # noqa: S101  (checked by _local_digest)
    if path.is_dir():
        return write_tree(git, path, skip=pin.sdist.generated), f"folder {path.name}", ""
    tree = _from_archive(git, path, work, pin, check=False)
    return tree, f"archive {path.name}", file_sha256(path)
