"""One upstream version, pinned: what it is, where its bytes come from, what they must be."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-f]{40}$"),
    Field(
        description="full commit id, 40 hex digits: a short id or a tag can come to mean another"
    ),
]


def _version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion as error:
        msg = f"{text!r} is not a version (PEP 440)"
        raise ValueError(msg) from error
    return text


VersionText = Annotated[str, AfterValidator(_version)]


class Strict(BaseModel):
    """Base of every model that is read from a file: frozen, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Strength(StrEnum):
    """How firmly a source is tied to the pinned commit."""

    FULL = "full"
    """git: the commit itself was fetched and its id checked."""
    ABBREVIATED = "abbreviated"
    """sdist: the archive records a shortened id that the pinned one begins with."""
    CLAIMED = "claimed"
    """The archive only says so in its prose."""
    DIRTY = "dirty"
    """A local folder or archive: nothing built from it is publishable."""


class Artifact(Strict):
    """A file on the package index."""

    project: str
    """Name of the project on the index."""
    file: str
    """File name, exactly."""
    sha256: Sha256
    """SHA-256 of the file."""
    size: int = Field(gt=0)
    """Size in bytes."""


class Sdist(Artifact):
    """The source archive of a pin."""

    root: str
    """Folder in the archive that is the source tree."""
    commit_file: str
    """File that records the commit."""
    commit_pattern: str
    """Regular expression whose group 1 is the recorded commit or its beginning."""
    identity: Literal[Strength.ABBREVIATED, Strength.CLAIMED]
    """How strong the record is."""
    generated: tuple[str, ...] = ()
    """Files that the archive has and the repository does not (shell patterns); left out."""
    tree: Commit
    """Id of the git tree that remains: both sources of a pin must give this one."""


class Drop(Strict):
    """Members of the official wheel that a card does not need."""

    files: tuple[str, ...]
    """Shell patterns of wheel members."""
    why: str
    """Why import and every path on the card live without them."""


class Pin(Strict):
    """One upstream version.

    The order of `patches` is the order in which they are applied.
    """

    version: VersionText
    """Upstream's version."""
    tag: str
    """Upstream's tag; for people, never used to fetch."""
    commit: Commit
    """The commit that the tag named when it was pinned."""
    released: AwareDatetime
    """Release time; every file in our wheels carries it (SOURCE_DATE_EPOCH)."""
    torch: VersionText
    """The torch that the native layer is linked against."""
    cuda: str = Field(pattern=r"^\d+\.\d+$")
    """CUDA version of the native layer."""
    revision: int = Field(ge=1)
    """Raised by hand whenever a rebuild must sort above the one before."""
    patches: tuple[str, ...]
    """Ids of the patches, in order."""
    sdist: Sdist
    """The source archive."""
    wheel: Artifact
    """Upstream's official wheel of the same commit."""
    lock: str
    """File below recipes/locks/ that pins everything the wheel needs."""
    kernels: str
    """File below recipes/kernels/ that lists the GPU functions every module must have."""
    drop: tuple[Drop, ...] = ()
    """What is left out of the wheel, and why."""

    @property
    def cuda_tag(self) -> str:
        """The form that local versions use, for example ``cu130``."""
        return "cu" + self.cuda.replace(".", "")

    @property
    def epoch(self) -> int:
        """`released` in seconds since 1970."""
        return int(self.released.timestamp())
