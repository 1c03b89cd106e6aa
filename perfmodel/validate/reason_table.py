"""The reasons that ``perfmodel check`` tests, as ``data/validation/reasons.toml`` has them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict

from perfmodel import resources
from perfmodel.schema.gate import read_toml

_NOTHING = r"\A(?!)"  # that no log says


class ReasonRule(BaseModel):
    """A reason that may be tested (``data/validation/reasons.toml``)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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


@lru_cache(maxsize=1)
def rules() -> tuple[ReasonRule, ...]:
    """All of them."""
    document = read_toml(resources.data_path("validation", "reasons.toml"), "reasons")
    return tuple(ReasonRule.model_validate(each) for each in document["reason"])


@dataclass(frozen=True)
class LikelyReason:
    """A rule that stands.

    value    the number that it fits, in words
    explains, of  sizes outside that are in the band around its times, and all that it was tested on
    ratios   its times over the expected ones, at the sizes outside [-]
    stated  whether the log itself says so;  cannot_tell  whether others explain as many
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
        """What is the matter."""
        return self.rule.words.format(self.value)

    def to_dict(self) -> dict[str, Any]:
        """The public schema."""
        names = ("words", "ratios", "explains", "of", "stated", "cannot_tell")
        own = {name: getattr(self, name) for name in names}
        return {"name": self.rule.name, **own, "look": self.rule.look, "source": self.rule.source}
