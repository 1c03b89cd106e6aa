"""A step of a plan with dense layers: its parts, its time with overlap, and the band of that time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from perfmodel.engine.cost import CostedPlan, Evaluator
from perfmodel.engine.steps import BACKWARD, FORWARD, HANDOVER, SPLITS, STEPS, WEIGHTS, Step
from perfmodel.model.dense import (
    BACKWARD_RATIO,
    DenseModel,
    StepParts,
    compute_exposed_time,
    compute_kernels_time,
    compute_step_time,
    update_bytes,
)
from perfmodel.schema.priors import DenseFile, load_rates

_BAGS = [step.name for step in FORWARD].index("gather_pool")


def _list_exchanges(steps: Iterable[Step]) -> tuple[str, ...]:
    """Names of the steps that are collectives, but for the all-reduce of replicas."""
    return tuple(step.name for step in steps if step.collective not in ("", "all_reduce"))


PARTS: dict[str, tuple[str, ...]] = {
    "bucketize": ("bucketize", "deduplicate"),
    "keys": _list_exchanges((*FORWARD[:_BAGS], WEIGHTS)),
    "lookup": ("deduplicate_requests", "look_up_cache", "read_host_rows", "gather_pool", "convert_out"),
    "forward": (*_list_exchanges(FORWARD[_BAGS:]), HANDOVER),
    "pool": ("convert_in", "local_sum", "pool_unique_rows", "place_rows"),
    "unpool": ("convert_gradients_out", "accumulate_row_gradients"),
    "backward": _list_exchanges(BACKWARD),
    "update": ("convert_gradients_in", "sort_lookups", "update_rows"),
    "dp_reduce": ("all_reduce_copies",),
}
"""Steps of a pass by part of a step (``StepParts``); exchanges carry ids before look-ups, bags after them."""


@dataclass(frozen=True)
class GivenTime:
    """Dense layers of which only the time is known: one batch on one GPU [s].

    error  relative, two standard deviations [-]; 0: not given
    """

    time_s: float
    error: float = 0.0


@dataclass(frozen=True)
class Dense:
    """Dense layers for one batch on one GPU of a plan.

    times   by part of a step (``StepParts``) [s];  error  of them, relative, two standard deviations [-]
    weights, gradient_bytes  number of weights, and bytes of the gradient of one; 0: not known
    name    of the layers; "": their time was given
    rate, share  rate of the GPU by its datasheet [FLOP/s], and the share that products reach [-]; 0: unused
    """

    times: Mapping[str, float]
    error: float = 0.0
    weights: float = 0.0
    gradient_bytes: float = 0.0
    name: str = ""
    rate: float = 0.0
    share: float = 0.0

    @staticmethod
    def compute(layers: DenseFile | GivenTime, evaluator: Evaluator, share: float | None = None) -> Dense:
        """The layers on the GPUs of an evaluator, forward and, in training, backward.

        share  of the datasheet's rate that products reach; None: the shipped one
        Limits: a given time -> all of it after the embeddings;  a GPU of no known rate -> BadInputError
        """
        training = evaluator.model.training is not None
        if isinstance(layers, GivenTime):
            top = layers.time_s / (1 + BACKWARD_RATIO) if training else layers.time_s
            return Dense({"top": top, "top_backward": layers.time_s - top}, layers.error)
        machine = evaluator.setting.machine
        elements = float(evaluator.tables.dim.sum())
        gpu, shipped = load_rates().of(machine.name)
        share = shipped.products if share is None else share
        model = DenseModel(layers.bottom, layers.top, layers.rank, layers.layers)
        memory = machine.value("local_sum_bytes_per_s"), machine.value("launch_floor_s")
        times = {
            key: compute_kernels_time(kernels, gpu.flops_per_s, share, *memory)
            for key, kernels in model.kernels(elements, evaluator.batch).items()
            if training or not key.endswith("_backward")
        }
        of_gpu = (layers.name, gpu.flops_per_s, share)
        return Dense(times, shipped.error, model.weights(elements), layers.gradient_bytes, *of_gpu)

    @property
    def time_s(self) -> float:
        """Time of all parts, without the all-reduce and the optimizer [s]."""
        return sum(self.times.values())

    @property
    def reduced_bytes(self) -> float:
        """Bytes of the gradients of all weights."""
        return self.weights * self.gradient_bytes


def sum_parts(costed: CostedPlan, dense: Dense, fabric: str = "time_s", kernels: str = "time_s") -> StepParts:
    """Times of the parts of a step, from the steps of a plan and the dense layers.

    fabric, kernels  which time counts, of all exchanges and of all kernels: "time_s", "low_s" or "high_s"
    Limits: an evaluator without training -> no backward, update or reduction
    """
    times = _sum_steps(costed, fabric, kernels)
    copied = costed.copied_shares
    sums = {key: sum(times.get(name, 0.0) for name in names) for key, names in PARTS.items()}
    for key, step in (("lookup", "gather_pool"), ("update", "update_rows")):
        sums[f"dp_{key}"] = times.get(step, 0.0) * copied.get(step, 0.0)  # of replicas (data-parallel)
        sums[key] -= sums[f"dp_{key}"]
    return StepParts(**sums, **dense.times, **_time_weights(costed.evaluator, dense, fabric, kernels))


def _sum_steps(costed: CostedPlan, fabric: str, kernels: str) -> dict[str, float]:
    """Times of all steps by name [s]. fabric, kernels  as in ``sum_parts``

    Steps that TorchRec runs once per sharding type are added up; splits of all types share one exchange.
    Source: TorchRec 1.8, ``TrainPipelineSparseDist`` through ``FusedKJTListSplitsAwaitable``
    """
    evaluator = costed.evaluator
    times: dict[str, float] = {}
    splits = [row for row in costed.cost.rows if STEPS[row.name].splits]
    for row in costed.cost.rows:
        name = STEPS[row.name].whole or row.name
        times[name] = times.get(name, 0.0) + getattr(row, kernels if row.is_kernel else fabric)
    if evaluator.model.sets is not None and evaluator.training and splits:
        fused = evaluator.times.time_splits(len(splits)) / sum(row.time_s for row in splits)
        times[SPLITS] = fused * sum(getattr(row, fabric) for row in splits)
    return times


def _time_weights(evaluator: Evaluator, dense: Dense, fabric: str, kernels: str) -> dict[str, float]:
    """Times of the all-reduce of the dense layers' gradients, and of their optimizer [s].

    The optimizer is the tables', with state for every weight: row-wise Adagrad becomes Adagrad.
    """
    if not evaluator.training or dense.weights == 0:
        return {}
    basis = evaluator.basis
    gpus = np.array([float(evaluator.gpus)])
    size = np.array([dense.reduced_bytes])
    reduced = evaluator.setting.links.timing("all_reduce", size, gpus, basis.gpus_per_node)
    per_element, per_row = evaluator.memories.state
    moved = np.array([update_bytes(dense.weights, dense.gradient_bytes, per_element or per_row)])
    updated = basis.time_kernel("local_sum", moved)
    times = {"dense_reduce": getattr(reduced, fabric), "dense_update": getattr(updated, kernels)}
    return {key: float(time[0]) for key, time in times.items()}


def collect_ends(costed: CostedPlan, dense: Dense) -> tuple[StepParts, ...]:
    """Parts of a step: as expected; then the low and the high end of exchanges, kernels and dense layers."""
    pairs = product(("fabric", "kernels"), ("low_s", "high_s"))
    tables = [sum_parts(costed, dense, **{cause: end}) for cause, end in pairs]
    middle = sum_parts(costed, dense)
    ratios = (1 - dense.error, 1 + dense.error)
    layers = [{key: time * ratio for key, time in dense.times.items()} for ratio in ratios]
    return (middle, *tables, *(replace(middle, **times) for times in layers))


@dataclass(frozen=True, eq=False)
class WholeStep:
    """A step of a plan with dense layers: training in steady state, or one forward pass alone.

    low_s, high_s  95 % band of the step with overlap [s]
    """

    dense: Dense
    parts: StepParts
    low_s: float
    high_s: float
    training: bool

    @staticmethod
    def compute(costed: CostedPlan, dense: Dense) -> WholeStep:
        """The whole step of a plan; exchanges, kernels and dense layers err independently."""
        ends = collect_ends(costed, dense)
        training = costed.evaluator.training
        times_s = np.array([compute_step_time(parts, training=training) for parts in ends])
        sides = np.square(times_s[1:] - times_s[0]).reshape(-1, 2)  # low and high end of each cause
        low_s, high_s = times_s[0] + np.sqrt(sides.sum(axis=0)) * (-1, 1)
        return WholeStep(dense, ends[0], float(low_s), float(high_s), training)

    @property
    def step_s(self) -> float:
        """Time of a step with overlap [s]."""
        return compute_step_time(self.parts, training=self.training)

    @property
    def communication_s(self) -> float:
        """Time of all communication for the embeddings, hidden or not [s]."""
        return self.parts.embedding_communication_time

    @property
    def exposed_s(self) -> float:
        """Time that communication adds to the kernels, were the dense layers' gradients not reduced [s]."""
        return compute_exposed_time(replace(self.parts, dense_reduce=0.0), training=self.training)

    def to_dict(self, samples: float) -> dict[str, float]:
        """The public schema of ``--json``, in SI units. samples  of all GPUs in a step"""
        step_s = self.step_s
        serial_s = self.parts.serial_time
        return {
            "dense_s": self.dense.time_s,
            "serial_s": serial_s,
            "step_s": step_s,
            "low_s": self.low_s,
            "high_s": self.high_s,
            "samples_per_s": samples / step_s,
            "communication_s": self.communication_s,
            "exposed_s": self.exposed_s,
            "serial_share": self.communication_s / serial_s,
            "exposed_share": self.exposed_s / step_s,
        }
