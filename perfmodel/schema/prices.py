"""A user's prices: per hour of a machine, a GPU or a rack; per TB and month. No prices are shipped."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel.errors import BadInputError
from perfmodel.schema.files import shown, unknown_name
from perfmodel.schema.gate import read_toml
from perfmodel.schema.machine import list_machines
from perfmodel.units import format_number

_WHAT = "price file"
MEMORY, SSD = "memory", "ssd"
_TABLES = {"machine_hour": "h", "tb_month": "TB/month"}
_PRICE = re.compile(
    r"\s*+([+-]?[0-9][0-9_ ]*+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*+([A-Z]{3})\s*+/\s*+"
    r"(?:([1-9][0-9]{0,3}|)\s*+GPUs?\s*+/\s*+)?(h|TB/month)\s*+"
)
_MOST = 1e12
EXAMPLE = '[machine_hour]\nh100-sxm-ib = "80 EUR/h"\n[tb_month]\nmemory = "3000 EUR/TB/month"'


@dataclass(frozen=True)
class HourPrice:
    """The price of an hour. gpus  number of GPUs that it buys together; None: the GPUs of one machine"""

    money: float
    gpus: int | None = None

    def units(self, machines: int, gpus_per_machine: int) -> int:
        """How many times the price is paid in an hour, for whole machines in use.

        Limits: price of a machine -> machines
        """
        return math.ceil(machines * gpus_per_machine / (self.gpus or gpus_per_machine))

    def words(self, currency: str) -> str:
        """The price as in a price file: ``24 EUR/h``, ``430 EUR/72 GPUs/h``."""
        each = "" if self.gpus is None else "GPU/" if self.gpus == 1 else f"{self.gpus} GPUs/"
        return f"{format_number(self.money)} {currency}/{each}h"


@dataclass(frozen=True)
class Prices:
    """Prices in one currency: per hour, by machine name; per TB and month, of ``memory`` and ``ssd``."""

    currency: str
    machine_hour: Mapping[str, HourPrice]
    tb_month: Mapping[str, float]


def read_prices(path: Path, *asked: str) -> Prices:
    """Prices from a TOML file.

    asked  names of the machines in question, which may be the user's own

    Limits: a price without currency and unit, two currencies, an unknown table or name, a price below 0 or
    above ``_MOST`` -> BadInputError
    """
    document: dict[str, Any] = read_toml(path, _WHAT)
    for name in document:
        if name not in _TABLES:
            raise unknown_name(f"{_WHAT} {path}: table", name, _TABLES)
    found: dict[str, dict[str, HourPrice]] = {name: {} for name in _TABLES}
    currencies: dict[str, str] = {}
    for table, unit in _TABLES.items():
        known = list(dict.fromkeys([*list_machines(), *asked])) if table == "machine_hour" else [MEMORY, SSD]
        values = document.get(table, {})
        if not isinstance(values, dict):
            raise BadInputError(f"{_WHAT} {path}: {table} is not a table.", f"for example\n{EXAMPLE}")
        for name, value in values.items():
            if name not in known:
                raise unknown_name(f"{_WHAT} {path}: {table}", name, known)
            where = f"{_WHAT} {path}: {table}.{name}"
            found[table][name], currency = price_of(where, value, unit)
            currencies[currency] = where
    if not currencies:
        raise BadInputError(f"{_WHAT} {path} has no price.", f"for example\n{EXAMPLE}")
    if len(currencies) > 1:
        raise BadInputError(
            f"{_WHAT} {path} has prices in {' and '.join(sorted(currencies))}.", "give all in one currency."
        )
    months = {name: price.money for name, price in found["tb_month"].items()}
    return Prices(next(iter(currencies)), found["machine_hour"], months)


def price_of(where: str, value: object, unit: str) -> tuple[HourPrice, str]:
    """(price, currency) from ``80 EUR/h``, ``10 EUR/GPU/h``, ``720 EUR/72 GPUs/h``, or ``60 EUR/TB/month``.

    where  names the value in a message;  unit  h, or TB/month
    """
    match = _PRICE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match.group(4) != unit or (match.group(3) is not None and unit != "h"):
        raise BadInputError(
            f"{where} {shown(value)} is not a price with a unit.",
            f'write number, currency and unit, "80 EUR/{unit}"; for example\n{EXAMPLE}',
        )
    price = float(match.group(1).replace("_", "").replace(" ", ""))
    if price < 0:
        raise BadInputError(f"{where} {shown(value)} is negative.", "a price is 0 or more.")
    if price > _MOST:
        raise BadInputError(f"{where} {shown(value)} is too large.", f"a price is at most {_MOST:g}.")
    gpus = None if match.group(3) is None else int(match.group(3) or 1)
    return HourPrice(price, gpus), match.group(2)
