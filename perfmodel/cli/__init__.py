"""The command line: parses arguments, runs a command, prints its answer, turns errors into exit codes.

Each command imports its heavy libraries itself; ``main`` handles Ctrl-C before it loads anything else.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence

from perfmodel.cli.signals import STOPPED, listen

_NEW_OBJECTS = 500_000
"""Number of new objects after which Python's garbage collector runs. A command loads half as many and keeps
them; by Python's default of 700, scanning them again and again takes a tenth of a short command's time."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command in ``argv`` (None: of the process), and exit with a code of ``perfmodel.errors``."""
    words = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # with more, a command took 4.4 s of CPU time, not 2.4
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else all installed packages are asked
    try:
        listen(words)
        gc.set_threshold(_NEW_OBJECTS)
        atexit.register(gc.freeze)  # the process ends, so Python need not free what is left
        code = run(words)
    except KeyboardInterrupt:  # Ctrl-C while this program was being loaded or was exiting
        if sys.stderr is not None:
            sys.stderr.write("\nstopped.\n")
        code = STOPPED
    sys.exit(code)


def run(words: list[str]) -> int:
    """Run a command and return its exit code; print every error on stderr. words  without ``perfmodel``"""
    from perfmodel.cli.running import run as run_command

    return run_command(words)
