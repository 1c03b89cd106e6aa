"""Explains a step of a pass: its time, and its bytes on the busiest GPU, of the table with the most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel.model.recording import named
from perfmodel.passes.alike import Alike
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.equations import Equation
from perfmodel.passes.explanation import Explanation, Pass, Payload, explained
from perfmodel.passes.placement import Plan
from perfmodel.passes.recorded_words import letters_text, recorded_terms, working_lines
from perfmodel.passes.step_equations import EVERY_RANK, GATHERS, ROWS_OF_ASKING, SPLITS, bytes_of, whole_of
from perfmodel.passes.step_names import PLAN, PROJECTION, find_step
from perfmodel.passes.step_resources import Resource
from perfmodel.passes.steps import STEPS, Step, StepCost, StepRow
from perfmodel.passes.terms import Term
from perfmodel.plan.busiest import Busiest, RankTables, given, software
from perfmodel.projections.projection import Projection
from perfmodel.units import format_bytes, format_time

_EVEN = 1.0005
"""Busiest over mean load below which all GPUs count as equal."""
_NAMED = 5
"""Most tables that are named individually."""


def explain_step(answer: Projection, name: str) -> Explanation:
    """The explanation of the step of a row-wise projection with this name. Limits: as ``find_step``"""
    return _explain(_Rows(_pass_of(answer), PROJECTION, answer), name)


def explain_alike_step(answer: Projection, evaluator: Evaluator, found: Alike, name: str) -> Explanation:
    """The explanation of a step, by its name, of a sharding that all tables have.

    evaluator  computes the costs of ``found``, the sharding. Limits: as ``find_step``
    """
    return _explain(_Planned(_pass_of(answer), PROJECTION, evaluator, found.plan), name)


def explain_plan_step(evaluator: Evaluator, plan: Plan, cost: StepCost, name: str) -> Explanation:
    """The explanation of a plan's step with this name, with the tables that have most bytes.

    cost  of the plan. Limits: as ``find_step``
    """
    node = evaluator.basis.gpus_per_node or evaluator.setting.machine.gpus_per_node
    link = evaluator.setting.machine.links.scale_up
    words = f"GPUs: {evaluator.gpus} of the plan, in {link} domains of {evaluator.domain}"
    whole = Pass(
        evaluator.setting,
        cost.rows,
        evaluator.gpus,
        evaluator.domain,
        node,
        words,
        evaluator.memories.optimizer,
        digits=evaluator.model.sort_digits,
    )
    return _explain(_Planned(whole, PLAN, evaluator, plan), name)


def _pass_of(answer: Projection) -> Pass:
    forward = answer.forward
    return Pass(
        answer.setting,
        answer.steps,
        answer.gpus,
        int(forward.domain(answer.work.gpus)[0]),
        answer.gpu_count.gpus_per_node,
        f"GPUs: {answer.gpu_count}",
        forward.optimizer,
        digits=float(np.ravel(forward.times(answer.work).digits)[0]),
        memory=forward.memory,
        bare_bytes=float(answer.loads.bare_bytes[0]),
    )


@dataclass(frozen=True, eq=False)
class _Rows:
    """A row-wise pass, in which all ranks have equal loads, as an explanation reads it.

    whole  the pass;  what  word for messages: a projection
    """

    whole: Pass
    what: str
    answer: Projection

    def kind(self, name: str) -> Step:
        """The definition of a step."""
        return STEPS[name]

    def loads(self, rank: int) -> Any:
        """Bytes of each resource on a rank."""
        return self.answer.loads.most[rank]

    def tables(self, rank: int) -> RankTables:
        """Bytes on a rank by table."""
        return RankTables.of_rows(self.answer)

    def launches(self, step: Step) -> int:
        """Number of launches of a kernel."""
        return 1

    def words(self, step: Step) -> Iterator[str]:
        """Further remarks on a step: none."""
        yield from ()


@dataclass(frozen=True, eq=False)
class _Planned:
    """A plan's pass, in which ranks differ, as an explanation reads it.

    whole  the pass;  what  word for messages: a projection, or a plan
    """

    whole: Pass
    what: str
    evaluator: Evaluator
    plan: Plan

    def kind(self, name: str) -> Step:
        """The definition of a step."""
        return self.evaluator.steps_by_name.get(name, STEPS[name])

    def loads(self, rank: int) -> Any:
        """Bytes of each resource on a rank."""
        return self.evaluator.loads(self.plan).values[:, rank]

    def tables(self, rank: int) -> RankTables:
        """Bytes on a rank by table."""
        return RankTables.of_plan(self.evaluator, self.plan, rank)

    def launches(self, step: Step) -> int:
        """Number of launches of a kernel: one for each group of tables that TorchRec looks up separately."""
        e = self.evaluator
        return int(e.times.launches(e.loads(self.plan).most)) if step.grouped else 1

    def words(self, step: Step) -> Iterator[str]:
        """Remarks on TorchRec's sets of exchanges and launches."""
        yield from _sets_words(self.evaluator, self.plan, self.whole, step)
        yield from _launch_words(self.evaluator, self.plan, step)


