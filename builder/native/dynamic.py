"""What an ELF file asks of the dynamic linker: libraries, symbols, symbol versions."""

from __future__ import annotations

import functools
import io
from typing import TYPE_CHECKING, Any, TypeVar

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

from builder.native.elf import DamagedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


def _guarded(function: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Let a file that pyelftools stumbles over, in any way, be a damaged file."""

    @functools.wraps(function)
    def inner(data: bytes) -> T:
        try:
            return function(data)
        except DamagedError:
            raise
        except Exception as error:
            kind = str(error) or type(error).__name__
            raise DamagedError(
                f"ELF file cannot be read: {kind}", fix="rebuild the file"
            ) from error

    return inner


def _open(data: bytes) -> ELFFile:
    return ELFFile(io.BytesIO(data))


@_guarded
def needed(data: bytes) -> list[str]:
    """Names of the libraries that the file is linked to (``DT_NEEDED``)."""
    section = _open(data).get_section_by_name(".dynamic")
    if not isinstance(section, DynamicSection):
        return []
    return [_value(tag, "needed") for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED"]


@_guarded
def run_paths(data: bytes) -> list[str]:
    """Folders that the file makes the linker search (``DT_RPATH``, ``DT_RUNPATH``)."""
    section = _open(data).get_section_by_name(".dynamic")
    if not isinstance(section, DynamicSection):
        return []
    found: list[str] = []
    for tag in section.iter_tags():
        if tag.entry.d_tag == "DT_RPATH":
            found += _value(tag, "rpath").split(":")
        elif tag.entry.d_tag == "DT_RUNPATH":
            found += _value(tag, "runpath").split(":")
    return found


@_guarded
def soname(data: bytes) -> str:
    """The name by which others link to the file (``DT_SONAME``); empty if it has none."""
    section = _open(data).get_section_by_name(".dynamic")
    if isinstance(section, DynamicSection):
        for tag in section.iter_tags():
            if tag.entry.d_tag == "DT_SONAME":
                return _value(tag, "soname")
    return ""


@_guarded
def versions_needed(data: bytes) -> set[str]:
    """Symbol versions of other libraries that the file needs, for example ``GLIBC_2.28``."""
    section = _open(data).get_section_by_name(".gnu.version_r")
    if not isinstance(section, GNUVerNeedSection):
        return set()
    return {str(aux.name) for _, auxes in section.iter_versions() for aux in auxes}


@_guarded
def undefined(data: bytes) -> set[str]:
    """Symbols that the file needs from others, weak ones left out."""
    return {
        str(symbol.name)
        for symbol in _symbols(data)
        if symbol.entry.st_shndx == "SHN_UNDEF"
        and symbol.entry.st_info.bind == "STB_GLOBAL"
        and symbol.name
    }


@_guarded
def defined(data: bytes) -> set[str]:
    """Symbols that the file offers to others."""
    return {
        str(symbol.name)
        for symbol in _symbols(data)
        if symbol.entry.st_shndx != "SHN_UNDEF" and symbol.entry.st_info.bind != "STB_LOCAL"
    }


def _symbols(data: bytes) -> Iterator[Any]:
    section = _open(data).get_section_by_name(".dynsym")
    if isinstance(section, SymbolTableSection):
        yield from section.iter_symbols()


def _value(tag: object, name: str) -> str:
    """An attribute that pyelftools sets by the tag's kind."""
    return str(getattr(tag, name))
