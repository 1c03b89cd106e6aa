"""For each physical value, the range outside which it is refused, and the range of products on the market.

One table for machines, memories, samples, runs and calibrations, each with its source:
``data/limits/limits.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from perfmodel import resources, units
from perfmodel.schema.strict import Strict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FAR = 10.0
"""A value farther than this factor from every product on the market needs confirmation."""
_LONG = 1e18  # above this, a number is written with its exponent
_LONG_BYTES = 2**20
"""Size above which a slow time indicates a slow link, not a high floor."""


class Limit(Strict):
    """Range of allowed values (``least`` to ``most``), and range of products on the market (``sold_*``).

    unit  of all four ends, one of ``units.QUANTITY_UNITS``;  source  of the range"""

    unit: str
    least: float
    most: float
    sold_least: float
    sold_most: float
    source: str

    def refusal(self, value: float, *, zero: bool = False) -> str:
        """Why ``value`` is refused: the allowed range, for a message.

        zero  whether 0 is allowed beside the range
        Limits: inside, ends included -> ""
        """
        if self.least <= value <= self.most or (zero and value == 0):  # false for NaN
            return ""
        found = self._text(value) if abs(value) < _LONG else f"{value:g} {self.unit}"
        allowed = f"from {self._text(self.least)} to {self._text(self.most)}"
        return f"must be {'0, or ' if zero else ''}{allowed}, not {found}"

    def doubt(self, value: float) -> str:
        """Why ``value`` needs confirmation. Limits: within ten times of a product on the market -> "" """
        if value < self.sold_least / FAR:
            word, end = "less", self.sold_least
        elif value > self.sold_most * FAR:
            word, end = "more", self.sold_most
        else:
            return ""
        return (
            f"{self._text(value)} is {word} than {'a tenth of' if word == 'less' else 'ten times'} any "
            f"product's value ({self._text(end)}: {self._named(word)})"
        )

    def _named(self, word: str) -> str:
        low, _, high = self.source.partition("; ")
        return low if word == "less" else high

    def _text(self, value: float) -> str:
        return units.format_quantity(value, self.unit)


@lru_cache(maxsize=1)
def _table() -> Mapping[str, Mapping[str, Limit]]:
    text = resources.data_path("limits", "limits.toml").read_text(encoding="utf-8")
    groups = tomllib.loads(text)
    return {group: {key: Limit(**values) for key, values in found.items()} for group, found in groups.items()}


def limits_of(group: Literal["machine", "memory", "sample"]) -> Mapping[str, Limit]:
    """The limit of each value in a group, by its key."""
    return _table()[group]


def within(group: Literal["machine", "memory", "sample"], key: str) -> Any:
    """The schema field for a value within its limit: for ``Annotated[float, …]``."""
    limit = limits_of(group)[key]
    return Field(ge=limit.least, le=limit.most, allow_inf_nan=False)


def far_from_sold(
    payload_bytes: NDArray[np.float64], time_s: NDArray[np.float64], gpus: NDArray[np.float64]
) -> dict[str, str]:
    """{name of a limit: why samples are doubtful}: more than ten times beyond every product on the market.

    payload_bytes, time_s, gpus   of the samples, arrays of one shape
    Limits: time, bytes, GPUs and bytes per second are all plausible -> {}
    A low rate counts only for messages of at least 1 MiB: below, latency dominates.
    """
    rate = payload_bytes / time_s
    long = rate[payload_bytes >= _LONG_BYTES]
    limits = limits_of("sample")
    seen = {
        "time_s": [time_s.min(), time_s.max()],
        "payload_bytes": [payload_bytes.max()],
        "gpus": [gpus.max()],
        "rate_bytes_per_s": [
            *([long.min()] if len(long) else []),
            max(rate.max(), limits["rate_bytes_per_s"].sold_least),
        ],
    }
    found = {name: [limits[name].doubt(float(v)) for v in values] for name, values in seen.items()}
    return {name: next(text for text in texts if text) for name, texts in found.items() if any(texts)}
