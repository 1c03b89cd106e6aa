"""A chip of many cores: memory and rates of one core, and what all cores share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from perfmodel import resources, units
from perfmodel.errors import BadInputError
from perfmodel.schema.fields import Name, Quantity, Strict, Text, ValueKey, validated
from perfmodel.schema.files import looks_like_path, unknown_name
from perfmodel.schema.gate import read_toml
from perfmodel.schema.machine import OVERRIDE_SOURCE

_FOLDER, _SUFFIX, _WHAT = "chips", ".toml", "chip file"

CHIP_KEYS: dict[str, ValueKey] = {
    "cores": ValueKey("count", False, "cores that work in parallel"),
    "local_bytes": ValueKey("byte", False, "local buffer (L1) of a core, where rows stay"),
    "vector_bytes": ValueKey("byte", False, "vector buffer (UB) of a core, where bags are summed"),
    "core_bytes_per_s": ValueKey("byte/s", False, "from or to global memory, one core"),
    "local_bytes_per_s": ValueKey("byte/s", False, "rows from the local buffer, or from a core's cache"),
    "vector_bytes_per_s": ValueKey("byte/s", False, "rows from the vector buffer of a core"),
    "local_to_vector_bytes_per_s": ValueKey("byte/s", True, "between a core's buffers; 0 = one memory"),
    "row_issue_s": ValueKey("s", True, "time between two row requests of a core (GM, L1); 0 = in parallel"),
    "id_s": ValueKey("s", True, "time to check one id in a pass over a table; 0 = ids are sorted by chunk"),
    "row_latency_s": ValueKey("s", False, "time from a row request to its first byte, global memory"),
    "rows_in_flight": ValueKey("count", False, "row requests of one core in flight"),
    "access_bytes": ValueKey("byte", False, "smallest read from global memory"),
    "gm_bytes_per_s": ValueKey("byte/s", False, "global memory, all cores together"),
    "gm_size_bytes": ValueKey("byte", True, "size of global memory; 0 = not given"),
    "cache_bytes": ValueKey("byte", True, "cache that all cores share; 0 = it keeps nothing"),
    "cache_bytes_per_s": ValueKey("byte/s", False, "cache, all cores together"),
    "cache_slices": ValueKey("count", False, "slices of the cache; a row is in one of them"),
    "cache_latency_s": ValueKey("s", False, "time from a row request to its first byte, cache"),
    "core_cache_bytes": ValueKey("byte", True, "cache of a core, for rows from global memory; 0 = none"),
    "core_cache_latency_s": ValueKey("s", True, "time from a row request to its first byte, core's cache"),
}
"""Every value of a chip."""

MOST_CORES = 4096

_SIZES = {"count": (1, 1e9), "byte": (1, 1e18), "byte/s": (1e3, 1e18), "s": (1e-15, 1)}
"""Allowed range of a value that is not 0, by unit: values outside are typing errors."""

_NEARER = ("core_cache_latency_s", "cache_latency_s", "row_latency_s")


class Buffers(Strict):
    """persist  rows stay from one batch to the next: they are copied once, which a batch's time does not
    include
    """

    persist: bool = Field(strict=True)
    source: Text


class Chip(Strict):
    """A validated, immutable chip; ``chip.value("cores")`` is in SI units."""

    name: Name
    title: Text
    notes: str = ""
    buffers: Buffers
    values: Mapping[str, Quantity]
    overrides: frozenset[str] = Field(default=frozenset(), exclude=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key in self.values:
            if key not in CHIP_KEYS:
                raise ValueError(f"values.{key}: not a chip value; known: {', '.join(CHIP_KEYS)}")
        missing = [key for key in CHIP_KEYS if key not in self.values]
        if missing:
            raise ValueError(f"values: missing {', '.join(missing)}")
        for key, quantity in self.values.items():
            CHIP_KEYS[key].check(key, quantity)
            least, most = _SIZES[quantity.unit]
            if quantity.value and not least <= quantity.value <= most:
                allowed = f"{least:g} to {most:g} {quantity.unit}"
                raise ValueError(f"values.{key}.value: {quantity.value:g} is of no chip; {allowed}")
        if self.cores > MOST_CORES:
            raise ValueError(f"values.cores.value: at most {MOST_CORES} cores are mapped, not {self.cores}")
        near = [self.value(key) for key in _NEARER]
        if near != sorted(near):
            raise ValueError(f"a cache answers no later than what it spares: {' <= '.join(_NEARER)}")
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

        values  SI numbers, or text with a unit (``"40GB/s"``)
        Limits: unknown key, impossible value -> BadInputError; nothing replaced -> this chip
        """
        if not values:
            return self
        given = {}
        for key, value in values.items():
            unit, typed = self.quantity(key).unit, f"{key}={value}"
            number = units.parse_quantity(value, unit, f"{source} {key}") if isinstance(value, str) else value
            given[key] = Quantity.what_if(number, unit, source, typed)
        fields = {name: getattr(self, name) for name in ("name", "title", "notes", "buffers")}
        fields |= {"values": {**self.values, **given}, "overrides": self.overrides | set(given)}
        return validated(Chip, fields, source, " ".join(f"{k}={v}" for k, v in values.items()))


def list_chips() -> list[str]:
    """Names of the shipped chips."""
    return resources.data_names(_FOLDER, _SUFFIX)


def load_chip(name_or_path: str | Path) -> Chip:
    """A shipped chip by name, or a user's own TOML file by path.

    Limits: unknown name -> BadInputError listing the known ones; a bad file -> BadInputError with its field
    """
    text = str(name_or_path)
    is_path = isinstance(name_or_path, Path) or looks_like_path(text, [_SUFFIX])
    return read_chip(Path(text) if is_path else _find_shipped(text))


def chip_file(name: str) -> str:
    """The TOML of a shipped chip. Limits: unknown name -> BadInputError listing the known ones"""
    return _find_shipped(name).read_text(encoding="utf-8")


def _find_shipped(name: str) -> Path:
    if name not in list_chips():
        raise unknown_name("chip", name, list_chips())
    return resources.data_path(_FOLDER, name + _SUFFIX)


def read_chip(path: Path) -> Chip:
    """A chip from a TOML file, validated."""
    document: dict[str, Any] = read_toml(path, _WHAT)
    if "overrides" in document:
        raise BadInputError(f"{_WHAT} {path} has a field 'overrides'.", "overrides are given with --set.")
    return validated(Chip, document, _WHAT, str(path))
