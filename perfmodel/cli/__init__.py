"""The command line: parses, calls, prints, and turns errors into exit codes.

Heavy imports wait inside the commands, and all others until Ctrl-C can be answered.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence

from perfmodel.cli.codes import STOPPED
from perfmodel.cli.signals import listen

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # more wait for each other: 2.4 s of CPU time became 4.4
_NEW_OBJECTS = 500_000
"""From how many on Python looks for cycles: what a command loads is half of that and stays, and looking
through it again and again, 700 new objects at a time, takes a tenth of a short command."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code (see docs of ``perfmodel.errors``)."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        listen(words)
        gc.set_threshold(_NEW_OBJECTS)
        atexit.register(gc.freeze)  # what is left then need not be taken apart: the process ends
        from perfmodel.cli.running import command

        code = command(words)
    except KeyboardInterrupt:  # while this program was still being loaded, or was leaving
        if sys.stderr is not None:
            sys.stderr.write("\nstopped.\n")
        code = STOPPED
    sys.exit(code)


def run(arguments: list[str], *, verbose: bool = False) -> int:
    """Exit code of one command; every error becomes text on stderr."""
    from perfmodel.cli.running import run as run_command

    return run_command(arguments, verbose=verbose)


__all__ = ["main", "run"]
