"""Verdicts on claims of papers and on the program's own bands: files of ``data/paper``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import inf
from typing import Any

from pydantic import Field

from perfmodel import resources
from perfmodel.errors import BadInputError
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
        centre = self.value
        return centre if self.low is None else self.low, centre if self.high is None else self.high

    @classmethod
    def within(cls, value: float, ends: Iterable[float], write: Callable[[float], str]) -> Finding:
        """A finding with this number, whose range covers the number and all of ``ends``.

        write  formats a number
        """
        every = [value, *ends]
        low, high = min(every), max(every)
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

    def verdict(self, finding: Finding, *, own: bool = False) -> Verdict:
        """The verdict for an answer; ``own``: outside the band is a regression."""
        verdict = outcome(finding, self.low, self.high, self.published)
        band = describe_band(self.low, self.high)
        failed = own and verdict is Outcome.FAILS
        return Verdict(
            self.id, self.claim, self.expected or band, finding.words, band, verdict, self.why, failed
        )


class EmbarkRun(Strict):
    """How EMBark trained, and what its paper leaves open (``why``).

    models  sets of tables of its figures;  figure_model  of the figure of shares
    gpus    of its largest runs;  alpha  exponent of the ids' power law;  dense  names the dense layers
    """

    models: tuple[str, ...]
    figure_model: str
    machine: str
    gpus: int
    alpha: float = Field(ge=0)
    dense: str
    optimizer: str
    payload: str
    id_dtype: str
    reserve: float = Field(ge=0, lt=1)
    why: str


class Claims(Strict):
    """A file of claims. embark  how EMBark trained, for its claims"""

    source: Mapping[str, str] = Field(default_factory=dict)
    embark: EmbarkRun | None = None
    claim: tuple[Claim, ...]


@lru_cache(maxsize=3)
def load_claims(name: str = "claims") -> tuple[Claim, ...]:
    """The verdicts on the claims of papers, on the shipped ``bands``, or on a user's ``run``."""
    return read_as(Claims, resources.data_path(_FOLDER, f"{name}.toml"), "claims file").claim


@lru_cache(maxsize=1)
def load_embark() -> EmbarkRun:
    """How EMBark trained. Limits: the shipped file does not say it -> BadInputError"""
    run = read_as(Claims, resources.data_path(_FOLDER, "claims.toml"), "claims file").embark
    if run is None:
        raise BadInputError("claims.toml has no section embark.", "restore the shipped file.")
    return run


def outcome(found: Finding, low: float | None, high: float | None, published: float | None = None) -> Outcome:
    """Holds if the whole range of the value is in [low, high]; cannot say if it has what is published.

    published  the published number; None: all of [low, high] is published
    Limits: no number -> cannot say;  no [low, high] -> compared;  all else -> fails
    """
    if low is None or high is None:
        return Outcome.COMPARED
    if found.ends is None:
        return Outcome.CANNOT_SAY
    lowest, highest = found.ends
    if low <= lowest and highest <= high:
        return Outcome.HOLDS
    published_low, published_high = (low, high) if published is None else (published, published)
    return Outcome.CANNOT_SAY if lowest <= published_high and published_low <= highest else Outcome.FAILS


def describe_band(low: float | None, high: float | None) -> str:
    """Words such as ``2 to 4``, ``at most 4``, ``at least 2``. Limits: no band -> empty text"""
    if low is None or high is None:
        return ""
    if high == inf:
        return f"at least {low:g}"
    return f"at most {high:g}" if low == 0 else f"{low:g} to {high:g}"
