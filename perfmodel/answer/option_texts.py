"""Texts of option values that are read as exactly the same values."""

from __future__ import annotations

import math

from perfmodel.errors import BadInputError
from perfmodel.units import parse_quantity

_SUFFIXES_OF = {
    "byte": ("B", "kB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB", "PiB"),
    "byte/s": ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"),
    "s": ("s", "ms", "us", "ns"),
    "fraction": ("%",),
}


def format_exact(value: float, unit: str) -> str:
    """The shortest text with a unit that parses to exactly this value: ``10TB``, ``100GB/s``, ``7.5us``.

    Limits: a count or ratio -> the plain number
    """
    best, fewest = "", math.inf
    for suffix in _SUFFIXES_OF.get(unit, ()):
        unit_value = parse_quantity(f"1{suffix}", unit)
        text = f"{value / unit_value:.12g}{suffix}"
        digits = len(text.removesuffix(suffix).replace(".", ""))
        if "e" in text.removesuffix(suffix) or digits > fewest or (best and value < unit_value):
            continue
        try:
            if math.isclose(parse_quantity(text, unit), value, rel_tol=1e-12):
                best, fewest = text, digits
        except BadInputError:
            continue
    return best or format_plain(value)


def format_plain(value: float) -> str:
    """The shortest text of a number that parses to it: ``1024``, ``0.15``."""
    return f"{value:.0f}" if float(value).is_integer() else repr(float(value))
