"""What the fields of all files share: strict parts, numbers with units, sources, ranges and intervals.

Ranges of physical values stand in one table, each with its source: ``data/limits/limits.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from perfmodel import resources, units
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.files import invalid_fields
from perfmodel.schema.gate import read_toml

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Kind = TypeVar("_Kind", bound=BaseModel)

FAR = 10.0
"""A value farther than this factor from every product on the market needs confirmation."""
_LONG = 1e18  # above this, a number is written with its exponent
_LONG_BYTES = 2**20
"""Size above which a slow time indicates a slow link, not a high floor."""


class Strict(BaseModel):
    """A part of a file, without other fields than its own; frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Exact(Strict):
    """The same; a value of another type is not converted, as ``"8"`` to 8."""

    model_config = ConfigDict(strict=True)


def validated(
    kind: type[_Kind],
    document: object,
    what: str,
    where: str,
    lines: Sequence[int] = (),
    strict: bool | None = None,
) -> _Kind:
    """A document as an instance of ``kind``.

    what, where  "machine file" and its path, for the message;  lines  as in ``invalid_fields``
    strict  whether no value is converted; None: as ``kind`` says
    Limits: invalid fields -> BadInputError
    """
    try:
        return kind.model_validate(document, strict=strict)
    except ValidationError as error:
        raise invalid_fields(error, what, where, lines) from None


def read_as(kind: type[_Kind], path: Path, what: str) -> _Kind:
    """A TOML file as an instance of ``kind``. Limits: as ``read_toml`` and ``validated``"""
    return validated(kind, read_toml(path, what), what, str(path))


class Limit(Strict):
    """Range of allowed values (``least`` to ``most``), and range of products on the market (``sold_*``).

    unit  of all four ends, one of ``units.QUANTITY_UNITS``
    source  of the lower and of the upper end of ``sold_*``, with a semicolon between
    """

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
        least, most = (units.format_quantity(end, self.unit) for end in (self.least, self.most))
        given = units.format_quantity(value, self.unit) if abs(value) < _LONG else f"{value:g} {self.unit}"
        return f"must be {'0, or ' if zero else ''}from {least} to {most}, not {given}"

    def doubt(self, value: float) -> str:
        """Why ``value`` needs confirmation. Limits: within ten times of a product on the market -> "" """
        low, _, high = self.source.partition("; ")
        if value < self.sold_least / FAR:
            word, end, source = "less than a tenth of", self.sold_least, low
        elif value > self.sold_most * FAR:
            word, end, source = "more than ten times", self.sold_most, high
        else:
            return ""
        number, sold = (units.format_quantity(number, self.unit) for number in (value, end))
        return f"{number} is {word} any product's value ({sold}: {source})"


@lru_cache(maxsize=3)
def limits_of(group: Literal["machine", "memory", "sample"]) -> Mapping[str, Limit]:
    """The limit of each value in a group, by its key."""
    text = resources.data_path("limits", "limits.toml").read_text(encoding="utf-8")
    return {key: Limit(**values) for key, values in tomllib.loads(text)[group].items()}


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
    rate, limits = payload_bytes / time_s, limits_of("sample")
    slowest = rate[payload_bytes >= _LONG_BYTES].min(initial=limits["rate_bytes_per_s"].sold_most)
    extremes = {
        "time_s": [time_s.min(), time_s.max()],
        "payload_bytes": [payload_bytes.max()],
        "gpus": [gpus.max()],
        "rate_bytes_per_s": [slowest, max(rate.max(), limits["rate_bytes_per_s"].sold_least)],
    }
    doubts = {
        name: [text for value in values if (text := limits[name].doubt(float(value)))]
        for name, values in extremes.items()
    }
    return {name: texts[0] for name, texts in doubts.items() if texts}


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Bounded = Annotated[float, Field(gt=0, le=1e30)]
"""Of an interval, whose end a fit puts up to e^20 times the value away where samples say nothing."""
Share = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
LogSd = Annotated[float, Field(ge=0, le=30, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=1, le=2**53)]
Ranks = Annotated[int, Field(ge=1, le=int(limits_of("sample")["gpus"].most))]
Seconds = Annotated[float, within("sample", "time_s")]
Span = Annotated[float, Field(ge=0, le=limits_of("sample")["time_s"].most, allow_inf_nan=False)]
"""Seconds that may be 0."""
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


def one_of(kind: str, names: Collection[str]) -> Any:
    """Annotation of a text that is one of ``names``; ``kind`` says in a message what they are."""

    def check(text: str) -> str:
        if text not in names:
            raise ValueError(f"unknown {kind} {text!r}")
        return text

    return AfterValidator(check)


def up_to(most: float) -> Any:
    """Annotation of an ``Interval`` whose value is at most ``most``."""

    def check(interval: Interval) -> Interval:
        if interval.value > most:
            raise ValueError(f"value: at most {most:g}, not {interval.value:g}")
        return interval

    return AfterValidator(check)


class Quantity(Strict):
    """One value with its unit, source, reason and evidence.

    log_sd  spread among its sources, as the standard deviation of the logarithm; None: not stated
    """

    value: float = Field(ge=0, allow_inf_nan=False, strict=True)
    unit: str
    source: Text
    why: Text
    evidence: Evidence
    log_sd: float | None = Field(default=None, ge=0, le=3, allow_inf_nan=False, strict=True)

    def __str__(self) -> str:
        return units.format_quantity(self.value, self.unit)

    @staticmethod
    def what_if(number: float, unit: str, source: str, typed: str) -> Quantity:
        """A value in place of that of a file. typed  as for ``--set``. Limits: impossible -> BadInputError"""
        known = {"unit": unit, "source": source, "why": "a what-if", "evidence": Evidence.ASSUMED}
        return validated(Quantity, {"value": float(number), **known}, source, typed)


class ValueKey(NamedTuple):
    """What a value of a machine or chip must be.

    unit  its unit;  zero  whether it may be 0, which means "none";  meaning  for messages and lists
    required  whether each machine has it
    """

    unit: str
    zero: bool
    meaning: str
    required: bool = True

    def check(self, key: str, quantity: Quantity) -> None:
        """Raises ValueError unless the value is allowed for ``key``."""
        if quantity.unit != self.unit:
            raise ValueError(f"values.{key}.unit: must be {self.unit!r}, not {quantity.unit!r}")
        if quantity.value == 0 and not self.zero:
            raise ValueError(f"values.{key}.value: must be more than 0")
        if self.unit == "count" and not quantity.value.is_integer():
            raise ValueError(f"values.{key}.value: must be a whole number, not {quantity.value:g}")