def _explain(of: _Rows | _Planned, name: str) -> Explanation:
    step = find_step(of.whole.steps, name, of.what)
    kind, whole = of.kind(step.name), of.whole
    if not kind.resources:
        return explained(whole, step, Payload(Equation("0", "", ""), ()))
    apart = tuple(of.words(kind))
    if kind.splits:
        size = SPLITS.asked(lambda letter: software(whole.setting, letter) or given(letter, whole.gpus))
        made = (term for term in recorded_terms(size) if term.symbol != "G")
        terms = (*_head(whole, step), *made)
        working = (*working_lines(named("S", size, "")), *apart)
        return explained(whole, step, Payload(Equation.of(SPLITS.law, SPLITS.text), terms, working))
    loads = of.loads(step.rank)  # a gather is timed by DRAM bytes, others by the larger of sent and received
    resource = kind.resources[0] if kind.gathers else max(kind.resources, key=lambda each: _most(each, loads))
    busiest = Busiest(of.tables(step.rank), resource)
    number, count = busiest.recorded(), busiest.table_count
    symbol, table = "S", ""
    if busiest.alike == count > 1:
        number = given("T", count, "tables, each with as much") * number
    equation = Equation.of(bytes_of(resource).law, letters_text(number))
    if count > busiest.alike:
        table = busiest.tables.names[busiest.table]
        equation = replace(equation, text=f"sum over the {count} tables there of ( {equation.text} )")
        symbol = f"S({table})"
    number = named(symbol, number, "")
    own = (term for term in recorded_terms(number) if term.symbol not in (symbol, "G"))
    made = (replace(term, meaning=f"{term.meaning}, of {table}" if table else term.meaning) for term in own)
    whole_terms = tuple(_passed(busiest)) if resource in GATHERS else ()
    terms = (*_head(whole, step), *made, *whole_terms)
    like = kind.alike if not step.collective else ""
    everywhere = whole_of(resource) in EVERY_RANK or step.imbalance < _EVEN
    where = "every GPU" if everywhere else f"rank {step.rank}"
    which = _which_words(busiest) if of.what == PLAN else ()
    working = (_sum_words(busiest, where), *working_lines(number), *which, *apart)
    return explained(whole, step, Payload(equation, terms, working, like, of.launches(kind)))


def _most(resource: Resource, loads: Any) -> tuple[float, bool]:
    """Sort key of a resource: its bytes; if equal, rows and gradients of the asking rank first."""
    return float(f"{float(loads[resource]):.9g}"), whole_of(resource) in ROWS_OF_ASKING


def _sets_words(evaluator: Evaluator, plan: Plan, whole: Pass, step: Step) -> Iterator[str]:
    """Remarks on TorchRec's other sets of exchanges: it runs one set of collectives per sharding type."""
    sets = evaluator.model.sets
    if sets is None or not step.collective:
        return
    sizes = sets.tables_of(plan)
    listed = ", ".join(f"{name.replace('_', '-')} ({count})" for name, count in sizes.items())
    alike = [row for row in whole.steps if (STEPS[row.name].whole or row.name) == (step.whole or step.name)]
    total = format_time(sum(row.time_s for row in alike))
    yield f"TorchRec runs a set of exchanges for each sharding type in use: tables of {listed}"
    if len(alike) > 1:
        yield f"time of this exchange in all {len(alike)} sets: sum over s of t(S_s) = {total}"


def _launch_words(evaluator: Evaluator, plan: Plan, step: Step) -> Iterator[str]:
    """Remarks on the groups of tables that TorchRec looks up separately."""
    groups = evaluator.model.groups
    if groups is None or not step.grouped:
        return
    listed = ", ".join(f"{name} ({count})" for name, count in groups.tables_of(plan).items())
    yield f"TorchRec launches this kernel once for each sharding type, data type and kernel in use: {listed}"


def _head(whole: Pass, step: StepRow) -> Iterator[Term]:
    size = step.payload_bytes
    yield Term("S", size, format_bytes(size), "", "", "bytes of the busiest GPU in this step")
    yield Term("G", whole.gpus, str(whole.gpus), "", "", whole.gpus_words)


def _passed(busiest: Busiest) -> Iterator[Term]:
    """The total bytes of all tables on the rank, which determine the time of a gather, as a term."""
    whole = float(busiest.by_table.sum())
    yield Term("dram_bytes", whole, format_bytes(whole), "", "", "S: what misses the L2 cache")
    passed = float(busiest.tables.loads[:, busiest.resource + 1].sum())
    yield Term(
        "l2_bytes", passed, format_bytes(passed), "", "", "all that passes the L2 cache, of all tables"
    )


def _sum_words(busiest: Busiest, where: str) -> str:
    """A sentence: the bytes of the table and of all others add up to S, the bytes of the step."""
    each, count, k = busiest.by_table, busiest.table_count, busiest.shards
    total, own = format_bytes(float(each.sum())), format_bytes(busiest.table_bytes)
    several = f", {k} shards of it" if k > 1 else ""
    if count == busiest.alike:
        return f"S = {total} on {where}{several}"
    name = busiest.tables.names[busiest.table]
    return f"S = {total} on {where}: {count} tables, the equation for {name}: {own}{several}"


def _which_words(busiest: Busiest) -> Iterator[str]:
    """A sentence: the tables with most bytes on the busiest GPU."""
    each, names = busiest.by_table, busiest.tables.names
    order = [t for t in np.argsort(-each, kind="stable").tolist() if each[t] > 0]
    shown = [f"{names[t]} {format_bytes(float(each[t]))}" for t in order[:_NAMED]]
    others = len(order) - len(shown)
    more = f" and {others} more" if others else ""
    yield f"tables there: {', '.join(shown)}{more}"
