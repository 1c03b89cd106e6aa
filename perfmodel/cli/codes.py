"""Exit codes of the command line that are not the code of an error in ``perfmodel.errors``."""

BAD_USAGE = 2
STOPPED = 130
"""Stopped by Ctrl-C."""
