"""Explains the time of a core that looks up a table in one ``Way``: equations, their values, and the sources.

The laws are evaluated with the arguments that ``ChipCost`` uses, recorded, so the explanation has the times
that other commands print.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.model import core_cache, one_chip, one_core
from perfmodel.model.recording import BYTES, BYTES_PER_S, PLAIN, SECONDS, Recorded, Unit, named
from perfmodel.onechip.cost import BAG_BYTES, GLOBAL_ID_BYTES, OFFSET_BYTES, ChipCost
from perfmodel.onechip.layout import CoreBufferLayout, layout
from perfmodel.onechip.popular import popularities
from perfmodel.onechip.work import CoreStep, Way
from perfmodel.passes.equations import Equation, equation_of
from perfmodel.passes.recorded_words import letters_text, recorded_terms, working_lines
from perfmodel.passes.terms import Term
from perfmodel.schema.chip import Chip
from perfmodel.schema.distributions import UNIFORM, Distribution
from perfmodel.units import counted, format_amount, format_bytes, format_count, format_time

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Table:
    """One table, as arrays with one entry."""

    rows: Array
    dim: Array
    element_bytes: Array
    pooling: Array


@dataclass(frozen=True)
class StepExplained:
    """One step of a core: its equation, the values in it, and its time.

    wait_s  time until data has arrived;  busy_s  time after that;  notes  sentences beside the equation
    working  the equation with its values, line by line
    """

    title: str
    computed: Equation
    terms: tuple[Term, ...]
    wait_s: float
    busy_s: float
    notes: tuple[str, ...] = ()
    working: tuple[str, ...] = ()

    @property
    def time_s(self) -> float:
        """Time of the step [s]."""
        return self.wait_s + self.busy_s

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        own = {
            name: getattr(self, name) for name in ("title", "wait_s", "busy_s", "time_s", "notes", "working")
        }
        of = {"reference": self.computed.source, "terms": [vars(term) for term in self.terms]}
        return {**own, **self.computed.to_dict(), **of}


@dataclass(frozen=True)
class WayExplained:
    """A core that looks up a whole table in one way, step by step.

    shape  size of the table and the batch;  parts  the steps: their times add up to ``time_s``, as in ``chip
           ways``
    preload_s  time to copy rows that stay for all batches, once [s]
    """

    chip: Chip
    way: Way
    shape: tuple[Term, ...]
    ids: Distribution
    parts: tuple[StepExplained, ...]
    time_s: float
    preload_s: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
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
    """The time of one core for a whole table and a whole batch, explained.

    Limits: a shape below 1, a table that does not fit the buffers of a core -> BadInputError
    """
    if min(rows, dim, batch) < 1 or pooling <= 0:
        raise BadInputError(
            f"a table of {rows} rows and {dim} columns, {batch} bags of {pooling:g}, has no work.",
            "each is 1 or more.",
        )
    table = _Table(*(np.array([float(a)]) for a in (rows, dim, element_bytes, pooling)))
    cost = ChipCost(chip, table, batch, popularities([ids], table.rows))
    work = cost.work(0, way, rows, dim, batch, lockstep=True)
    row = float(one_chip.read_bytes(dim * element_bytes, chip.value("access_bytes")))
    lay = layout(chip, way, rows, row, dim, batch, pooling)
    if not work.fits:
        instead = f"use GM; perfmodel chip ways --chip {chip.name} has the ways that fit."
        raise BadInputError(_too_large(chip, way, lay), instead)
    law, asked = cost.asked(0, way, rows, dim, batch, lockstep=True)
    looked = _looked_up(law, [float(np.ravel(each)[0]) for each in asked], way, work.steps[-2], lay)
    copied = [] if chip.buffers.persist else [_copied(chip, lay, row)]
    every = [*copied, _ids(chip, lay, batch * pooling, batch), looked, _written(chip, batch, dim)]
    parts = [_part(one, step) for one, step in zip(every, work.steps, strict=True)]
    return WayExplained(
        chip,
        way,
        tuple(_shape(rows, dim, element_bytes, batch, pooling, row)),
        ids,
        tuple(part for part in parts if part.time_s > 0 or part is parts[-2]),
        float(work.core_s),
        float(work.preload_s),
    )


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


_CONDITION = re.compile(r" (?:if )?([a-z] (?:<|>|<=|=) \w+)$")


def _equation(function: Callable[..., Any]) -> str:
    """The formula of a docstring, with "if" before the condition of a line."""
    lines = [line.removesuffix("[s]").strip() for line in equation_of(function).splitlines()]
    return "\n".join(_CONDITION.sub(r"   if \1", line) for line in lines)


@dataclass(frozen=True)
class _Asked:
    """A step before its explanation is written: title, equation, time with its working, and notes.

    beside  numbers whose terms are explained too
    """

    title: str
    computed: Equation
    time: Recorded
    notes: tuple[str, ...] = ()
    beside: tuple[Recorded, ...] = ()


def _part(asked: _Asked, step: CoreStep) -> StepExplained:
    made = (term for each in (asked.time, *asked.beside) for term in recorded_terms(each))
    terms = tuple(term for term in made if term.symbol not in ("t", "t_all"))
    working = tuple(working_lines(asked.time))
    busy = float(step.wait_s), float(step.busy_s)
    return StepExplained(asked.title, asked.computed, terms, *busy, asked.notes, working)


def _given(symbol: str, value: float, unit: Unit, meaning: str) -> Recorded:
    return Recorded(value, unit, symbol=symbol, meaning=meaning)


def _latency(chip: Chip) -> Recorded:
    return _given("t_0", chip.value("row_latency_s"), SECONDS, "latency")


def _copy_rate(chip: Chip) -> Recorded:
    return _given("BW", chip.value("dma_bytes_per_s"), BYTES_PER_S, "of a copy")


def _copied(chip: Chip, lay: CoreBufferLayout, row: float) -> _Asked:
    kept = _given("h", float(lay.resident), PLAIN, "rows that stay")
    size = kept * _given("row", row, BYTES, "one row")
    time = named("t", _latency(chip) + size / _copy_rate(chip), "")
    equation = Equation.of(one_core.table_bytes, f"t = {letters_text(time)}")
    return _Asked("rows that stay are copied", equation, time)


def _ids(chip: Chip, lay: CoreBufferLayout, n: float, bags: float) -> _Asked:
    turns = _given("p", float(lay.passes), PLAIN, "passes, each of which waits")
    read = one_core.ids_and_bags_time(
        _given("n", n, PLAIN, "ids"),
        _given("id", GLOBAL_ID_BYTES, BYTES, "of each"),
        _given("b", bags, PLAIN, "offsets"),
        _given("o", OFFSET_BYTES, BYTES, "of each"),
        _copy_rate(chip),
    )
    time = named("t", turns * _latency(chip) + read, "")
    equation = Equation.of(one_core.ids_and_bags_time, f"t = {letters_text(time)}")
    return _Asked("ids and offsets are read", equation, time)


def _written(chip: Chip, bags: float, dim: float) -> _Asked:
    size = _given("b", bags, PLAIN, "bags") * _given("D", dim, PLAIN, "columns")
    time = named("t", size * _given("e", BAG_BYTES, BYTES, "of each") / _copy_rate(chip), "")
    equation = Equation.of(one_core.ids_and_bags_time, f"t = {letters_text(time)}")
    return _Asked("bags are written", equation, time)


_LETTERS: dict[Callable[..., Any], tuple[tuple[str, Unit, str], ...]] = {
    one_core.gm_time: (
        ("n", PLAIN, "look-ups"),
        ("row", BYTES, "one row"),
        ("BW_L1", BYTES_PER_S, "local buffer, one row asked for after the other"),
    ),
    one_chip.gather_time: (
        ("n", PLAIN, "look-ups"),
        ("row", BYTES, "one row"),
        ("l", SECONDS, "mean latency of a row, by its hits in caches"),
        ("l_max", SECONDS, "of the slowest of the rows that are on their way at once"),
        ("k", PLAIN, "rows that are on their way at once"),
        ("BW", BYTES_PER_S, "what the core can take of such rows"),
    ),
    core_cache.cold_gather_time: (
        ("n", PLAIN, "look-ups"),
        ("row", BYTES, "one row"),
        ("l_1", SECONDS, "mean latency of the first k rows"),
        ("l_max", SECONDS, "of the slowest of the rows that are on their way at once"),
        ("l_0", SECONDS, "of a row of the core's cache"),
        ("l_u", SECONDS, "of a row that it does not have"),
        ("u", PLAIN, "of the look-ups after the first k, rows that the core's cache does not have"),
        ("k", PLAIN, "rows that are on their way at once"),
        ("BW", BYTES_PER_S, "what the core can take of such rows"),
    ),
    one_chip.chunk_times: (
        ("s", SECONDS, "one chunk streams"),
        ("g", SECONDS, "look-ups of a pass in chunks that stream"),
        ("c", PLAIN, "chunks"),
        ("q", PLAIN, "share of the look-ups in the hottest chunk"),
        ("l", SECONDS, "latency of a copy"),
        ("e", SECONDS, "to find the ids of a chunk"),
    ),
}
"""(letter, unit, meaning) of each argument of a law."""


def _looked_up(
    law: Callable[..., Any], asked: Sequence[float], way: Way, step: CoreStep, lay: CoreBufferLayout
) -> _Asked:
    of = zip(_LETTERS[law], asked, strict=True)
    time = named("t", law(*(_given(symbol, value, unit, words) for (symbol, unit, words), value in of)), "")
    time_s, equation = float(step.wait_s + step.busy_s), Equation.of(law, _equation(law))
    if way.streams:
        return _streamed(time, equation, time_s, lay)
    if way == Way.L1:
        equation = Equation.of(law, f"t = {letters_text(time)}")
        return _Asked("rows are looked up where they stay", equation, time)
    notes: tuple[str, ...] = ()
    if time_s > float(time) * (1 + 1e-9):
        notes = (
            f"That gives {format_time(float(time))}. It takes longer because the channel, or the slice "
            "of the cache, with the table's hottest row gives no more.",
        )
    return _Asked("rows are gathered", equation, time, notes)


def _streamed(time: Recorded, equation: Equation, time_s: float, lay: CoreBufferLayout) -> _Asked:
    streams = float(lay.chunks) > 0
    extra = time_s / max(float(lay.passes), 1) - (float(time) if streams else 0.0)
    turns = _given("p", float(lay.passes), PLAIN, f"passes of {format_count(float(lay.pass_bags))} bags")
    words = "what rows that stay take, less the latency that hides behind the ids"
    rest, kept = _given("x", extra, SECONDS, words), _given("h", float(lay.resident), PLAIN, "rows that stay")
    whole = named("t_all", turns * (time + rest if streams else rest), "")
    first = f"{equation.text}\n" if streams else ""
    equation = replace(equation, text=f"{first}t_all = {letters_text(whole)}")
    if not streams:
        return _Asked("rows are looked up where they stay", equation, whole, beside=(kept,))
    notes = (f"a chunk has {format_count(float(lay.chunk_rows))} rows",)
    return _Asked("the table streams past the bags", equation, whole, notes, (kept,))


def _too_large(chip: Chip, way: Way, lay: CoreBufferLayout) -> str:
    needs = f"{format_bytes(float(lay.local_bytes))} of rows"
    if way.streams:
        needs += f" and {format_bytes(float(lay.vector_bytes))} of chunks, bags and ids"
    has = format_bytes(chip.value("local_bytes"))
    return f"{way.label} needs {needs}: a core of {chip.name} has {has}."
