"""llama.cpp's programs for one architecture, built by sm86-builder."""

from ._version import __version__, build_number, commit, form

__all__ = ["__version__", "build_number", "commit", "form"]
