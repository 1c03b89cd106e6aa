"""What the fields of all files share: strict parts, numbers with units, sources, ranges and intervals.

Ranges of physical values stand in one table, each with its source: ``data/limits/limits.toml``.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from perfmodel import resources, units
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.files import invalid_fields, unknown_name
from perfmodel.schema.gate import read_toml

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Kind = TypeVar("_Kind", bound=BaseModel)

OVERRIDE_SOURCE = "--set"
FAR = 10.0  # A value farther than this factor from every product on the market needs confirmation
_LONG = 1e18  # above this, a number is written with its exponent
_LONG_BYTES = 2**20  # above this, a slow time indicates a slow link, not a high floor


class Strict(BaseModel):
    """A part of a file, without other fields than its own; frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Exact(Strict):
    """As ``Strict``; a value of another type is not converted, as ``"8"`` to 8."""

    model_config = ConfigDict(strict=True)


def validated(
    kind: type[_Kind],
    document: object,
    what: str,
    where: str,
    lines: Sequence[int] = (),
    *,
    strict: bool = False,
) -> _Kind:
    """A document as an instance of ``kind``. Limits: invalid fields -> BadInputError

    what, where  "machine file" and its path, for the message;  lines  as in ``describe_problems``
    strict  no value is converted
    """
    try:
        return kind.model_validate(document, strict=strict or None)
    except ValidationError as error:
        raise invalid_fields(error, what, where, lines) from None


def read_as(kind: type[_Kind], path: Path, what: str) -> _Kind:
    """A TOML file as an instance of ``kind``. Limits: as ``read_toml`` and ``validated``"""
    return validated(kind, read_toml(path, what), what, str(path))


class Limit(Strict):
    """Range of allowed values (``least`` to ``most``), and range of products on the market (``sold_*``).

    unit  of all four ends, one of ``units.QUANTITY_UNITS``
    source  of the lower and of the upper end of ``sold_*``, with a semicolon between; "": none is known
    meaning  of a value of a machine or chip, for messages and lists
    zero  whether it may be 0, which means "none";  required  whether each machine has it
    """

    unit: str
    meaning: str = ""
    zero: bool = False
    required: bool = True
    least: float
    most: float
    sold_least: float = 0.0
    sold_most: float = math.inf
    source: str = ""

    def refusal(self, value: float) -> str:
        """Why ``value`` is refused: the allowed range, for a message. Limits: inside, ends included -> "" """
        if self.least <= value <= self.most:  # false for NaN
            return ""
        low = units.format_quantity(self.least, self.unit)
        high = units.format_quantity(self.most, self.unit)
        number = units.format_quantity(value, self.unit) if abs(value) < _LONG else f"{value:g} {self.unit}"
        return f"must be {'0, or ' if self.zero else ''}from {low} to {high}, not {number}"

    def doubt(self, value: float) -> str:
        """Why ``value`` needs confirmation. Limits: within ten times of a product on the market -> "" """
        low, _, high = self.source.partition("; ")
        if value < self.sold_least / FAR:
            word = "less than a tenth of"
            end = self.sold_least
            source = low
        elif value > self.sold_most * FAR:
            word = "more than ten times"
            end = self.sold_most
            source = high
        else:
            return ""
        sold = units.format_quantity(end, self.unit)
        return f"{units.format_quantity(value, self.unit)} is {word} any product's value ({sold}: {source})"


@lru_cache(maxsize=3)
def limits_of(group: Literal["machine", "chip", "sample"]) -> Mapping[str, Limit]:
    """The limit of each value in a group, by its key; of most values of chips that of their unit."""
    text = resources.data_path("limits", "limits.toml").read_text(encoding="utf-8")
    groups = tomllib.loads(text)
    of_unit = groups["unit"]
    return {key: Limit(**{**of_unit.get(entry["unit"], {}), **entry}) for key, entry in groups[group].items()}


def limit_field(key: str) -> Any:
    """The schema field for a value of a sample within its limit: for ``Annotated[float, …]``."""
    limit = limits_of("sample")[key]
    return Field(ge=limit.least, le=limit.most, allow_inf_nan=False)


def find_doubts(
    payload_bytes: NDArray[np.float64], time_s: NDArray[np.float64], gpus: NDArray[np.float64]
) -> dict[str, str]:
    """{name of a limit: why samples are more than ten times beyond every product}; arrays of one shape."""
    rate = (payload_bytes / time_s)[payload_bytes >= _LONG_BYTES]
    values = {"time_s": time_s, "payload_bytes": payload_bytes, "gpus": gpus, "rate_bytes_per_s": rate}
    doubts = dict[str, str]()
    for name, array in values.items():
        for value in (array.min(), array.max()) if array.size else ():
            if text := limits_of("sample")[name].doubt(float(value)):
                doubts.setdefault(name, text)
    return doubts


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
LogSd = Annotated[float, Field(ge=0, le=30, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=1, le=2**53)]
Ranks = Annotated[int, Field(ge=1, le=int(limits_of("sample")["gpus"].most))]
Seconds = Annotated[float, limit_field("time_s")]
Span = Annotated[float, Field(ge=0, le=limits_of("sample")["time_s"].most, allow_inf_nan=False)]
"""Seconds that may be 0."""
Bytes = Annotated[float, limit_field("payload_bytes")]


