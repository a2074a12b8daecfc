"""The Protocol that every engine fulfils; stages know engines only through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from builder.pin import Pin


class Engine(Protocol):
    """The particulars of one upstream project."""

    @property
    def name(self) -> str:
        """Name on the command line."""
        ...

    @property
    def distribution(self) -> str:
        """Name of the wheel's distribution."""
        ...

    @property
    def package(self) -> str:
        """Folder of the source tree that becomes the wheel's package."""
        ...

    @property
    def forbidden_words(self) -> tuple[str, ...]:
        """Words that must not stand in a version, because the engine searches its own for them."""
        ...

    def version_file(self, pin: Pin, version: str) -> tuple[str, bytes]:
        """The generated file (wheel member, content) that tells the package its version."""
        ...

    def read_version(self, content: bytes) -> str:
        """The version that such a file states; empty if it cannot be found."""
        ...

    @property
    def version_member(self) -> str:
        """Wheel member that `version_file` writes."""
        ...

    def is_native(self, path: str) -> bool:
        """Whether a file of the source tree is compiled or steers compilation."""
        ...

    def is_generated(self, member: str) -> bool:
        """Whether upstream's build makes or fetches a wheel member that its source lacks."""
        ...

    def origin(self, member: str) -> str:
        """Where a wheel member that the source tree lacks comes from, in words."""
        ...

    @property
    def program_folder(self) -> str:
        """Wheel folder of compiled programs and their libraries; empty if nothing is compiled."""
        ...

    @property
    def plugins(self) -> tuple[str, ...]:
        """File patterns of libraries that the programs look for beside themselves."""
        ...

    @property
    def scripts(self) -> Mapping[str, str]:
        """Console scripts (name -> ``module:function``) of a wheel that is made from scratch."""
        ...

    @property
    def summary(self) -> str:
        """One line about such a wheel."""
        ...

    def own_files(self) -> dict[str, bytes]:
        """Python files of ours (wheel member -> content) in such a wheel."""
        ...

    def definitions(self, pin: Pin) -> dict[str, str]:
        """CMake cache entries that tell the programs their version."""
        ...

    def proof_environment(self, package_root: Path) -> dict[str, str]:
        """Environment variables with which a proof runs against a tree or an installation."""
        ...
