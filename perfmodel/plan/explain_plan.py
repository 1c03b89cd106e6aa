"""One step of a plan, explained: the bytes of the busiest GPU's largest shard, and the time of all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from perfmodel.model import embedding_bag as eb
from perfmodel.model import exchanges as ex
from perfmodel.passes.equations import Equation
from perfmodel.passes.explanation import ALIASES, Explanation, Pass, Payload, explained, find_step
from perfmodel.passes.letters import LETTERS
from perfmodel.passes.schemes import Exchange
from perfmodel.passes.step_resources import WHOLE, Resource
from perfmodel.passes.steps import BELOW_HBM, LABELS, STEPS, Step
from perfmodel.passes.terms import Term, plain_term, quantity_term
from perfmodel.plan.explain_tier_step import explain_tier_step, with_beside
from perfmodel.plan.pricing.alike import Alike
from perfmodel.plan.pricing.cost import Evaluator, StepCost
from perfmodel.plan.pricing.cut import TableCut
from perfmodel.plan.pricing.loads import ShardLoads
from perfmodel.plan.pricing.placement import Plan
from perfmodel.plan.pricing.step_equations import BY_DOMAIN, EVERY_RANK, GATHERS, MEANINGS, side
from perfmodel.project.explain_step import pass_of
from perfmodel.project.projection import Projection
from perfmodel.project.tiered import GATHER_HOST
from perfmodel.units import format_bytes, format_number, format_time

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


@dataclass(frozen=True, eq=False)
class _Busiest:
    """A resource of a plan on its busiest rank, and the table that has the most of it there.

    shards  of that table on the rank, at most those that the equation counts one by one: 0 of one whose
            hot rows alone are there
    """

    evaluator: Evaluator
    plan: Plan
    resource: Resource
    rank: int

    @cached_property
    def _loads(self) -> ShardLoads:
        plan, t = self.plan, np.arange(len(self.evaluator.tables))
        return self.evaluator.shard_loads(t, *plan.schemes)

    @cached_property
    def _held(self) -> Any:
        """[T] shards of each table on the rank."""
        tables, ranks = self.plan.shards
        return np.bincount(tables[ranks == self.rank], minlength=len(self.evaluator.tables))

    def of(self, resource: Resource) -> Any:
        """[T] bytes of a resource on the rank, by table."""
        return self._loads.own[:, resource] * self._held + self._loads.everywhere[:, resource]

    @cached_property
    def by_table(self) -> Any:
        """[T] bytes of the resource on the rank."""
        return self.of(self.resource)

    @cached_property
    def table(self) -> int:
        """The one with the most."""
        return int(np.argmax(self.by_table))

    @property
    def kind(self) -> Exchange:
        """How it is exchanged."""
        return self.plan.placements[self.table].scheme.kind

    @property
    def shards(self) -> int:
        """Of the table on the rank; 1 of what every rank has of it."""
        everywhere = _whole(self.resource) in EVERY_RANK or self.kind == Exchange.DP
        return 1 if everywhere or self.resource == _R.COPIED_GRADIENTS else int(self._held[self.table])

    @cached_property
    def cut(self) -> TableCut:
        """The quantities of the table's scheme."""
        t, scheme = np.array([self.table]), self.plan.placements[self.table].scheme
        parts = (np.array([float(x)]) for x in (scheme.row_parts, scheme.col_parts, scheme.hot_rows))
        return TableCut(self.evaluator.model, t, np.array([scheme.kind]), *parts)

    @cached_property
    def hot_bytes(self) -> float:
        """What the copies of the table's hot rows add to the equation of its parts."""
        cut, whole = self.cut, float(self._loads.everywhere[self.table, self.resource])
        if not cut.hot[0] or self.kind == Exchange.DP:
            return 0.0
        if self.resource == _R.BUCKETIZE:
            return float(eb.ids_bytes(cut.B * cut.hot_L[0], cut.ids[0]))
        if self.resource == _R.LOCAL_SUM:
            return whole - self._summed
        return whole if self.resource in (_R.GATHER_DRAM, _R.SORT, _R.UPDATE_DRAM) else 0.0

    @property
    def _summed(self) -> float:
        """Bytes of the sum of the table's parts; 0 of one that comes whole."""
        if self.kind not in (Exchange.RB, Exchange.SPARSE) or self.cut.r[0] == 1:
            return 0.0
        found = self.values()
        return found["received"] + found["B"] * found["D"] * found["w"]

    @property
    def counted(self) -> bool:
        """Whether the equation of parts counts at all, beside what hot rows add."""
        return self.shards > 0 and (not self.hot_bytes or self.resource != _R.LOCAL_SUM or self._summed > 0)

    @property
    def shard_bytes(self) -> float:
        """What the equation of a shard, or of the table on every rank, gives."""
        return (float(self.by_table[self.table]) - self.hot_bytes) / max(self.shards, 1)

    @property
    def id_bytes(self) -> float:
        """Of one id; with the weight of its row, where that goes along; of a weight in its own exchange."""
        plain = self.evaluator.model.id_bytes
        if _whole(self.resource) in (_R.WEIGHTS_SENT, _R.WEIGHTS_RECEIVED):
            return float(self.cut.ids[0]) - plain
        if _whole(self.resource) in (_R.IDS_SENT, _R.IDS_RECEIVED) and self.evaluator.model.sets:
            return plain
        alone = self.resource in _WITHOUT_WEIGHTS or (
            self.kind == Exchange.UB and self.resource == _R.GATHER_DRAM
        )
        return plain if alone else float(self.cut.ids[0])

    def values(self) -> dict[str, float]:
        """Every letter of the equations."""
        e, t, cut = self.evaluator, self.table, self.cut
        resource, kind, constant = _whole(self.resource), self.kind, e.basis.constant
        r, c, elements, v = float(cut.r[0]), float(cut.c[0]), float(cut.elements[0]), cut.v
        L, D, q, index = (float(x[0]) for x in (cut.L, cut.D, cut.q, cut.index))
        if resource == _R.DEDUPLICATE:
            L += float(cut.hot_L[0])
        if resource == _R.CONVERT_IN and r == e.gpus and kind in (Exchange.RS, Exchange.TWO_LEVEL):
            r = 1.0  # summed by reduce-scatters over all
        elif kind == Exchange.TWO_LEVEL and resource in BY_DOMAIN:
            r = max(r / e.domain, 1.0)
        stored = resource in (_R.ROWS_SENT, _R.ROWS_RECEIVED)
        pooled, B = constant("pooled_element_bytes"), cut.B
        return {
            "G": cut.G, "B": B, "T": 1.0, "L": L, "D": D, "U": float(cut.U[0]),
            "domains": e.gpus / e.domain, "parts": r, "columns": c, "q": q, "elements": elements, "v": v,
            "w": float(e.tables.element_bytes[t]) if stored else pooled,
            "id_bytes": self.id_bytes, "index_bytes": index, "holders": r * c, "copies": c,
            "length_bytes": constant("length_bytes"), "bag": elements * v + index,
            "received": float(ex.bags_received_bytes(B, r, q, D, pooled, c, index)),
            "E": float(cut.E[0] if kind == Exchange.DP else cut.hot[0]),
        }  # fmt: skip


