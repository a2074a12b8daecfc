"""``python -m builder``: the same program as ``sm86``."""

from __future__ import annotations

import sys

from builder.cli.main import main as _main


def main() -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(_main())


if __name__ == "__main__":
    main()
