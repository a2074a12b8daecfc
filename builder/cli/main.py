"""The command line's entry: groups the commands, turns failures into one line and a code."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import signal
import sys
import traceback
from typing import Final

import click

from builder import __version__
from builder.cli.result import add_error, flush_result
from builder.errors import BuilderError
from builder.run import no_room

#: Command -> module and attribute; loaded when used, so that start-up stays quick.
_COMMANDS: Final = {
    "list": "list:list_",
    "doctor": "doctor:doctor",
    "build": "build:build",
    "audit": "audit:audit",
    "inspect": "inspect:inspect",
    "patch": "patch:patch",
    "prove": "prove:prove",
    "publish": "publish:publish",
    "verify-installed": "verify_installed:verify_installed",
    "lock": "lock:lock",
    "cache": "cache:cache",
}


class _LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            close = difflib.get_close_matches(cmd_name, _COMMANDS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"there is no command {cmd_name!r}{hint}")
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        found = getattr(importlib.import_module(f"builder.cli.{module}"), attribute)
        assert isinstance(found, click.Command)  # noqa: S101  (the table above)
        return found


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 internal, 2 usage, 3 source, 4 patch, 5 toolchain, 6 compile, "
    "7 audit, 8 proof, 9 publish, 124 time limit, 130 interrupted.",
)
@click.version_option(__version__, prog_name="sm86")
def cli() -> None:
    """Patched, audited, ready-to-install LLM engine builds for Ampere GPUs (sm_86)."""


def main(args: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = sys.argv[1:] if args is None else args
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, _terminate)
    code = _run(words)
    flush_result()
    return code


def _terminate(*_: object) -> None:
    """End as on an interrupt: children are ended, nothing half-written stays."""
    raise KeyboardInterrupt


def _run(words: list[str]) -> int:
    try:
        cli.main(words, prog_name="sm86", standalone_mode=False)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        usage = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else ""
        fix = f"see '{usage} --help'" if usage else ""
        return _fail(words, error.format_message().rstrip("."), fix, "usage", 2)
    except (click.Abort, KeyboardInterrupt):
        return _fail(words, "interrupted", "run again: finished steps are kept", "interrupted", 130)
    except (BuilderError, OSError) as error:
        where = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
        if no_room(error):
            fix = "free some space, or choose another disk with SM86_CACHE, TMPDIR or --out"
            return _fail(words, f"the disk is full{where}", fix, "system", 5)
        if isinstance(error, BuilderError):
            return _fail(words, error.message, error.fix, error.kind, error.exit_code)
        text = f"{error.strerror or error}{where}"
        return _fail(words, text, "check disk and rights", "system", 1)
    except Exception as error:  # noqa: BLE001  (the last resort: no traceback for users)
        text = f"internal error: {type(error).__name__}: {error}"
        return _fail(words, text, "run again with -vv and report it", "internal", 1)
    return 0


def _fail(words: list[str], message: str, fix: str, kind: str, code: int) -> int:
    if any(
        word.startswith("-") and not word.startswith("--") and word.count("v") > 1 for word in words
    ):
        traceback.print_exc()
    line = " ".join(f"{message}; {fix}".split()) if fix else " ".join(message.split())
    click.echo(f"sm86: {line}", err=True)
    if "--json" in words:
        add_error({"kind": kind, "message": message, "fix": fix, "exit_code": code})
    return code
