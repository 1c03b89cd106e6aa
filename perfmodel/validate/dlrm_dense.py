"""The share of a GPU's rate that matrix products reach: fitted on MLPerf's steps, and machines left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from perfmodel.errors import BadInputError
from perfmodel.plan.pricing.dense import Dense, from_file
from perfmodel.plan.pricing.training import CostedPlan
from perfmodel.schema.dense import load_dense
from perfmodel.validate.dlrm_inputs import Case, Inputs, load_inputs, mlperf_case, mlperf_steps

_LEAST, _MOST, _TOLERANCE = 0.05, 2.0, 1e-5
FAR_GPUS = 64
FAR = f"{FAR_GPUS} GPUs and more"


@lru_cache(maxsize=64)
def stored(case: Case) -> CostedPlan:
    """The stored plan of a case, costed."""
    evaluator = case.evaluator()
    return CostedPlan.of(evaluator, case.plan(evaluator))


def dense_of(inputs: Inputs, machine: str, share: float | None = None) -> Dense:
    """The dense layers on the GPU of a machine, at the shipped share of its rate or another."""
    dense = from_file(load_dense(inputs.dense), machine)
    return replace(dense, efficiency=share) if share else dense


@dataclass(frozen=True)
class SystemKind:
    """Measured steps of one case in one round: the median of its systems [s]."""

    case: Case
    round: str
    measured_s: float


@lru_cache(maxsize=1)
def kinds() -> tuple[SystemKind, ...]:
    """What informs the share: all kinds of the GPUs that may."""
    inputs = load_inputs()
    known = {gpu.name: gpu for gpu in inputs.gpu if not gpu.unlike}
    found: dict[tuple[Case, str], list[float]] = defaultdict(list)
    for row in mlperf_steps(inputs):
        if row.gpu in known:
            found[mlperf_case(inputs, known[row.gpu], row), row.round].append(row.step_time_s)
    return tuple(SystemKind(case, name, float(np.median(times))) for (case, name), times in found.items())


def fitted_share(informs: Callable[[Case], bool] = lambda case: True) -> float:
    """The share at which half of the kinds are predicted too fast, and half too slow.

    informs  whether a case may be used
    Limits: no kind, or none between 0.05 and 2 -> BadInputError
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


@lru_cache(maxsize=1)
def left_out_shares() -> dict[str, float]:
    """The share without each machine, and without steps on ``FAR_GPUS`` or more, by what is left out."""
    machines = sorted({kind.case.machine for kind in kinds()})
    found = {name: fitted_share(lambda case, name=name: case.machine != name) for name in machines}  # type: ignore[misc]
    return {**found, FAR: fitted_share(lambda case: case.gpus < FAR_GPUS)}
