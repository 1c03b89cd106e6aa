"""A step of an answer, explained: its equations with all numbers, their sources, and the parts of its band.

What computes a step is run once more while a recording is on (``model.recording``): the loads of the table
with most bytes on the busiest GPU, and the time at the bytes of the step.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel.collectives.derivation import Calibrated, Correction, curve_time, find_cells_around
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.link_laws import scale_unknowns, step_constants
from perfmodel.collectives.time_tables import LIMITS, TimeTable
from perfmodel.collectives.timings import Timing
from perfmodel.engine.cost import CostedPlan
from perfmodel.engine.cut import TableCut
from perfmodel.engine.loads import count_loads
from perfmodel.engine.settings import BETWEEN, Handover
from perfmodel.engine.steps import HANDOVER, SORT_ALONE, STEPS, WHOLE, Resource, Step, StepRow
from perfmodel.engine.tables import Array
from perfmodel.engine.timing import PassTimes
from perfmodel.errors import BadInputError
from perfmodel.model.curves import time_between_counts
from perfmodel.model.laws import LINK_LAWS, choose_candidates, compute_ring_tree_time
from perfmodel.model.recording import Evaluation, Number, derive, record_equations, to_float
from perfmodel.model.unknowns import Group
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.files import unknown_name
from perfmodel.schema.priors import load_priors
from perfmodel.units import counted, format_bytes, format_quantity, format_time

_EVEN = 1.0005
"""Bytes of the busiest GPU over those of the mean GPU, below which all are said to have as many."""
_UNIQUE_KEYS = "hash_floor_s", "torch_unique_floor_s", "hash_memory_fraction", "torch_unique_memory_fraction"
_COLUMNS = {
    "tables": ("table", "tables", "bytes"),
    "sources": ("name", "value", "evidence", "source"),
    "band": ("what", "log_below", "log_above"),
    "stages": ("what", "time_s"),
}
Equations = tuple[Evaluation, ...]


@dataclass(frozen=True, eq=False)
class Explanation:
    """A step, and how its time follows: the value of the first of its equations, times ``factor``.

    time     equations of the time;  load  of the bytes of the first table, on the busiest GPU
    rank     that GPU; None: all have as many bytes;  where  the GPUs, in words
    tables   there: (name, number of equal tables, bytes of these), most bytes first; none: it has no bytes
    sources  of the constants: (name, number as text, evidence, source);  notes  further facts
    band     how far ln t may be below and above, by cause
    stages   of a collective: (what was done, time after it [s]); the first is that of the equation
    """

    step: StepRow
    time: Equations
    sources: tuple[tuple[str, str, str, str], ...]
    band: tuple[tuple[str, float, float], ...]
    factor: float = 1.0
    stages: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()
    load: Equations = ()
    rank: int | None = None
    tables: tuple[tuple[str, int, float], ...] = ()
    where: str = ""

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        equations = {name: [part.to_dict() for part in getattr(self, name)] for name in ("time", "load")}
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
    on_rank  takes a rank, returns (shards of each group there [T], bytes of each group [T, K])
    """

    times: PassTimes
    rows: tuple[StepRow, ...]
    timing: Callable[[Step], Timing]
    names: Sequence[str]
    counts: Array
    cut: Callable[[int], TableCut]
    on_rank: Callable[[int], tuple[Array, Array]]

    @staticmethod
    def from_plan(costed: CostedPlan) -> ExplainedPass:
        """The pass of a plan, in which each table is a group of its own."""
        evaluator = costed.evaluator
        times = evaluator.times
        busiest = costed.loads.max(axis=1)
        every = np.arange(len(evaluator.tables))
        loads = evaluator.count_shards(every, *costed.plan.schemes)
        shard_tables, shard_ranks = costed.plan.shards

        def cut(table: int) -> TableCut:
            """One table in its scheme: arrays of one entry."""
            kind, *parts = np.array(costed.plan.schemes)[:, [table]]
            return TableCut(evaluator.model, every[[table]], kind, *(part.astype(float) for part in parts))

        def count_on_rank(rank: int) -> tuple[Array, Array]:
            """(shards of each table on a rank [T], bytes that each table costs it [T, K])."""
            shards = np.bincount(shard_tables[shard_ranks == rank], minlength=every.size).astype(float)
            return shards, loads.on_holder * shards[:, np.newaxis] + loads.everywhere

        return ExplainedPass(
            times=times,
            rows=costed.cost.rows,
            timing=lambda step: times.time_step(step, busiest),
            names=evaluator.tables.names,
            counts=np.ones(every.size),
            cut=cut,
            on_rank=count_on_rank,
        )

    def explain(self, name: str) -> Explanation:
        """The explanation of a step, by its name, its label, or the beginning of its name.

        Limits: no step, or several -> BadInputError that lists them
        """
        row = find_step(self.rows, name)
        step = next((step for step in self.times.steps if step.name == row.name), STEPS[row.name])
        where = f"{counted(int(to_float(self.times.gpus)), 'GPU')} of {self.times.basis.setting.machine.name}"
        if row.name == HANDOVER:
            return replace(self._explain_handover(row), where=where)
        if not step.collective:
            return replace(self._add_load(self._explain_kernel(step, row), step), where=where)
        ranks, node = self.times.group(step)
        model: Any = self.times.basis.setting.links.libraries[row.library]
        estimate = _explain_estimate(model, row, int(to_float(ranks)), node or model.machine.gpus_per_node)
        return replace(self._add_load(estimate, step), where=where)

    def _add_load(self, explanation: Explanation, step: Step) -> Explanation:
        """The explanation with the bytes of the step: of which tables, and by which equations the most."""
        if step.splits:
            with record_equations():
                size = replace(self.times).splits_bytes  # a copy has not computed it yet
            return replace(explanation, load=derive("S", size))
        row = explanation.step
        shards, loads = self.on_rank(row.rank)
        total = loads.sum(axis=0)
        resource = step.resources[0] if step.gathers else max(step.resources, key=lambda name: total[name])
        sizes = loads[:, resource]
        whole = WHOLE[resource] if resource in WHOLE else Resource(resource)
        order = [table for table in np.argsort(-sizes, kind="stable").tolist() if sizes[table]]
        with record_equations():
            sides = [side.get(whole) for side in count_loads(self.cut(order[0]))]  # on the holder, everywhere
        count = self.counts[order[0]]
        return replace(
            explanation,
            load=derive("S", sides[0], shards[order[0]]) + derive("S", sides[1], count),
            rank=None if row.imbalance < _EVEN else row.rank,
            tables=tuple((self.names[i], int(self.counts[i]), float(sizes[i])) for i in order),
        )

    def _explain_kernel(self, step: Step, row: StepRow) -> Explanation:
        """A kernel, timed again for its equations; the causes of its band add in quadrature."""
        basis = self.times.basis
        total = math.log(row.high_s / row.time_s)
        with record_equations():
            timing = self.timing(step)
        kernel = "gather_pool" if step.gathers else step.name if step.name == "bucketize" else "local_sum"
        cause = "samples of this kernel" if kernel in basis.fits else "published errors of this model"
        published = min(math.log(basis.get_kernel_factor(kernel)), total)
        spread = math.sqrt(total**2 - published**2)
        band: tuple[tuple[str, float, float], ...]
        band = ((cause, published, published), ("sources of its constants disagree", spread, spread))
        if step.hosted:
            band = _whole("sources of its constants disagree", row)
        alone = step.name == SORT_ALONE
        if step.sorts:
            band = _whole("its sources disagree" if alone else "a hash table or torch.unique", row)
        keys = _UNIQUE_KEYS if step.sorts and not alone else timing.limit_names
        values = {**basis.setting.constants, **basis.setting.machine.values}
        sources = [(key, values[key]) for key in keys if key in values]
        return Explanation(
            row,
            derive("t", timing.time_s),
            tuple((k, format_quantity(q.value, q.unit), str(q.evidence), q.source) for k, q in sources),
            band,
        )

    def _explain_handover(self, row: StepRow) -> Explanation:
        """The extra time of collectives in a whole pass (``Handover``), in its two terms."""
        setting = self.times.basis.setting
        between = setting.handover.constants.get(BETWEEN)
        between_s = between.value if between else 0.0
        letters = {"steps": row.time_s - between_s, "between": between_s}
        equation = Evaluation(Handover, letters, row.time_s, "t")
        source = HANDOVER, format_time(row.time_s), str(row.evidence), ", ".join(setting.links.calibrations)
        return Explanation(row, (equation,), (source,), _whole("whole passes of the run", row))


