"""Equations compute the formula that their docstrings, the documentation and ``--explain`` show."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import perfmodel.model
from perfmodel.model.recording import read_formula

FUNCTIONS = {name: getattr(np, name) for name in ("ceil", "floor", "log2", "exp", "sqrt")}
FUNCTIONS |= {"min": min, "max": max, "ln": np.log}
LEAST = 58  # formulas that can be read; of the others some have cases, and some sums
SHARES = "tail", "reserve", "p", "missed"
_TOKEN = re.compile(r"\d+|[A-Za-z_]\w*|\S")


def read_expression(formula: str) -> str:
    """A formula in Python: numbers and letters side by side are multiplied, ``^`` is a power."""
    words: list[str] = []
    for word in _TOKEN.findall(formula.replace("[", "(").replace("]", ")")):
        follows = bool(words) and re.fullmatch(r"\w+|\)", words[-1]) and words[-1] not in FUNCTIONS
        words += ["*"] * bool(follows and re.match(r"[\w(]", word)) + ["**" if word == "^" else word]
    return " ".join(words)


def list_equations() -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    """Functions of the model with the code of the formula, and of the letters that it defines besides."""
    for module in pkgutil.iter_modules(perfmodel.model.__path__, "perfmodel.model."):
        for _, function in inspect.getmembers(import_module(module.name), inspect.isfunction):
            text = re.split(r", (\w+) = ", f"{read_formula(function).text}")
            parts = dict(zip(["", *text[1::2]], text[::2], strict=True))
            try:
                codes = {name: compile(read_expression(part), part, "eval") for name, part in parts.items()}
            except SyntaxError:
                continue
            letters = {*inspect.signature(function).parameters, *FUNCTIONS, *codes}
            used = {name for code in codes.values() for name in code.co_names}
            if function.__module__ == module.name and letters.issuperset(used):
                yield function, codes


EQUATIONS = {function.__name__: (function, codes) for function, codes in list_equations()}


def test_most_formulas_can_be_read() -> None:
    assert len(EQUATIONS) >= LEAST
    assert read_expression("2 (G-1)/G x^2") == "2 * ( G - 1 ) / G * x ** 2"


@pytest.mark.parametrize("name", EQUATIONS)
@pytest.mark.filterwarnings("ignore")
def test_an_equation_computes_its_formula(name: str) -> None:
    """At 30 drawn points; of ranks in domains, all domains are full."""
    function, codes = EQUATIONS[name]
    random = np.random.default_rng(0)
    for _ in range(30):
        letters = {
            letter: np.float64(random.uniform() if letter in SHARES else random.integers(1, 40))
            for letter in inspect.signature(function).parameters
        }
        if {"G", "g", "N"} <= letters.keys():
            letters["G"] = letters["g"] * letters["N"]
        defined = {}
        for letter, code in reversed(codes.items()):
            defined[letter] = eval(code, FUNCTIONS | letters | defined)
        if np.isfinite(defined[""]):
            np.testing.assert_allclose(function(**letters), defined[""], rtol=1e-12)
