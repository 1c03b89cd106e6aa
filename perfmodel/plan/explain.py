"""One step of a plan, explained: the bytes of the busiest GPU's largest shard, and the time of all of them.

Equations are the docstrings of the model's own functions, as in ``perfmodel.project.explain``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.model import embedding_bag as eb
from perfmodel.model import exchanges as ex
from perfmodel.model import kernels, messages
from perfmodel.model.exchanges import Exchange
from perfmodel.passes.steps import Step
from perfmodel.plan.alike import Alike
from perfmodel.plan.cost import Evaluator
from perfmodel.plan.loads import Resource
from perfmodel.project.explain import Explanation, Payload, equation_of, explained, find_step
from perfmodel.project.projection import Projection
from perfmodel.project.terms import Term
from perfmodel.units import format_amount, format_bytes, format_number

_R = Resource
_Side = tuple[str, str]  # equation, symbols in it


_NAMES = {
    "r": "parts",
    "c": "columns",
    "N": "domains",
}  # letters that mean something else in a collective's law


def _of(function: Callable[..., Any], symbols: str, factor: str = "") -> _Side:
    """The equation of a docstring without its unit, times a factor."""
    text = re.sub(r" *\[\w+\]$", "", equation_of(function))
    if function is not kernels.gather_bytes:
        text = re.sub(r"\b[rcN]\b", lambda letter: _NAMES[letter.group()], text)
    return (f"({text}) {factor}" if factor else text), symbols


def _sides() -> dict[Resource, _Side]:
    """Equation and symbols of the bytes of one shard, or of one table on every rank, by resource."""
    sent = "G B q elements v index_bytes bag"
    received = "B parts q D v columns index_bytes"
    bags = _of(ex.bags_sent_bytes, sent)
    came = _of(ex.bags_received_bytes, received)
    gather = _of(kernels.gather_bytes, "n r id bags o")
    ids = _of(messages.routed_ids_bytes, "copies B T L id_bytes")
    lengths = _of(messages.routed_lengths_bytes, "holders B T length_bytes")
    convert, _ = _of(ex.convert_bytes, "")
    return {
        _R.BUCKETIZE: (f"{ids[0]} + {lengths[0]}", f"{ids[1]} {lengths[1]}"),
        _R.LENGTHS_SENT: lengths,
        _R.LENGTHS_RECEIVED: _of(ex.holder_lengths_bytes, "G B length_bytes"),
        _R.IDS_SENT: ids,
        _R.IDS_RECEIVED: _of(ex.shard_lookups, "G B L parts id_bytes", "id_bytes"),
        _R.DEDUPLICATE: _of(ex.deduplicated_bytes, "B L U id_bytes"),
        _R.REQUESTS_SENT: _of(ex.row_request_bytes, "columns U id_bytes"),
        _R.REQUESTS_RECEIVED: _of(ex.requested_rows, "G U parts id_bytes", "id_bytes"),
        _R.GATHER_DRAM: gather,
        _R.POOL_DRAM: gather,
        _R.ROWS_SENT: _of(ex.requested_rows, "G U parts elements w", "elements w"),
        _R.ROWS_RECEIVED: ("U D w", "U D w"),
        _R.REDUCE_SCATTER: bags,
        _R.REDUCE_INSIDE: bags,
        _R.REDUCE_ACROSS: _of(ex.across_bytes, "domains B elements v"),
        _R.ACROSS_SENT: _of(ex.across_bytes, "domains B elements v"),
        _R.ACROSS_RECEIVED: came,
        _R.BAGS_SENT: bags,
        _R.BAGS_RECEIVED: came,
        _R.SPARSE_SENT: bags,
        _R.SPARSE_RECEIVED: came,
        _R.CONVERT_OUT: (convert.replace("bags", "G B q"), "G B q elements v w"),
        _R.CONVERT_IN: (convert.replace("bags elements", "B parts q D"), "B parts q D v w"),
        _R.LOCAL_SUM: _of(ex.bag_sum_bytes, "received B D w"),
    }


_ALIASES = {
    "rows": ("all_to_all_rows",),
    "requests": ("all_to_all_requests",),
    "inside": ("reduce_scatter_inside",),
    "across": ("reduce_scatter_across", "all_to_all_across"),
    "bags": ("all_to_all_across", "reduce_scatter_across", "all_to_all_rows"),
}
"""Other names of the steps that row-wise does not have, beside those of ``project.explain.ALIASES``."""
_EVERY_RANK = {
    _R.BUCKETIZE, _R.LENGTHS_SENT, _R.IDS_SENT, _R.DEDUPLICATE, _R.REQUESTS_SENT, _R.ROWS_RECEIVED,
    _R.POOL_DRAM, _R.ACROSS_RECEIVED, _R.BAGS_RECEIVED, _R.SPARSE_RECEIVED, _R.CONVERT_IN, _R.LOCAL_SUM,
}  # fmt: skip
_BY_DOMAIN = (_R.ACROSS_RECEIVED, _R.CONVERT_IN, _R.LOCAL_SUM)
"""What a rank has of two-level once for each domain that holds row parts."""
_CONSTANTS = {
    "fields": ("splits_per_peer", "numbers that each peer is told"),
    "value_bytes": ("split_bytes", "bytes of one of them"),
    "length_bytes": ("length_bytes", "bytes of the length of a bag"),
}
MEANINGS = {
    "G": "GPUs",
    "B": "samples of one GPU",
    "T": "of this table alone",
    "L": "rows summed per bag",
    "D": "elements of a row",
    "U": "distinct rows among one GPU's look-ups",
    "domains": "NVLink domains",
    "parts": "row parts, or domains with some, that send a bag",
    "columns": "column parts",
    "q": "share of the bags that is sent",
    "elements": "elements of a row that this shard holds",
    "v": "bytes of an element on the wire",
    "w": "bytes of an element",
    "id_bytes": "bytes of an id",
    "index_bytes": "bytes of the position of a bag in a sparse exchange",
    "holders": "GPUs that hold a part of the table: parts columns",
    "copies": "GPUs that hold columns of one row",
    "bag": "elements v + index_bytes",
    "received": "bytes of the bags that are added up",
}
"""What a letter of the equations of bytes means."""


@dataclass(frozen=True)
class _Shard:
    """A table of a plan and its letters."""

    evaluator: Evaluator
    found: Alike
    table: int
    rank: int

    def values(self, resource: Resource) -> dict[str, float]:
        """Every letter of the equations, for the bytes of one resource."""
        e, t = self.evaluator, self.table
        tables, constant, scheme = e.tables, e.basis.constant, self.found.plan.placements[t].scheme
        kind, r, c = scheme.kind, float(scheme.row_parts), float(scheme.col_parts)
        L, D = float(tables.pooling[t]), float(tables.dim[t])
        sparse, elements = kind == Exchange.SPARSE, float(ex.part_elements(D, c))
        asked = e.model.look_ups
        distinct = asked.kinds[int(asked.of[t])].distinct_in_bag(0) if asked.skewed[t] else L
        q = float(ex.filled_share(r, distinct)) if sparse else 1.0
        index = constant("sparse_bag_index_bytes") if sparse else 0.0
        v, B = e.model.payload_bytes, float(e.batch)
        if resource == _R.CONVERT_IN and r == e.gpus and kind in (Exchange.RS, Exchange.TWO_LEVEL):
            r = 1.0  # summed by reduce-scatters over all
        elif kind == Exchange.TWO_LEVEL and resource in _BY_DOMAIN:
            r = max(r / e.domain, 1.0)
        stored = resource in (_R.ROWS_SENT, _R.ROWS_RECEIVED)
        return {
            "G": float(e.gpus), "B": B, "T": 1.0, "L": L, "D": D, "U": float(e.model.unique[t]),
            "domains": e.gpus / e.domain, "parts": r, "columns": c, "q": q, "elements": elements, "v": v,
            "w": float(tables.element_bytes[t]) if stored else constant("pooled_element_bytes"),
            "id_bytes": e.model.id_bytes, "index_bytes": index, "holders": r * c, "copies": c,
            "length_bytes": constant("length_bytes"), "bag": elements * v + index,
            "received": float(ex.bags_received_bytes(B, r, q, D, constant("pooled_element_bytes"), c, index)),
        }  # fmt: skip


def explain_plan_step(answer: Projection, evaluator: Evaluator, found: Alike, name: str) -> Explanation:
    """The step of a plan that ``name`` means. Limits: as ``project.explain.find_step``"""
    known = {each.name for each in answer.steps}
    named = (each for each in _ALIASES.get(name.strip().lower(), ()) if each in known)
    step = find_step(answer, next(named, name))
    kinds = {each.name: each for each in evaluator.steps}
    if step.name not in kinds:
        return explained(answer, step, Payload("0", ()))
    kind = kinds[step.name]
    if kind.splits:
        terms = (*_head(answer, step.payload_bytes), *_constants(evaluator, "fields value_bytes"))
        return explained(answer, step, Payload(equation_of(eb.splits_bytes), terms))
    row = next(row for row in found.cost.rows if row.name == step.name)
    resource = _larger(evaluator, found, kind.resources, row.rank, kind.gathers)
    table, each, count, all_bytes = _largest(evaluator, found, resource, row.rank)
    shard = _Shard(evaluator, found, table, row.rank)
    equation, symbols = _sides()[resource]
    gathers = resource in (_R.GATHER_DRAM, _R.POOL_DRAM)
    own = _gather_terms(shard, resource, each) if gathers else _letters(shard, resource, symbols)
    terms = (*_head(answer, step.payload_bytes), *own)
    like = kind.alike if not step.collective else ""
    words = _sum_words(evaluator, resource, table, each, count, all_bytes, row.rank)
    return explained(answer, step, Payload(equation, terms, (words,), like))


def _larger(
    evaluator: Evaluator, found: Alike, resources: tuple[Resource, ...], rank: int, gathers: bool
) -> Resource:
    """What the time was taken at: DRAM of a gather, else the larger of sent and received."""
    if gathers:
        return resources[0]
    values = evaluator.loads(found.plan).values
    return max(resources, key=lambda resource: float(values[resource, rank]))


def _largest(
    evaluator: Evaluator, found: Alike, resource: Resource, rank: int
) -> tuple[int, float, int, float]:
    """(table, its bytes, how many tables or shards, bytes of all) of a resource on one rank."""
    plan, t = found.plan, np.arange(len(evaluator.tables))
    loads = evaluator.shard_loads(t, plan.kinds, plan.row_parts, plan.col_parts)
    own = np.zeros(t.size)
    tables, ranks = plan.shards
    np.add.at(own, tables[ranks == rank], 1)
    each = loads.own[:, resource] * own + loads.everywhere[:, resource]
    at = int(np.argmax(each))
    return at, float(each[at]), int(np.sum(each > 0)), float(each.sum())


def _head(answer: Projection, size: float) -> Iterator[Term]:
    yield Term("S", size, format_bytes(size), "", "", "bytes of the busiest GPU in this step")
    yield Term("G", answer.gpus, str(answer.gpus), "", "", f"GPUs: {answer.gpu_count}")


def _constants(evaluator: Evaluator, names: str) -> Iterator[Term]:
    for symbol in names.split():
        key, meaning = _CONSTANTS[symbol]
        quantity = evaluator.setting.constants.quantity(key)
        text = format_number(quantity.value)
        yield Term(symbol, quantity.value, text, quantity.source, str(quantity.evidence), meaning)


def _letters(shard: _Shard, resource: Resource, symbols: str) -> Iterator[Term]:
    values = shard.values(resource)
    for symbol in dict.fromkeys(symbols.split()):
        if symbol == "G":
            continue
        if symbol in _CONSTANTS:
            yield from _constants(shard.evaluator, symbol)
            continue
        yield _plain(symbol, values[symbol], MEANINGS[symbol])


def _gather_terms(shard: _Shard, resource: Resource, dram: float) -> Iterator[Term]:
    """Rows looked up and bags written; the bytes of a row are what is left of those that pass DRAM."""
    e, values = shard.evaluator, shard.values(resource)
    kind = shard.found.plan.placements[shard.table].scheme.kind
    G, B, L, U, r = (values[name] for name in ("G", "B", "L", "U", "parts"))
    if resource == _R.POOL_DRAM or kind == Exchange.DP:
        n, bags = B * L, B
    elif kind == Exchange.UB:
        n = bags = float(ex.requested_rows(G, U, r))
    else:
        n, bags = float(ex.shard_lookups(G, B, L, r)), G * B * values["q"]
    whole = values["D"] if resource == _R.POOL_DRAM else values["elements"]
    width = whole * values["w"] + e.basis.constant("offset_bytes")
    if kind == Exchange.UB and resource == _R.GATHER_DRAM:
        width = whole * float(e.tables.element_bytes[shard.table])
    row = (dram - bags * width) / n - e.model.id_bytes
    yield _plain("n", n, "rows looked up")
    yield Term("r", row, f"{row:.4g} B", "", "", "bytes of one of them: sectors, times phi, less L2 hits")
    yield _plain("id", e.model.id_bytes, "bytes of an id")
    yield _plain("bags", bags, "bags (of ub: rows) written")
    yield Term("o", width, f"{width:.4g} B", "", "", "bytes of one of them")
    yield Term("dram_bytes", dram, format_bytes(dram), "", "", "what misses the L2 cache, of this table")
    l2 = resource + 1
    passed = _largest(e, shard.found, Resource(l2), shard.rank)[1]
    yield Term("l2_bytes", passed, format_bytes(passed), "", "", "all that passes the L2 cache")


def _sum_words(
    evaluator: Evaluator, resource: Resource, table: int, each: float, count: int, total: float, rank: int
) -> str:
    """How the bytes of one table become S."""
    where = "every GPU" if resource in _EVERY_RANK else f"rank {rank}"
    name = evaluator.tables.names[table]
    if count == 1:
        return f"S = {format_bytes(total)} on {where}"
    return (
        f"S = {format_bytes(total)} on {where}: {count} tables, the equation for {name}: {format_bytes(each)}"
    )


def _plain(symbol: str, value: float, meaning: str) -> Term:
    text = format_amount(value)
    return Term(symbol, value, text, "", "", meaning)


def bytes_equation(step: Step) -> str:
    """Bytes of one shard, or of one table on every rank, in a step, in the letters of ``MEANINGS``.

    Limits: of a gather -> those that miss the L2;  of splits -> one size;  no forward step has it -> ""
    """
    if step.splits:
        return _of(eb.splits_bytes, "")[0]
    sides = _sides()
    found = dict.fromkeys(sides[resource][0] for resource in step.resources if resource in sides)
    return " or ".join(found)
