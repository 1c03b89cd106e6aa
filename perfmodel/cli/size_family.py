"""Whether the sizes on a command line are in GiB or in GB; answers print sizes in the same units."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from perfmodel.errors import BadInputError
from perfmodel.typed_sizes import TypedSizes
from perfmodel.units import parse_bytes

_OF_MESSAGES = ("--size", "--sizes")
"""Options whose sizes are of messages; all other options take sizes of memory."""
_BETWEEN = re.compile(r",|\.\.|=|@|:")
_SIZE = re.compile(r"\s*[\d_.]+\s*[kKMGTPE](i?)B\s*")


def sizes_of(arguments: Sequence[str]) -> TypedSizes:
    """Which sizes among the words of a command line are in KiB, MiB … and which in kB, MB ….

    Limits: sizes of memory are typed in both -> there is no family for other sizes of memory
    """
    binary: dict[float, bool] = {}
    families: dict[bool, set[bool]] = {False: set(), True: set()}
    for option, text in _values(arguments):
        if (match := _SIZE.fullmatch(text)) is None:
            continue
        with contextlib.suppress(BadInputError):
            binary[parse_bytes(text)] = bool(match[1])
            families[option in _OF_MESSAGES].add(bool(match[1]))
    return TypedSizes(binary, {kind: found.pop() for kind, found in families.items() if len(found) == 1})


def _values(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of an option and each value in it: of lists, ranges, ``key=value`` and ``SIZE@RATE``."""
    option = ""
    for word in arguments:
        first, *more = _BETWEEN.split(word)
        if first.startswith("--"):
            option = first
        for text in (first, *more):
            yield option, text
