"""A recorded number in words: each named step with its letters, its numbers, and its value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from perfmodel.model.recording import (
    ATOM,
    BYTES,
    BYTES_PER_S,
    PLAIN,
    POWER,
    SECONDS,
    Number,
    Recorded,
    Unit,
    steps_of,
)
from perfmodel.passes.equations import Equation
from perfmodel.passes.terms import Term, TimeParts
from perfmodel.schema.machine import Quantity
from perfmodel.units import format_amount, format_bytes, format_quantity

_UNITS: dict[str, Unit] = {"s": SECONDS, "byte": BYTES, "byte/s": BYTES_PER_S}
_NAMES = {unit: name for name, unit in _UNITS.items() if unit != BYTES}


def recorded_quantity(symbol: str, quantity: Quantity, meaning: str) -> Recorded:
    """A constant as a recorded number, with its source."""
    unit, source, sure = _UNITS.get(quantity.unit, PLAIN), quantity.source, str(quantity.evidence)
    return Recorded(quantity.value, unit, symbol=symbol, meaning=meaning, source=source, evidence=sure)


def recorded_parts(
    number: Recorded,
    *functions: Callable[..., Any],
    beside: Sequence[Recorded] = (),
) -> TimeParts:
    """The derivation of a time: the equations of ``functions``, every letter in the recorded number, the
    working.

    beside  constants inside its operands that are explained too
    """
    terms = {term.symbol: term for each in (number, *beside) for term in recorded_terms(each)}
    made = tuple(term for term in terms.values() if term.symbol != number.symbol)
    return TimeParts(tuple(map(Equation.of, functions)), made, tuple(working_lines(number)))


def letters_text(number: Recorded) -> str:
    """The expression of a recorded number in letters: ``m × inside + n × network``."""
    return _written(number, values=False, top=True)[0]


def value_text(number: Recorded) -> str:
    """The recorded number's value with its unit: ``246 µs``."""
    return _text(number, number.value)


def working_lines(number: Recorded) -> Iterator[str]:
    """The computation line by line, operands first: ``hops = m × inside + ... = 133 × 1.47 µs + ...``."""
    yield from dict.fromkeys(_line(step) for step in steps_of(number) if step.form)


def _line(step: Recorded) -> str:
    letters, numbers = (_written(step, values, top=True)[0] for values in (False, True))
    return " = ".join(dict.fromkeys([step.symbol, letters, numbers, value_text(step)]))


def recorded_terms(number: Recorded) -> Iterator[Term]:
    """Every letter in ``working_lines``: given numbers with source and interval, and the named steps."""
    for step in steps_of(number):
        text = value_text(step)
        if step.low is not None and step.high is not None:
            text += f" ({_text(step, step.low)} – {_text(step, step.high)})"
        yield Term(step.symbol, step.value, text, step.source, step.evidence, step.meaning)


def _text(number: Recorded, value: float) -> str:
    if number.unit == BYTES:
        return format_bytes(value)
    if number.unit in _NAMES:
        return format_quantity(value, _NAMES[number.unit])
    return format_amount(value)


def _written(number: Number, values: bool, top: bool = False) -> tuple[str, int]:
    """(expression, its binding strength); a named operand is written as its letter or its value."""
    if not isinstance(number, Recorded):
        return f"{float(number):.4g}", ATOM
    if not number.form or (number.symbol and not top):
        text = value_text(number) if values else number.symbol
        return text, POWER if " " in text else ATOM
    texts = []
    for operand in number.operands:
        text, tie = _written(operand, values)
        loose = tie < number.inner or (tie == number.inner == POWER)
        texts.append(f"({text})" if loose else text)
    return number.form.format(*texts), number.tie
