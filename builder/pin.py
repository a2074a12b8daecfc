"""One upstream version, pinned: what it is, where its bytes come from, what they must be."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from packaging.version import InvalidVersion, Version
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

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
    """The commit itself came along, from git or in the archive, and its id was checked."""
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
    commit_object: str = ""
    """Folder in the archive that holds git's objects, the pinned commit among them."""
    commit_file: str = ""
    """Where there is none: file that records the commit."""
    commit_pattern: str = ""
    """Regular expression whose group 1 is the recorded commit or its beginning."""
    identity: Literal[Strength.FULL, Strength.ABBREVIATED, Strength.CLAIMED]
    """How strong the record is."""
    generated: tuple[str, ...] = ()
    """Files that the archive has and the repository does not (shell patterns); left out."""
    tree: Commit
    """Id of the git tree that remains: both sources of a pin must give this one."""

    @model_validator(mode="after")
    def _recorded(self) -> Sdist:
        full = self.identity is Strength.FULL
        if full != bool(self.commit_object) or full == bool(
            self.commit_file and self.commit_pattern
        ):
            msg = (
                "identity 'full' needs commit_object alone, any other commit_file and"
                " commit_pattern"
            )
            raise ValueError(msg)
        return self


class Drop(Strict):
    """Members of the official wheel that a card does not need."""

    files: tuple[str, ...]
    """Shell patterns of wheel members."""
    why: str
    """Why import and every path on the card live without them."""


class Cost(Strict):
    """What compiling one form from nothing took where it was measured."""

    units: int = Field(gt=0)
    """Object files."""
    cpu_seconds: int = Field(gt=0)
    """Processor time of all compilers together."""
    memory_gib: float = Field(gt=0)
    """Memory of the largest compiler."""
    disk: int = Field(gt=0)
    """Bytes of the patched tree and of everything that is compiled."""


class Compile(Strict):
    """How an engine is compiled with CMake."""

    targets: tuple[str, ...] = Field(min_length=1)
    """What is built: programs and the libraries that they load."""
    definitions: dict[str, str]
    """CMake cache entries of every form."""
    cpu: dict[str, str] = {}
    """Further ones of the form without GPU code."""
    cuda: dict[str, str] = {}
    """Further ones of the form for a card."""
    toolkit: str = ""
    """File below recipes/toolkits/ that pins the packages of the CUDA toolkit."""
    requires: tuple[str, ...] = ()
    """Requirements of the wheel for a card."""
    cpu_cost: Cost
    """What the form without GPU code takes."""
    cuda_cost: Cost | None = None
    """What the form for a card takes."""


class Pin(Strict):
    """One upstream version.

    Its native layer comes from upstream's official wheel (`wheel`), or is compiled (`compile`).

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
    torch: VersionText | None = None
    """The torch that the native layer is linked against, if it is."""
    cuda: str = Field(pattern=r"^\d+\.\d+$")
    """CUDA version of the native layer."""
    revision: int = Field(ge=1)
    """Raised by hand whenever a rebuild must sort above the one before."""
    patches: tuple[str, ...]
    """Ids of the patches, in order."""
    sdist: Sdist
    """The source archive."""
    wheel: Artifact | None = None
    """Upstream's official wheel of the same commit."""
    compile: Compile | None = None
    """How it is compiled."""
    lock: str
    """File below recipes/locks/ that pins everything the wheel for a card needs."""
    kernels: str
    """File below recipes/kernels/ that lists the GPU functions every module must have."""
    drop: tuple[Drop, ...] = ()
    """What is left out of the wheel, and why."""

    @model_validator(mode="after")
    def _native(self) -> Pin:
        if (self.wheel is None) == (self.compile is None):
            msg = "a pin has either an official wheel or a [compile] table"
            raise ValueError(msg)
        if self.wheel is not None and self.torch is None:
            msg = "torch is required: an official wheel is linked against one"
            raise ValueError(msg)
        return self

    @property
    def cuda_tag(self) -> str:
        """The form that local versions use, for example ``cu130``."""
        return "cu" + self.cuda.replace(".", "")

    @property
    def epoch(self) -> int:
        """`released` in seconds since 1970."""
        return int(self.released.timestamp())
