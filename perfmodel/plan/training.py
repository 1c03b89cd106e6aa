"""A training step of a plan in the parts of the overlap pipeline, with its dense model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.dense import BACKWARD, DenseModel
from perfmodel.model.exchanges import Exchange
from perfmodel.model.pipeline import Parts, dense_time
from perfmodel.plan.cost import Evaluator, StepRow
from perfmodel.plan.loads import Loads, Resource
from perfmodel.plan.placement import Plan

Array = NDArray[np.float64]

PARTS: dict[str, tuple[str, ...]] = {
    "bucketize": ("bucketize", "deduplicate"),
    "keys": (
        "all_to_all_splits",
        "all_to_all_lengths",
        "all_to_all_ids",
        "all_to_all_request_splits",
        "all_to_all_requests",
    ),
    "lookup": ("gather_pool", "convert_out"),
    "forward": (
        "all_to_all_rows",
        "reduce_scatter_bags",
        "reduce_scatter_inside",
        "reduce_scatter_across",
        "all_to_all_across",
        "all_to_all_bags",
        "all_to_all_sparse_bags",
        "handover",
    ),
    "pool": ("convert_in", "local_sum", "pool_unique_rows"),
    "unpool": ("convert_gradients_out", "accumulate_row_gradients"),
    "backward": (
        "all_to_all_gradients",
        "all_to_all_sparse_gradients",
        "all_to_all_gradients_across",
        "all_gather_across",
        "all_gather_inside",
        "all_gather_gradients",
        "all_to_all_row_gradients",
    ),
    "update": ("convert_gradients_in", "sort_lookups", "update_rows"),
    "dp_reduce": ("all_reduce_copies",),
}
"""Steps of a pass in each part of the pipeline."""

EMBEDDING_COMMUNICATION = ("keys", "forward", "backward", "dp_reduce")


@dataclass(frozen=True)
class Dense:
    """The dense model on some GPU.

    flops_per_s  of the datasheet, at the precision of training;  efficiency  share of it that is reached [-]
    gradient_bytes  of one gradient in the all-reduce [bytes]
    """

    model: DenseModel
    flops_per_s: float
    efficiency: float
    gradient_bytes: float


Pick = Callable[[StepRow], float]


def centre(row: StepRow) -> float:
    """A step's own time."""
    return row.time_s


def parts_of(evaluator: Evaluator, plan: Plan, dense: Dense, pick: Pick = centre) -> Parts:
    """Times of the parts of a step; ``evaluator`` with training.

    pick  takes a step's time, or an end of its band
    Limits: an evaluator without training -> ValueError
    """
    loads = evaluator.loads(plan)
    cost = evaluator.step(loads)
    if evaluator.model.training is None:
        raise ValueError("the evaluator has no backward pass")
    times = {row.name: pick(row) for row in cost.rows}
    sums = {part: sum(times.get(name, 0.0) for name in names) for part, names in PARTS.items()}
    copied = _copied(evaluator, plan)
    for part, name, own in (("lookup", "gather_pool", "dp_lookup"), ("update", "update_rows", "dp_update")):
        share = _copied_share(evaluator, loads, copied, name) if name in times else 0.0
        sums[own] = times.get(name, 0.0) * share
        sums[part] -= sums[own]
    return Parts(**sums, **_dense_times(evaluator, dense))


def _copied(evaluator: Evaluator, plan: Plan) -> Array:
    """Loads [K] that tables on every rank bring to each."""
    t = np.flatnonzero(plan.kinds == Exchange.DP)
    if not t.size:
        return np.zeros(len(Resource))
    return np.asarray(evaluator.shard_loads(t, Exchange.DP, 1, 1).everywhere.sum(axis=0))


def _copied_share(evaluator: Evaluator, loads: Loads, copied: Array, name: str) -> float:
    """Share of a gather's DRAM bytes on the busiest rank that are of tables on every rank."""
    step = next(step for step in evaluator.steps if step.name == name)
    most = float(loads.most[step.resources[0]])
    return float(copied[step.resources[0]]) / most if most > 0 else 0.0


def _dense_times(evaluator: Evaluator, dense: Dense) -> dict[str, float]:
    elements = float(evaluator.tables.dim.sum())
    batch, rate = evaluator.batch, (dense.flops_per_s, dense.efficiency)
    bottom = dense_time(dense.model.bottom_flops() * batch, *rate)
    top = dense_time(dense.model.top_flops(elements) * batch, *rate)
    reduce = 0.0
    if evaluator.gpus > 1:
        size = np.array([dense.model.weights(elements) * dense.gradient_bytes])
        node = evaluator.forward.gpus_per_node
        gpus = np.array([float(evaluator.gpus)])
        reduce = float(evaluator.setting.links.timing("all_reduce", size, gpus, node).time_s[0])
    return {
        "bottom": bottom,
        "bottom_backward": BACKWARD * bottom,
        "top": top,
        "top_backward": BACKWARD * top,
        "dense_reduce": reduce,
    }


def embedding_communication_s(parts: Parts) -> float:
    """All communication of the embeddings, hidden or not [s]."""
    return float(sum(getattr(parts, name) for name in EMBEDDING_COMMUNICATION))


def is_communication(row: StepRow) -> bool:
    """Whether a step's error is the fabric's, and not a kernel's."""
    return bool(row.collective) or row.name == "handover"
