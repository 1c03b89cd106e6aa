"""A resource of a plan on its busiest rank: the table that has the most of it, and letters of its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from perfmodel.model import embedding_bag as eb
from perfmodel.model import exchanges as ex
from perfmodel.model.recording import BYTES, PLAIN, Recorded
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.cut import TableCut
from perfmodel.passes.letters import LETTERS
from perfmodel.passes.loads import ShardLoads
from perfmodel.passes.placement import Plan
from perfmodel.passes.recorded_words import recorded_quantity
from perfmodel.passes.schemes import Exchange, sends_rows
from perfmodel.passes.step_equations import BY_DOMAIN, EVERY_RANK, GATHERS, MEANINGS, bytes_of, whole_of
from perfmodel.passes.step_resources import Resource

_R = Resource


@dataclass(frozen=True, eq=False)
class Busiest:
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
        """Its index: that of the table with the most of it."""
        return int(np.argmax(self.by_table))

    @property
    def kind(self) -> Exchange:
        """How it is exchanged."""
        return self.plan.placements[self.table].scheme.kind

    @property
    def shards(self) -> int:
        """Of the table on the rank; 1 of what every rank has of it."""
        everywhere = whole_of(self.resource) in EVERY_RANK or self.kind == Exchange.DP
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
        return float(bytes_of(_R.LOCAL_SUM).asked(self.values().__getitem__))

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
        plain = float(self.evaluator.model.id_bytes)
        if whole_of(self.resource) in (_R.WEIGHTS_SENT, _R.WEIGHTS_RECEIVED):
            return float(self.cut.ids[0]) - plain
        if whole_of(self.resource) in (_R.IDS_SENT, _R.IDS_RECEIVED) and self.evaluator.model.sets:
            return plain
        alone = self.resource in _WITHOUT_WEIGHTS or (
            sends_rows(self.kind) and self.resource == _R.GATHER_DRAM
        )
        return plain if alone else float(self.cut.ids[0])

    def recorded(self) -> Recorded:
        """What the table has of it on the rank: the equation of a shard times its shards, with hot rows."""
        values = self.values()
        number: Recorded = bytes_of(self.resource).asked(
            lambda letter: software(self.evaluator, letter) or given(letter, values[letter])
        )
        if self.shards > 1:
            number = given("shards", self.shards, "shards of the table on this GPU") * number
        if not self.hot_bytes:
            return number
        hot = given("x", self.hot_bytes, "bytes that copies of its hot rows add")
        return number + hot if self.counted else hot

    def values(self) -> dict[str, float]:
        """Every letter of the equations but constants of the software."""
        e, t, cut = self.evaluator, self.table, self.cut
        resource, kind, constant = whole_of(self.resource), self.kind, e.basis.constant
        r, c, elements, v = float(cut.r[0]), float(cut.c[0]), float(cut.elements[0]), cut.v
        L, D, q, index = (float(x[0]) for x in (cut.L, cut.D, cut.q, cut.index))
        if resource == _R.DEDUPLICATE:
            L += float(cut.hot_L[0])
        if resource == _R.CONVERT_IN and r == e.gpus and kind in (Exchange.RS, Exchange.TWO_LEVEL):
            r = 1.0  # summed by reduce-scatters over all
        elif kind == Exchange.TWO_LEVEL and resource in BY_DOMAIN:
            r = max(r / e.domain, 1.0)
        stored = resource in (_R.ROWS_SENT, _R.ROWS_RECEIVED)
        pooled, B = constant("pooled_element_bytes"), float(cut.B)
        known = {
            "G": float(cut.G), "B": B, "L": L, "D": D, "U": float(cut.U[0]),
            "domains": e.gpus / e.domain, "parts": r, "columns": c, "q": q, "elements": elements, "v": v,
            "w": float(e.tables.element_bytes[t]) if stored else pooled,
            "id_bytes": self.id_bytes, "index_bytes": index, "holders": r * c, "copies": c,
            "digits": self.id_bytes if resource == _R.DEDUPLICATE else e.model.sort_digits,
            "E": float(cut.E[0] if kind == Exchange.DP else cut.hot[0]),
        }  # fmt: skip
        if resource in GATHERS:
            known |= self._gathered(known)
        if resource == _R.SORT:
            known["lookups"] = self._updated[0]
        return known

    def _gathered(self, values: dict[str, float]) -> dict[str, float]:
        """Rows looked up, bags (or rows) written, and bytes of one: a row's are what is left of all bytes."""
        e, kind, resource = self.evaluator, self.kind, self.resource
        G, B, L, U, r = (values[name] for name in ("G", "B", "L", "U", "parts"))
        whole = values["D"] if resource == _R.POOL_DRAM else values["elements"]
        width = whole * values["w"] + e.basis.constant("offset_bytes")
        if resource == _R.UPDATE_DRAM:
            n, bags, width = self._updated
        elif resource == _R.ACCUMULATE_DRAM:
            n, bags, width = B * L, U, values["D"] * values["w"]
        elif resource == _R.POOL_DRAM or kind == Exchange.DP:
            n, bags = B * L, B
        elif sends_rows(kind):
            n = bags = float(ex.requested_rows(G, U, r))
            width = whole * float(e.tables.element_bytes[self.table])
        else:
            n, bags = float(ex.shard_lookups(G, B, L, r)), G * B * values["q"]
        if resource not in (_R.UPDATE_DRAM, _R.ACCUMULATE_DRAM):
            width *= e.setting.machine.value("bag_factor")
        row = (self.shard_bytes - bags * width) / n - self.id_bytes
        return {"n": n, "r": row, "id": self.id_bytes, "bags": bags, "o": width}

    @cached_property
    def _updated(self) -> tuple[float, float, float]:
        """Look-ups whose gradients are read, rows that are updated, and bytes of the update of one."""
        training = self.evaluator.model.training
        assert training is not None  # the step is of a backward pass
        read, touched, row = self.cut.updated(training)
        return float(read[0]), float(touched[0]), float(row[0])


def given(letter: str, value: float, meaning: str = "") -> Recorded:
    """A number of the question, or one that follows from it."""
    unit = BYTES if letter in _BYTES_EACH or (letter in LETTERS and LETTERS[letter].unit == "B") else PLAIN
    return Recorded(value, unit, symbol=letter, meaning=meaning or MEANINGS.get(letter, ""))


def software(evaluator: Evaluator, letter: str) -> Recorded | None:
    """A constant of TorchRec's messages or of a sort. Limits: any other letter -> None"""
    if letter not in ("fields", "value_bytes", "length_bytes", "place_bytes"):
        return None
    quantity = evaluator.setting.constants.quantity(LETTERS[letter].key)
    return recorded_quantity(letter, quantity, LETTERS[letter].meaning)


_BYTES_EACH = ("r", "id", "o", "x")
_WITHOUT_WEIGHTS = (_R.DEDUPLICATE, _R.REQUESTS_SENT, _R.REQUESTS_RECEIVED, _R.SORT)
