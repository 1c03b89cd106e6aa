"""What papers claim: ``data/paper/claims.toml``, and the verdict on each claim."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import Field

from perfmodel import resources
from perfmodel.schema.fields import Strict, read_as
from perfmodel.validate.verdicts import Finding, Verdict, between, outcome


class Claim(Strict):
    """A claim of a paper. Without ``low`` and ``high`` two numbers stand beside each other, not judged.

    expected   what is published, in words;  published  the number itself; None: a range, or no number
    ask        the question whose answer is compared (``questions.answer``)
    low, high  what the words of the paper allow, and ``band_why``
    why        what a reader should know about the verdict
    """

    id: str
    claim: str
    expected: str
    published: float | None = None
    ask: dict[str, Any]
    low: float | None = None
    high: float | None = None
    band_why: str
    why: str

    def verdict(self, found: Finding) -> Verdict:
        """The verdict for an answer."""
        said = outcome(found, self.low, self.high, self.published)
        band = between(self.low, self.high)
        return Verdict(self.id, self.claim, self.expected, found.words, band, said, self.why)


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
    """The file of claims."""

    source: dict[str, str]
    embark: EmbarkRun
    claim: list[Claim]


@lru_cache(maxsize=1)
def load_claims() -> Claims:
    """Reads ``data/paper/claims.toml``."""
    return read_as(Claims, resources.data_path("paper", "claims.toml"), "claims file")
