"""A chip of many cores: memory and gather rate of one core, and the resources that all cores share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from perfmodel import resources, units
from perfmodel.errors import BadInputError
from perfmodel.schema.files import looks_like_path, unknown_name
from perfmodel.schema.gate import read_toml
from perfmodel.schema.machine import OVERRIDE_SOURCE, Name, Quantity, Text
from perfmodel.schema.machine_keys import ValueKey
from perfmodel.schema.strict import Strict, validated

_FOLDER = "chips"
_SUFFIX = ".toml"
_WHAT = "chip file"

CHIP_KEYS: dict[str, ValueKey] = {
    "cores": ValueKey("count", False, "cores that work in parallel"),
    "local_bytes": ValueKey("byte", False, "local buffer (L1) of a core, where rows stay"),
    "vector_bytes": ValueKey("byte", False, "vector buffer (UB) of a core, where bags are summed"),
    "core_bytes_per_s": ValueKey("byte/s", False, "highest rate of rows from global memory to one core"),
    "dma_bytes_per_s": ValueKey("byte/s", False, "long copies of one core from or to global memory"),
    "local_bytes_per_s": ValueKey("byte/s", False, "rows that one core gathers from its local buffer"),
    "vector_bytes_per_s": ValueKey("byte/s", False, "rows that one core gathers from its vector buffer"),
    "local_to_vector_bytes_per_s": ValueKey(
        "byte/s", True, "from the local to the vector buffer of a core; 0 = rows are gathered in place"
    ),
    "row_issue_s": ValueKey("s", True, "time between two row requests of a core (GM, L1); 0 = in parallel"),
    "id_s": ValueKey("s", True, "time to check one id in a pass; 0 = ids are sorted by chunk"),
    "row_latency_s": ValueKey("s", False, "time from a row request to its first byte, global memory"),
    "rows_in_flight": ValueKey("count", False, "row requests of one core in flight"),
    "access_bytes": ValueKey("byte", False, "smallest read from global memory"),
    "gm_bytes_per_s": ValueKey("byte/s", False, "global memory, all cores together"),
    "gm_size_bytes": ValueKey("byte", True, "size of global memory; 0 = not given"),
    "channels": ValueKey("count", False, "channels of global memory; a row is in one of them"),
    "cache_bytes": ValueKey("byte", True, "cache that all cores share; 0 = none"),
    "cache_bytes_per_s": ValueKey("byte/s", True, "cache, all cores together; 0 = none"),
    "cache_slices": ValueKey("count", True, "slices of the cache; a row is in one of them; 0 = none"),
    "cache_latency_s": ValueKey("s", True, "time from a row request to its first byte, cache; 0 = none"),
    "core_cache_bytes": ValueKey("byte", True, "cache of a core, for rows from global memory (GM); 0 = none"),
    "core_cache_bytes_per_s": ValueKey("byte/s", True, "rows that one core gathers from its cache; 0 = none"),
    "core_cache_latency_s": ValueKey(
        "s", True, "time from a row request to its first byte, core's cache; 0 = none"
    ),
}
"""Every value of a chip; a file may omit the memory size and a core's cache only."""

MOST_CORES = 4096
"""The mapper tries every piece of a mapping on every core."""

_SIZES = {"count": (1, 1e9), "byte": (1, 1e18), "byte/s": (1e3, 1e18), "s": (1e-15, 1)}
"""Allowed range of a value that is not 0, by unit: values outside are typing errors."""

_CACHE = ("cache_bytes", "cache_bytes_per_s", "cache_slices", "cache_latency_s")
_CORE_CACHE = ("core_cache_bytes", "core_cache_bytes_per_s", "core_cache_latency_s")
_OPTIONAL = {
    "gm_size_bytes": "it does not say how much its memory holds",
    **dict.fromkeys(_CORE_CACHE, "it gives no cache of a core"),
}


class Buffers(Strict):
    """Properties of a core's buffers.

    persist  rows stay from one batch to the next: they are copied once, which a batch's time does not include
    shared   local and vector buffer are one memory: rows and bags compete for it
    """

    persist: bool = Field(strict=True)
    shared: bool = Field(strict=True)
    source: Text


