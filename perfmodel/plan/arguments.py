"""Checks of the arguments of the planner's Python functions: wrong types and names are refused by name."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.errors import BadInputError
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import Machine
from perfmodel.schema.workload import Distribution

_TEXT = ((str,), "a name, as text.")
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "machine": ((str, Path, Machine), "the name of a shipped machine, a file, or a Machine."),
    "distribution": ((str, Distribution), 'text such as "uniform" or "zipf:1.05", or a Distribution.'),
    "only": ((str, Sequence), 'a rule such as "user_*=row-wise", or a list of rules.'),
    "overrides": ((Mapping,), 'a dict such as {"nvlink_bytes_per_s": 900e9}.'),
    "for_torchrec": ((bool, np.bool_), "True or False."),
}
"""Arguments that are not plain text: their allowed types, and these types in words."""

_OPTIONAL = frozenset(("kernels", "backend", "clock", "optimizer", "payload", "overrides"))
"""Arguments that may be None."""


def check_names(options: Mapping[str, Any], function: Callable[..., Any], *more: Callable[..., Any]) -> None:
    """Refuse a named argument that neither ``function`` nor any function in ``more`` has.

    options  the arguments by name. Limits: an unknown name -> the TypeError that Python raises for
    ``function``, with the nearest known name
    """
    known = {name for of in (function, *more) for name in inspect.signature(of).parameters} - {"options"}
    for name in options:
        if name not in known:
            step = unknown_name("argument", name, known).next_step
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}; {step}")


def check_kinds(**given: Any) -> None:
    """Check the types of arguments, passed by name.

    Limits: a wrong type -> BadInputError with the allowed types
    """
    for name, value in given.items():
        kinds, words = _KINDS.get(name, _TEXT)
        items = value if isinstance(value, Sequence) and name == "only" else ()
        kind = isinstance(value, kinds) and all(isinstance(item, str) for item in items)
        if not kind and not (value is None and name in _OPTIONAL):
            raise BadInputError(f"{name} {value!r} cannot be used.", words)


def check_per_node(gpus_per_node: int | None, machine: Machine) -> None:
    """Check GPUs per node. Limits: more than the machine has -> BadInputError"""
    if gpus_per_node is not None and gpus_per_node > machine.gpus_per_node:
        raise BadInputError(
            f"gpus_per_node {gpus_per_node} cannot be used.",
            f"{machine.name} has 1 to {machine.gpus_per_node} in a node.",
        )


def whole(name: str, value: Any, words: str = "", least: int = 1) -> int:
    """The argument ``name`` as an int.

    words  plural noun of the things that it counts, for the error
    Limits: text, a bool, a fraction, less than ``least`` -> BadInputError
    """
    try:
        found = operator.index(value)
    except TypeError:
        found = int(float(value)) if isinstance(value, Real) and float(value).is_integer() else least - 1
    if isinstance(value, bool) or found < least:
        raise BadInputError(f"{name} {value!r} cannot be used.", words or f"a whole number from {least} on.")
    return found


def number(name: str, value: Any, words: str) -> float:
    """The argument ``name`` as a float.

    words  the allowed values, for the error. Limits: text, a bool -> BadInputError
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise BadInputError(f"{name} {value!r} cannot be used.", words)
    return float(value)


def seconds(value: Any) -> float | None:
    """A time limit [s]; None: no limit. Limits: not a number, 0 or less, infinite -> BadInputError"""
    if value is None:
        return None
    words = "seconds above 0, such as 10."
    found = number("time_limit_s", value, words)
    if not 0 < found < math.inf:
        raise BadInputError(f"time_limit_s {found:g} cannot be used.", words)
    return found
