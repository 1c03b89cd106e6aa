"""Kernel constants of each library that was timed in one run; the default library comes first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from perfmodel.fit.kernels import fit_implementation, usable
from perfmodel.schema.evidence import Clock
from perfmodel.schema.kernel_fits import IMPLEMENTATIONS, InPass, KernelConstants, KernelStep
from perfmodel.schema.machine import Machine

if TYPE_CHECKING:
    import pandas as pd

_OF_THE_PASS = ("torch", "fbgemm", "perfmodel")
"""Whose kernels our own pass uses: the first of these implementations that was also timed alone."""

_KEYS: dict[KernelStep, tuple[str, ...]] = {
    "bucketize": ("bucketize_floor_s", "bucketize_bytes_per_s"),
    "local_sum": ("local_sum_bytes_per_s",),
}
"""Constants of steps that a library may not have."""


def fit_kernels(samples: pd.DataFrame, machine: Machine, clock: Clock) -> KernelConstants | None:
    """The first result of ``fit_each``. Limits: none -> None"""
    return next(iter(fit_each(samples, machine, clock)), None)


def fit_each(
    samples: pd.DataFrame, machine: Machine, clock: Clock, passes: pd.DataFrame | None = None
) -> list[KernelConstants]:
    """Constants of each implementation that was timed at one clock, in the order of ``IMPLEMENTATIONS``.

    samples  ``Run.kernel_samples``; the fit uses uniform ids, neither held out nor throttled, on the largest
             number of ranks
    passes   whole passes that a fit may use (``passes_to_fit``). An implementation without passes gets the
             slow-down of implementations with passes. A step that was timed in the pass only is used for all
             implementations.
    Limits: too few samples of all kernels of an implementation -> it is left out
    """
    rows = usable(samples, clock)
    timed = [str(name) for name in rows["implementation"].unique()]
    of_the_pass = min(timed, key=_place(_OF_THE_PASS), default="")
    found: list[KernelConstants] = []
    in_pass: Mapping[KernelStep, InPass] = {}
    for name in sorted(timed, key=_place((of_the_pass, *IMPLEMENTATIONS))):
        cells = rows[rows["implementation"] == name]
        cells = cells[cells["gpus"] == cells["gpus"].max()]
        one = fit_implementation(
            name, cells, machine, clock, passes if name == of_the_pass else None, in_pass
        )
        if one is None:
            continue
        if name == of_the_pass:
            in_pass = one.in_pass
        found.append(_completed(one, found[0]) if found else one)
    return sorted(found, key=lambda one: _place(IMPLEMENTATIONS)(one.implementation))


def _completed(one: KernelConstants, other: KernelConstants) -> KernelConstants:
    """The constants of ``one``, completed by ``other`` for steps that ``one`` lacks."""
    lacking = [step for step in _KEYS if step in other.fits and step not in one.fits]
    keys = [key for step in lacking for key in _KEYS[step]]
    return one.model_copy(
        update={
            "values": {**one.values, **{key: other.values[key] for key in keys if key in other.values}},
            "fits": {**one.fits, **{step: other.fits[step] for step in lacking}},
            "in_pass": {**one.in_pass, **{s: other.in_pass[s] for s in lacking if s in other.in_pass}},
            "untold": [*one.untold, *(key for key in keys if key in other.untold)],
            "at_bound": [*one.at_bound, *(key for key in keys if key in other.at_bound)],
            "of_other": {**one.of_other, **{step: other.implementation for step in lacking}},
        }
    )


def _place(order: Sequence[str]) -> Callable[[str], tuple[int, str]]:
    """A sort key for names: names in ``order`` come first, in that order."""
    return lambda name: (order.index(name) if name in order else len(order), name)
