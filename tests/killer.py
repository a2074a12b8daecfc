"""Runs the command line and kills it, hard, at the n-th change that it makes to the disk.

    KILL_AT=n KILL_WATCH=folder:folder python killer.py COUNT_FILE ARGS...

Python's own audit events tell of every file opened for writing, rename, removal, folder,
link, lock and subprocess; those below the watched folders, and every subprocess, are counted.
With KILL_AT=0 nothing is killed; how many there were of each kind goes to COUNT_FILE, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

AT = int(os.environ["KILL_AT"])
WATCH = tuple(os.environ["KILL_WATCH"].split(":"))
PATHS = {
    "os.rename": 2, "os.remove": 1, "os.mkdir": 1, "os.rmdir": 1, "os.link": 2, "os.symlink": 2,
    "os.chmod": 1, "os.truncate": 1, "os.utime": 1,
}  # fmt: skip
count: Counter[str] = Counter()


def hook(event: str, args: tuple[object, ...]) -> None:
    if event == "open":
        path, _, flags = args
        writing = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if not writing or not str(path).startswith(WATCH):
            return
    elif event in PATHS:
        if not any(str(path).startswith(WATCH) for path in args[: PATHS[event]]):
            return
    elif event not in {"subprocess.Popen", "fcntl.flock"}:
        return
    count[event] += 1
    if count.total() == AT:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    from builder.cli.main import main as run  # noqa: PLC0415  (imports are not counted)

    sys.addaudithook(hook)
    code = run(sys.argv[2:])
    if AT == 0:
        Path(sys.argv[1]).write_text(json.dumps(count))
    return code


if __name__ == "__main__":
    sys.exit(main())
