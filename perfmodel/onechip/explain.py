"""One way to look a table up on one core, explained: equations, the numbers in them, and where each is from.

Equations are the docstrings of the model, and the numbers those that ``ChipCost`` asks the model with, so
neither can drift from the times that other commands print.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.model import core_cache, one_chip, one_core
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.layout import CoreBufferLayout, layout
from perfmodel.onechip.popular import popularities
from perfmodel.onechip.work import CoreStep, Way
from perfmodel.passes.equations import Equation, equation_of
from perfmodel.passes.terms import Term
from perfmodel.schema.chip import Chip
from perfmodel.schema.distributions import UNIFORM, Distribution
from perfmodel.units import counted, format_amount, format_bytes, format_count, format_rate, format_time

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Table:
    """One table, arrays [1]."""

    rows: Array
    dim: Array
    element_bytes: Array
    pooling: Array


@dataclass(frozen=True)
class StepExplained:
    """One step of a core: its equation, the numbers in it, and what it takes.

    wait_s  until something has come;  busy_s  after that;  notes  what the equation does not say
    """

    title: str
    computed: Equation
    terms: tuple[Term, ...]
    wait_s: float
    busy_s: float
    notes: tuple[str, ...] = ()

    @property
    def time_s(self) -> float:
        """Of the step [s]."""
        return self.wait_s + self.busy_s

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        own = {name: getattr(self, name) for name in ("title", "wait_s", "busy_s", "time_s", "notes")}
        of = {"reference": self.computed.source, "terms": [vars(term) for term in self.terms]}
        return {**own, **self.computed.to_dict(), **of}


@dataclass(frozen=True)
class WayExplained:
    """One core that looks a whole table up in one way.

    parts  one after the other: their times add up to ``time_s``, as in ``chip ways``
    preload_s  of rows that are copied once, and not in a batch [s]
    """

    chip: Chip
    way: Way
    shape: tuple[Term, ...]
    ids: Distribution
    parts: tuple[StepExplained, ...]
    time_s: float
    preload_s: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        return {
            "chip": self.chip.name,
            "overrides": sorted(self.chip.overrides),
            "way": self.way.label,
            "distribution": self.ids.name,
            "time_s": self.time_s,
            "preload_s": self.preload_s,
            "shape": [vars(term) for term in self.shape],
            "parts": [part.to_dict() for part in self.parts],
        }


def explain_way(
    chip: Chip,
    way: Way,
    *,
    rows: int,
    dim: int,
    element_bytes: float,
    batch: int,
    pooling: float,
    ids: Distribution = UNIFORM,
) -> WayExplained:
    """What one core takes for a whole table and a whole batch, and why.

    Limits: a shape below 1, a table that the buffers of a core do not hold -> BadInputError
    """
    if min(rows, dim, batch) < 1 or pooling <= 0:
        raise BadInputError(
            f"a table of {rows} rows and {dim} columns, {batch} bags of {pooling:g}, has no work.",
            "each is 1 or more.",
        )
    table = _Table(*(np.array([float(a)]) for a in (rows, dim, element_bytes, pooling)))
    cost = ChipCost(chip, table, batch, popularities([ids], table.rows))
    with _asked() as calls:
        work = cost.work(0, way, rows, dim, batch, lockstep=True)
    row = float(one_chip.read_bytes(dim * element_bytes, chip.value("access_bytes")))
    lay = layout(chip, way, rows, row, dim, batch, pooling)
    if not work.fits:
        instead = f"use GM; perfmodel chip ways --chip {chip.name} has the ways that fit."
        raise BadInputError(_too_large(chip, way, lay), instead)
    copied = [] if chip.buffers.persist else [_copied(lay, row)]
    around = [*copied, _ids(lay, batch * pooling, batch), _looked_up(way, work.steps[-2], lay, calls)]
    told = [*around, _written(batch, dim)]
    parts = [_part(chip, one, step) for one, step in zip(told, work.steps, strict=True)]
    return WayExplained(
        chip,
        way,
        tuple(_shape(rows, dim, element_bytes, batch, pooling, row)),
        ids,
        tuple(part for part in parts if part.time_s > 0 or part is parts[-2]),
        float(work.core_s),
        float(work.preload_s),
    )


_FUNCTIONS: tuple[tuple[ModuleType, str], ...] = (
    (one_chip, "gather_time"),
    (core_cache, "cold_gather_time"),
    (core_cache, "last_wait"),
    (one_core, "gm_time"),
    (one_chip, "chunk_times"),
)


@contextmanager
def _asked() -> Iterator[dict[str, dict[str, float]]]:
    """Arguments of the last call of each of ``_FUNCTIONS``, and its ``result``, while the block runs."""
    found: dict[str, dict[str, float]] = {}
    before: list[tuple[ModuleType, str, Callable[..., Any]]] = [
        (module, name, getattr(module, name)) for module, name in _FUNCTIONS
    ]

    def kept(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            result = function(*args, **more)
            bound = inspect.signature(function).bind(*args, **more)
            bound.apply_defaults()
            numbers = {**bound.arguments, "result": result}
            found[name] = {key: float(np.ravel(value)[0]) for key, value in numbers.items()}
            return result

        return call

    for module, name, function in before:
        setattr(module, name, kept(name, function))
    try:
        yield found
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def _shape(
    rows: int, dim: int, element_bytes: float, batch: int, pooling: float, row: float
) -> Iterator[Term]:
    asked = "as asked"
    for symbol, value, text, meaning in (
        ("m", rows, f"{format_count(rows)} rows", "of the table"),
        ("D", dim, f"{counted(dim, 'column')} of {counted(int(element_bytes), 'byte')}", "of a row"),
        ("b", batch, f"{format_count(batch)} bags", "of the batch"),
        ("L", pooling, format_amount(pooling), "look-ups of a bag"),
    ):
        yield Term(symbol, float(value), text, asked, "", meaning)
    n = batch * pooling
    yield Term("n", n, f"{format_count(n)} look-ups", "b L", "", "of the batch")
    yield Term("row", row, format_bytes(row), "D columns in whole accesses", "", "one row, as it is read")


_Told = tuple[str, Equation, list[tuple[str, float | str, str, str]], tuple[str, ...]]
"""Title, equation, (symbol, value or name of one of the chip, unit, meaning) of its terms, notes."""
_LATENCY, _COPY = ("t_0", "row_latency_s", "s", "latency"), ("BW", "dma_bytes_per_s", "B/s", "of a copy")


def _part(chip: Chip, told: _Told, step: CoreStep) -> StepExplained:
    title, computed, of, notes = told
    values = [chip.value(value) if isinstance(value, str) else value for _, value, _, _ in of]
    terms = tuple(
        Term(symbol, value, _WRITTEN[unit](value), "", "", meaning)
        for (symbol, _, unit, meaning), value in zip(of, values, strict=True)
    )
    return StepExplained(title, computed, terms, float(step.wait_s), float(step.busy_s), notes)


_WRITTEN: dict[str, Callable[[float], str]] = {
    "s": format_time,
    "B": format_bytes,
    "B/s": format_rate,
    "1": format_amount,
}


_CONDITION = re.compile(r" (?:if )?([a-z] (?:<|>|<=|=) \w+)$")


def _equation(function: Callable[..., Any]) -> str:
    """The formula of a docstring, with "if" before the condition of a line."""
    lines = [line.removesuffix("[s]").strip() for line in equation_of(function).splitlines()]
    return "\n".join(_CONDITION.sub(r"   if \1", line) for line in lines)


def _copied(lay: CoreBufferLayout, row: float) -> _Told:
    kept = [("h", float(lay.resident), "1", "rows that stay"), ("row", row, "B", "one row")]
    how = Equation.of(one_core.table_bytes, "t = t_0 + h row / BW")
    return "rows that stay are copied", how, [*kept, _COPY, _LATENCY], ()


def _ids(lay: CoreBufferLayout, n: float, bags: float) -> _Told:
    read = [("n", n, "1", "ids of 8 bytes"), ("b", bags, "1", "offsets of 8 bytes")]
    turns = ("p", float(lay.passes), "1", "passes, each of which waits")
    how = Equation.of(one_core.ids_and_bags_time, "t = p t_0 + (8 n + 8 b) / BW")
    return "ids and offsets are read", how, [turns, _LATENCY, *read, _COPY], ()


def _written(bags: float, dim: float) -> _Told:
    of = [("b", bags, "1", "bags"), ("D", dim, "1", "columns of 4 bytes")]
    how = Equation.of(one_core.ids_and_bags_time, "t = 4 D b / BW")
    return "bags are written", how, [*of, _COPY], ()


_GATHERS = (
    ("n", "n", "1", "look-ups"),
    ("row", "row", "B", "one row"),
    ("l", "latency", "s", "mean latency of a row, by its hits in caches"),
    ("l_1", "first", "s", "mean latency of the first k rows"),
    ("l_max", "slowest", "s", "of the slowest of the rows that are on their way at once"),
    ("l_0", "near", "s", "of a row of the core's cache"),
    ("l_u", "missed", "s", "of a row that it does not have"),
    ("u", "misses", "1", "of the look-ups after the first k, rows that the core's cache does not have"),
    ("k", "in_flight", "1", "rows that are on their way at once"),
    ("BW", "peak", "B/s", "what the core can take of such rows"),
)


def _looked_up(way: Way, step: CoreStep, lay: CoreBufferLayout, calls: dict[str, dict[str, float]]) -> _Told:
    time_s = float(step.wait_s + step.busy_s)
    if way.streams:
        return _streamed(time_s, lay, calls["chunk_times"])
    if way == Way.L1:
        asked, how = calls["gm_time"], Equation.of(one_core.gm_time, "t = n row / BW_L1")
        rate = "local buffer, one row asked for after the other"
        inside = [("n", asked["n"], "1", "look-ups"), ("row", asked["row"], "B", "one row")]
        return (
            "rows are looked up where they stay",
            how,
            [*inside, ("BW_L1", asked["gm_rate"], "B/s", rate)],
            (),
        )
    name = "cold_gather_time" if "cold_gather_time" in calls else "gather_time"
    function = getattr(core_cache if name == "cold_gather_time" else one_chip, name)
    asked = calls[name]
    terms = [(s, asked[key], unit, words) for s, key, unit, words in _GATHERS if key in asked]
    if name == "cold_gather_time":
        tail = calls["last_wait"]["result"]
        terms.append(("d", tail, "s", "the last look-ups are waited for, as some of them miss"))
    notes: tuple[str, ...] = ()
    if time_s > asked["result"] * (1 + 1e-9):
        notes = (
            f"That gives {format_time(asked['result'])}. It takes longer because the channel, or the slice "
            "of the cache, with the table's hottest row gives no more.",
        )
    return "rows are gathered", Equation.of(function, _equation(function)), [*terms], notes


def _streamed(time_s: float, lay: CoreBufferLayout, asked: dict[str, float]) -> _Told:
    turns, streams = float(lay.passes), float(lay.chunks) > 0
    extra = time_s / max(turns, 1) - (asked["result"] if streams else 0.0)
    equation = f"{_equation(one_chip.chunk_times)}\nt_all = p (t + x)" if streams else "t_all = p x"
    title = "the table streams past the bags" if streams else "rows are looked up where they stay"
    terms: list[tuple[str, float | str, str, str]] = [
        ("p", turns, "1", f"passes of {format_count(float(lay.pass_bags))} bags"),
        ("c", asked["chunks"], "1", f"chunks of {format_count(float(lay.chunk_rows))} rows"),
        ("h", float(lay.resident), "1", "rows that stay"),
        ("s", asked["stream"], "s", "one chunk streams"),
        ("g", asked["gather"], "s", "look-ups of a pass in chunks that stream"),
        ("q", asked["hottest"], "1", "share of the look-ups in the hottest chunk"),
        ("l", asked["latency"], "s", "latency of a copy"),
        ("e", asked["scan"], "s", "to find the ids of a chunk"),
        ("x", extra, "s", "what rows that stay take, less the latency that hides behind the ids"),
    ]
    return title, Equation.of(one_chip.chunk_times, equation), terms, ()


def _too_large(chip: Chip, way: Way, lay: CoreBufferLayout) -> str:
    needs = f"{format_bytes(float(lay.local_bytes))} of rows"
    if way.streams:
        needs += f" and {format_bytes(float(lay.vector_bytes))} of chunks, bags and ids"
    has = format_bytes(chip.value("local_bytes"))
    return f"{way.label} needs {needs}: a core of {chip.name} has {has}."
