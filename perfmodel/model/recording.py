"""Numbers that record how they were computed: a law that is evaluated with them explains itself.

A law is ordinary arithmetic. Floats or arrays give a number; with ``Recorded`` numbers among its arguments
the same lines give a ``Recorded`` answer, which has its operands, its unit and the name of each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, NoReturn

import numpy as np

Number = Any
"""A float, an array of floats, or a ``Recorded`` number: the arguments and results of a law."""
Unit = tuple[int, int]
"""Exponents of bytes and of seconds."""
PLAIN, SECONDS, BYTES, BYTES_PER_S = (0, 0), (0, 1), (1, 0), (1, -1)
_SUFFIXES = (("_bytes_per_s", BYTES_PER_S), ("_bytes", BYTES), ("_s", SECONDS))
SUM, PRODUCT, POWER, ATOM = range(4)
"""Binding strength of an expression: operands that bind less than their place needs get parentheses."""


def unit_of(name: str) -> Unit:
    """The unit that the end of a name states (``_s``, ``_bytes``). Limits: no known end -> a plain number"""
    return next((unit for end, unit in _SUFFIXES if name.endswith(end)), PLAIN)


@dataclass(frozen=True, eq=False)
class Recorded:
    """A number together with the expression that computed it.

    form     the expression, operands in braces: ``{0} + {1}``; "" for a given number
    tie      how tightly the expression binds (``SUM`` to ``ATOM``), which decides on parentheses
    inner    how tightly an operand must bind to need no parentheses
    symbol, meaning       its letter and the letter's meaning: of a given number, or of a step with a name
    source, evidence, low, high  of a given number; low and high are its 95 % interval
    """

    value: float
    unit: Unit = PLAIN
    form: str = ""
    operands: tuple[Number, ...] = ()
    tie: int = ATOM
    inner: int = SUM
    symbol: str = ""
    meaning: str = ""
    source: str = ""
    evidence: str = ""
    low: float | None = None
    high: float | None = None

    __array_ufunc__ = None  # numpy then leaves array * Recorded to this class, which refuses it
    ndim = 0

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"{self.symbol or self.form}: an array would drop how the number came about")

    def __float__(self) -> float:
        return float(self.value)

    def _alike(self, other: Number, form: str, value: float) -> Recorded:
        """The sum or difference ``form`` of this number and ``other``, which has the same unit or is 0."""
        if isinstance(other, Recorded) and other.unit != self.unit:
            raise TypeError(f"{form}: {self.symbol} and {other.symbol} have different units")
        return Recorded(value, self.unit, form, (self, other), SUM, SUM)

    def __add__(self, other: Number) -> Recorded:
        if not isinstance(_checked(other), Recorded) and other == 0:
            return self
        return self._alike(other, "{0} + {1}", self.value + float(other))

    def __radd__(self, other: Number) -> Recorded:
        made = self.__add__(other)
        return made if made is self else replace(made, operands=(other, self))

    def __sub__(self, other: Number) -> Recorded:
        made = self._alike(_checked(other), "{0} - {1}", self.value - float(other))
        return replace(made, inner=PRODUCT)

    def __rsub__(self, other: Number) -> Recorded:
        made = Recorded(float(_checked(other)), self.unit) - self
        return replace(made, operands=(other, self))

    def __mul__(self, other: Number) -> Recorded:
        return _times(self, other)

    def __rmul__(self, other: Number) -> Recorded:
        return _times(other, self)

    def __truediv__(self, other: Number) -> Recorded:
        return _over(self, other)

    def __rtruediv__(self, other: Number) -> Recorded:
        return _over(other, self)

    def __pow__(self, power: Number) -> Recorded:
        exponent = float(power)
        if self.unit != PLAIN and not exponent.is_integer():
            raise TypeError(f"{self.symbol} has a unit: its power {exponent} has none")
        unit = (self.unit[0] * int(exponent), self.unit[1] * int(exponent)) if self.unit != PLAIN else PLAIN
        return Recorded(self.value**exponent, unit, "{0}^{1}", (self, power), POWER, ATOM)

    def __neg__(self) -> Recorded:
        return Recorded(-self.value, self.unit, "-{0}", (self,), PRODUCT, POWER)

    def __lt__(self, other: Number) -> bool:
        return self.value < float(other)

    def __le__(self, other: Number) -> bool:
        return self.value <= float(other)

    def __gt__(self, other: Number) -> bool:
        return self.value > float(other)

    def __ge__(self, other: Number) -> bool:
        return self.value >= float(other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (int, float, Recorded)) and self.value == float(other)

    __hash__ = object.__hash__


def _checked(other: Number) -> Number:
    if isinstance(other, np.ndarray):
        raise TypeError("an array and a recorded number: give both as numbers")
    return other


def _unit(number: object) -> Unit:
    return number.unit if isinstance(number, Recorded) else PLAIN


def _times(first: Number, second: Number) -> Recorded:
    """The product of two numbers; a factor of 1 is dropped."""
    for one, other in ((first, second), (second, first)):
        if isinstance(other, Recorded) and not isinstance(one, Recorded) and np.ndim(one) == 0 and one == 1:
            return other
    a, b = _unit(_checked(first)), _unit(_checked(second))
    value = float(first) * float(second)
    return Recorded(value, (a[0] + b[0], a[1] + b[1]), "{0} × {1}", (first, second), PRODUCT, PRODUCT)


def _over(first: Number, second: Number) -> Recorded:
    a, b = _unit(_checked(first)), _unit(_checked(second))
    if isinstance(second, Recorded) and not second.symbol and second.tie == PRODUCT:
        second = replace(second, tie=SUM)  # a / (b c)
    value = float(first) / float(second)
    return Recorded(value, (a[0] - b[0], a[1] - b[1]), "{0} / {1}", (first, second), PRODUCT, PRODUCT)


def named(symbol: str, number: Number, meaning: str) -> Number:
    """A recorded number, named as a step of a law; other numbers are returned unchanged."""
    if not isinstance(number, Recorded):
        return number
    if number.symbol:
        return Recorded(number.value, number.unit, "{0}", (number,), ATOM, SUM, symbol, meaning)
    return replace(number, symbol=symbol, meaning=meaning)


def operation(form: str, alike: int = 0, inner: int = SUM, tie: int = ATOM) -> Callable[..., Any]:
    """Decorator: a function of recorded numbers is recorded as one printed operation, not step by step.

    form   the printed operation, with arguments in braces by position
    alike  number of leading arguments that share one unit, which the result has too (0: a plain number)
    inner, tie  how tightly its operands must bind, and how tightly it binds, as in ``Recorded``
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Number) -> Number:
            for each in arguments:
                if isinstance(each, Recorded):
                    break
            else:
                return function(*arguments)
            units = {_unit(each) for each in arguments[:alike] if isinstance(each, Recorded)}
            if len(units) > 1:
                raise TypeError(f"{function.__name__}: its arguments have different units")
            value = float(function(*(float(_checked(each)) for each in arguments)))
            return Recorded(value, next(iter(units), PLAIN), form, arguments, tie, inner)

        return call

    return decorate


