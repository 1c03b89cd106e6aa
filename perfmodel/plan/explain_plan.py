"""One step of a plan, explained: the bytes of the busiest GPU's largest shard, and the time of all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from perfmodel.model.recording import named
from perfmodel.passes.alike import Alike
from perfmodel.passes.cost import Evaluator, StepCost
from perfmodel.passes.equations import Equation
from perfmodel.passes.explanation import ALIASES, Explanation, Pass, Payload, explained, find_step
from perfmodel.passes.placement import Plan
from perfmodel.passes.recorded_words import letters_text, recorded_terms, working_lines
from perfmodel.passes.step_equations import EVERY_RANK, GATHERS, SPLITS, bytes_of, whole_of
from perfmodel.passes.step_resources import Resource
from perfmodel.passes.steps import BELOW_HBM, LABELS, STEPS, Step
from perfmodel.passes.terms import Term
from perfmodel.plan.busiest import Busiest, given, software
from perfmodel.plan.explain_tier_step import explain_tier_step, with_beside
from perfmodel.projections.explain_step import pass_of
from perfmodel.projections.projection import Projection
from perfmodel.projections.tiered import GATHER_HOST
from perfmodel.units import format_bytes, format_time

_R = Resource
_ALIASES = {
    "rows": ("all_to_all_rows",),
    "requests": ("all_to_all_requests",),
    "inside": ("reduce_scatter_inside",),
    "across": ("reduce_scatter_across", "all_to_all_across"),
    "bags": ("all_to_all_across", "reduce_scatter_across", "all_to_all_rows"),
    "gradients": ("all_to_all_gradients", "all_gather_gradients", "all_to_all_row_gradients"),
}
"""Other names of the steps that row-wise does not have, beside those of ``passes.explanation.ALIASES``."""
TIER_STEPS = {step.name for step in BELOW_HBM}
_EVEN = 1.0005
"""Busiest over mean below which all GPUs have as much."""
_NAMED = 5
"""Tables that are named one by one."""


def explain_alike_step(answer: Projection, evaluator: Evaluator, found: Alike, name: str) -> Explanation:
    """The step of a sharding that ``name`` means. Limits: as ``passes.explanation.find_step``"""
    whole = replace(pass_of(answer), digits=evaluator.model.sort_digits)
    return _explain(whole, evaluator, found.plan, name, "projection")


def explain_plan_step(evaluator: Evaluator, plan: Plan, cost: StepCost, name: str) -> Explanation:
    """The step of a plan that ``name`` means, and which tables have the most of it where it is busiest.

    Limits: as ``passes.explanation.find_step``
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
        digits=evaluator.model.sort_digits,
    )
    return _explain(whole, evaluator, plan, name, "plan")


def _explain(whole: Pass, evaluator: Evaluator, plan: Plan, name: str, what: str) -> Explanation:
    known = {each.name for each in whole.steps}
    also = [each for each in _ALIASES.get(name.strip().lower(), ()) if each in known]
    words: tuple[str, ...] = ()
    gathers = {row.name for row in whole.steps if row.beside}  # of two memories, of which one is hidden
    if gathers == {"gather_pool"} and _means(name, GATHER_HOST):
        also = ["gather_pool"]
    if gathers == {GATHER_HOST} and _means(name, "gather_pool"):
        step = evaluator.hbm_gather(evaluator.loads(plan))
        hidden = next(row for row in whole.steps if row.name == GATHER_HOST)
        words = (f"hidden behind {hidden.label}, which takes {format_time(hidden.time_s)}",)
    else:
        step = find_step(whole.steps, next(iter(also), name), what)
    if step.name in TIER_STEPS:
        return explain_tier_step(evaluator, plan, step)
    kinds = evaluator.steps_by_name
    if step.name not in kinds:
        return explained(whole, step, Payload(Equation("0", "", ""), ()))
    kind = kinds[step.name]
    apart = (*words, *_sets_words(evaluator, plan, whole, kind), *_launch_words(evaluator, plan, kind))
    if kind.splits:
        size = SPLITS.asked(lambda letter: software(evaluator, letter) or given(letter, whole.gpus))
        made = (term for term in recorded_terms(size) if term.symbol != "G")
        terms = (*_head(whole, step.payload_bytes), *made)
        working = (*working_lines(named("S", size, "")), *apart)
        return explained(whole, step, Payload(Equation.of(SPLITS.law, SPLITS.text), terms, working))
    resource = _larger(evaluator, plan, kind.resources, step.rank, kind.gathers)
    busiest = Busiest(evaluator, plan, resource, step.rank)
    number, count = busiest.recorded(), int(np.sum(busiest.by_table > 0))
    equation = Equation.of(bytes_of(resource).law, letters_text(number))
    symbol, of = "S", ""
    if count > 1:
        table = evaluator.tables.names[busiest.table]
        equation = replace(equation, text=f"sum over the {count} tables there of ( {equation.text} )")
        symbol, of = f"S({table})", f", of {table}"
    number = named(symbol, number, "")
    own = (term for term in recorded_terms(number) if term.symbol not in (symbol, "G"))
    made = (replace(term, meaning=term.meaning + of) for term in own)
    whole_terms = tuple(_passed(busiest)) if resource in GATHERS else ()
    terms = (*_head(whole, step.payload_bytes), *made, *whole_terms)
    like = kind.alike if not step.collective else ""
    everywhere = whole_of(resource) in EVERY_RANK or (what == "plan" and step.imbalance < _EVEN)
    where = "every GPU" if everywhere else f"rank {step.rank}"
    which = _which_words(busiest) if what == "plan" else ()
    working = (_sum_words(busiest, where), *working_lines(number), *which, *apart)
    launches = int(evaluator.times.launches(evaluator.loads(plan).most)) if kind.grouped else 1
    return with_beside(explained(whole, step, Payload(equation, terms, working, like, launches)))


