"""A training step of a plan with dense layers: the parts of the pipeline, and what overlap gains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.model import bands
from perfmodel.model.pipeline import Parts, forward_overlapped, in_line, overlapped
from perfmodel.model.schedule import Steady, alone, steady
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.dense import PARTS as DENSE_PARTS
from perfmodel.passes.dense import Dense, DenseTime
from perfmodel.passes.loads import Loads
from perfmodel.passes.placement import Plan
from perfmodel.passes.steps import SPLITS, STEPS, StepCost, StepRow

Array = NDArray[np.float64]

PARTS: dict[str, tuple[str, ...]] = {
    "bucketize": ("bucketize", "deduplicate"),
    "keys": (
        "all_to_all_splits",
        "all_to_all_lengths",
        "all_to_all_ids",
        "all_to_all_weights",
        "all_to_all_request_splits",
        "all_to_all_requests",
    ),
    "lookup": ("deduplicate_requests", "gather_pool", "convert_out"),
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
"""Parts of the training pipeline, each with the steps of a pass that it contains."""

EMBEDDING_COMMUNICATION = ("keys", "forward", "backward", "dp_reduce")
DENSE_REDUCE = "dense reduce"
"""Name of the only communication task without embeddings: the all-reduce of dense gradients."""

Pick = Callable[[StepRow], float]


def centre(row: StepRow) -> float:
    """Central estimate of a step's time [s]."""
    return row.time_s


@dataclass(frozen=True, eq=False)
class CostedPlan:
    """A plan with its loads and its cost, by the evaluator that computed them."""

    evaluator: Evaluator
    plan: Plan
    loads: Loads
    cost: StepCost

    @staticmethod
    def of(evaluator: Evaluator, plan: Plan) -> CostedPlan:
        """Computes the cost of a plan. Limits: a plan for other GPUs or tables -> BadInputError"""
        loads = evaluator.loads(plan)
        return CostedPlan(evaluator, plan, loads, evaluator.step(loads))

    @property
    def training(self) -> bool:
        """Whether a step is forward and backward."""
        return self.evaluator.model.training is not None

    def parts(self, dense: Dense | DenseTime, pick: Pick = centre) -> Parts:
        """Times of the parts of the pipeline, from the plan's steps and the dense layers.

        pick  returns a step's time, or one end of its band
        Limits: an evaluator without training -> no backward, update or reduction
        """
        times = self._times(pick)
        sums = {part: sum(times.get(name, 0.0) for name in names) for part, names in PARTS.items()}
        owned = (("lookup", "gather_pool", "dp_lookup"), ("update", "update_rows", "dp_update"))
        for part, name, own in owned:
            sums[own] = times[name] * self._copied_share(name) if name in times else 0.0
            sums[part] -= sums[own]
        return Parts(**sums, **_dense_times(self.evaluator, dense, self.training))

    def _times(self, pick: Pick) -> dict[str, float]:
        """Times of all steps by name. Steps that TorchRec runs once per sharding type are added up; the
        splits of all types travel in one exchange.

        Source: TorchRec 1.8, ``TrainPipelineSparseDist`` through ``FusedKJTListSplitsAwaitable``
        """
        times: dict[str, float] = {}
        splits = [row for row in self.cost.rows if STEPS[row.name].splits]
        for row in self.cost.rows:
            name = STEPS[row.name].whole or row.name
            times[name] = times.get(name, 0.0) + pick(row)
        if self.evaluator.model.sets is not None and self.training and len(splits) > 1:
            fused = self.evaluator.times.all_splits(len(splits)) / sum(row.time_s for row in splits)
            times[SPLITS] = fused * sum(pick(row) for row in splits)
        return times

    @cached_property
    def _copied(self) -> Array:
        """Loads [K] on each rank of gathers from replicas: replicated tables and replicated hot rows."""
        plan, t = self.plan, np.arange(len(self.plan.tables))
        found = self.evaluator.shard_loads(t, *plan.schemes)
        return np.asarray(found.everywhere.sum(axis=0))

    def _copied_share(self, name: str) -> float:
        """Share of a gather's DRAM bytes, on the busiest rank, that is read from replicas.

        name  the gather's step
        """
        resource = self.evaluator.steps_by_name[name].resources[0]
        most = float(self.loads.most[resource])
        return float(self._copied[resource]) / most if most > 0 else 0.0

    def step(self, dense: Dense | DenseTime, pick: Pick = centre, *, overlap: bool = True) -> Steady:
        """The schedule of a step: in training, consecutive batches in steady state; else one batch alone.

        overlap  whether streams overlap; False: tasks run one after the other
        """
        tasks = (overlapped if self.training else forward_overlapped)(self.parts(dense, pick))
        return (steady if self.training else alone)(tasks if overlap else in_line(tasks))

    def band(self, dense: Dense | DenseTime, time: float) -> tuple[float, float]:
        """95 % band of the overlapped step [s], with independent errors of fabric, kernels and dense layers.

        The all-reduce of dense gradients errs with the fabric, their optimizer with the kernels.

        time  ``step(dense).step_s``
        """
        ends = []
        for end, other in (("low_s", 1 - dense.error), ("high_s", 1 + dense.error)):
            moved = [self._at_end(dense, end, comm) - time for comm in (True, False)]
            moved.append(self._with_dense(dense, other) - time)
            both = bands.quadrature(moved[0], moved[1])
            ends.append(float(bands.quadrature(both, moved[2])))
        return time - ends[0], time + ends[1]

    def _at_end(self, dense: Dense | DenseTime, end: str, communication: bool) -> float:
        """The overlapped step if all steps of the fabric, or all kernels, are at one end of their bands [s].

        end  low_s or high_s;  communication  True: the fabric, False: the kernels
        """
        parts = self.parts(dense, one_end(end, communication))
        if self.training:
            elements = float(self.evaluator.tables.dim.sum())
            if communication:
                size = dense.reduced_bytes(elements)
                parts = replace(parts, dense_reduce=_reduce_time(self.evaluator, size, end))
            else:
                parts = replace(parts, dense_update=_update_time(self.evaluator, dense, elements, end))
        return self._overlapped(parts)

    def _overlapped(self, parts: Parts) -> float:
        tasks = (overlapped if self.training else forward_overlapped)(parts)
        return (steady if self.training else alone)(tasks).step_s

    def _with_dense(self, dense: Dense | DenseTime, over: float) -> float:
        """The overlapped step if dense layers take ``over`` times as long [s]."""
        parts = self.parts(dense)
        return self._overlapped(replace(parts, **{name: getattr(parts, name) * over for name in DENSE_PARTS}))


