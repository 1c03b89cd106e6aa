"""Exit codes that no error of ``perfmodel.errors`` has."""

BAD_USAGE = 2
STOPPED = 130
"""By Ctrl-C."""
