"""What the native stage gives: every wheel member that does not come from Python sources."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from builder.store import StageResult


class Stream(BaseModel):
    """A compiled file as it goes into the wheel, deflated.

    Attributes:
        file: name of the stream in the stage's folder.
        packed: its bytes.
        crc: CRC-32 of what it unpacks to.
        upstream_sha256: digest of the file that it was cut from; empty if it was compiled here.
        upstream_size: bytes of that.
        emptied: units of GPU code with nothing for the card, of `units`.
        units: units of GPU code.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    packed: int
    crc: int
    upstream_sha256: str = ""
    upstream_size: int = 0
    emptied: int = 0
    units: int = 0


class Extra(BaseModel):
    """A wheel member that the source tree does not have.

    Attributes:
        name: wheel member.
        sha256: its digest.
        size: bytes.
        origin: where it comes from, in words.
        compiled: it is an ELF file.
        executable: it is a program.
        archs: bytes of GPU code by architecture; empty for what holds none.
        stream: what it becomes in the wheel, if that differs from upstream's member.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    sha256: str
    size: int
    origin: str
    compiled: bool
    executable: bool = False
    archs: dict[str, int] = {}
    stream: Stream | None = None


class NativeResult(StageResult):
    """What the native stage found.

    Attributes:
        mode: how the layer was made.
        wheel: file name of the official wheel; empty if it was compiled.
        wheel_sha256: its digest.
        tools: name and version of what it was compiled with; empty if it was not.
        units: object files compiled, from scratch.
        equal: files of the source tree that the wheel holds byte for byte.
        python_equal: those of them that are Python files.
        extras: kept members that the source tree does not have.
        dropped: members left out.
        dropped_size: bytes of those.
    """

    mode: str
    wheel: str = ""
    wheel_sha256: str = ""
    tools: dict[str, str] = Field(default_factory=dict)
    units: int = 0
    equal: int = 0
    python_equal: int = 0
    extras: tuple[Extra, ...]
    dropped: tuple[str, ...] = ()
    dropped_size: int = 0