def explain_collective(
    model: CollectiveModel, collective: str, payload_bytes: float, gpus: int, gpus_per_node: int
) -> Explanation:
    """The explanation of a collective, whose size is that of nccl-tests. Limits: one rank -> BadInputError"""
    if gpus == 1:
        raise BadInputError("one GPU sends nothing: 0 s.", "give --gpus 2 or more.")
    estimate = model.estimate(collective, payload_bytes, gpus, gpus_per_node)
    row = StepRow(
        name=collective,
        label=f"{collective.replace('_', '-')} of {format_bytes(payload_bytes)}",
        collective=collective,
        library=str(model.calibration.backend),
        payload_bytes=payload_bytes,
        time_s=float(estimate.time_s),
        share=1.0,
        low_s=float(estimate.low_s),
        high_s=float(estimate.high_s),
        floor_s=float(estimate.floor_s),
        clock=model.clock,
        evidence=Evidence.from_rank(int(estimate.evidence)),
        limit=LIMITS[int(estimate.limit)],
    )
    where = f"{counted(gpus, 'GPU')} of {model.machine.name}"
    return replace(_explain_estimate(model, row, gpus, gpus_per_node), where=where)


def _explain_estimate(model: CollectiveModel, row: StepRow, gpus: int, gpus_per_node: int) -> Explanation:
    """A collective: its time by a measured curve, between two of them, or by the law."""
    collective = row.collective
    size = row.payload_bytes
    node = min(gpus_per_node, gpus)
    group = Group.of(gpus, model.machine.domain_gpus_of(node))
    calibration = model.calibration
    table = model.table(collective, gpus, node)
    law = calibration.law(collective)
    notes: list[str] = []
    curve = calibration.curve(collective, gpus, group.domain_gpus)
    sources = [*curve.sources] if curve else [*law.sources] if law else []
    stages = [(what, math.exp(table.at(log_time, size))) for what, log_time in table.stages]
    with record_equations():
        if curve is not None:
            time_s = curve_time(curve, np.array([size]))
        elif cells := find_cells_around(calibration, collective, group):
            below, above = cells
            t_a = curve_time(below, np.array([size]))
            t_b = curve_time(above, np.array([size]))
            time_s = time_between_counts(t_a, t_b, gpus, below.gpus, above.gpus)
            stages = stages[2:]
        else:
            time_s, notes = _evaluate_law(model, collective, group, size)
    equations = derive("t", time_s)
    if table.correction is not None and curve is None:
        equations = (*equations, _evaluate_correction(table.correction, table, size))
        near_bytes = table.at(2**table.correction.near_log2, size)
        cell = table.correction.cell
        notes = [*notes, f"nearest measured cell: {format_bytes(near_bytes)} on {cell.gpus} GPUs"]
        sources += cell.sources
    source = f"{model.calibration_id}, measured by {', '.join(dict.fromkeys(sources))}"
    return Explanation(
        row,
        equations,
        (("calibration", "", str(row.evidence), source),),
        tuple((part.what, table.at(part.below, size), table.at(part.above, size)) for part in table.band),
        row.time_s / to_float(equations[0].value),
        tuple(stages),
        tuple(notes),
    )


