"""A step of an answer, explained: its equations with all numbers, their sources, and the parts of its band.

What computes a step is run once more while a recording is on (``model.recording``): the loads of the table
with most bytes on the busiest GPU, and the time at the bytes of the step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.collectives.calibrated import Calibrated
from perfmodel.collectives.corrections import correction
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.library import Faster, Timing
from perfmodel.collectives.rates import scaled_unknowns
from perfmodel.collectives.spreads import cells_around
from perfmodel.collectives.stored import curve_time, step_constants
from perfmodel.collectives.time_tables import LIMITS
from perfmodel.errors import BadInputError
from perfmodel.model.curves import time_between_counts
from perfmodel.model.laws import LINK_LAWS, ring_tree_choice, ring_tree_time
from perfmodel.model.recording import Evaluation, derivation, first, recording
from perfmodel.model.unknowns import Group
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.cut import TableCut
from perfmodel.passes.handover import Handover
from perfmodel.passes.loads import loads_by_resource
from perfmodel.passes.one_domain import OneDomain
from perfmodel.passes.placement import Plan
from perfmodel.passes.step_resources import WHOLE
from perfmodel.passes.steps import HANDOVER, STEPS, Step, StepRow
from perfmodel.passes.timing import PassTimes
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import Quantity
from perfmodel.schema.priors import load_priors
from perfmodel.units import counted, format_bytes, format_quantity, format_time

Array = NDArray[np.float64]
_Z95, _EVEN = 1.96, 1.0005
_UNIQUE_KEYS = "hash_floor_s", "torch_unique_floor_s", "hash_memory_fraction", "torch_unique_memory_fraction"
_COLUMNS = {
    "tables": ("table", "tables", "bytes"),
    "sources": ("name", "value", "evidence", "source"),
    "band": ("what", "log_sd"),
    "stages": ("what", "time_s"),
}
Equations = tuple[Evaluation, ...]


@dataclass(frozen=True)
class Explanation:
    """A step, and how its time follows: the value of the first of its equations, times ``factor``.

    time     equations of the time;  load  of the bytes of the first table, on the busiest GPU
    rank     that GPU; None: all have as many bytes;  where  the GPUs, in words
    tables   there: (name, number of equal tables, bytes of these), most bytes first; none: it has no bytes
    sources  of the constants: (name, number as text, evidence, source);  notes  further facts
    band     standard deviation of ln t by cause; they add in quadrature
    stages   of a collective: (what was done, time after it [s]); the first is that of the equation
    """

    step: StepRow
    time: Equations
    sources: tuple[tuple[str, str, str, str], ...]
    band: tuple[tuple[str, float], ...]
    factor: float = 1.0
    stages: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()
    load: Equations = ()
    rank: int | None = None
    tables: tuple[tuple[str, int, float], ...] = ()
    where: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        equations = {name: [each.to_dict() for each in getattr(self, name)] for name in ("time", "load")}
        rows = {
            name: [dict(zip(columns, row, strict=True)) for row in getattr(self, name)]
            for name, columns in _COLUMNS.items()
        }
        return vars(self) | {"step": self.step.to_dict()} | equations | rows


@dataclass(frozen=True, eq=False)
class ExplainedPass:
    """A pass whose steps can be explained, of T tables, or groups of equal tables, with K resources.

    timing   computes the time of a step again;  names, counts  of the tables, and how many are equal
    cut      takes the index of a table, returns how one such table is cut
    on_rank  takes a rank, returns (shards of one table of each group there [T], bytes of each group [T, K])
    """

    times: PassTimes
    rows: tuple[StepRow, ...]
    timing: Callable[[Step], Timing]
    names: Sequence[str]
    counts: Array
    cut: Callable[[int], TableCut]
    on_rank: Callable[[int], tuple[Array, Array]]

    @staticmethod
    def of_plan(evaluator: Evaluator, plan: Plan, rows: tuple[StepRow, ...]) -> ExplainedPass:
        """The pass of a plan; ``rows`` are the steps of its cost."""
        tables, times, most = evaluator.tables, evaluator.times, evaluator.loads(plan).most
        every, timing = np.arange(len(tables)), lambda step: times.exact(step, most)
        loads, (held, ranks) = evaluator.shard_loads(every, *plan.schemes), plan.shards

        def cut(table: int) -> TableCut:
            kind, *parts = (column[[table]] for column in plan.schemes)
            return TableCut(evaluator.model, every[[table]], kind, *(part.astype(float) for part in parts))

        def on_rank(rank: int) -> tuple[Array, Array]:
            shards = np.bincount(held[ranks == rank], minlength=every.size).astype(float)
            return shards, loads.own * shards[:, np.newaxis] + loads.everywhere

        return ExplainedPass(times, rows, timing, tables.names, np.ones(every.size), cut, on_rank)

    def explain(self, name: str) -> Explanation:
        """The explanation of a step, by its name, its label, or the beginning of its name.

        Limits: no step, or several -> BadInputError that lists them
        """
        row = find_step(self.rows, name)
        step = next((step for step in self.times.steps if step.name == row.name), STEPS[row.name])
        where = f"{counted(int(first(self.times.gpus)), 'GPU')} of {self.times.basis.setting.machine.name}"
        if row.name == HANDOVER:
            return replace(self._handover(row), where=where)
        explanation = self._collective(step, row) if step.collective else self._kernel(step, row)
        return replace(self._with_load(explanation, step, row), where=where)

    def _with_load(self, explanation: Explanation, step: Step, row: StepRow) -> Explanation:
        if step.splits:
            with recording():
                size = replace(self.times).splits_bytes  # a copy has not computed it yet
            return replace(explanation, load=derivation("S", size))
        shards, loads = self.on_rank(row.rank)
        total = loads.sum(axis=0)
        resource = step.resources[0] if step.gathers else max(step.resources, key=lambda each: total[each])
        size = loads[:, resource]
        order = [table for table in np.argsort(-size, kind="stable").tolist() if size[table] > 0]
        most, whole = order[0], WHOLE.get(resource, resource)
        with recording():
            own, everywhere = (side.get(whole) for side in loads_by_resource(self.cut(most)))
        count = self.counts[most]
        return replace(
            explanation,
            load=derivation("S", own, count * shards[most]) + derivation("S", everywhere, count),
            rank=None if row.imbalance < _EVEN else row.rank,
            tables=tuple((self.names[at], int(self.counts[at]), float(size[at])) for at in order),
        )

    def _kernel(self, step: Step, row: StepRow) -> Explanation:
        basis, total = self.times.basis, _log_sd(row)
        with recording():
            timing = self.timing(step)
        kernel = "gather_pool" if step.gathers else step.name if step.name == "bucketize" else "local_sum"
        cause = "samples of this kernel" if basis.kernel_fit(kernel) else "published errors of this model"
        known = min(math.log(basis.kernel_factor(kernel)) / _Z95, total)
        band = [(cause, known), ("sources of its constants disagree", math.sqrt(total**2 - known**2))]
        if step.sorts:
            band = [("its sources disagree" if step.sorts_alone else "a hash table or torch.unique", total)]
        keys = _UNIQUE_KEYS if step.sorts and not step.sorts_alone else timing.limit_names
        values = {**basis.setting.constants.values, **basis.setting.machine.values}
        sources = tuple(_source(key, values[key]) for key in keys if key in values)
        return Explanation(row, derivation("t", timing.time_s), sources, tuple(band))

    def _handover(self, row: StepRow) -> Explanation:
        setting = self.times.basis.setting
        waits = setting.handover.waits_s([STEPS[each.name].alike for each in self.rows if each.collective])
        equation = Evaluation(Handover, {"colder": row.time_s - waits, "waits": waits}, row.time_s, "t")
        source = HANDOVER, format_time(row.time_s), str(row.evidence), ", ".join(setting.links.calibrations)
        return Explanation(row, (equation,), (source,), (("whole passes of the run", _log_sd(row)),))

    def _collective(self, step: Step, row: StepRow) -> Explanation:
        links, (ranks, node) = self.times.basis.setting.links, self.times.group(step)
        if isinstance(links, Faster):
            links = links.first if links.first.name == row.library else links.second
        model, gpus = links.times, int(first(ranks))
        if isinstance(model, OneDomain) and gpus > model.anchor:
            with recording():
                time_s = model.estimate(step.collective, row.payload_bytes, gpus).time_s
            keys = "extra_peer_s", "bus_bytes_per_s"
            sources = tuple(_source(key, model.assumed.quantity(key)) for key in keys)
            return Explanation(
                row, derivation("t", time_s), sources, (("the scenario's error", _log_sd(row)),)
            )
        measured: Any = model.measured if isinstance(model, OneDomain) else model
        return _explain(measured, row, gpus, node or measured.machine.gpus_per_node)


def explain_collective(
    model: CollectiveModel, collective: str, payload_bytes: float, gpus: int, gpus_per_node: int
) -> Explanation:
    """The explanation of a collective, whose size is that of nccl-tests. Limits: one rank -> BadInputError"""
    if gpus == 1:
        raise BadInputError("one GPU sends nothing: 0 s.", "give --gpus 2 or more.")
    found = model.estimate(collective, payload_bytes, gpus, gpus_per_node)
    row = StepRow(
        name=collective,
        label=f"{collective.replace('_', '-')} of {format_bytes(payload_bytes)}",
        collective=collective,
        library=str(model.calibration.backend),
        payload_bytes=payload_bytes,
        time_s=float(found.time_s),
        share=1.0,
        low_s=float(found.low_s),
        high_s=float(found.high_s),
        floor_s=float(found.floor_s),
        clock=model.clock,
        evidence=Evidence.from_rank(int(found.evidence)),
        limit=LIMITS[int(found.limit)],
    )
    where = f"{counted(gpus, 'GPU')} of {model.machine.name}"
    return replace(_explain(model, row, gpus, gpus_per_node), where=where)


def _explain(model: CollectiveModel, row: StepRow, gpus: int, gpus_per_node: int) -> Explanation:
    """A collective: its time by a measured curve, between two of them, or by the law."""
    collective, size, node = row.collective, row.payload_bytes, min(gpus_per_node, gpus)
    group, calibration = Group.of(gpus, model.machine.domain_gpus_of(node)), model.calibration
    table, law = model.table(collective, gpus, node), calibration.law(collective)
    curve, notes = calibration.curve(collective, gpus, group.domain_gpus), [table.basis]
    sources = [*curve.sources] if curve else [*law.sources] if law else []
    stages = [(stage.what, math.exp(table.at(stage.log_time, size))) for stage in table.stages]
    if curve is not None:
        with recording():
            equations = derivation("t", curve_time(curve, np.array([size])))
    elif cells := cells_around(calibration, collective, group):
        with recording():
            t_a, t_b = (curve_time(cell, np.array([size])) for cell in cells)
            time_s = time_between_counts(t_a, t_b, gpus, *(cell.gpus for cell in cells))
        equations, stages = derivation("t", time_s), stages[2:]
    else:
        time_s, chosen = _law_time(model, collective, group, size)
        equations, notes = derivation("t", time_s), [*notes, *chosen]
    if table.correction is not None and curve is None:
        cell, near_bytes, letters = table.correction.at(size)
        factor = math.exp(letters["carry"] * letters["res"])
        equations = (*equations, Evaluation(correction, letters, factor, "corr"))
        notes.append(f"nearest measured cell: {format_bytes(near_bytes)} on {cell.gpus} GPUs")
        sources += cell.sources
    source = f"{model.calibration_id}: {', '.join(dict.fromkeys(sources))}"
    return Explanation(
        row,
        equations,
        (("calibration", "", str(row.evidence), source),),
        tuple((doubt.what, table.at(doubt.log_sd, size)) for doubt in table.doubts),
        row.time_s / first(equations[0].value),
        tuple(stages),
        tuple(notes),
    )


def _law_time(model: CollectiveModel, collective: str, group: Group, size: float) -> tuple[Any, list[str]]:
    """(time by the law with this machine's links, of rings and trees that of NCCL's choice; notes)."""
    machine, law = model.machine, model.calibration.law(collective)
    assert law is not None  # else there would be no table
    measured_on, known = Calibrated.of(machine, model.calibration).machine, LINK_LAWS[law.law]
    logs = scaled_unknowns(np.log(np.array(law.values)), law, machine, measured_on)
    unknowns = dict(zip(known.names, np.exp(logs).tolist(), strict=True))
    given = unknowns, step_constants(machine, load_priors()), collective, group, size
    with recording():
        if known.time is not ring_tree_time:
            return known.time(*given), []
        choice = ring_tree_choice(*given)
    taken = int(np.argmin([first(each) for each in choice.expected_s]))
    pairs = zip(choice.candidates, choice.times_s, strict=True)
    times = ", ".join(f"{candidate.name} {format_time(first(time))}" for candidate, time in pairs)
    who, what = str(model.calibration.backend).upper(), choice.candidates[taken].name
    return choice.times_s[taken], [f"{who} takes {what}, by its own table, of {times}"]


def find_step(rows: Sequence[StepRow], name: str) -> StepRow:
    """The step of this name or label, or the only one whose name begins with it; else BadInputError."""
    wanted = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    meant = [row for row in rows if row.name.startswith(wanted)]
    for row in meant:
        if row.name == wanted or len(meant) == 1:
            return row
    listed = ", ".join(row.name.replace("_", "-") for row in meant or rows)
    which = "means several steps" if meant and wanted else "is not a step"
    raise BadInputError(f"{name!r} {which} of this answer.", f"its steps: {listed}.")


def _source(name: str, quantity: Quantity) -> tuple[str, str, str, str]:
    return name, format_quantity(quantity.value, quantity.unit), str(quantity.evidence), quantity.source


def _log_sd(row: StepRow) -> float:
    """Standard deviation of ln t behind the upper end of a step's band [-]."""
    return math.log(row.high_s / row.time_s) / _Z95
