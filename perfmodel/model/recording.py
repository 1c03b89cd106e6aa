"""Equations that explain themselves: while a recording is on, numbers remember what computed them.

A function with the decorator ``equation`` computes one formula. Its docstring has the formula, its unit,
every parameter as a letter with meaning and unit, and the source. With the recording off, it is called as it
is. While the recording is on, it returns ``Traced`` arrays, and arithmetic of numpy carries their equations
along: what computes a number also explains it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

Number = Any
"""A float, or an array of floats: the arguments and the result of an equation."""
Array = NDArray[np.float64]
UNITS = "-", "bytes", "s", "bytes/s", "rows"
_UNIT = re.compile(rf"\s*\[({'|'.join(UNITS)})\]")
_LETTER = re.compile(r"([A-Za-z]\w*(?:, [A-Za-z]\w*)*) {2,}(\S.*)")
_SAME = 1e-9  # relative difference of two numbers that count as the same
_ON: ContextVar[bool] = ContextVar("recording", default=False)
Function = TypeVar("Function", bound=Callable[..., Any])


def as_array(value: ArrayLike) -> Array:
    """A number, or an array of them, as an array of floats."""
    return np.asarray(value, dtype=np.float64)


@contextmanager
def record_equations() -> Iterator[None]:
    """Context in which equations return ``Traced`` arrays."""
    token = _ON.set(True)
    try:
        yield
    finally:
        _ON.reset(token)


def equation(function: Function) -> Function:
    """Decorator of a function that computes one formula; its parameters are the formula's letters."""

    @wraps(function)
    def evaluate(*values: Number, **options: Number) -> Number:
        """The function's value; while a recording is on, with an ``Evaluation`` of its arguments."""
        value = function(*values, **options)
        if not _ON.get():
            return value
        bound = inspect.signature(function).bind(*values, **options)
        bound.apply_defaults()
        traced = np.asarray(value, dtype=np.float64).view(Traced)
        traced.equations = (Evaluation(function, dict(bound.arguments), value),)
        return traced

    return cast("Function", evaluate)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """An equation with its numbers: ``function`` returned ``value`` for these ``letters``.

    symbol  the letter that it computes;  times  how often its value counts in what it is a term of
    """

    function: Callable[..., Any]
    letters: dict[str, Number]
    value: Number
    symbol: str = ""
    times: float = 1.0

    def follow(self, symbol: str, times: float = 1.0) -> Iterator[Evaluation]:
        """This equation as that of ``symbol``, and then the equation that gave each letter its very value."""
        yield replace(self, symbol=symbol, times=times)
        for letter, number in self.letters.items():
            for term in getattr(number, "equations", ()):
                if np.isclose(to_float(term.value), to_float(number), rtol=_SAME, atol=0):
                    yield from term.follow(letter)
                    break

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        formula = read_formula(self.function)
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        letters = [
            {"letter": letter, "value": to_float(number)} | formula.letters[letter]
            for letter, number in self.letters.items()
        ]
        numbers = {"symbol": self.symbol, "value": to_float(self.value), "times": self.times}
        return numbers | formula._asdict() | {"letters": letters, "function": name}


def derive(symbol: str, number: Number, times: float = 1.0) -> tuple[Evaluation, ...]:
    """The equations that computed a recorded number: its terms, and after each those of its letters.

    symbol  letter of the number;  times  how often each term counts;  0: there is none
    """
    terms = getattr(number, "equations", ()) if times else ()
    return tuple(evaluation for term in terms for evaluation in term.follow(symbol, float(times)))


class Traced(np.ndarray[Any, Any]):
    """An array that remembers the equations that it was computed from."""

    equations: tuple[Evaluation, ...] = ()

    def __array_finalize__(self, other: object) -> None:
        """Views and parts of an array have its equations."""
        self.equations = getattr(other, "equations", ())

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> object:
        """Results of arithmetic have the equations of all operands."""
        plain = {name: _untrace(option) for name, option in options.items()}
        return _trace(getattr(ufunc, method)(*map(_untrace, inputs), **plain), _list_equations(inputs))

    def __array_function__(
        self,
        function: Callable[..., object],
        types: Iterable[type],
        inputs: Iterable[ArrayLike],
        options: Mapping[str, object],
    ) -> object:
        """Results of functions have the equations of all arguments, choices those of what is chosen."""
        operands = tuple(inputs)
        result = function(*map(_untrace, operands), **options)
        if function is np.where and (np.all(operands[0]) or not np.any(operands[0])):
            operands = operands[1:2] if np.all(operands[0]) else operands[2:]
        return _trace(result, _list_equations(operands))


def _untrace(number: object) -> object:
    """A number, or those in a list, as plain arrays, so that numpy computes with them without tracing."""
    if isinstance(number, (list, tuple)):
        return type(number)(map(_untrace, number))
    return number.view(np.ndarray) if isinstance(number, Traced) else number


def _trace(result: object, equations: Iterable[Evaluation]) -> object:
    """A result with the equations that computed it. Limits: zeros -> none, for such terms explain nothing"""
    if not isinstance(result, (np.ndarray, np.generic)):
        return result
    traced = np.asarray(result).view(Traced)
    traced.equations = tuple(dict.fromkeys(equations)) if np.any(result) else ()
    return traced


def _list_equations(inputs: Iterable[object]) -> Iterator[Evaluation]:
    """The equations that all ``Traced`` inputs remember, those in lists among them."""
    for number in inputs:
        if isinstance(number, (list, tuple)):
            yield from _list_equations(number)
        else:
            yield from getattr(number, "equations", ())


def to_float(number: Number) -> float:
    """The number itself, or the first of an array."""
    return float(np.asarray(number).flat[0])


class Formula(NamedTuple):
    """The formula in a docstring, without the letter that it computes.

    unit  of its value;  letters  with the ``meaning`` and ``unit`` of each;  source  where it comes from
    """

    text: str
    unit: str
    letters: dict[str, dict[str, str]]
    source: str


@cache
def read_formula(function: Callable[..., Any]) -> Formula:
    """The formula in a docstring: its first indented lines, the letters below, and the text after Source.

    Letters are bound as ``B  samples [-];  r, c  row and column parts [-]``; words after a unit are comments.
    """
    # Below a blank line: the formula, indented; a blank line; the letters.
    _, _, below = (inspect.getdoc(function) or "").partition("\n\n    ")
    indented, _, body = below.partition("\n\n")
    body, *ends = re.split(r"^(?:Source|Limits):", body, flags=re.MULTILINE)
    letters: dict[str, dict[str, str]] = {}
    for entry in re.split(r"\n(?! )|;  ", body):  # an indented line continues the entry above it
        if bound := _LETTER.match(" ".join(re.split(r"\n *", entry))):
            meaning, *units = _UNIT.split(bound[2])
            words = {"meaning": meaning.replace("`", ""), "unit": "".join(units[:1])}
            letters |= dict.fromkeys(bound[1].split(", "), words)
    unit = _UNIT.search(indented)
    text = " ".join(_UNIT.sub("", indented).split())
    source = " ".join(ends[0].replace("`", "").split()) if "Source:" in below else ""
    return Formula(re.sub(r"^[\w()]+ = ", "", text), unit[1] if unit else "-", letters, source)
