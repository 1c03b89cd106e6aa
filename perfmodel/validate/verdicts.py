"""A verdict, and the two files of claims and bands: ``data/paper/claims.toml`` and ``bands.toml``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import inf
from typing import Any

from pydantic import model_validator

from perfmodel import resources
from perfmodel.schema.strict import Strict, read_as

_FOLDER = "paper"


class Outcome(StrEnum):
    """Whether a claim or a band is confirmed."""

    HOLDS = "holds"
    FAILS = "fails"
    CANNOT_SAY = "cannot say"
    COMPARED = "compared"


class Kind(StrEnum):
    """Kind of a row: a published statement, a comparison of two numbers, or a check of the tool itself."""

    CLAIM = "claim"
    COMPARISON = "comparison"
    SELF_CHECK = "self-check"


@dataclass(frozen=True)
class Verdict:
    """One judged claim or band, in words.

    expected, got  number in the claim, and number computed here;  band  range in which it must be
    why  reason for the verdict;  regression  whether it is unexpected: the program then exits with 6
    """

    identifier: str
    claim: str
    expected: str
    got: str
    band: str
    verdict: Outcome
    why: str
    regression: bool
    kind: Kind = Kind.CLAIM


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


@dataclass(frozen=True)
class Judged:
    """A claim of the paper with the value computed for it."""

    claim: Claim
    found: Finding
    outcome: Outcome

    @classmethod
    def of(cls, claim: Claim, found: Finding) -> Judged:
        """The claim judged by its band."""
        return cls(claim, found, claim.judge(found))


class Claim(Strict):
    """A row of a claims file. A comparison is not judged; a self-check does not concern published numbers.

    check  a short name, if a figure or a file needs it;  ask  the question for ``questions.answer``
    low, high  band in which its value must be, and ``band_why``;  recorded  its verdict at present, and
               ``why``
    """

    id: str
    kind: Kind = Kind.CLAIM
    claim: str
    expected: str
    check: str = ""
    ask: dict[str, Any]
    low: float | None = None
    high: float | None = None
    band_why: str
    recorded: Outcome
    why: str

    @model_validator(mode="after")
    def _ordered(self) -> Claim:
        if (self.low is None) != (self.high is None):
            raise ValueError("a band needs low and high")
        if (self.kind is Kind.COMPARISON) != (self.recorded is Outcome.COMPARED):
            raise ValueError("a comparison, and nothing else, is recorded as compared")
        if self.kind is Kind.COMPARISON and self.low is not None:
            raise ValueError("a comparison has no band")
        return self

    def judge(self, found: Finding) -> Outcome:
        """Whether the claim holds for a value. A self-check is judged by the number, without its range."""
        if self.kind is Kind.COMPARISON:
            return Outcome.COMPARED
        alone = Finding(found.value, found.words)
        return outcome(alone if self.kind is Kind.SELF_CHECK else found, self.low, self.high)

    def verdict(self, found: Finding) -> Verdict:
        """The verdict for a value; it is a regression if it differs from the recorded verdict."""
        said, band = self.judge(found), between(self.low, self.high)
        changed = said is not self.recorded
        return Verdict(
            self.id, self.claim, self.expected, found.words, band, said, self.why, changed, self.kind
        )


class Paper(Strict):
    """A claims file: the paper, and its claims."""

    source: dict[str, str]
    claim: list[Claim]


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


class Bands(Strict):
    """All bands."""

    band: list[Band]


@lru_cache(maxsize=1)
def load_claims() -> Paper:
    """Reads ``data/paper/claims.toml``."""
    return read_as(Paper, resources.data_path(_FOLDER, "claims.toml"), "claims file")


@lru_cache(maxsize=1)
def load_bands() -> list[Band]:
    """Reads the bands in ``data/paper/bands.toml``."""
    return read_as(Bands, resources.data_path(_FOLDER, "bands.toml"), "bands file").band


@lru_cache(maxsize=1)
def load_run_bands() -> list[Band]:
    """Reads the bands for a user's own run."""
    return read_as(Bands, resources.data_path(_FOLDER, "run.toml"), "bands file").band


def outcome(found: Finding, low: float | None, high: float | None) -> Outcome:
    """Holds if the whole range of the value is inside [low, high], fails if all of it is outside.

    Limits: a range that is partly inside, no number, no [low, high] -> cannot say
    """
    if found.ends is None or low is None or high is None:
        return Outcome.CANNOT_SAY
    least, most = found.ends
    if low <= least and most <= high:
        return Outcome.HOLDS
    return Outcome.FAILS if most < low or least > high else Outcome.CANNOT_SAY


def between(low: float | None, high: float | None) -> str:
    """Words such as ``2 to 4``, ``at most 4``, ``at least 2``. Limits: no band -> empty text"""
    if low is None or high is None:
        return ""
    if high == inf:
        return f"at least {low:g}"
    return f"at most {high:g}" if low == 0 else f"{low:g} to {high:g}"
