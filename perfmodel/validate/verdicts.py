"""A verdict on a claim or a band, and the bands: ``data/paper/bands.toml`` and ``run.toml``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import inf
from typing import Any

from perfmodel import resources
from perfmodel.schema.fields import Strict, read_as

_FOLDER = "paper"


class Outcome(StrEnum):
    """Whether a claim or a band is confirmed."""

    HOLDS = "holds"
    FAILS = "fails"
    CANNOT_SAY = "cannot say"
    COMPARED = "compared"


@dataclass(frozen=True)
class Verdict:
    """One judged claim or band, in words.

    expected, got  number in the claim, and number computed here;  band  range in which it must be
    why  reason for the verdict;  regression  whether an own band does not hold: the program exits with 6
    """

    identifier: str
    claim: str
    expected: str
    got: str
    band: str
    verdict: Outcome
    why: str
    regression: bool = False


@dataclass(frozen=True)
class Finding:
    """The value computed for a claim: a number (None: nothing to judge) and the number in words.

    low, high  range of the number: its 95 % band, over all inputs that a claim does not state; None: no range
    """

    value: float | None
    words: str
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float] | None:
        """The range as (low, high). Limits: no number -> None;  no band -> the number twice"""
        if self.value is None:
            return None
        at = self.value
        return at if self.low is None else self.low, at if self.high is None else self.high

    @classmethod
    def within(cls, value: float, ends: Iterable[float], write: Callable[[float], str]) -> Finding:
        """A finding with this number, whose range covers the number and all of ``ends``.

        write  formats a number
        """
        every = [value, *ends]
        low, high = min(every), max(every)
        apart = f" ({write(low)} to {write(high)})" if low < high else ""
        return cls(value, write(value) + apart, low, high)


class Band(Strict):
    """A band in which an error of predictions must be: from ``low`` to ``high``.

    ask  the question that gives the error (``questions.answer``), and so its unit
    held_out  whether it needs a new fit without a part of the samples
    why   why the band has these ends
    """

    id: str
    claim: str
    ask: dict[str, Any]
    low: float = 0.0
    high: float
    held_out: bool = False
    why: str

    def verdict(self, found: Finding) -> Verdict:
        """The verdict for a value: outside the band is a regression; None: nothing to judge."""
        said, band = outcome(found, self.low, self.high), between(self.low, self.high)
        failed = said is Outcome.FAILS
        return Verdict(self.id, self.claim, band, found.words, band, said, self.why, failed)


class ClaimBands(Strict):
    """All bands."""

    band: list[Band]


@lru_cache(maxsize=1)
def load_bands() -> list[Band]:
    """Reads the bands in ``data/paper/bands.toml``."""
    return read_as(ClaimBands, resources.data_path(_FOLDER, "bands.toml"), "bands file").band


@lru_cache(maxsize=1)
def load_run_bands() -> list[Band]:
    """Reads the bands for a user's own run."""
    return read_as(ClaimBands, resources.data_path(_FOLDER, "run.toml"), "bands file").band


def outcome(found: Finding, low: float | None, high: float | None, published: float | None = None) -> Outcome:
    """Holds if the whole range of the value is in [low, high]; cannot say if it has what is published.

    published  the published number; None: all of [low, high] is published
    Limits: no number -> cannot say;  no [low, high] -> compared;  all else -> fails
    """
    if low is None or high is None:
        return Outcome.COMPARED
    if found.ends is None:
        return Outcome.CANNOT_SAY
    least, most = found.ends
    if low <= least and most <= high:
        return Outcome.HOLDS
    first, last = (low, high) if published is None else (published, published)
    return Outcome.CANNOT_SAY if least <= last and first <= most else Outcome.FAILS


def between(low: float | None, high: float | None) -> str:
    """Words such as ``2 to 4``, ``at most 4``, ``at least 2``. Limits: no band -> empty text"""
    if low is None or high is None:
        return ""
    if high == inf:
        return f"at least {low:g}"
    return f"at most {high:g}" if low == 0 else f"{low:g} to {high:g}"