class Interval(Strict):
    """A value with its 95 % interval."""

    value: Annotated[float, Field(gt=0, le=1e18)]
    low: Positive
    high: Annotated[float, Field(gt=0, le=1e30)]  # up to e^20 times the value where samples say nothing

    @property
    def known(self) -> bool:
        """Whether the samples determine the value: half its interval is less than the value itself."""
        return self.high - self.low < 2 * self.value

    @model_validator(mode="after")
    def _check(self) -> Interval:
        """Raise ValueError for a value outside its interval."""
        if not self.low <= self.value <= self.high:
            raise ValueError(f"interval {self.low} .. {self.high} does not hold its value {self.value}")
        return self


def allow_names(*names: str) -> StringConstraints:
    """Annotation of a text that is one of these names."""
    return StringConstraints(pattern=f"^({'|'.join(names)})$")


class Quantity(Strict):
    """One value with its unit, source, reason and evidence."""

    value: float = Field(ge=0, allow_inf_nan=False, strict=True)
    unit: str
    source: Text
    why: Text
    evidence: Evidence
    log_sd: float | None = Field(default=None, ge=0, le=3, allow_inf_nan=False, strict=True)  # of sources

    def __str__(self) -> str:
        return units.format_quantity(self.value, self.unit)


class Hardware(Strict):
    """A validated, immutable set of values; ``machine.value("nic_bytes_per_s")`` is in SI units."""

    kind: ClassVar[str]  # machine or chip, for messages
    keys: ClassVar[Mapping[str, Limit]]  # its values, and the range of each

    name: Name
    title: Text
    notes: str = ""
    values: Mapping[str, Quantity]
    overrides: frozenset[str] = Field(default=frozenset(), exclude=True, strict=True)  # no list of a file

    @classmethod
    def refusal(cls, key: str, number: float) -> str:
        """Why a value cannot be: the allowed range, for a message. Limits: allowed -> "" """
        allowed = cls.keys[key]
        if number == 0:
            return "" if allowed.zero else "must be more than 0"
        if allowed.unit == "count" and not float(number).is_integer():
            return f"must be a whole number, not {number:g}"
        return allowed.refusal(number)

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        """Raise ValueError for an unknown or missing value, another unit, or a number out of range."""
        for key, quantity in self.values.items():
            if key not in self.keys:
                raise ValueError(f"values.{key}: not a {self.kind} value; known: {', '.join(self.keys)}")
            if quantity.unit != self.keys[key].unit:
                raise ValueError(f"values.{key}.unit: must be {self.keys[key].unit!r}, not {quantity.unit!r}")
            if refused := self.refusal(key, quantity.value):
                raise ValueError(f"values.{key}.value: {refused}")
        if missing := [key for key in self.keys if self.keys[key].required and key not in self.values]:
            raise ValueError(f"values: missing {', '.join(missing)}")
        return self

    def quantity(self, key: str) -> Quantity:
        """The value ``key`` with its source and evidence."""
        if key not in self.keys:
            raise unknown_name(f"{self.kind} value", key, self.keys)
        if key not in self.values:
            raise BadInputError(
                f"{self.kind} {self.name} does not say its {key}: {self.keys[key].meaning}.",
                f"give it: --set {key}=…, or in a {self.kind} file.",
            )
        return self.values[key]

    def value(self, key: str) -> float:
        """The SI value of ``key``."""
        return self.quantity(key).value

    def with_overrides(self, values: Mapping[str, float | str], source: str = OVERRIDE_SOURCE) -> Self:
        """The same with other values (SI, or text with a unit): ``assumed``, and in ``overrides``."""
        if not values:
            return self
        replaced = {key: self._take_value(key, value, source) for key, value in values.items()}
        fields: dict[str, object] = {name: getattr(self, name) for name in type(self).model_fields}
        fields["values"] = {**self.values, **replaced}
        fields["overrides"] = self.overrides | set(replaced)
        return validated(type(self), fields, source, " ".join(f"{k}={v}" for k, v in values.items()))

    def _take_value(self, key: str, value: float | str, source: str) -> Quantity:
        """A what-if for the value ``key``, as a quantity. source  the option that gave it, for messages"""
        if key not in self.keys:
            raise unknown_name(f"{self.kind} value", key, self.keys)
        unit = self.keys[key].unit
        number = units.parse_quantity(value, unit, f"{source} {key}") if isinstance(value, str) else value
        if refused := self.refusal(key, number):
            meaning = self.keys[key].meaning
            present = f"; here {self.values[key]}" if key in self.values else ""
            raise BadInputError(f"{source} {key}={value}: it {refused}.", f"{meaning}{present}.")
        origin = {"unit": unit, "source": source, "why": "a what-if", "evidence": Evidence.ASSUMED}
        return validated(Quantity, {"value": float(number), **origin}, source, f"{key}={value}")
