"""Linear programs of the bounds, solved by HiGHS."""

from __future__ import annotations

from typing import Any

from perfmodel.effort import Work
from perfmodel.passes import work_units as units

_WAYS: tuple[tuple[str, dict[str, bool]], ...] = (
    ("highs-ds", {"presolve": False}),
    ("highs-ds", {"presolve": True}),
    ("highs-ipm", {"presolve": True}),
)
"""Methods, fastest first. Without presolve HiGHS fails on some programs of 100 000 tables."""


def least(work: Work, *program: Any) -> Any:
    """Solves a linear program with ``scipy.optimize.linprog`` and returns its result.

    program  (cost, matrix, right, equal matrix, equal right, bounds), the arguments of ``linprog``
    work     counts the program and its iterations

    Limits: every method of HiGHS fails -> RuntimeError, since a program of a bound has a solution
    """
    from scipy.optimize import linprog

    for method, options in _WAYS:
        found: Any = linprog(*program, method=method, options=options)  # type: ignore[call-overload]
        work.add(units.PROGRAM)
        work.add(units.PROGRAM_ITERATION, found.nit)
        if found.x is not None:
            return found
    raise RuntimeError(f"a linear program of a bound was not solved: {found.message}")
