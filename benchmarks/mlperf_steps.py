"""Are MLPerf's training steps predicted? ``python benchmarks/mlperf_steps.py`` prints each of them (10 s).

Embeddings are costed like any plan and overlap with the dense layers. One number per
generation of GPUs is fitted: the share of the datasheet rate that matrix products reach (``rates.toml``).
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hugectr_planner import PlannerCall, plan_of
from numpy.typing import NDArray
from scipy.optimize import brentq

from perfmodel.engine.cost import CostedPlan, Evaluator
from perfmodel.engine.tables import PlanTables
from perfmodel.engine.training import Dense, WholeStep, sum_parts
from perfmodel.errors import BadInputError
from perfmodel.model.access import build_zipf_bins
from perfmodel.model.dense import compute_step_time
from perfmodel.model.popularity import BINS_PER_OCTAVE
from perfmodel.report.terminal import table
from perfmodel.resources import data_path
from perfmodel.schema.priors import ANY, load_dense, load_rates
from perfmodel.schema.workload import UNIFORM, Distribution
from perfmodel.units import format_count, format_fraction

_LEAST, _MOST, _TOLERANCE = 0.05, 2.0, 1e-5
_KINDS_LOG_SD = 0.12
"""Root mean square of ln(predicted / measured) of Hopper's kinds at their share (docs/accuracy.md)."""
_FAR_GPUS = 64

Shares = Mapping[str, float]


@lru_cache(maxsize=1)
def inputs() -> dict[str, Any]:
    """The conditions of ``mlperf_steps.toml``."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Case:
    """MLPerf's tables trained on some GPUs, with the call of HugeCTR's planner. batch  samples of one GPU"""

    machine: str
    gpus: int
    gpus_per_node: int
    batch: int
    planner: PlannerCall

    def evaluator(self) -> Evaluator:
        """An evaluator for this case, forward and backward."""
        conditions, tables = inputs(), PlanTables.load(inputs()["model"])
        return Evaluator.on(
            self.machine,
            tables.replace_ids(find_ids(tables)),
            self.batch,
            self.gpus,
            gpus_per_node=self.gpus_per_node,
            id_dtype=conditions["id_dtype"],
            payload=conditions["payload"],
            optimizer=conditions["optimizer"],
            training=True,
        )


def find_ids(tables: PlanTables) -> tuple[Distribution, ...]:
    """Distribution of each table's ids: fixed bags of skewed ids, or every row alike."""
    skew = dict(inputs()["skew"])
    return tuple(
        fixed_bags(rows, skew[name], pooling) if name in skew else UNIFORM
        for name, rows, pooling in zip(
            tables.names, tables.rows.tolist(), tables.pooling.tolist(), strict=True
        )
    )


