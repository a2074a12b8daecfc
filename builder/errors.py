"""Every way a command can fail, each with its own exit code and a next step.

The exit codes are part of the command line's contract:

====  =====================================================
code  meaning
====  =====================================================
0     done
1     internal error (a bug in this program)
2     usage, recipe or patch metadata
3     source identity: what was fetched is not what was pinned
4     a patch does not apply exactly
5     toolchain or a tool this machine lacks
6     compile
7     audit: a wheel's label and content differ
8     proof: red was not red, or green was not green
9     publish or image
124   time limit
130   interrupted
====  =====================================================
"""

from __future__ import annotations

from typing import ClassVar


class BuilderError(Exception):
    """A failure that a person can act on.

    Args:
        message: what went wrong, where and why, in one line.
        fix: what to do next, in one line; shown after the message.
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "internal"

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}; {self.fix}" if self.fix else self.message


class UsageError(BuilderError):
    """The command's words, a recipe or a patch's metadata are wrong."""

    exit_code = 2
    kind = "usage"


class IdentityError(BuilderError):
    """Something fetched or given is not what the pin says, or cannot be had."""

    exit_code = 3
    kind = "source"


class PatchError(BuilderError):
    """A patch does not apply exactly."""

    exit_code = 4
    kind = "patch"


class ToolError(BuilderError):
    """A program, a package or room on the disk is missing."""

    exit_code = 5
    kind = "toolchain"


class CompileError(BuilderError):
    """A compiler or linker failed."""

    exit_code = 6
    kind = "compile"


class AuditError(BuilderError):
    """A wheel is not what its label says."""

    exit_code = 7
    kind = "audit"


class ProofError(BuilderError):
    """A proof did not show what it must show."""

    exit_code = 8
    kind = "proof"


class PublishError(BuilderError):
    """An index or image could not be written."""

    exit_code = 9
    kind = "publish"


class TimeLimitError(BuilderError):
    """A step ran past its time limit."""

    exit_code = 124
    kind = "time"
