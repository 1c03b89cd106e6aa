"""For a step's explanation: bytes of each table on the busiest rank, and the equation of these bytes.

A resource is a kind of bytes that a step waits for, such as bytes read from HBM or bytes sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from perfmodel.model import embedding_bag as eb
from perfmodel.model import exchanges as ex
from perfmodel.model.recording import BYTES, PLAIN, Number, Recorded
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.cut import TableCut
from perfmodel.passes.letters import LETTERS
from perfmodel.passes.loads import even_loads
from perfmodel.passes.placement import Plan
from perfmodel.passes.recorded_words import recorded_quantity
from perfmodel.passes.schemes import Exchange, sends_rows
from perfmodel.passes.settings import Setting
from perfmodel.passes.step_equations import BY_DOMAIN, EVERY_RANK, GATHERS, MEANINGS, bytes_of, whole_of
from perfmodel.passes.step_resources import Resource
from perfmodel.projections.projection import Projection

_R = Resource


@dataclass(frozen=True, eq=False)
class RankTables:
    """Bytes of each of K resources that each of T tables (or groups of equal tables) causes on a rank.

    names   of the tables;  count  [T] number of equal tables in a group;  shards  [T] shards of each on the
            rank
    loads   [T, K] bytes on the rank;  everywhere  [T, K] the part of these bytes that every rank has
    cut     takes the index of a table, returns the quantities of its scheme
    """

    setting: Setting
    names: Sequence[str]
    count: Any
    shards: Any
    loads: Any
    everywhere: Any
    cut: Callable[[int], TableCut]

    @staticmethod
    def of_plan(evaluator: Evaluator, plan: Plan, rank: int) -> RankTables:
        """The tables of a plan on a rank; equal tables are listed separately."""
        some = np.arange(len(evaluator.tables))
        each = evaluator.shard_loads(some, *plan.schemes)
        tables, ranks = plan.shards
        held = np.bincount(tables[ranks == rank], minlength=some.size)

        def cut(t: int) -> TableCut:
            scheme = plan.placements[t].scheme
            parts = (np.array([float(x)]) for x in (scheme.row_parts, scheme.col_parts, scheme.hot_rows))
            return TableCut(evaluator.model, np.array([t]), np.array([scheme.kind]), *parts)

        loads = each.own * held[:, np.newaxis] + each.everywhere
        one = np.ones(some.size)
        return RankTables(evaluator.setting, evaluator.tables.names, one, held, loads, each.everywhere, cut)

    @staticmethod
    def of_rows(answer: Projection) -> RankTables:
        """The tables of a row-wise projection; equal tables are one group with the name of the first."""
        forward, work = answer.forward, answer.work
        kind = forward.kinds(work)
        cuts = [forward.cut(work, group, kind) for group in work.groups]
        count = np.array([float(number.flat[0]) for _, number in cuts])
        names = [f"table_{first:.0f}" for first in np.cumsum(count) - count]
        loads = np.concatenate([even_loads(cut, number) for cut, number in cuts])
        one = np.ones(count.size)
        return RankTables(answer.setting, names, count, one, loads, loads, lambda at: cuts[at][0])


@dataclass(frozen=True, eq=False)
class Busiest:
    """The table that has most bytes of a resource on a rank, with the equation of its bytes.

    tables    bytes of all tables on the rank;  resource  the kind of bytes
    """

    tables: RankTables
    resource: Resource

    @cached_property
    def by_table(self) -> Any:
        """Bytes of the resource on the rank, for each table."""
        return self.tables.loads[:, self.resource]

    @cached_property
    def table(self) -> int:
        """Index of the table with the most bytes of the resource; "the table" below."""
        return int(np.argmax(self.by_table))

    @property
    def alike(self) -> int:
        """Number of tables that are equal to the table and have as many bytes each, including itself."""
        return int(self.tables.count[self.table])

    @property
    def table_count(self) -> int:
        """Number of tables with any bytes of the resource on the rank."""
        return int(np.sum(self.tables.count[self.by_table > 0]))

    @property
    def table_bytes(self) -> float:
        """Bytes of the resource that the table alone has on the rank."""
        return float(self.by_table[self.table]) / self.alike

    @property
    def kind(self) -> Exchange:
        """The table's kind of exchange."""
        return Exchange(int(self.cut.kind[0]))

    @property
    def shards(self) -> int:
        """Shards of the table on the rank; 1 for a resource equal on every rank; 0 with hot rows only."""
        everywhere = whole_of(self.resource) in EVERY_RANK or self.kind == Exchange.DP
        return (
            1 if everywhere or self.resource == _R.COPIED_GRADIENTS else int(self.tables.shards[self.table])
        )

    @cached_property
    def cut(self) -> TableCut:
        """The quantities of the table's scheme."""
        return self.tables.cut(self.table)

    @cached_property
    def hot_bytes(self) -> float:
        """Bytes of the resource that come from the table's replicated hot rows, without its shards."""
        cut = self.cut
        if not cut.hot[0] or self.kind == Exchange.DP:
            return 0.0
        whole = float(self.tables.everywhere[self.table, self.resource])
        if self.resource == _R.BUCKETIZE:
            return float(eb.ids_bytes(cut.B * cut.hot_L[0], cut.ids[0]))
        if self.resource == _R.LOCAL_SUM:
            return whole - self._summed
        return whole if self.resource in (_R.GATHER_DRAM, _R.SORT, _R.UPDATE_DRAM) else 0.0

    @property
    def _summed(self) -> float:
        """Bytes of summing the table's partial bags; 0 for a table whose bags arrive whole."""
        if self.kind not in (Exchange.RB, Exchange.SPARSE) or self.cut.r[0] == 1:
            return 0.0
        return float(bytes_of(_R.LOCAL_SUM).asked(self.values().__getitem__))

    @property
    def counted(self) -> bool:
        """Whether the table's shards add bytes besides the hot rows, so that their equation is needed."""
        return self.shards > 0 and (not self.hot_bytes or self.resource != _R.LOCAL_SUM or self._summed > 0)

    @property
    def shard_bytes(self) -> float:
        """Bytes of the resource from one shard of the table; from the whole table if every rank has them."""
        return (self.table_bytes - self.hot_bytes) / max(self.shards, 1)

    @property
    def id_bytes(self) -> float:
        """Bytes of an id, with its weight if both are sent together; bytes of a weight that is sent apart."""
        plain, weighted = _first(self.cut.id_bytes), _first(self.cut.ids)
        if whole_of(self.resource) in (_R.WEIGHTS_SENT, _R.WEIGHTS_RECEIVED):
            return weighted - plain
        if whole_of(self.resource) in (_R.IDS_SENT, _R.IDS_RECEIVED) and self.cut.model.sets:
            return plain
        alone = self.resource in _WITHOUT_WEIGHTS or (
            sends_rows(self.kind) and self.resource == _R.GATHER_DRAM
        )
        return plain if alone else weighted

    def recorded(self) -> Recorded:
        """Bytes of the table on the rank, with their equation: bytes per shard times shards, and hot rows."""
        values = self.values()

        @cache
        def letter(name: str) -> Number:
            if name in values and values[name] == _WITHOUT.get(name):
                return values[name]
            own = name == "v" and self.cut.v != self.cut.pooled
            own |= name == "w" and whole_of(self.resource) in _AS_STORED
            constant = None if own else software(self.tables.setting, name)
            return constant or given(name, values[name])

        number: Recorded = bytes_of(self.resource).asked(letter)
        if self.shards > 1:
            number = given("shards", self.shards, "shards of the table on this GPU") * number
        if not self.hot_bytes:
            return number
        hot = given("x", self.hot_bytes, "bytes that copies of its hot rows add")
        return number + hot if self.counted else hot

    def values(self) -> dict[str, float]:
        """The value of each letter in the equation of the bytes, except constants of the software."""
        cut, resource, kind = self.cut, whole_of(self.resource), self.kind
        G, g, B, r, c, elements = map(_first, (cut.G, cut.g, cut.B, cut.r, cut.c, cut.elements))
        L, D, q, index, w = map(_first, (cut.L, cut.D, cut.q, cut.index, cut.w))
        holders, copies = r * c, c
        if resource == _R.DEDUPLICATE:
            L += float(cut.hot_L[0])
        if resource == _R.CONVERT_IN and r == G and kind in (Exchange.RS, Exchange.TWO_LEVEL):
            r = 1.0  # reduced by reduce-scatter over all ranks
        elif kind == Exchange.TWO_LEVEL and resource in BY_DOMAIN:
            r = max(r / g, 1.0)
        if not index and resource != _R.REQUESTS_SENT:
            c = 1.0  # for bags it counts their indices
        stored = w if resource in _STORED else _first(cut.gradient)
        known = {
            "G": G, "B": B, "L": L, "D": D, "U": float(cut.U[0]),
            "domains": G / g, "parts": r, "columns": c, "q": q, "elements": elements, "v": cut.v,
            "w": stored if resource in _AS_STORED else cut.pooled,
            "id_bytes": self.id_bytes, "index_bytes": index, "holders": holders, "copies": copies,
            "digits": self.id_bytes if resource in _DEDUPLICATES else _first(cut.model.sort_digits),
            "E": float(cut.E[0] if kind == Exchange.DP else cut.hot[0]),
        }  # fmt: skip
        if resource in GATHERS:
            known |= self._gathered(known)
        if resource == _R.SORT:
            known["lookups"] = self._updated[0]
        return known

    def _gathered(self, values: dict[str, float]) -> dict[str, float]:
        """Letters of a gather: look-ups, bytes of a row read, and the bags or rows written, with their bytes.

        Bytes of a row: the table's bytes without bags and ids, divided by the look-ups.
        values  the other letters
        """
        model, kind, resource = self.cut.model, self.kind, self.resource
        G, B, L, U, r = (values[name] for name in ("G", "B", "L", "U", "parts"))
        whole = values["D"] if resource == _R.POOL_DRAM else values["elements"]
        width = whole * values["w"] + model.constant("offset_bytes")
        if resource == _R.UPDATE_DRAM:
            return self._gradients(*self._updated) | self._optimizer
        if resource == _R.ACCUMULATE_DRAM:
            return self._gradients(B * L, U, values["D"] * values["w"])
        if resource == _R.POOL_DRAM or kind == Exchange.DP:
            n, bags = B * L, B
        elif sends_rows(kind):
            n = bags = float(ex.requested_rows(G, U, r))
            width = whole * _first(self.cut.w)
        else:
            n, bags = float(ex.shard_lookups(G, B, L, r)), G * B * values["q"]
        width *= model.machine_value("bag_factor")
        row = (self.shard_bytes - bags * width) / n - self.id_bytes
        return {"n": n, "r": row, "id": self.id_bytes, "bags": bags, "o": width}

    def _gradients(self, n: float, rows: float, width: float) -> dict[str, float]:
        """Letters of a backward step that reads n gradients and writes ``rows`` rows of ``width`` bytes."""
        each = (self.shard_bytes - rows * width) / n - self.id_bytes
        return {"n_g": n, "r_g": each, "id": self.id_bytes, "touched": rows}

    @property
    def _optimizer(self) -> dict[str, float]:
        """Letters of the optimizer: state per element and per row, gradient of a replica's row [bytes]."""
        cut, training = self.cut, self.cut.model.training
        assert training is not None
        copied = self.kind == Exchange.DP
        state = training.copied if copied else (training.per_element, training.per_row)
        gradient = 2 * _first(cut.D) * _first(cut.gradient) if copied else 0.0
        return {"state": _first(state[0]), "row_state": _first(state[1]), "copied": gradient}

    @cached_property
    def _updated(self) -> tuple[float, float, float]:
        """(look-ups whose gradients are read, rows updated, bytes of updating one row)."""
        training = self.cut.model.training
        assert training is not None  # the step belongs to a backward pass
        read, touched, row = self.cut.updated(training)
        return float(read[0]), float(touched[0]), float(row[0])