def _means(name: str, step: str) -> bool:
    """Whether a user means that step, by its name, its label or an alias."""
    wanted = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    label = re.sub(r"[^a-z0-9]+", "_", LABELS[step].lower()).strip("_")
    return wanted in (step, label) or ALIASES.get(wanted) == step


def _sets_words(evaluator: Evaluator, plan: Plan, whole: Pass, step: Step) -> Iterator[str]:
    """Which other sets of exchanges TorchRec runs, beside that of which this step is one."""
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
    """Which groups of tables TorchRec looks up by themselves."""
    groups = evaluator.model.groups
    if groups is None or not step.grouped:
        return
    listed = ", ".join(f"{name} ({count})" for name, count in groups.tables_of(plan).items())
    yield f"TorchRec launches this kernel once for each sharding type, data type and kernel in use: {listed}"


def _larger(
    evaluator: Evaluator, plan: Plan, resources: tuple[Resource, ...], rank: int, gathers: bool
) -> Resource:
    """What the time was taken at: DRAM of a gather, else the larger of sent and received."""
    if gathers:
        return resources[0]
    values = evaluator.loads(plan).values
    return max(resources, key=lambda resource: float(values[resource, rank]))


def _head(whole: Pass, size: float) -> Iterator[Term]:
    yield Term("S", size, format_bytes(size), "", "", "bytes of the busiest GPU in this step")
    yield Term("G", whole.gpus, str(whole.gpus), "", "", whole.gpus_words)


def _passed(busiest: Busiest) -> Iterator[Term]:
    """What the time of a gather is taken at: the bytes of all tables on the rank."""
    whole = float(busiest.by_table.sum())
    yield Term("dram_bytes", whole, format_bytes(whole), "", "", "S: what misses the L2 cache")
    passed = float(busiest.of(Resource(busiest.resource + 1)).sum())
    yield Term(
        "l2_bytes", passed, format_bytes(passed), "", "", "all that passes the L2 cache, of all tables"
    )


def _sum_words(busiest: Busiest, where: str) -> str:
    """How the bytes of one table become S."""
    each, count = busiest.by_table, int(np.sum(busiest.by_table > 0))
    total, own = format_bytes(float(each.sum())), format_bytes(float(each[busiest.table]))
    name, k = busiest.evaluator.tables.names[busiest.table], busiest.shards
    several = f", {k} shards of it" if k > 1 else ""
    if count == 1:
        return f"S = {total} on {where}{several}"
    return f"S = {total} on {where}: {count} tables, the equation for {name}: {own}{several}"


def _which_words(busiest: Busiest) -> Iterator[str]:
    """The tables with the most of it on the busiest GPU."""
    each, names = busiest.by_table, busiest.evaluator.tables.names
    order = [t for t in np.argsort(-each, kind="stable").tolist() if each[t] > 0]
    shown = [f"{names[t]} {format_bytes(float(each[t]))}" for t in order[:_NAMED]]
    others = len(order) - len(shown)
    more = f" and {others} more" if others else ""
    yield f"tables there: {', '.join(shown)}{more}"