def explain_alike_step(answer: Projection, evaluator: Evaluator, found: Alike, name: str) -> Explanation:
    """The step of a sharding that ``name`` means. Limits: as ``passes.explanation.find_step``"""
    return _explain(pass_of(answer), evaluator, found.plan, name, "projection")


def explain_plan_step(evaluator: Evaluator, plan: Plan, cost: StepCost, name: str) -> Explanation:
    """The step of a plan that ``name`` means, and which tables have the most of it where it is busiest.

    Limits: as ``passes.explanation.find_step``
    """
    node = evaluator.basis.gpus_per_node or evaluator.setting.machine.gpus_per_node
    words = f"GPUs: {evaluator.gpus} of the plan, in NVLink domains of {evaluator.domain}"
    whole = Pass(evaluator.setting, cost.rows, evaluator.gpus, evaluator.domain, node, words)
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
        terms = (*_head(whole, step.payload_bytes), *_constants(evaluator, "fields value_bytes"))
        return explained(whole, step, Payload(Equation.of(eb.splits_bytes), terms, apart))
    resource = _larger(evaluator, plan, kind.resources, step.rank, kind.gathers)
    busiest = _Busiest(evaluator, plan, resource, step.rank)
    equation, symbols = side(_whole(resource))
    own = _gather_terms(busiest) if resource in GATHERS else _letters(busiest, symbols)
    more: tuple[Term, ...] = ()
    if busiest.hot_bytes:
        size = format_bytes(busiest.hot_bytes)
        more = (Term("x", busiest.hot_bytes, size, "", "", "bytes that copies of its hot rows add"),)
        equation = replace(equation, text=f"{equation.text} + x" if busiest.counted else "x")
    named = tuple(own) if busiest.counted else ()
    count = int(np.sum(busiest.by_table > 0))
    if count > 1:
        equation = replace(equation, text=f"sum over the {count} tables there of ( {equation.text} )")
        of = f", of {evaluator.tables.names[busiest.table]}"
        named, more = (tuple(replace(t, meaning=t.meaning + of) for t in each) for each in (named, more))
    whole_terms = tuple(_passed(busiest)) if resource in GATHERS else ()
    terms = (*_head(whole, step.payload_bytes), *named, *more, *whole_terms)
    like = kind.alike if not step.collective else ""
    everywhere = _whole(resource) in EVERY_RANK or (what == "plan" and step.imbalance < _EVEN)
    where = "every GPU" if everywhere else f"rank {step.rank}"
    working = (_sum_words(busiest, where), *(_which_words(busiest) if what == "plan" else ()), *apart)
    launches = int(evaluator.times.launches(evaluator.loads(plan).most)) if kind.grouped else 1
    return with_beside(explained(whole, step, Payload(equation, terms, working, like, launches)))


