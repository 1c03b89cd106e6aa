"""One configuration in full: time by step, its evidence, and how the number of GPUs was determined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.answer.inputs import GpuCount, count_gpus, explain_too_much, share_equally
from perfmodel.answer.question import Question
from perfmodel.answer.uniform_plans import UniformPlan
from perfmodel.engine.basis import PassBasis
from perfmodel.engine.cost import compare_with_local
from perfmodel.engine.grid import Configs, CostedGrid, cost_grid
from perfmodel.engine.schemes import ROW_WISE
from perfmodel.engine.settings import Setting
from perfmodel.engine.steps import STEPS, StepRow, Times, evidence_shares, sum_causes
from perfmodel.errors import PerfmodelError
from perfmodel.model.popularity import LookUps
from perfmodel.question.groups import DEFAULT_MACHINE
from perfmodel.schema.evidence import Clock, Evidence
from perfmodel.schema.machine import Machine
from perfmodel.units import counted, format_bytes, format_count, format_ratio

if TYPE_CHECKING:
    import pandas as pd

_MOST_KINDS = 20  # kinds of tables among which the one with the most unequal row shards is looked for
_UNEVEN = 1.5  # look-ups of the fullest row shard over the mean, above which a note says so


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer of one configuration (``work``) with one sharding: its steps, totals, memory and evidence.

    question  as it was asked;  basis, work  the pass, and the tables, batch and GPUs
    totals  the columns of ``project_grid``
    sharding  a name of ``WAYS``, or ``PLANNED``;  plan  of the tables; row-wise needs none
    steps  of the pass;  local  times of the same batch in local memory [s], by cause of error
    fullest_part  ids of the GPU with the hottest row of a table, over the mean GPU's [-]
    gpus, domain, table_count  GPUs that the tables are spread over, and of a scale-up domain; tables
    fits      whether the fullest GPU has memory for its rows, optimizer state and exchange buffers
    time_s, rounded_s  time of a batch, and with six digits [s];  slowdown  over ``baseline_time_s`` [-]
    baseline_time_s  time of the same batch in local memory [s]
    samples_per_s  of all GPUs: G B / t, with B samples on each of G GPUs in t
    main_evidence  the weakest that accounts for a large share of the time (``Evidence.main``)
    clocks    of the steps' times;  setting  the machine with its libraries
    """

    question: Question
    basis: PassBasis
    work: Configs
    gpu_count: GpuCount
    steps: tuple[StepRow, ...]
    totals: dict[str, float]
    evidence: Evidence
    local: dict[str, Times]
    notes: tuple[str, ...] = ()
    sharding: str = ROW_WISE
    plan: UniformPlan | None = None
    fullest_part: float = 1.0
    gpus: int = field(init=False)
    domain: int = field(init=False)
    table_count: int = field(init=False)
    fits: bool = field(init=False)
    time_s: float = field(init=False)
    rounded_s: float = field(init=False)
    baseline_time_s: float = field(init=False)
    slowdown: float = field(init=False)
    samples_per_s: float = field(init=False)
    main_evidence: Evidence = field(init=False)
    clocks: tuple[Clock, ...] = field(init=False)
    setting: Setting = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Compute the fields that follow from the others."""
        totals = self.totals
        facts = {
            "gpus": self.gpu_count.gpus,
            "domain": int(self.basis.domain(self.work.gpus)[0]),
            "table_count": int(self.work.table_count[0]),
            "fits": self.gpu_count.fits,
            "time_s": totals["time_s"],
            "rounded_s": float(f"{totals['time_s']:.6g}"),
            "baseline_time_s": totals["baseline_time_s"],
            "slowdown": totals["slowdown"],
            "samples_per_s": self.gpu_count.gpus * float(self.work.batch[0]) / totals["time_s"],
            "main_evidence": Evidence.main(evidence_shares(self.steps)),
            "clocks": tuple(dict.fromkeys(step.clock for step in self.steps)),
            "setting": self.basis.setting,
        }
        for name, fact in facts.items():
            object.__setattr__(self, name, fact)

    @property
    def pinned(self) -> Answer:
        """The same answer, with its sharding named in the question, so that asking again keeps it."""
        return replace(self, question=replace(self.question, sharding=self.sharding))

    @property
    def calibrations(self) -> tuple[str, ...]:
        """Ids of the calibrations that the times are from."""
        return self.setting.links.calibrations

    @property
    def longest_step(self) -> StepRow:
        """The step that takes most time."""
        return max(self.steps, key=lambda step: step.time_s)

    @property
    def uneven(self) -> str:
        """A note that the GPU with the hottest row has more work than the times assume; "" if little more."""
        if self.fullest_part < _UNEVEN:
            return ""
        ratio = format_ratio(self.fullest_part)
        return f"these times are of the mean GPU; the one with the hottest row gets {ratio} as many ids"

    @property
    def every_note(self) -> tuple[str, ...]:
        """The notes and ``uneven``, for an answer that prints ``uneven`` nowhere else."""
        return (*self.notes, *([self.uneven] if self.uneven else []))

    @property
    def band(self) -> tuple[float, float]:
        """95 % band of the slowdown."""
        return self.totals["slowdown_low"], self.totals["slowdown_high"]

    def evidence_shares(self) -> dict[Evidence, float]:
        """Share of the time by evidence class, strongest first."""
        return evidence_shares(self.steps)

    def to_frame(self) -> pd.DataFrame:
        """The steps as a table."""
        import pandas as pd

        return pd.DataFrame([step.to_dict() for step in self.steps])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        totals: dict[str, Any] = {
            k: v for k, v in self.totals.items() if not k.endswith("_time_s") or k in _KEPT_TIMES
        }
        totals["fits"] = self.gpu_count.fits
        return {
            **self.question.to_dict(self.basis, self.work),
            "gpu_count": vars(self.gpu_count) | {"text": str(self.gpu_count)},
            **totals,
            **{k: int(totals[k]) for k in _COUNTS},
            "samples_per_s": self.samples_per_s,
            "evidence": str(self.evidence),
            "main_evidence": str(self.main_evidence),
            "clocks": [str(c) for c in self.clocks],
            "calibrations": list(self.calibrations),
            "steps": [step.to_dict() for step in self.steps],
            "fullest_part": self.fullest_part,
            "notes": list(self.every_note),
        }


_COUNTS = ("gpus", "gpus_needed")
_KEPT_TIMES = ("baseline_time_s", "floor_time_s")
_RANKS = ("evidence", "main_evidence")
_COMPARED = (*_COUNTS, "time_s", "baseline_time_s", "low_s", "high_s")


def answer_at(question: Question, basis: PassBasis, many: Configs, costs: CostedGrid, place: int) -> Answer:
    """The row-wise answer of one of many configurations, by its place among them.

    question  with the values of this configuration;  basis, costs  of ``many`` (``cost_grid``)
    """
    work = many.select(np.array([place]))
    count = count_gpus(basis, work, question.reserve, costs.memory, place)
    steps = costs.cost.build_rows(place)
    return Answer(
        question=question,
        basis=basis,
        work=work,
        gpu_count=count,
        steps=steps,
        totals={name: float(values[place]) for name, values in costs.columns.items() if name not in _RANKS},
        evidence=Evidence.from_rank(int(costs.columns["evidence"][place])),
        local={
            cause: (float(low[place]), float(time[place]), float(high[place]))
            for cause, (low, time, high) in costs.base.causes.items()
        },
        notes=(*basis.setting.notes, *explain_too_much(count, basis, work), *_list_notes(basis, work, steps)),
        fullest_part=_find_fullest_row(work),
    )


def answer_plan(base: Answer, plan: UniformPlan) -> Answer:
    """The answer of a plan of the tables of ``base``.

    base  the row-wise answer of the same question, with the local look-up that both are compared with
    """
    cost, memory = plan.costed.cost, plan.costed.memory
    fullest = int(np.argmax(memory.total_bytes))
    causes = sum_causes((STEPS[row.name].cause, row.low_s, row.time_s, row.high_s) for row in cost.rows)
    count = replace(
        base.gpu_count,
        needed=min(base.gpu_count.needed, base.gpus),
        rows_bytes=float(memory.rows_bytes[fullest]),
        optimizer_bytes=float(memory.optimizer_bytes[fullest]),
        buffer_bytes=float(memory.buffer_bytes[fullest]) / base.basis.buffer_weight,
        fits=True,
    )
    notes: list[str] = []
    copies = sum(placement.scheme.copied for placement in plan.costed.plan.placements)
    if copies and plan.scheme is not None and not plan.scheme.copied:
        notes = [_note_copies(copies, f"{plan.scheme.row_parts} row parts")]
    if idle := int((memory.rows_bytes == 0).sum()):
        parts = sum(placement.scheme.parts for placement in plan.costed.plan.placements)
        part_words = f"as the tables have {counted(parts, 'part')}"
        notes.append(f"{format_count(idle)} of {counted(base.gpus, 'GPU')} hold no rows, {part_words}")
    compared = compare_with_local(causes, base.local, sum(row.floor_s for row in cost.rows), base.gpus)
    totals = {
        **{name: float(value) for name, value in compared.items()},
        "time_s": cost.time_s,  # to the last digit that of the plan
        "memory_bytes": float(memory.total_bytes[fullest]),
        "buffer_bytes": count.buffer_bytes,
        "fits": 1.0,
        "gpus_needed": float(count.needed),
    }
    unchanged = {name: value for name, value in base.totals.items() if not name.endswith("_time_s")}
    return replace(
        base,
        gpu_count=count,
        steps=cost.rows,
        totals=unchanged | totals,
        evidence=cost.evidence,
        notes=(*base.setting.notes, *notes),
        sharding=plan.sharding,
        plan=plan,
        fullest_part=_find_fullest_part(plan),
    )


def _find_fullest_part(plan: UniformPlan) -> float:
    """``Evaluator.fullest_part`` of the table whose row parts have the most unequal look-ups.

    Limits: uniform ids -> 1
    """
    evaluator = plan.costed.evaluator
    if all(law.uniform for law in evaluator.tables.laws):
        return 1.0
    kinds = evaluator.tables.kinds[1].tolist()
    schemes = [placement.scheme for placement in plan.costed.plan.placements]
    tables = {key: table for table, key in enumerate(zip(kinds, schemes, strict=True))}
    return max(evaluator.fullest_part(table, scheme) for (_, scheme), table in tables.items())


def _find_fullest_row(work: Configs) -> float:
    """Look-ups of the row shard with the hottest row over the mean shard's, for the most skewed table.

    For one configuration; for a set of tables, among the tables with most look-ups.
    Limits: uniform ids -> 1;  all look-ups ask for one row, G GPUs -> G
    """
    gpus, batch = float(work.gpus[0]), float(work.batch[0])
    tables = work.tables
    fullest = 1.0
    ids_of = tables.count * tables.features * tables.pooling
    order = np.argsort(-ids_of[:, 0], kind="stable")[:_MOST_KINDS]
    for kind in order.tolist():
        ids = tables.laws[tables.law[kind]]
        rows = float(tables.rows[kind, 0])
        if not ids.uniform and rows >= gpus:
            bags = batch * float(tables.features[kind, 0])
            look_ups = LookUps(ids, rows, float(tables.pooling[kind, 0]), bags, gpus)
            fullest = max(fullest, look_ups.fullest(0, gpus))
    return fullest


def _note_copies(count: float, parts: str) -> str:
    """A note on tables that are replicated, because they have fewer rows than row parts."""
    tables, verb = ("1 table has", "is") if count == 1 else (f"{count:.0f} tables have", "are")
    return f"{tables} fewer rows than {parts} and {verb} whole on every GPU"


def _list_notes(basis: PassBasis, work: Configs, steps: Sequence[StepRow]) -> Iterator[str]:
    """Remarks on a row-wise answer: mixed clocks, replicated tables, an assumed table size."""
    clocks = list(dict.fromkeys(step.clock for step in steps))
    if clocks[1:]:
        kernels = basis.setting.find_clock()
        yield f"this sum mixes clocks: {', '.join(clocks)} (kernels are on the {kernels} clock)"
    gpus = work.gpus[0]
    small = work.tables.rows[:, 0] < gpus
    copies = float(work.tables.count[small, 0].sum())
    if copies:
        text = _note_copies(copies, f"{gpus:.0f} GPUs")
        yield f"{text}, so nothing is exchanged" if small.all() else text
    if work.filled:
        size = format_bytes(float(work.table_bytes[0]), binary=False)
        yield f"no table size is given: the tables are assumed to fill the memory, {size}"


def answer_row_wise(question: Question) -> Answer:
    """The row-wise answer of a question, whatever its sharding. Limits: as ``Question.prepare``"""
    basis, work = question.prepare()
    return answer_at(question, basis, work, cost_grid(basis, work), 0)


def answer_on(question: Question, gpus: int) -> Answer:
    """The row-wise answer on so many GPUs. Limits: ``total`` is not divisible by them -> BadInputError"""
    batch = question.batch if question.total is None else share_equally(question.total, gpus)
    return answer_row_wise(replace(question, gpus=gpus, batch=batch))


def project_one(workload: object = None, machine: str | Machine = DEFAULT_MACHINE, **options: Any) -> Answer:
    """One configuration in full, sharded row-wise, in the keywords of ``perfmodel.project``."""
    return note_idle(answer_row_wise(Question.of(workload, machine, **options)), answer_row_wise)


def note_idle(answer: Answer, ask: Callable[[Question], Answer]) -> Answer:
    """The answer, with a note for each machine value that was given and has no effect on it.

    ask  answers a question as ``answer`` was: each is asked again without one of these values
    """
    machine = answer.question.machine
    notes = list(answer.notes)
    for key in sorted(machine.overrides) if answer.question.setting is None else []:
        values = {name: machine.value(name) for name in machine.overrides - {key}}
        try:
            without = ask(replace(answer.question, machine=machine.unchanged().with_overrides(values)))
        except PerfmodelError:
            continue
        if all(without.totals[name] == answer.totals[name] for name in _COMPARED):
            notes.append(f"{key} changes nothing in this answer")
    return replace(answer, notes=tuple(notes))