def one_end(end: str, communication: bool) -> Pick:
    """A ``pick`` for ``parts``: one end of the band for steps of one cause of error, else the centre.

    end  low_s or high_s;  communication  True: steps of the fabric, False: kernels
    """

    def pick(row: StepRow) -> float:
        return float(getattr(row, end)) if is_communication(row) == communication else row.time_s

    return pick


@dataclass(frozen=True, eq=False)
class WholeStep:
    """A step of a plan with dense layers: training in steady state, or one forward pass alone.

    parts   times of the parts of the pipeline;  found  the schedule with overlap;  low_s, high_s  95 % band
            of its step [s]
    forward_flops  operations of the dense layers for one sample, forward; None if unknown
    reduced_bytes  bytes of the dense layers' gradients in the all-reduce
    """

    dense: Dense | DenseTime
    parts: Parts
    found: Steady
    low_s: float
    high_s: float
    training: bool
    forward_flops: float | None
    reduced_bytes: float

    @staticmethod
    def of(costed: CostedPlan, dense: Dense | DenseTime) -> WholeStep:
        """The whole step of a plan."""
        found = costed.step(dense)
        low_s, high_s = costed.band(dense, found.step_s)
        elements = float(costed.evaluator.tables.dim.sum())
        flops = None
        if isinstance(dense, Dense):
            flops = dense.model.bottom_flops() + dense.model.top_flops(elements)
        several = costed.training and costed.evaluator.gpus > 1
        return WholeStep(
            dense,
            costed.parts(dense),
            found,
            low_s,
            high_s,
            costed.training,
            flops,
            dense.reduced_bytes(elements) if several else 0.0,
        )

    @property
    def dense_s(self) -> float:
        """Time of the dense layers, forward and backward, without the all-reduce and the optimizer [s]."""
        p = self.parts
        return p.bottom + p.bottom_backward + p.top + p.top_backward

    @property
    def communication_s(self) -> float:
        """Time of all communication for the embeddings, hidden or not [s]."""
        return embedding_communication_s(self.parts)

    @property
    def exposed_s(self) -> float:
        """Time of communication for the embeddings that compute does not hide [s]."""
        exposed = sum(time for name, time in self.found.exposed().items() if name != DENSE_REDUCE)
        return min(exposed, self.communication_s)

    def tasks(self) -> list[dict[str, Any]]:
        """Every task that takes time in a batch, as a dictionary: name, stream, device, time_s, exposed_s
        (None for compute) and path_s (its time on the critical path).
        """
        exposed, path = self.found.exposed(), self.found.on_path()
        return [
            {
                "task": task.name,
                "stream": task.stream,
                "device": task.device,
                "time_s": task.duration_s,
                "exposed_s": exposed.get(task.name),
                "path_s": path[task.name],
            }
            for task in self.found.tasks
            if task.duration_s > 0
        ]

    def to_dict(self, samples: float) -> dict[str, Any]:
        """The public schema of ``--json``, in SI units. ``samples``: of all GPUs in a step."""
        found, dense = self.found, self.dense
        return {
            "dense": getattr(dense, "name", "") or None,
            "dense_s": self.dense_s,
            "dense_forward_flops": self.forward_flops,
            "dense_flops_per_s": getattr(dense, "flops_per_s", None),
            "dense_efficiency": getattr(dense, "efficiency", None),
            "dense_reduced_bytes": self.reduced_bytes,
            "serial_s": found.serial_s,
            "step_s": found.step_s,
            "low_s": self.low_s,
            "high_s": self.high_s,
            "samples_per_s": samples / found.step_s,
            "communication_s": self.communication_s,
            "exposed_s": self.exposed_s,
            "serial_share": self.communication_s / found.serial_s,
            "exposed_share": self.exposed_s / found.step_s,
            "tasks": self.tasks(),
            "timeline": found.timeline(),
        }


