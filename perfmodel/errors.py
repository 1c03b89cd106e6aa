"""Everything that can go wrong, and the exit code of each: one hierarchy for the whole program.

A message says what, where, the value, the allowed range and the next step, and fits one screen.
Only the command line turns these into text on stderr and an exit code.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence

_OPTION = re.compile(r"--(?:set )?([a-z]+(?:[-_][a-z]+)*)")


class PerfmodelError(Exception):
    """Base of every error that the program raises on purpose.

    message    what is wrong, where, and the value
    next_step  what the user can do about it (printed indented under the message)
    where      the option, file or kind of name that is wrong; "": the first option in the message
    allowed    the names or the range that are valid there; "": they cannot be listed
    """

    exit_code = 1

    def __init__(
        self, message: str, next_step: str = "", *, where: str = "", allowed: str | Sequence[str] = ""
    ) -> None:
        """Arguments: as the attributes of the class."""
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.where = where
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.message}\n{self.next_step}" if self.next_step else self.message

    def to_dict(self) -> dict[str, object]:
        """The error for JSON: what, where, allowed, next (step), exit (code); None where a text is empty."""
        option = _OPTION.search(self.message)
        where = self.where or (option[0] if option else None)
        words = {"what": self.message, "where": where, "allowed": self.allowed or None}
        return words | {"next": self.next_step or None, "exit": self.exit_code}


class BadInputError(PerfmodelError):
    """A value, option, file or log that cannot be used: exit code 2."""

    exit_code = 2


class NoCalibrationError(PerfmodelError):
    """No calibration has the requested times, neither measured nor transferred nor assumed: exit code 3."""

    exit_code = 3


class NoHardwareError(PerfmodelError):
    """The hardware or library to measure is not on this machine: exit code 4."""

    exit_code = 4


class TooNoisyError(PerfmodelError):
    """Measurements did not reach the noise target (``--strict``): exit code 5."""

    exit_code = 5


class OutsideBandError(PerfmodelError):
    """A validation claim is outside its band: exit code 6."""

    exit_code = 6


class RankLostError(PerfmodelError):
    """A rank died or stopped answering while it measured: exit code 4."""

    exit_code = 4

    def __init__(self, rank: str, what: str = "died", next_step: str = "") -> None:
        """rank  its name for people: "rank 3 (node 0, GPU 3)";  what  befell it"""
        super().__init__(f"{rank} {what}.", next_step or "run the same command again: it resumes.")
        self.rank = rank


@contextlib.contextmanager
def naming_arguments(names: Mapping[str, str]) -> Iterator[None]:
    """Context in which messages of errors name arguments of Python functions, not command-line options.

    names  the argument for an option, if it has another name: ``--set max_hbm`` -> ``max_hbm_bytes``
    """

    def argument(option: re.Match[str]) -> str:
        """The argument of Python for an option that a message names."""
        return names.get(option[0], option[1].replace("-", "_"))

    try:
        yield
    except PerfmodelError as error:
        error.message = _OPTION.sub(argument, error.message)
        error.next_step = _OPTION.sub(argument, error.next_step)
        raise
