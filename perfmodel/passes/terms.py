"""The numbers in an equation: each with value, unit, source, evidence and meaning."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.passes.equations import Equation
from perfmodel.schema.machine import Quantity
from perfmodel.units import format_quantity


@dataclass(frozen=True)
class Term:
    """One letter of an equation with its value; ``text`` is the value with its unit.

    symbol  the letter;  meaning, source, evidence  in words, as printed"""

    symbol: str
    value: float | None  # None: differs by table and row
    text: str  # the value with its unit, as printed
    source: str
    evidence: str
    meaning: str


@dataclass(frozen=True)
class TimeParts:
    """The derivation of a time: equations (first of the time, then of its parts), terms, and the working.

    working    lines with the numbers filled in;  reference  where the first equation comes from
    doubts     for a collective: standard deviation of ln t [-] by cause; they add in quadrature
    """

    equations: tuple[Equation, ...]
    terms: tuple[Term, ...]
    working: tuple[str, ...]
    reference: str = ""  # source of the equation, if not in its docstring
    doubts: tuple[tuple[str, float], ...] = ()


def quantity_term(symbol: str, quantity: Quantity, meaning: str) -> Term:
    """A term for a constant with its source and evidence."""
    text = format_quantity(quantity.value, quantity.unit)
    return Term(symbol, quantity.value, text, quantity.source, str(quantity.evidence), meaning)