def _evaluate_correction(correction: Correction, table: TimeTable, size: float) -> Evaluation:
    """The equation of a correction, with its numbers."""
    measured_s = math.exp(table.at(correction.log_measured, size))
    law_s = math.exp(table.at(correction.log_law, size))
    fade = table.at(correction.fade, size)
    letters = {"t_near": measured_s, "law_near": law_s, "fade": fade}
    return Evaluation(Correction, letters, (measured_s / law_s) ** fade, "corr")


def _evaluate_law(
    model: CollectiveModel, collective: str, group: Group, size: float
) -> tuple[Number, list[str]]:
    """(time by the law with this machine's links, of rings and trees that of NCCL's choice; notes)."""
    machine = model.machine
    law = model.calibration.law(collective)
    assert law is not None  # else there would be no table
    link_law = LINK_LAWS[law.law]
    logs = scale_unknowns(law, machine, Calibrated.of(machine, model.calibration).machine)
    unknowns = dict(zip(link_law.names, np.exp(logs).tolist(), strict=True))
    arguments = unknowns, step_constants(machine, load_priors()), collective, group, size
    if link_law.time is not compute_ring_tree_time:
        return link_law.time(*arguments), []
    choice = choose_candidates(*arguments)
    taken = int(np.argmin([to_float(time_s) for time_s in choice.expected_s]))
    pairs = zip(choice.candidates, choice.times_s, strict=True)
    times = ", ".join(f"{candidate.name} {format_time(to_float(time_s))}" for candidate, time_s in pairs)
    note = f"takes {choice.candidates[taken].name}, by its own table, of {times}"
    return choice.times_s[taken], [f"{str(model.calibration.backend).upper()} {note}"]


def find_step(rows: Sequence[StepRow], name: str) -> StepRow:
    """The step of this name or label, or the only step whose name begins with it or has it; else an error."""
    wanted = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    names = {f"{row.name}_{row.library}": row for row in rows} | {row.name: row for row in rows}
    if wanted in names:
        return names[wanted]
    begun = [row for row in rows if row.name.startswith(wanted)]
    meant = begun or [row for row in rows if wanted in row.name]
    if len(meant) == 1:
        return meant[0]
    listed = [row.name.replace("_", "-") for row in meant or rows]
    if meant:
        raise BadInputError(
            f"{name!r} means several steps of this answer.", f"they are: {', '.join(listed)}."
        )
    raise unknown_name("step", name, listed)


def _whole(what: str, row: StepRow) -> tuple[tuple[str, float, float], ...]:
    """The band of a step (``Explanation.band``) with one cause, ``what``. Limits: low end 0 s -> finite"""
    low_s = max(row.low_s, sys.float_info.epsilon * row.time_s)
    return ((what, math.log(row.time_s / low_s), math.log(row.high_s / row.time_s)),)