def given(letter: str, value: float, meaning: str = "") -> Recorded:
    """The value of a letter as a recorded number, with its unit and meaning; it has no further equation."""
    unit = BYTES if letter in _BYTES_EACH or (letter in LETTERS and LETTERS[letter].unit == "B") else PLAIN
    return Recorded(value, unit, symbol=letter, meaning=meaning or MEANINGS.get(letter, ""))


def software(setting: Setting, letter: str) -> Recorded | None:
    """The constant that a letter stands for, with its source: of messages, of pooling, or of a sort.

    Limits: any other letter -> None
    """
    if letter not in LETTERS or not LETTERS[letter].key:
        return None
    quantity = setting.constants.quantity(LETTERS[letter].key)
    return recorded_quantity(letter, quantity, LETTERS[letter].meaning)


def _first(value: Any) -> float:
    """The number itself, or the first element of an array."""
    return float(np.asarray(value).flat[0])


_BYTES_EACH = ("r", "id", "o", "x", "r_g", "row_state", "copied")
_WITHOUT = {
    **{"q": 1.0, "copies": 1.0, "columns": 1.0, "index_bytes": 0.0},
    **dict.fromkeys(("state", "row_state", "copied"), 0.0),
}
"""Letters whose absence changes nothing in an equation, each with its neutral value."""
_STORED = (_R.ROWS_SENT, _R.ROWS_RECEIVED, _R.UPDATE_DRAM)
_AS_STORED = (*_STORED, _R.COPIED_GRADIENTS)
"""Resources for which w is not the size of a pooled element: rows, and gradients of replicas."""
_DEDUPLICATES = (_R.DEDUPLICATE, _R.DEDUPLICATE_REQUESTS)
_WITHOUT_WEIGHTS = (*_DEDUPLICATES, _R.REQUESTS_SENT, _R.REQUESTS_RECEIVED, _R.SORT)
