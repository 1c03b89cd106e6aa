"""The pass of a service: the time of each step for any samples per GPU, from a projection or a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.model import schedule
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.placement import Plan
from perfmodel.passes.schemes import ROW_WISE, WAYS
from perfmodel.passes.steps import STEPS, step_label
from perfmodel.projections import Forward, prepare
from perfmodel.projections.grid import costed
from perfmodel.projections.hosted import host_costs, with_host
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.prices import MEMORY
from perfmodel.schema.prices import SSD as SSDS
from perfmodel.schema.tiers import SSD
from perfmodel.units import counted, format_bytes, format_rate, format_time

Array = NDArray[np.float64]
TORCHREC = WAYS[ROW_WISE].runs
LARGEST_BATCH = 2**16
"""Largest batch that is tried, in samples on one GPU."""


@dataclass(frozen=True)
class ServedStep:
    """A step of the pass.

    collective  its collective; "" for a kernel
    device      what it occupies: ``schedule.COMPUTE`` or ``NETWORK``
    """

    name: str
    collective: str
    device: str

    @property
    def label(self) -> str:
        """Name of the step for people."""
        return step_label(self.name)


@dataclass(frozen=True, eq=False)
class ServedPass:
    """Times of S steps at n batches, interpolated linearly in between.

    gpus          GPUs that run the pass: one replica;  batches  [n] samples per GPU, increasing
    time_s, low_s, high_s  of each step [S, n]: centre and 95 % interval
    evidence      for the time of the pass at each batch;  fits  whether memory holds it at each batch
    rows          words: where rows are, if not in the GPUs' HBM, and who shares that memory
    node          GPUs per machine;  whole  whether a replica needs the memory of its machines alone
    held_bytes, held_in  rows that a replica keeps on SSDs or in shared memory, and which (``schema.prices``)
    sharding      of the tables, in words;  way  its name (``schemes.WAYS``); "": a plan by table
    runs          name of the program that runs it
    host          mode of the host whose time is included (``hosted.MODES``, or a clock); "": device alone
    payload_bytes  of one rank in each step [S, n]
    """

    gpus: int
    batches: Array
    steps: tuple[ServedStep, ...]
    time_s: Array
    low_s: Array
    high_s: Array
    evidence: tuple[Evidence, ...]
    fits: NDArray[np.bool_]
    rows: str = ""
    node: int = 1
    whole: bool = False
    held_bytes: float = 0.0
    held_in: str = ""
    sharding: str = ROW_WISE
    way: str = ROW_WISE
    runs: str = TORCHREC
    host: str = ""
    payload_bytes: Array = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def largest_batch(self) -> int:
        """Largest batch that memory holds, in samples per GPU."""
        return int(self.batches[self.fits].max(initial=0))

    def at(self, batch: Any) -> Array:
        """Times of the steps at other batches [s], a row per step. batch  samples per GPU"""
        asked = np.atleast_1d(np.asarray(batch, dtype=np.float64))
        return np.array([np.interp(asked, self.batches, row) for row in self.time_s])

    def total(self, batch: float) -> float:
        """Time of a pass with ``batch`` samples per GPU that runs alone [s]."""
        return float(self.at(batch).sum())

    def tasks(self, batch: float, more: Array | float = 0.0) -> tuple[schedule.Task, ...]:
        """The steps of a pass in order, as tasks of ``model.schedule``; each batch is a stream of its own.

        batch  samples per GPU;  more  delay added to each step [s]
        """
        times = self.at(batch)[:, 0] + more
        found: list[schedule.Task] = []
        for step, time in zip(self.steps, times, strict=True):
            after = (found[-1].name,) if found else ()
            found.append(schedule.Task(step.name, step.name, float(time), after, (), step.device))
        return tuple(found)

    def gap(self, batch: float, overlap: bool, more: Array | float = 0.0) -> float:
        """Time between the starts of two full batches [s]: the whole pass, or less if two batches overlap.

        more  delay added to each step [s]
        """
        if overlap:
            return schedule.steady(self.tasks(batch, more)).step_s
        return self.total(batch) + float(np.sum(more))

    def changed(self, times: Array) -> ServedPass:
        """The same pass with other times of its steps [s], shape [steps, batches]."""
        return replace(self, time_s=times)

    def evidence_at(self, batch: float) -> Evidence:
        """The evidence for the time of a pass, at the listed batch nearest to ``batch``."""
        return self.evidence[int(np.argmin(np.abs(self.batches - batch)))]


def hosted_pass(served: ServedPass, host: str, calibration: str | None = None) -> ServedPass:
    """The pass including the host that launches it: a step takes its device time and the wait for the host.

    host, calibration  as in ``hosted.host_costs``
    """
    steps = [STEPS[step.name] for step in served.steps]
    ends = zip((0, -1, 1), (served.time_s, served.low_s, served.high_s), strict=True)
    times = [with_host(host_costs(host, calibration, end), steps, time)[0] for end, time in ends]
    return replace(served, time_s=times[0], low_s=times[1], high_s=times[2], host=host)


def batch_grid(most: int = LARGEST_BATCH) -> list[int]:
    """Batches at which a pass is timed, up to ``most`` per GPU: all up to 16, then eight an octave."""
    rough = np.unique(np.round(np.geomspace(16, most, 8 * max(int(np.log2(most / 16)), 1) + 1)).astype(int))
    return [*range(1, 16), *rough.tolist()] if most > 16 else list(range(1, most + 1))


def projected_pass(keywords: dict[str, Any], gpus: int, most: int = LARGEST_BATCH) -> ServedPass:
    """The row-wise pass of the projection with these arguments.

    keywords  of ``perfmodel.project``;  gpus  of one replica;  most  largest batch [samples per GPU]
    """
    asked = {**keywords, "gpus": gpus, "batch": batch_grid(most)}
    forward, work = prepare(None, **asked)
    found = costed(forward, work)
    shape = (len(work),)
    steps = [step for step in found.steps if np.broadcast_to(step.timing.time_s, shape).any()]
    time, low, high = (
        np.array([np.broadcast_to(getattr(step.timing, name), shape) for step in steps])
        for name in ("time_s", "low_s", "high_s")
    )
    served = tuple(_served(step.name, step.collective, step.step.is_kernel) for step in steps)
    evidence = tuple(Evidence.from_rank(int(rank)) for rank in found.grid.columns["main_evidence"])
    fits = np.asarray(found.grid.columns["fits"], dtype=np.bool_)
    held = SSDS if forward.tier and forward.tier.kind == SSD else MEMORY if forward.memory else ""
    return ServedPass(
        gpus,
        work.batch,
        served,
        time,
        low,
        high,
        evidence,
        fits,
        _rows(forward),
        forward.gpus_per_node or forward.setting.machine.gpus_per_node,
        forward.tier is not None,
        float(work.table_bytes[0]) if held else 0.0,
        held,
        payload_bytes=np.array([np.broadcast_to(step.payload_bytes, shape) for step in steps]),
    )


def _rows(forward: Forward) -> str:
    """Words: where rows are if not in HBM; "": in HBM."""
    if forward.tier is not None:
        those = "those" if forward.tier.kind == SSD else "that"
        where = f"rows in {forward.tier.place} ({forward.tier})"
        return f"{where}: a replica has {those} of its nodes for itself alone"
    if forward.memory is None:
        return ""
    memory = forward.memory
    size = format_bytes(memory.capacity_bytes, binary=False)
    where = f"rows in one memory of {size} at {format_rate(memory.bytes_per_s)}"
    if not memory.remote:
        return f"{where} for each GPU"
    return f"{where} for {counted(memory.sharers, 'GPU')}, {format_time(memory.latency_s)} away"


def _served(name: str, collective: str, kernel: bool) -> ServedStep:
    return ServedStep(name, collective, schedule.COMPUTE if kernel else schedule.NETWORK)


def planned_pass(
    evaluator_of: Callable[[int], Evaluator], plan: Plan, limit_bytes: float, batches: Sequence[int]
) -> ServedPass:
    """The forward pass of a plan.

    evaluator_of  returns an evaluator for a number of samples per GPU;  limit_bytes  memory for tables per
                  GPU
    batches       samples per GPU at which to evaluate it, increasing
    Limits: no batch fits -> BadInputError
    """
    costs, fits = [], []
    for batch in batches:
        evaluator = evaluator_of(batch)
        loads = evaluator.loads(plan)
        costs.append(evaluator.step(loads))
        fits.append(float(evaluator.memory(plan, loads).total_bytes.max()) <= limit_bytes)
    if not any(fits):
        raise BadInputError("the plan does not fit the memory at any batch.", "plan anew with more GPUs.")
    names = [step.name for step in evaluator_of(batches[0]).steps]
    seen = {row.name: row for cost in costs for row in cost.rows}
    order = [*(name for name in names if name in seen), *(name for name in seen if name not in names)]
    by_name = [{row.name: row for row in cost.rows} for cost in costs]
    time, low, high, payload = (
        np.array([[getattr(each[name], key) if name in each else 0.0 for each in by_name] for name in order])
        for key in ("time_s", "low_s", "high_s", "payload_bytes")
    )
    served = tuple(_served(name, seen[name].collective, seen[name].is_kernel) for name in order)
    evidence = tuple(cost.main_evidence for cost in costs)
    sizes = np.asarray(batches, dtype=np.float64)
    last, away = evaluator_of(batches[0]), bool(plan.tier_codes.any())
    found = ServedPass(plan.gpus, sizes, served, time, low, high, evidence, np.asarray(fits))
    node = last.basis.gpus_per_node or last.setting.machine.gpus_per_node
    return replace(found, node=int(node), whole=away, payload_bytes=payload)
