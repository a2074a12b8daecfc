"""Stands in for the file that a build writes; never in a wheel."""

__version__ = "0"
build_number = 0
commit = ""
form = ""