def _means(name: str, step: str) -> bool:
    """Whether a user means that step, by its name, its label or an alias."""
    wanted = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    label = re.sub(r"[^a-z0-9]+", "_", LABELS[step].lower()).strip("_")
    return wanted in (step, label) or ALIASES.get(wanted) == step


def _whole(resource: Resource) -> Resource:
    """What all tables together have, of what one sharding type has."""
    return WHOLE.get(resource, resource)


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


def _constants(evaluator: Evaluator, names: str) -> Iterator[Term]:
    for symbol in names.split():
        quantity = evaluator.setting.constants.quantity(LETTERS[symbol].key)
        term = quantity_term(symbol, quantity, LETTERS[symbol].meaning)
        yield replace(term, text=format_number(quantity.value))


def _letters(busiest: _Busiest, symbols: str) -> Iterator[Term]:
    values = busiest.values()
    if busiest.resource == _R.SORT:
        read, touched, _ = _updated(busiest)
        values |= {"lookups": read, "touched": 0.0 if busiest.kind == Exchange.DP else touched}
    for symbol in dict.fromkeys(symbols.split()):
        if symbol == "G":
            continue
        if symbol in _OF_SOFTWARE:
            yield from _constants(busiest.evaluator, symbol)
            continue
        yield plain_term(symbol, values[symbol], MEANINGS.get(symbol, ""))


_OF_SOFTWARE = ("fields", "value_bytes", "length_bytes")
_WITHOUT_WEIGHTS = (_R.DEDUPLICATE, _R.REQUESTS_SENT, _R.REQUESTS_RECEIVED, _R.SORT)


