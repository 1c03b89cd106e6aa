"""Compares predicted training steps of whole models with steps that others measured: MLPerf's and EMBark's.

Embeddings are costed like any plan (``perfmodel.plan``) and enter the overlap pipeline beside the dense
layers (``model.pipeline``). One number per generation of GPUs is fitted: the share of the datasheet rate
that matrix products reach (``validate.dlrm_dense``). Verdicts are on steps of machines that were not used
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from perfmodel.errors import BadInputError
from perfmodel.passes.alike import Alike, best_alike
from perfmodel.passes.dense import Dense
from perfmodel.passes.schemes import TABLE_ROW_WISE
from perfmodel.passes.training import (
    CostedPlan,
    Pick,
    WholeStep,
    centre,
    embedding_communication_s,
    one_end,
)
from perfmodel.schema.dense import ANY
from perfmodel.units import format_fraction, format_ratio
from perfmodel.validate.dlrm_dense import (
    FAR_GPUS,
    dense_of,
    generation_of,
    left_out_shares,
    near_shares,
    stored,
)
from perfmodel.validate.dlrm_inputs import (
    Case,
    Inputs,
    Measured,
    embark_case,
    load_inputs,
    mlperf_case,
    mlperf_steps,
)
from perfmodel.validate.verdicts import Finding

if TYPE_CHECKING:
    import pandas as pd

BASELINE = TABLE_ROW_WISE


@lru_cache(maxsize=32)
def _baseline(case: Case) -> CostedPlan:
    """The baseline of a case: all tables table-row-wise."""
    evaluator = case.evaluator()
    found = best_alike(evaluator, BASELINE, case.usable_bytes(evaluator))
    if not isinstance(found, Alike):
        raise BadInputError(f"{case.name} cannot be {BASELINE}: {found.why}.", "choose more GPUs.")
    return CostedPlan.of(evaluator, found.plan)


@lru_cache(maxsize=1)
def mlperf_frame() -> pd.DataFrame:
    """Every measured row of MLPerf that can be predicted, with the shipped share of the datasheet rate.

    Columns: measured_s, predicted_s, low_s, high_s, ratio, inside, fitted (whether the share's fit used it),
    embedding_s (all steps of the tables), dense_s, communication_s, exposed_s (not hidden by other work).
    """
    return _frame(lambda case: None)


@lru_cache(maxsize=1)
def unseen_frame() -> pd.DataFrame:
    """As ``mlperf_frame``, but each row is predicted with a share that was fitted without its machine."""
    shares = left_out_shares()
    return _frame(lambda case: shares.get(case.machine))


@lru_cache(maxsize=1)
def far_frame() -> pd.DataFrame:
    """As ``mlperf_frame`` for rows with at least ``FAR_GPUS`` GPUs, with a share fitted to smaller rows."""
    shares = near_shares()
    return _frame(
        lambda case: shares.get(generation_of(case.machine), shares[ANY]), lambda row: row.gpus >= FAR_GPUS
    )


def _frame(
    share: Callable[[Case], float | None], wanted: Callable[[Measured], bool] = lambda row: True
) -> pd.DataFrame:
    import pandas as pd

    inputs = load_inputs()
    known = {gpu.name: gpu for gpu in inputs.gpu}
    found: dict[Case, dict[str, float]] = {}
    out = []
    for row in mlperf_steps(inputs):
        if row.gpu not in known or not wanted(row):
            continue
        gpu = known[row.gpu]
        case = mlperf_case(inputs, gpu, row)
        if case not in found:
            found[case] = _predicted(case, dense_of(inputs, gpu.machine, share(case)))
        times, measured = found[case], row.step_time_s
        out.append(
            {
                "system": row.system,
                "gpu": row.gpu,
                "machine": gpu.machine,
                "gpus": row.gpus,
                "nodes": row.nodes,
                "global_batch": row.global_batch,
                "measured_s": measured,
                **times,
                "ratio": times["predicted_s"] / measured,
                "inside": times["low_s"] <= measured <= times["high_s"],
                "fitted": not gpu.unlike,
            }
        )
    return pd.DataFrame(out)


def _predicted(case: Case, dense: Dense) -> dict[str, float]:
    whole = WholeStep.of(stored(case), dense)
    found, parts = whole.found, whole.parts
    return {
        "predicted_s": found.step_s,
        "low_s": whole.low_s,
        "high_s": whole.high_s,
        "embedding_s": found.serial_s - whole.dense_s - parts.dense_reduce - parts.dense_update,
        "dense_s": whole.dense_s,
        "communication_s": found.communication_s,
        "exposed_s": found.exposed_s,
    }


def left_out() -> dict[str, str]:
    """Why some measured rows are not predicted, by name of their GPU."""
    inputs = load_inputs()
    present = {row.gpu for row in mlperf_steps(inputs)}
    return {each.name: each.why for each in inputs.left_out if each.name in present}


def _embark_dense(inputs: Inputs) -> Dense:
    return dense_of(inputs, inputs.embark.machine)


@lru_cache(maxsize=1)
def share_frame() -> pd.DataFrame:
    """Share of embedding communication in the time of a serial table-row-wise step, for numbers of GPUs.

    Columns: kept ("global": the batch of all GPUs is constant; "per GPU": the batch of each GPU is), gpus,
    batch (per GPU), step_s, share.
    """
    import pandas as pd

    inputs = load_inputs()
    e, dense = inputs.embark, _embark_dense(inputs)
    per_gpu = e.batch // min(e.gpus)
    out = []
    for kept, gpus in ((kept, gpus) for kept in ("global", "per GPU") for gpus in e.gpus):
        case = embark_case(inputs, e.figure_model, gpus, per_gpu if kept == "per GPU" else None)
        planned = _baseline(case)
        communication = embedding_communication_s(planned.parts(dense))
        step_s = planned.step(dense, overlap=False).step_s
        out.append(
            {
                "kept": kept,
                "gpus": gpus,
                "batch": case.batch,
                "step_s": step_s,
                "share": communication / step_s,
            }
        )
    return pd.DataFrame(out)


@lru_cache(maxsize=1)
def speedup_frame() -> pd.DataFrame:
    """Each of EMBark's workloads on the most GPUs, with four step times.

    Columns: serial_s (table-row-wise), overlap_s (table-row-wise, overlapped), plan_s (with the planner's
    plan, serial), both_s (with that plan, overlapped), speedup = serial_s / both_s.
    """
    import pandas as pd

    inputs = load_inputs()
    dense, out = _embark_dense(inputs), []
    for model in inputs.embark.models:
        case = embark_case(inputs, model, max(inputs.embark.gpus))
        base, planned = _baseline(case), stored(case)
        times = {
            "serial_s": base.step(dense, overlap=False).step_s,
            "overlap_s": base.step(dense).step_s,
            "plan_s": planned.step(dense, overlap=False).step_s,
            "both_s": planned.step(dense).step_s,
        }
        speedup = times["serial_s"] / times["both_s"]
        out.append({"model": model, "gpus": case.gpus, "batch": case.batch, **times, "speedup": speedup})
    return pd.DataFrame(out)


def share(gpus: int, batches: Sequence[int]) -> Finding:
    """Share of embedding communication in a serial table-row-wise step, with the first of ``batches``.

    batches  of all GPUs together. The tables and the batch are not published: the band covers all workloads
             and all ``batches``
    """
    inputs = load_inputs()
    models, dense = inputs.embark.models, _embark_dense(inputs)
    ways = [
        _share(_baseline(embark_case(inputs, model, gpus, batch // gpus)), *way)
        for batch in batches
        for model in sorted(models, key=lambda model: model != inputs.embark.figure_model)
        for way in _ways(dense)
    ]
    return Finding.within(ways[0], ways, format_fraction)


def _share(planned: CostedPlan, dense: Dense, pick: Pick) -> float:
    step_s = planned.step(dense, pick, overlap=False).step_s
    return embedding_communication_s(planned.parts(dense, pick)) / step_s


def speedup(answer: str, batches: Sequence[int]) -> Finding:
    """The speedup over all workloads on the most GPUs; its band covers all ``batches``.

    answer  "mean" or "max" over the workloads
    """
    inputs = load_inputs()
    e, dense, found = inputs.embark, _embark_dense(inputs), []
    for batch in batches:
        cases = [embark_case(inputs, model, max(e.gpus), batch // max(e.gpus)) for model in e.models]
        plans = [(_baseline(case), stored(case)) for case in cases]
        for way in _ways(dense):
            over = [base.step(*way, overlap=False).step_s / ours.step(*way).step_s for base, ours in plans]
            found.append(max(over) if answer == "max" else sum(over) / len(over))
    return Finding.within(found[0], found, format_ratio)


def _ways(dense: Dense) -> list[tuple[Dense, Pick]]:
    """Inputs for a step's band: central values, then each cause of error at either end, others central.

    Each is (dense layers, function that picks the communication times from their bands).
    """
    ends = [one_end(end, communication) for end in ("low_s", "high_s") for communication in (True, False)]
    shares = [dense.efficiency * (1 + error) for error in (-dense.error, dense.error)]
    layers = [replace(dense, efficiency=share) for share in shares]
    return [(dense, centre), *((dense, end) for end in ends), *((each, centre) for each in layers)]
