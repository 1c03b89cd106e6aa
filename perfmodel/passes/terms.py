"""The numbers in an equation: each with value, unit, source, evidence and meaning."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.passes.equations import Equation
from perfmodel.passes.letters import LETTERS
from perfmodel.schema.machine import Quantity
from perfmodel.units import format_amount, format_quantity


@dataclass(frozen=True)
class Term:
    """One number in an equation."""

    symbol: str
    value: float | None  # None: differs by table and row
    text: str  # the value with its unit, as printed
    source: str
    evidence: str
    meaning: str


@dataclass(frozen=True)
class TimeParts:
    """The derivation of a time: its equation, the equations of its parts, terms, and the working.

    doubts  for a collective: parts of the standard deviation of ln t [-], which add in quadrature
    """

    equations: tuple[Equation, ...]
    terms: tuple[Term, ...]
    working: tuple[str, ...]
    reference: str = ""  # source of the equation, if not the one in its docstring
    doubts: tuple[tuple[str, float], ...] = ()


def plain_term(symbol: str, value: float, meaning: str = "") -> Term:
    """A number that the question gives, or that follows from it."""
    return Term(symbol, value, format_amount(value), "", "", meaning or LETTERS[symbol].meaning)


def quantity_term(symbol: str, quantity: Quantity, meaning: str) -> Term:
    """A constant with its source."""
    text = format_quantity(quantity.value, quantity.unit)
    return Term(symbol, quantity.value, text, quantity.source, str(quantity.evidence), meaning)