def _updated(busiest: _Busiest) -> tuple[float, float, float]:
    """Look-ups whose gradients are read, rows that are updated, and bytes of the update of one."""
    cut, training = busiest.cut, busiest.evaluator.model.training
    assert training is not None  # the step is of a backward pass
    read, touched, row = cut.updated(training)
    return float(read[0]), float(touched[0]), float(row[0])


def _gather_terms(busiest: _Busiest) -> Iterator[Term]:
    """Rows looked up and bags written; the bytes of a row are what is left of those that pass DRAM."""
    values = busiest.values()
    n, bags, width, written = _gathered(busiest, values)
    dram = busiest.shard_bytes
    row = (dram - bags * width) / n - busiest.id_bytes
    yield plain_term("n", n, "rows looked up")
    yield Term("r", row, f"{row:.4g} B", "", "", "bytes of one of them: sectors, times phi, less L2 hits")
    yield plain_term("id", busiest.id_bytes, "bytes of an id, with its weight where it has one")
    yield plain_term("bags", bags, written)
    yield Term("o", width, f"{width:.4g} B", "", "", "bytes of one of them")


def _passed(busiest: _Busiest) -> Iterator[Term]:
    """What the time of a gather is taken at: the bytes of all tables on the rank."""
    whole = float(busiest.by_table.sum())
    yield Term("dram_bytes", whole, format_bytes(whole), "", "", "S: what misses the L2 cache")
    passed = float(busiest.of(Resource(busiest.resource + 1)).sum())
    yield Term(
        "l2_bytes", passed, format_bytes(passed), "", "", "all that passes the L2 cache, of all tables"
    )


def _gathered(busiest: _Busiest, values: dict[str, float]) -> tuple[float, float, float, str]:
    """Rows looked up, bags (or rows) written, bytes of one of those, and what they are."""
    e, kind, resource = busiest.evaluator, busiest.kind, busiest.resource
    G, B, L, U, r = (values[name] for name in ("G", "B", "L", "U", "parts"))
    if resource == _R.UPDATE_DRAM:
        read, touched, width = _updated(busiest)
        return read, touched, width, "rows updated"
    if resource == _R.ACCUMULATE_DRAM:
        return B * L, U, values["D"] * values["w"], "gradients of rows written"
    if resource == _R.POOL_DRAM or kind == Exchange.DP:
        n, bags = B * L, B
    elif kind == Exchange.UB:
        n = bags = float(ex.requested_rows(G, U, r))
    else:
        n, bags = float(ex.shard_lookups(G, B, L, r)), G * B * values["q"]
    whole = values["D"] if resource == _R.POOL_DRAM else values["elements"]
    width = whole * values["w"] + e.basis.constant("offset_bytes")
    if kind == Exchange.UB and resource == _R.GATHER_DRAM:
        width = whole * float(e.tables.element_bytes[busiest.table])
    return n, bags, width, "bags (of ub: rows) written"


def _sum_words(busiest: _Busiest, where: str) -> str:
    """How the bytes of one table become S."""
    each, count = busiest.by_table, int(np.sum(busiest.by_table > 0))
    total, own = format_bytes(float(each.sum())), format_bytes(float(each[busiest.table]))
    name, k = busiest.evaluator.tables.names[busiest.table], busiest.shards
    several = f", {k} shards of it" if k > 1 else ""
    if count == 1:
        return f"S = {total} on {where}{several}"
    return f"S = {total} on {where}: {count} tables, the equation for {name}: {own}{several}"


def _which_words(busiest: _Busiest) -> Iterator[str]:
    """The tables with the most of it on the busiest GPU."""
    each, names = busiest.by_table, busiest.evaluator.tables.names
    order = [t for t in np.argsort(-each, kind="stable").tolist() if each[t] > 0]
    shown = [f"{names[t]} {format_bytes(float(each[t]))}" for t in order[:_NAMED]]
    others = len(order) - len(shown)
    more = f" and {others} more" if others else ""
    yield f"tables there: {', '.join(shown)}{more}"
