"""A recorded number in words: each named step with its letters, the numbers in them, and its value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from perfmodel.model.recording import (
    ATOM,
    BYTES,
    BYTES_PER_S,
    POWER,
    SECONDS,
    Number,
    Recorded,
    Unit,
    steps_of,
)
from perfmodel.passes.terms import Term
from perfmodel.units import format_amount, format_bytes, format_number, format_rate, format_time

_WRITERS: dict[Unit, Callable[[float], str]] = {
    SECONDS: format_time,
    BYTES: format_bytes,
    BYTES_PER_S: format_rate,
}


def value_text(number: Recorded) -> str:
    """``246 µs``: the value with its unit."""
    return _text(number, number.value)


def working_lines(number: Recorded, apart: Sequence[Recorded] = ()) -> Iterator[str]:
    """``hops = m × inside + n × network = 133 × 1.47 µs + 18 × 2.82 µs = 246 µs``, operands first.

    apart  steps whose own operands are left out
    """
    stop = {id(each) for each in apart}
    made = (step for step in steps_of(number, apart) if step.form and id(step) not in stop)
    yield from dict.fromkeys(_line(step) for step in made)


def _line(step: Recorded) -> str:
    letters, numbers = (_written(step, values, top=True)[0] for values in (False, True))
    return " = ".join(dict.fromkeys([step.symbol, letters, numbers, value_text(step)]))


def recorded_terms(number: Recorded, apart: Sequence[Recorded] = ()) -> Iterator[Term]:
    """Every letter of ``working_lines``: what is given with its source and interval, and the named steps."""
    for step in steps_of(number, apart):
        text = value_text(step)
        if step.low is not None and step.high is not None:
            text += f" ({_text(step, step.low)} – {_text(step, step.high)})"
        yield Term(step.symbol, step.value, text, step.source, step.evidence, step.meaning)


def _text(number: Recorded, value: float) -> str:
    if number.unit in _WRITERS:
        return _WRITERS[number.unit](value)
    return format_amount(value) if float(value).is_integer() else format_number(value)


def _written(number: Number, values: bool, top: bool = False) -> tuple[str, int]:
    """An expression and how tightly it holds together; a named operand is its letter or its value."""
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
