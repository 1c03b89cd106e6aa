"""The reasons that ``perfmodel check`` tests, as ``data/validation/reasons.toml`` has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from perfmodel import resources
from perfmodel.schema.fields import Strict, read_as

_NOTHING = r"\A(?!)"  # that no log says


class ReasonRule(Strict):
    """A reason why collectives may be slow, as ``data/validation/reasons.toml`` states it.

    test      name of the function that predicts its times (``reasons.TESTS``);  rate  range of its parameter
    words     the reason in a sentence;  look  where to look for it;  source  of the reason
    free      number of fitted parameters;  general  whether it says little, so that other reasons come first
    network   excluded if other collectives on the same ranks are normal;  alone  excluded if any is slow
    stated, hint, denied  patterns for lines in NCCL's log that prove, suggest or exclude it
    """

    name: str
    test: str
    words: str
    look: str
    source: str
    rate: tuple[float, float] = (1.0, 1.0)
    free: int = 0
    network: bool = False
    alone: bool = False
    general: bool = False
    stated: str = _NOTHING
    hint: str = _NOTHING
    denied: str = _NOTHING


class Reasons(Strict):
    """The contents of the table. setting  what a variable of NCCL costs that a log says was set"""

    setting: Mapping[str, str]
    reason: tuple[ReasonRule, ...]


@lru_cache(maxsize=1)
def load_reasons() -> Reasons:
    """The rules by which ``perfmodel check`` explains a slow log, from the shipped file."""
    return read_as(Reasons, resources.data_path("validation", "reasons.toml"), "reasons")


@dataclass(frozen=True)
class LikelyReason:
    """A reason that agrees with the measured times.

    rule      the reason;  value  its fitted number, in words
    explains  number of sizes outside the band that would be inside with it;  of  number of sizes outside
    ratios    times by this reason over expected times, at the sizes outside [-]
    stated    whether the log itself says so;  cannot_tell  whether other reasons explain as many sizes
    """

    rule: ReasonRule
    value: str
    explains: int
    ratios: tuple[float, ...]
    of: int
    stated: bool = False
    cannot_tell: bool = False

    @property
    def words(self) -> str:
        """The reason in a sentence."""
        return self.rule.words.format(self.value)

    def to_dict(self) -> dict[str, Any]:
        """The public schema."""
        names = ("words", "ratios", "explains", "of", "stated", "cannot_tell")
        own = {name: getattr(self, name) for name in names}
        return {"name": self.rule.name, **own, "look": self.rule.look, "source": self.rule.source}