def maximum(first: Number, second: Number) -> Number:
    """The larger of two, element by element; two floats are compared without numpy, which is slower."""
    if isinstance(first, float) and isinstance(second, float):
        return max(first, second)
    return np.maximum(first, second)


def minimum(first: Number, second: Number) -> Number:
    """The smaller of two, element by element; as ``maximum``."""
    if isinstance(first, float) and isinstance(second, float):
        return min(first, second)
    return np.minimum(first, second)


larger = operation("max({0}, {1})", alike=2)(maximum)
"""``maximum`` as a printed operation."""
smaller = operation("min({0}, {1})", alike=2)(minimum)
"""``minimum`` as a printed operation."""


@operation("ceil({0} / {1})", inner=PRODUCT)
def ceil_ratio(first: Number, second: Number) -> int:
    """ceil(first / second): how many of ``second`` hold ``first``."""
    return -int(-first // second)


def _root(first: Number, second: Number) -> Number:
    return np.sqrt(first * second)


geometric_mean = operation("sqrt({0} × {1})", alike=2, inner=PRODUCT)(_root)
"""Geometric mean of two numbers as a printed operation."""


def smallest(numbers: Sequence[Number]) -> Number:
    """The smallest of several numbers, element by element; of recorded numbers, with its record."""
    if isinstance(numbers[0], Recorded):
        return min(numbers)
    least = numbers[0]
    for each in numbers[1:]:
        least = np.minimum(least, each)
    return least


def steps_of(number: Recorded) -> list[Recorded]:
    """The named steps from which a number was computed: operands first, each once."""
    found: dict[int, Recorded] = {}

    def follow(each: Number) -> None:
        if not isinstance(each, Recorded) or id(each) in found:
            return
        for operand in each.operands:
            follow(operand)
        if each.symbol:
            found[id(each)] = each

    follow(number)
    return list(found.values())