def _dense_times(evaluator: Evaluator, dense: Dense | DenseTime, training: bool) -> dict[str, float]:
    elements = float(evaluator.tables.dim.sum())
    machine = evaluator.setting.machine
    rates = machine.value("local_sum_bytes_per_s"), machine.value("launch_floor_s")
    times = dense.times(elements, evaluator.batch, *rates)
    if not training:
        times = _forward(dense, times)
    return {
        **times,
        "dense_reduce": _reduce_time(evaluator, dense.reduced_bytes(elements)) if training else 0.0,
        "dense_update": _update_time(evaluator, dense, elements) if training else 0.0,
    }


def _forward(dense: Dense | DenseTime, times: dict[str, float]) -> dict[str, float]:
    """The times of the dense layers in a forward pass, from ``times`` of a training step.

    A dense time that the user gave as a whole counts fully.
    """
    if isinstance(dense, DenseTime):
        return {**times, "top": dense.time_s, "top_backward": 0.0}
    return {**times, "bottom_backward": 0.0, "top_backward": 0.0}


def _reduce_time(evaluator: Evaluator, size: float, end: str = "time_s") -> float:
    """Time of the all-reduce of the dense layers' gradients [s]; 0 on one GPU.

    size  bytes of the gradients;  end  time_s, or low_s or high_s for an end of the band
    """
    if size == 0:
        return 0.0
    node, gpus = evaluator.basis.gpus_per_node, np.array([float(evaluator.gpus)])
    timing = evaluator.setting.links.timing("all_reduce", np.array([size]), gpus, node)
    return float(getattr(timing, end)[0])


def _update_time(
    evaluator: Evaluator, dense: Dense | DenseTime, elements: float, end: str = "time_s"
) -> float:
    """Time of the dense layers' optimizer, a streaming kernel [s].

    It is the tables' optimizer with state for every weight: row-wise Adagrad becomes Adagrad.
    elements  of a sample's embeddings;  end  time_s, or low_s or high_s for an end of the band
    """
    per_element, per_row = evaluator.memories.state
    moved = dense.updated_bytes(elements, per_element or per_row)
    if moved == 0:
        return 0.0
    constants = ("launch_floor_s", "local_sum_bytes_per_s")
    timing = evaluator.basis.stream_timing("local_sum", np.array([moved]), *constants)
    return float(getattr(timing, end)[0])


def embedding_communication_s(parts: Parts) -> float:
    """Time of all communication for the embeddings in these parts, hidden or not [s]."""
    return float(sum(getattr(parts, name) for name in EMBEDDING_COMMUNICATION))


def is_communication(row: StepRow) -> bool:
    """Whether a step's error comes from the fabric (a collective), not from a kernel."""
    return bool(row.collective) or row.name == "handover"
