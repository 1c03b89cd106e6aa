"""Fits the share of a GPU's datasheet rate that matrix products reach, to steps that MLPerf measured."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from perfmodel.errors import BadInputError
from perfmodel.passes.dense import Dense, from_file
from perfmodel.passes.training import CostedPlan
from perfmodel.schema.dense import ANY, load_dense, load_rates
from perfmodel.validate.dlrm_inputs import Case, Inputs, load_inputs, mlperf_case, mlperf_steps

_LEAST, _MOST, _TOLERANCE = 0.05, 2.0, 1e-5
_KINDS_LOG_SD = 0.12
"""Root mean square of ln(predicted / measured) of Hopper's kinds at their share (docs/accuracy.md)."""
FAR_GPUS = 64


@lru_cache(maxsize=64)
def stored(case: Case) -> CostedPlan:
    """The stored plan of a case with its cost."""
    evaluator = case.evaluator()
    return CostedPlan.of(evaluator, case.plan(evaluator))


def dense_of(inputs: Inputs, machine: str, share: float | None = None) -> Dense:
    """The dense layers on the GPU of a machine, at the shipped share of its rate or another share."""
    dense = from_file(load_dense(inputs.dense), machine)
    return replace(dense, efficiency=share) if share else dense


@dataclass(frozen=True)
class SystemKind:
    """Measured steps of MLPerf in one round with the same tables, GPUs and batch.

    measured_s  median over the submitted systems [s];  case  the tables that they trained
    """

    case: Case
    round: str
    measured_s: float


@lru_cache(maxsize=1)
def kinds() -> tuple[SystemKind, ...]:
    """All measurements that a fit of the share may use."""
    inputs = load_inputs()
    known = {gpu.name: gpu for gpu in inputs.gpu if not gpu.unlike}
    found: dict[tuple[Case, str], list[float]] = defaultdict(list)
    for row in mlperf_steps(inputs):
        if row.gpu in known:
            found[mlperf_case(inputs, known[row.gpu], row), row.round].append(row.step_time_s)
    return tuple(SystemKind(case, name, float(np.median(times))) for (case, name), times in found.items())


def fitted_share(informs: Callable[[Case], bool] = lambda case: True) -> float:
    """The share with which half of the measurements are predicted too fast, and half too slow.

    informs  returns whether a case may be used
    Limits: no measurement, or no such share between 0.05 and 2 -> BadInputError
    """
    from scipy.optimize import brentq

    inputs, used = load_inputs(), [kind for kind in kinds() if informs(kind.case)]
    if not used:
        raise BadInputError("no measured step informs the share of the rate.", "leave fewer out.")

    def middle(share: float) -> float:
        times: dict[Case, float] = {}
        for case in {kind.case for kind in used}:
            times[case] = stored(case).step(dense_of(inputs, case.machine, share)).step_s
        return float(np.median([np.log(times[kind.case] / kind.measured_s) for kind in used]))

    if middle(_MOST) > 0 or middle(_LEAST) < 0:
        raise BadInputError("no share of the rate meets the measured steps.", "check the stored plans.")
    return float(brentq(middle, _LEAST, _MOST, xtol=_TOLERANCE))


def generation_of(machine: str) -> str:
    """Name of the generation of a machine's GPU."""
    rate = load_rates().of(machine)
    return rate.generation if rate else ANY


def shares_by_generation(informs: Callable[[Case], bool] = lambda case: True) -> dict[str, float]:
    """The share of each generation of GPUs with measured steps; of any other, ``ANY``: exp(m).

        ln share = ( k/s^2 ln own + m/t^2 ) / ( k/s^2 + 1/t^2 )                                  [-]

    own  ``fitted_share`` of the k measurements of a generation;  m  mean of ln own over generations
    s    spread between measurements of one generation
    t    spread between generations: standard deviation of ln own about m
    informs  returns whether a case may be used
    Source: best linear prediction of a further measurement of that generation
    Limits: many measurements -> own;  one generation -> its own, and m = ln own
    """
    counts = Counter(generation_of(kind.case.machine) for kind in kinds() if informs(kind.case))

    def alone(name: str) -> float:
        return float(np.log(fitted_share(lambda case: informs(case) and generation_of(case.machine) == name)))

    own = {name: alone(name) for name in sorted(counts)}
    mean = float(np.mean(list(own.values())))
    apart = float(np.var(list(own.values())))
    found = {}
    for name, log_share in own.items():
        weight = apart / (apart + _KINDS_LOG_SD**2 / counts[name]) if apart else 1.0
        found[name] = float(np.exp(weight * log_share + (1 - weight) * mean))
    return {**found, ANY: float(np.exp(mean))}


@lru_cache(maxsize=1)
def left_out_shares() -> dict[str, float]:
    """For each machine, the share from others: of its generation, or else the mean of other generations."""
    found = {}
    for machine in sorted({kind.case.machine for kind in kinds()}):
        shares = shares_by_generation(lambda case, machine=machine: case.machine != machine)  # type: ignore[misc]
        found[machine] = shares.get(generation_of(machine), shares[ANY])
    return found


@lru_cache(maxsize=1)
def near_shares() -> dict[str, float]:
    """The share of each generation, and of ``ANY``, by steps on fewer than ``FAR_GPUS`` GPUs."""
    return shares_by_generation(lambda case: case.gpus < FAR_GPUS)