def fixed_bags_popularity(
    E: float, s: float, L: float, bins_per_octave: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(probability of a row per look-up, rows with that probability), by bin, where each of E values under
    Zipf's law has a fixed bag of L random rows.

        p = q_v / L + (1 - sum_{u <= E/L} q_u) / E,   v = ceil(rank / L)                 [-]

    E  rows, and values [-];  s  skew of the values [-];  L  rows of a bag [-], >= 1
    Rows of the E/L most popular values have bins of their own; rows of all others are uniform. A bag that
    recurs asks for the same rows, so n bags have as many distinct rows as n L draws of p. Rows shared between
    bags are neglected, which makes U distinct rows up to U/(2 E) too many.
    Source: derived; the multi-hot ids of mlcommons/training, recommendation_v2 (facebookresearch/dlrm,
    multi_hot.py: an id's bag is itself and L - 1 uniform ones, drawn once)
    Limits: L = 1 -> Zipf's law of the rows;  s = 0 -> all p = 1/E
    """
    q, values = build_zipf_bins(E, s, bins_per_octave)
    apart = np.diff(np.minimum(np.cumsum(values), int(E) / L), prepend=0)
    q, apart = q[apart > 0], apart[apart > 0]
    return q / L + (1 - np.sum(q * apart)) / int(E), L * apart


def fixed_bags(rows: float, skew: float, pooling: float) -> Distribution:
    """The distribution of ids in MLPerf's data: ``fixed_bags_popularity``."""
    p, count = fixed_bags_popularity(rows, skew, pooling, BINS_PER_OCTAVE)
    bins = tuple(zip((count / rows).tolist(), (p * count).tolist(), strict=True))
    return Distribution(f"bags:{skew:g}:{pooling:g}:{rows:g}", 0.0, bins)


@dataclass(frozen=True)
class Step:
    """A measured step. case  None: its GPU cannot be predicted;  informs  whether a fit may use it"""

    system: str
    gpu: str
    nodes: int
    global_batch: int
    time_s: float
    case: Case | None
    informs: bool


@lru_cache(maxsize=1)
def steps() -> tuple[Step, ...]:
    """MLPerf's measured steps, in the order of the file."""
    rows = pd.read_csv(data_path("reference", "dlrm_steps.csv"))
    rows = rows[(rows["model"] == inputs()["rows"]) & rows["step_time_s"].notna() & (rows["flag"] == "ok")]
    gpus = {gpu["name"]: gpu for gpu in inputs()["gpu"]}
    calls = [
        PlannerCall(**{k: tuple(v) if isinstance(v, list) else v for k, v in call.items()})
        for call in inputs()["planner"]
    ]
    measured = []
    for row in rows.to_dict("records"):
        name, count, nodes = str(row["gpu"]), int(row["gpus"]), int(row["nodes"])
        case = None
        if name in gpus:
            round_ = str(row["system"]).split()[0]
            call = next(call for call in calls if call.of(round_, name, nodes))
            batch = round(row["global_batch"] / count)
            case = Case(gpus[name]["machine"], count, count // nodes, batch, call)
        informs = case is not None and "unlike" not in gpus[name]
        total, time_s = int(row["global_batch"]), float(row["step_time_s"])
        measured.append(Step(str(row["system"]), name, nodes, total, time_s, case, informs))
    return tuple(measured)


@lru_cache(maxsize=64)
def planned(case: Case) -> CostedPlan:
    """HugeCTR's plan of a case with its cost."""
    e = case.evaluator()
    return e.cost(plan_of(e.tables, case.gpus, case.gpus_per_node, case.planner))


def compute_dense(case: Case, share: float | None = None) -> Dense:
    """The dense layers of a case, at the shipped share of its GPU's rate or another share."""
    return Dense.compute(load_dense(inputs()["dense"]), planned(case).evaluator, share)


def step_s(case: Case, share: float) -> float:
    """Time of a case's training step at a share of its GPU's rate [s]."""
    return compute_step_time(sum_parts(planned(case), compute_dense(case, share)), training=True)


@lru_cache(maxsize=1)
def kinds() -> dict[tuple[Case, str], float]:
    """Median time of the measured steps of each case and round that a fit may use [s]."""
    times: dict[tuple[Case, str], list[float]] = defaultdict(list)
    for step in steps():
        if step.case is not None and step.informs:
            times[step.case, step.system.split()[0]].append(step.time_s)
    return {kind: float(np.median(measured)) for kind, measured in times.items()}


def fitted_share(informs: Callable[[Case], bool] = lambda case: True) -> float:
    """The share with which half of the kinds are predicted too fast, and half too slow.

    Limits: no measurement, or no such share between 0.05 and 2 -> BadInputError
    """
    used = {kind: time_s for kind, time_s in kinds().items() if informs(kind[0])}
    if not used:
        raise BadInputError("no measured step informs the share of the rate.", "leave fewer out.")

    def middle(share: float) -> float:
        cases = {case for case, _ in used}
        times = {case: step_s(case, share) for case in cases}
        return float(np.median([np.log(times[case] / time_s) for (case, _), time_s in used.items()]))

    if middle(_MOST) > 0 or middle(_LEAST) < 0:
        raise BadInputError("no share of the rate meets the measured steps.", "check the plans.")
    return float(brentq(middle, _LEAST, _MOST, xtol=_TOLERANCE))


def generation_of(machine: str) -> str:
    return load_rates().of(machine)[0].generation


def shares_by_generation(informs: Callable[[Case], bool] = lambda case: True) -> Shares:
    """The share of each generation of GPUs with measured steps; of any other, ``ANY``: exp(m).

        ln share = ( k/s^2 ln own + m/t^2 ) / ( k/s^2 + 1/t^2 )                                  [-]

    own  ``fitted_share`` of the k kinds of a generation;  m  mean of ln own over generations
    s    spread between kinds of one generation;  t  standard deviation of ln own about m
    Source: best linear prediction of a further measurement of that generation
    Limits: many kinds -> own;  one generation -> its own, and m = ln own
    """
    counts = Counter(generation_of(case.machine) for case, _ in kinds() if informs(case))

    def alone(name: str) -> float:
        return float(np.log(fitted_share(lambda case: informs(case) and generation_of(case.machine) == name)))

    logs = {name: alone(name) for name in sorted(counts)}
    mean, apart = float(np.mean(list(logs.values()))), float(np.var(list(logs.values())))
    shares = {}
    for name, log_share in logs.items():
        weight = apart / (apart + _KINDS_LOG_SD**2 / counts[name]) if apart else 1.0
        shares[name] = float(np.exp(weight * log_share + (1 - weight) * mean))
    return {**shares, ANY: float(np.exp(mean))}


@lru_cache(maxsize=1)
def left_out_shares() -> Shares:
    """For each machine, the share from others: of its generation, or else the mean of other generations."""
    machines, shares = sorted({case.machine for case, _ in kinds()}), {}
    for machine in machines:
        fitted = shares_by_generation(lambda case, machine=machine: case.machine != machine)  # type: ignore[misc]
        shares[machine] = fitted.get(generation_of(machine), fitted[ANY])
    return shares


def predicted(shares: Shares | None = None) -> pd.DataFrame:
    """Every step that can be predicted: system, machine, gpus, global_batch, informs, and times.

    shares  of the datasheet rate by machine, else by generation; None: the shipped ones
    Times are measured_s, predicted_s, low_s, high_s; ratio is predicted over measured, inside of the band.
    """
    costs: dict[Case, WholeStep] = {}
    rows = []
    for step in steps():
        case = step.case
        if case is None:
            continue
        if case not in costs:
            share = None
            if shares is not None:
                names = case.machine, generation_of(case.machine), ANY
                share = next((shares[name] for name in names if name in shares), None)
            costs[case] = WholeStep.compute(planned(case), compute_dense(case, share))
        cost = costs[case]
        row = {"system": step.system, "machine": case.machine, "gpus": case.gpus}
        row |= {"global_batch": step.global_batch, "informs": step.informs, "measured_s": step.time_s}
        row |= {"predicted_s": cost.step_s, "low_s": cost.low_s, "high_s": cost.high_s}
        row |= {"ratio": cost.step_s / step.time_s, "inside": cost.low_s <= step.time_s <= cost.high_s}
        rows.append(row)
    return pd.DataFrame(rows)


def predict_far_steps() -> pd.DataFrame:
    """Steps on 64 GPUs or more, predicted with the share of smaller ones."""
    shares = shares_by_generation(lambda case: case.gpus < _FAR_GPUS)
    rows = predicted(shares)
    return rows[rows["gpus"] >= _FAR_GPUS]


def left_out_text() -> str:
    """Errors of steps whose machine was left out of the fits: by machine, then over all."""
    rows = predicted(left_out_shares())
    rows = rows[rows["informs"]]
    groups = {str(name): steps_of for name, steps_of in rows.groupby("machine")}
    lines = []
    for name, steps_of in (groups | {"64 GPUs and more": predict_far_steps(), "all machines": rows}).items():
        over = steps_of["ratio"]
        errors = float((over - 1).abs().median()), float(steps_of["inside"].mean())
        spread = f"{over.min():.2f} – {over.max():.2f}"
        lines.append(
            [name, format_count(len(steps_of)), f"{over.median():.2f}", spread, *map(format_fraction, errors)]
        )
    headers = ["left out", "rows", "ratio", "from – to", "median error", "inside 95 %"]
    return table(headers, lines)


if __name__ == "__main__":
    for generation, fitted in shares_by_generation().items():
        print(f"{generation}: products reach {fitted:.3f} of the datasheet's rate")
    print()
    print(f"{predicted().to_string()}\n\n{left_out_text()}\n\nNot predicted, for want of a shipped machine:")
    print(", ".join(sorted({step.gpu for step in steps() if step.case is None})))