class Chip(Strict):
    """A validated, immutable chip; ``chip.value("cores")`` is in SI units."""

    name: Name
    title: Text
    notes: str = ""
    buffers: Buffers
    values: Mapping[str, Quantity]
    overrides: frozenset[str] = Field(default=frozenset(), exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, document: Any) -> Any:
        """Checks names before values, so that an unknown name is reported even in an incomplete file."""
        values = document.get("values") if isinstance(document, dict) else None
        if not isinstance(values, Mapping):
            return document
        for key in values:
            if key not in CHIP_KEYS:
                raise ValueError(f"values.{key}: not a chip value; known: {', '.join(CHIP_KEYS)}")
        none = {key: _none(key) for key in _OPTIONAL if key not in values}
        return {**document, "values": {**values, **none}}

    @model_validator(mode="after")
    def _check(self) -> Self:
        missing = [key for key in CHIP_KEYS if key not in self.values]
        if missing:
            raise ValueError(f"values: missing {', '.join(missing)}")
        for key, quantity in self.values.items():
            CHIP_KEYS[key].check(key, quantity)
        if self.value("cores") > MOST_CORES:
            raise ValueError(
                f"values.cores.value: at most {MOST_CORES} cores are mapped, not {self.value('cores'):g}"
            )
        for key, quantity in self.values.items():
            _check_size(key, quantity)
        _check_cache(self)
        if self.buffers.shared and self.value("local_bytes") != self.value("vector_bytes"):
            raise ValueError("buffers.shared: one memory has one size; local_bytes and vector_bytes differ")
        if self.buffers.shared and self.value("local_to_vector_bytes_per_s") > 0:
            raise ValueError("buffers.shared: nothing is copied inside one memory; give 0")
        return self

    def quantity(self, key: str) -> Quantity:
        """The value ``key`` with its source and evidence."""
        if key not in CHIP_KEYS:
            raise unknown_name("chip value", key, CHIP_KEYS)
        return self.values[key]

    def value(self, key: str) -> float:
        """The SI value of ``key``."""
        return self.quantity(key).value

    @property
    def cores(self) -> int:
        """Number of cores of the chip."""
        return int(self.value("cores"))

    def with_overrides(self, values: Mapping[str, float | str], source: str = OVERRIDE_SOURCE) -> Chip:
        """This chip with some values replaced: evidence ``assumed``, listed in ``overrides``.

        values  SI numbers, or text with a unit (``"40GB/s"``); a cache of 0 bytes means no cache
        Limits: unknown key, impossible value -> BadInputError; nothing replaced -> this chip
        """
        if not values:
            return self
        given = {key: self._given(key, value, source) for key, value in values.items()}
        fields = {name: getattr(self, name) for name in ("name", "title", "notes", "buffers")}
        gone = {
            key: self._given(key, 0.0, source)
            for size, *others in (_CACHE, _CORE_CACHE)
            if size in given and given[size].value == 0
            for key in others
            if key not in given
        }
        fields |= {"values": {**self.values, **gone, **given}, "overrides": self.overrides | set(given)}
        return validated(Chip, fields, source, " ".join(f"{k}={v}" for k, v in values.items()))

    def _given(self, key: str, value: float | str, source: str) -> Quantity:
        unit = self.quantity(key).unit
        number = units.parse_quantity(value, unit, f"{source} {key}") if isinstance(value, str) else value
        return Quantity.what_if(number, unit, source, f"{key}={value}")


def _check_size(key: str, quantity: Quantity) -> None:
    least, most = _SIZES[quantity.unit]
    if quantity.value and not least <= quantity.value <= most:
        raise ValueError(
            f"values.{key}.value: {quantity.value:g} is of no chip; {least:g} to {most:g} {quantity.unit}"
        )


def _check_cache(chip: Chip) -> None:
    cache, near = (_all_given(chip, keys) for keys in (_CACHE, _CORE_CACHE))
    if cache and chip.value("cache_latency_s") > chip.value("row_latency_s"):
        raise ValueError(
            "cache_latency_s is more than row_latency_s: a cache answers no later than the memory"
        )
    behind = "cache_latency_s" if cache else "row_latency_s"
    if near and chip.value("core_cache_latency_s") > chip.value(behind):
        raise ValueError(
            f"core_cache_latency_s is more than {behind}: a cache answers no later than what it spares"
        )


def _all_given(chip: Chip, keys: tuple[str, ...]) -> bool:
    """Whether the chip has the cache with these keys. Limits: some keys given, others not -> an error"""
    given = [key for key in keys if chip.value(key) > 0]
    if given and len(given) < len(keys):
        none = [key for key in keys if key not in given]
        wrong = f"{', '.join(none)} {'is' if len(none) == 1 else 'are'} 0"
        raise ValueError(f"a chip with a cache gives all of {', '.join(keys)}; {wrong}")
    return bool(given)


def _none(key: str) -> dict[str, Any]:
    """The value of a key that a file omits."""
    return {
        "value": 0.0,
        "unit": CHIP_KEYS[key].unit,
        "source": "the file of the chip",
        "why": _OPTIONAL[key],
        "evidence": "assumed",
    }


def list_chips() -> list[str]:
    """Names of the shipped chips."""
    return resources.data_names(_FOLDER, _SUFFIX)


def load_chip(name_or_path: str | Path) -> Chip:
    """A shipped chip by name, or a user's own TOML file by path.

    Limits: unknown name -> BadInputError listing the known ones; a bad file -> BadInputError with its field
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or looks_like_path(text, [_SUFFIX]):
        return read_chip(Path(text))
    return _shipped(text)


@lru_cache(maxsize=32)
def _shipped(name: str) -> Chip:
    return read_chip(_path_of(name))


def chip_file(name: str) -> str:
    """The TOML of a shipped chip. Limits: unknown name -> BadInputError listing the known ones"""
    return _path_of(name).read_text(encoding="utf-8")


def _path_of(name: str) -> Path:
    if name not in list_chips():
        raise unknown_name("chip", name, list_chips())
    return resources.data_path(_FOLDER, name + _SUFFIX)


def read_chip(path: Path) -> Chip:
    """A chip from a TOML file, validated."""
    document: dict[str, Any] = read_toml(path, _WHAT)
    if "overrides" in document:
        raise BadInputError(f"{_WHAT} {path} has a field 'overrides'.", "overrides are given with --set.")
    return validated(Chip, document, _WHAT, str(path))
