"""One way to look a table up on one core, explained: equations, the numbers in them, and where each is from.

Equations are the docstrings of the model, and the numbers those that ``ChipCost`` asks the model with, so
neither can drift from the times that other commands print.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from perfmodel.passes.equations import Equation, equation_of, source_of
from perfmodel.passes.terms import Term
from perfmodel.schema.chip import CHIP_KEYS, Chip
from perfmodel.schema.distributions import UNIFORM, Distribution
from perfmodel.units import counted, format_amount, format_bytes, format_count, format_rate, format_time

Array = NDArray[np.float64]

_COPIES = ("row_latency_s", "dma_bytes_per_s", "access_bytes")
_ROWS = ("core_bytes_per_s", "row_issue_s", "rows_in_flight", "gm_bytes_per_s", "channels")
_CACHES = ("cache_bytes", "cache_bytes_per_s", "cache_slices", "cache_latency_s")
_CORE_CACHES = ("core_cache_bytes", "core_cache_bytes_per_s", "core_cache_latency_s")
_STREAMS = ("vector_bytes", "vector_bytes_per_s", "id_s")
_STAYS = ("local_bytes", "local_to_vector_bytes_per_s")
USED = {
    Way.GM: (*_COPIES, *_ROWS, *_CACHES, *_CORE_CACHES),
    Way.L1: (*_COPIES, "local_bytes", "local_bytes_per_s", "row_issue_s"),
    Way.GM_UB: (*_COPIES, *_STREAMS, *_CACHES),
    Way.L1_UB: (*_COPIES, *_STAYS, *_STREAMS, *_CACHES),
}
"""Values of a chip that decide what each way takes."""


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


@dataclass(frozen=True)
class WayExplained:
    """One core that looks a whole table up in one way.

    parts  one after the other: their times add up to ``time_s``, as in ``chip ways``
    preload_s  of rows that are copied once, and not in a batch [s]
    batch_s    of a batch that has only this [s];  limit  of it
    """

    chip: Chip
    way: Way
    shape: tuple[Term, ...]
    ids: Distribution
    parts: tuple[StepExplained, ...]
    constants: tuple[Term, ...]
    time_s: float
    preload_s: float
    batch_s: float
    limit: str

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        return {
            "chip": self.chip.name,
            "overrides": sorted(self.chip.overrides),
            "way": self.way.label,
            "distribution": self.ids.name,
            "time_s": self.time_s,
            "preload_s": self.preload_s,
            "batch_s": self.batch_s,
            "limit": self.limit,
            "shape": [vars(term) for term in self.shape],
            "parts": [
                {
                    "title": part.title,
                    "equation": part.computed.text,
                    "reference": part.computed.source,
                    "wait_s": part.wait_s,
                    "busy_s": part.busy_s,
                    "notes": part.notes,
                    "time_s": part.time_s,
                    "terms": [vars(term) for term in part.terms],
                    "function": part.computed.function,
                    "section": part.computed.section,
                }
                for part in self.parts
            ],
            "constants": [vars(term) for term in self.constants],
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
    alone = cost.work(0, way, rows, dim, batch)
    batch_of = cost.batch_s(np.zeros(1, dtype=int), np.zeros(1, dtype=int), alone)
    steps = list(work.steps)
    parts = [] if chip.buffers.persist else [_copied(chip, steps.pop(0), lay, row)]
    parts += [
        _ids(chip, steps[0], lay, batch * pooling, batch),
        _looked_up(chip, way, steps[1], lay, calls),
        _written(chip, steps[2], batch, dim),
    ]
    return WayExplained(
        chip,
        way,
        tuple(_shape(rows, dim, element_bytes, batch, pooling, row)),
        ids,
        tuple(part for part in parts if part.time_s > 0 or part is parts[-2]),
        tuple(_constants(chip, way)),
        float(work.core_s),
        float(work.preload_s),
        batch_of.seconds,
        batch_of.limit,
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


def _constants(chip: Chip, way: Way) -> Iterator[Term]:
    """The values of the chip that count, but those that it does not have."""
    for key in USED[way]:
        quantity = chip.quantity(key)
        if quantity.value > 0:
            source = f"{quantity.source}. {quantity.why}".strip()
            meaning = CHIP_KEYS[key].meaning.split("; 0 =")[0]
            yield Term(key, quantity.value, str(quantity), source, str(quantity.evidence), meaning)


def _number(symbol: str, value: float, unit: str, meaning: str) -> Term:
    written: dict[str, Callable[[float], str]] = {
        "s": format_time,
        "B": format_bytes,
        "B/s": format_rate,
        "1": format_amount,
    }
    return Term(symbol, value, written[unit](value), "", "", meaning)


_CONDITION = re.compile(r" (?:if )?([a-z] (?:<|>|<=|=) \w+)$")


def _equation(function: Callable[..., Any]) -> str:
    """The formula of a docstring, with "if" before the condition of a line."""
    lines = [line.removesuffix("[s]").strip() for line in equation_of(function).splitlines()]
    return "\n".join(_CONDITION.sub(r"   if \1", line) for line in lines)


def _copied(chip: Chip, step: CoreStep, lay: CoreBufferLayout, row: float) -> StepExplained:
    terms = (
        _number("h", float(lay.resident), "1", "rows that stay"),
        _number("row", row, "B", "one row"),
        _number("BW", chip.value("dma_bytes_per_s"), "B/s", "of a copy"),
        _number("t_0", chip.value("row_latency_s"), "s", "latency"),
    )
    return StepExplained(
        "rows that stay are copied",
        Equation.of(one_core.table_bytes, "t = t_0 + h row / BW"),
        terms,
        *_of(step),
    )


def _ids(chip: Chip, step: CoreStep, lay: CoreBufferLayout, n: float, bags: float) -> StepExplained:
    terms = (
        _number("p", float(lay.passes), "1", "passes, each of which waits"),
        _number("t_0", chip.value("row_latency_s"), "s", "latency"),
        _number("n", n, "1", "ids of 8 bytes"),
        _number("b", bags, "1", "offsets of 8 bytes"),
        _number("BW", chip.value("dma_bytes_per_s"), "B/s", "of a copy"),
    )
    equation = "t = p t_0 + (8 n + 8 b) / BW"
    return StepExplained(
        "ids and offsets are read", Equation.of(one_core.ids_and_bags_time, equation), terms, *_of(step)
    )


def _written(chip: Chip, step: CoreStep, bags: float, dim: float) -> StepExplained:
    terms = (
        _number("b", bags, "1", "bags"),
        _number("D", dim, "1", "columns of 4 bytes"),
        _number("BW", chip.value("dma_bytes_per_s"), "B/s", "of a copy"),
    )
    return StepExplained(
        "bags are written", Equation.of(one_core.ids_and_bags_time, "t = 4 D b / BW"), terms, *_of(step)
    )


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


def _looked_up(
    chip: Chip, way: Way, step: CoreStep, lay: CoreBufferLayout, calls: dict[str, dict[str, float]]
) -> StepExplained:
    if way.streams:
        return _streamed(chip, step, lay, calls["chunk_times"])
    if way == Way.L1:
        asked, how = calls["gm_time"], Equation.of(one_core.gm_time, "t = n row / BW_L1")
        how = replace(how, source=source_of(one_core.l1_time))
        inside = (
            _number("n", asked["n"], "1", "look-ups"),
            _number("row", asked["row"], "B", "one row"),
            _number("BW_L1", asked["gm_rate"], "B/s", "local buffer, one row asked for after the other"),
        )
        return StepExplained("rows are looked up where they stay", how, inside, *_of(step))
    name = "cold_gather_time" if "cold_gather_time" in calls else "gather_time"
    function = getattr(core_cache if name == "cold_gather_time" else one_chip, name)
    asked = calls[name]
    terms = [_number(s, asked[key], unit, words) for s, key, unit, words in _GATHERS if key in asked]
    if name == "cold_gather_time":
        tail = calls["last_wait"]["result"]
        terms.append(_number("d", tail, "s", "the last look-ups are waited for, as some of them miss"))
    notes: tuple[str, ...] = ()
    time_s = float(step.wait_s + step.busy_s)
    if time_s > asked["result"] * (1 + 1e-9):
        notes = (
            f"That gives {format_time(asked['result'])}. It takes longer because the channel, or the slice "
            "of the cache, with the table's hottest row gives no more.",
        )
    return StepExplained(
        "rows are gathered", Equation.of(function, _equation(function)), tuple(terms), *_of(step), notes
    )


def _streamed(chip: Chip, step: CoreStep, lay: CoreBufferLayout, asked: dict[str, float]) -> StepExplained:
    turns, time_s = float(lay.passes), float(step.wait_s + step.busy_s)
    more = time_s / max(turns, 1) - asked["result"]
    terms = (
        _number("p", turns, "1", f"passes of {format_count(float(lay.pass_bags))} bags"),
        _number("c", asked["chunks"], "1", f"chunks of {format_count(float(lay.chunk_rows))} rows"),
        _number("h", float(lay.resident), "1", "rows that stay"),
        _number("s", asked["stream"], "s", "one chunk streams"),
        _number("g", asked["gather"], "s", "look-ups of a pass in chunks that stream"),
        _number("q", asked["hottest"], "1", "share of the look-ups in the hottest chunk"),
        _number("l", asked["latency"], "s", "latency of a copy"),
        _number("e", asked["scan"], "s", "to find the ids of a chunk"),
    )
    streams = float(lay.chunks) > 0
    equation = f"{_equation(one_chip.chunk_times)}\nt_all = p (t + x)" if streams else "t_all = p x"
    what = "what rows that stay take, less the latency that hides behind the ids"
    sign = "" if more >= 0 else "-"
    shown = more if streams else time_s / max(turns, 1)
    extra = Term("x", shown, f"{sign}{format_time(abs(shown))}", "", "", what)
    title = "the table streams past the bags" if streams else "rows are looked up where they stay"
    return StepExplained(title, Equation.of(one_chip.chunk_times, equation), (*terms, extra), *_of(step))


def _of(step: CoreStep) -> tuple[float, float]:
    return float(step.wait_s), float(step.busy_s)


def _too_large(chip: Chip, way: Way, lay: CoreBufferLayout) -> str:
    needs = f"{format_bytes(float(lay.local_bytes))} of rows"
    if way.streams:
        needs += f" and {format_bytes(float(lay.vector_bytes))} of chunks, bags and ids"
    has = format_bytes(chip.value("local_bytes"))
    return f"{way.label} needs {needs}: a core of {chip.name} has {has}."
