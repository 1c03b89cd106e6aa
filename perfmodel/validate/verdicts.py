"""Verdicts on claims of papers and on the program's own bands: files of ``data/paper``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import inf, nan
from typing import Any

from pydantic import Field

from perfmodel import resources
from perfmodel.schema.fields import Strict, read_as


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
    def ends(self) -> tuple[float, float]:
        """The range as (low, high). Limits: no band -> the number twice;  no number -> (nan, nan)"""
        centre = nan if self.value is None else self.value
        return centre if self.low is None else self.low, centre if self.high is None else self.high

    @classmethod
    def within(cls, value: float, ends: Iterable[float], write: Callable[[float], str]) -> Finding:
        """A finding with this number, whose range covers the number and all of ``ends``.

        write  formats a number
        """
        numbers = [value, *ends]
        low = min(numbers)
        high = max(numbers)
        apart = f" ({write(low)} to {write(high)})" if low < high else ""
        return cls(value, write(value) + apart, low, high)


class Claim(Strict):
    """A claim of a paper, or a band of the program's own in which an error of its predictions must be.

    expected   what is published, in words;  published  the number itself; None: a range, or no number
    ask        the question whose answer is compared (``questions.find_answer``, ``judge_left_out``)
    low, high  what the words of the paper allow (``band_why``), or the band; without them two numbers stand
               beside each other, not judged
    held_out   whether it needs a new fit without a part of the samples
    why        what a reader should know about the verdict, or why the band has these ends
    """

    id: str
    claim: str
    expected: str = ""
    published: float | None = None
    ask: dict[str, Any]
    low: float | None = None
    high: float | None = None
    held_out: bool = False
    band_why: str = ""
    why: str

    @property
    def band(self) -> str:
        """Words such as ``2 to 4``, ``at most 4``, ``at least 2``. Limits: no band -> empty text"""
        if self.low is None or self.high is None:
            return ""
        if self.high == inf:
            return f"at least {self.low:g}"
        return f"at most {self.high:g}" if self.low == 0 else f"{self.low:g} to {self.high:g}"

    def judge(self, finding: Finding) -> Outcome:
        """Holds if the whole range of the value is in [low, high], which the claim allows.

        Else it fails, unless the published number (if there is none, some of [low, high]) is in the range:
        then nobody can say. Limits: no value -> cannot say;  no [low, high] -> compared
        """
        if self.low is None or self.high is None:
            return Outcome.COMPARED
        if finding.value is None:
            return Outcome.CANNOT_SAY
        lowest, highest = finding.ends
        if self.low <= lowest and highest <= self.high:
            return Outcome.HOLDS
        ends = (self.low, self.high) if self.published is None else (self.published,) * 2
        return Outcome.CANNOT_SAY if lowest <= ends[1] and ends[0] <= highest else Outcome.FAILS

    def verdict(self, finding: Finding, *, own: bool = False) -> Verdict:
        """The verdict for a computed value. own  a band of the program's: outside it is a regression"""
        outcome = self.judge(finding)
        failed = own and outcome is Outcome.FAILS
        expected = self.expected or self.band
        return Verdict(self.id, self.claim, expected, finding.words, self.band, outcome, self.why, failed)


class Claims(Strict):
    """A file of claims."""

    source: Mapping[str, str] = Field(default_factory=dict)
    claim: tuple[Claim, ...]


@lru_cache(maxsize=3)
def load_claims(name: str = "claims") -> tuple[Claim, ...]:
    """The claims of papers, the program's own ``bands``, or those for a user's ``run``."""
    return read_as(Claims, resources.data_path("paper", f"{name}.toml"), "claims file").claim
