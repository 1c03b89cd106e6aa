"""The command line: parses, calls, prints, and turns errors into exit codes.

Heavy imports wait inside the commands, and all others until Ctrl-C can be answered.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code (see docs of ``perfmodel.errors``)."""
    try:
        from perfmodel.cli.running import command

        code = command(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:  # while this program was still being loaded, or was leaving
        if sys.stderr is not None:
            sys.stderr.write("\nstopped.\n")
        code = INTERRUPTED
    sys.exit(code)


def run(arguments: list[str], *, verbose: bool = False) -> int:
    """Exit code of one command; every error becomes text on stderr."""
    from perfmodel.cli.running import run as run_command

    return run_command(arguments, verbose=verbose)


__all__ = ["main", "run"]
