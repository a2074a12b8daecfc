"""The command line's entry: groups the commands, turns failures into one line and a code."""

from __future__ import annotations

import json
import sys
import traceback

import click

from builder import __version__
from builder.cli.audit import audit
from builder.cli.build import build
from builder.cli.cache import cache
from builder.cli.doctor import doctor
from builder.cli.inspect import inspect
from builder.cli.list import list_
from builder.cli.lock import lock
from builder.cli.patch import patch
from builder.cli.prove import prove
from builder.cli.verify_installed import verify_installed
from builder.errors import BuilderError


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 internal, 2 usage, 3 source, 4 patch, 5 toolchain, 6 compile, "
    "7 audit, 8 proof, 9 publish, 124 time limit, 130 interrupted.",
)
@click.version_option(__version__, prog_name="sm86")
def cli() -> None:
    """Patched, audited, ready-to-install LLM engine builds for Ampere GPUs (sm_86)."""


for command in (
    list_, doctor, build, audit, inspect, patch, prove, verify_installed, lock, cache,
):  # fmt: skip
    cli.add_command(command)


def main(args: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = sys.argv[1:] if args is None else args
    try:
        cli.main(words, prog_name="sm86", standalone_mode=False)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.Abort:
        return _fail(words, "interrupted", "", "interrupted", 130)
    except click.ClickException as error:
        usage = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else ""
        fix = f"see '{usage} --help'" if usage else ""
        return _fail(words, error.format_message().rstrip("."), fix, "usage", 2)
    except KeyboardInterrupt:
        return _fail(words, "interrupted", "run again: finished steps are kept", "interrupted", 130)
    except BuilderError as error:
        return _fail(words, error.message, error.fix, error.kind, error.exit_code)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _fail(
            words, f"{error.strerror or error}{where}", "check disk and rights", "system", 1
        )
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
        error = {"kind": kind, "message": message, "fix": fix, "exit_code": code}
        click.echo(json.dumps({"schema_version": 1, "error": error}, indent=1))
    return code
