"""Types of numbers in a calibration, with the ranges that they may have, and values with 95 % intervals."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from perfmodel.schema.limits import limits_of, within
from perfmodel.schema.strict import Strict

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Bounded = Annotated[float, Field(gt=0, le=1e30)]
"""Of an interval, whose end a fit puts up to e^20 times the value away where samples say nothing."""
Share = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
LogSd = Annotated[float, Field(ge=0, le=30, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=1, le=2**53)]
Ranks = Annotated[int, Field(ge=1, le=int(limits_of("sample")["gpus"].most))]
Seconds = Annotated[float, within("sample", "time_s")]
Bytes = Annotated[float, within("sample", "payload_bytes")]


class Interval(Strict):
    """A value with its 95 % interval."""

    value: Bounded
    low: Bounded
    high: Bounded

    @property
    def known(self) -> bool:
        """Whether the samples determine the value: half its interval is less than the value itself."""
        return self.high - self.low < 2 * self.value

    @model_validator(mode="after")
    def _ordered(self) -> Interval:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"interval {self.low} .. {self.high} does not hold its value {self.value}")
        return self
