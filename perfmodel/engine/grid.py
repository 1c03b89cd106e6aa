"""Row-wise passes of many configurations at once: their loads, memory, GPUs and costs, as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.basis import PassBasis
from perfmodel.engine.cost import PassCost, compare_with_local, cost_passes
from perfmodel.engine.cut import LoadInputs, TableCut, Training
from perfmodel.engine.exchange_sets import LookUpGroups, list_codes
from perfmodel.engine.loads import sum_even_loads
from perfmodel.engine.memory import GpuMemory
from perfmodel.engine.placement import COPY
from perfmodel.engine.schemes import FLAT
from perfmodel.engine.tables import Array, Ints, TableShapes, row_bytes
from perfmodel.engine.timing import PassTimes
from perfmodel.errors import BadInputError
from perfmodel.model import bands, capacity
from perfmodel.model import exchanges as ex
from perfmodel.schema.gate import MOST_GPUS

T = TypeVar("T")
CHUNK = 32_768
"""Configurations per chunk: few enough for the caches, enough to make Python's overhead negligible."""
STACK = 2**16
"""Kinds of tables times configurations whose loads are computed together: they fit the CPU's caches."""
_ROUNDS = 64  # of the search for the fewest GPUs, at most; random configurations take up to 8
_ALMOST = 1 - 1e-12  # of a number of GPUs that rounding may leave just above a whole one


@dataclass(frozen=True, eq=False)
class TableKinds(TableShapes):
    """K kinds of equal tables: arrays [K, C], with a value per configuration, or [K, 1]; ``law`` is [K].

    count  number of equal tables of a kind;  names  of all tables, kind by kind; (): they have none
    """

    count: Array
    names: tuple[str, ...] = ()

    @property
    def ids_names(self) -> str:
        """Names of the distributions of ids, each once: ``uniform, zipf``."""
        return ", ".join(dict.fromkeys(self.laws[law].name for law in self.law.tolist()))


@dataclass(frozen=True, eq=False)
class Configs:
    """C configurations, one per element of the arrays: tables, batch, and number of GPUs.

    table_bytes  of all tables;  gpus  G, number used [-];  needed  the fewest GPUs that hold the tables [-]
    batch        samples of one GPU [-];  id_bytes  bytes of one id;  tables  of each configuration
    given_gpus   whether the user gave the number of GPUs;  usable_bytes  of a GPU for tables and exchanges
    filled       whether no table size was given, so that the tables fill the memory
    """

    table_bytes: Array
    gpus: Array
    needed: Array
    batch: Array
    id_bytes: Array
    tables: TableKinds
    given_gpus: bool
    filled: bool = False
    usable_bytes: float = np.inf

    @cached_property
    def all_rows(self) -> Array:
        """Rows of all tables together, per configuration or for all."""
        return np.asarray((self.tables.count * self.tables.rows).sum(axis=0))

    @cached_property
    def table_count(self) -> Array:
        """Number of tables, per configuration or for all."""
        return np.asarray(self.tables.count.sum(axis=0))

    def select(self, span: slice | Ints) -> Configs:
        """The configurations of a slice, or at these indices."""
        kinds = {"count": self.tables.count, **self.tables.columns}
        # A column [K, 1] holds for all configurations.
        chosen: dict[str, Any] = {name: x[:, span] if x.shape[1] > 1 else x for name, x in kinds.items()}
        columns = {name: getattr(self, name)[span] for name in _COLUMNS}
        return replace(self, tables=replace(self.tables, **chosen), **columns)


_COLUMNS = "table_bytes", "gpus", "needed", "batch", "id_bytes"
"""Fields of ``Configs`` with a value for each of them."""


def count_loads(basis: PassBasis, work: Configs, kind: Ints, *, works: bool = True) -> Array:
    """Loads of every GPU in a row-wise pass, all tables together: [C, K] bytes of each of the K resources.

    kind  code of the exchange of bags in each configuration [C], or in all (``choose_exchanges``)
    works  whether look-ups and updates of rows count
    """
    cuts = (cut_tables(basis, work, kind, some) for some in _list_stacks(work))
    return reduce(np.add, (sum_even_loads(*cut, works=works) for cut in cuts))


def _list_stacks(work: Configs) -> list[slice]:
    """Slices of the kinds of tables, each of ``STACK`` kinds times configurations at most."""
    size = -(-STACK // work.gpus.size)
    return [slice(start, start + size) for start in range(0, len(work.tables), size)]


def cut_tables(basis: PassBasis, work: Configs, kind: Ints, some: slice) -> tuple[TableCut, Array]:
    """(some kinds of tables cut over all GPUs [K, C], number of equal tables of each).

    kind  code of the exchange, as in ``count_loads``;  some  which kinds of tables
    A table with fewer rows than GPUs is replicated, without exchange.
    """
    tables = work.tables
    law = tables.law[some]
    shape = law.size, work.gpus.size

    def spread(column: Array) -> Array:
        """A value for each kind in each configuration, as one row [K C]: ``LoadInputs`` sees K C tables."""
        return np.broadcast_to(column, shape).ravel()

    of_tables = {name: spread(column[some]) for name, column in tables.columns.items()}
    of_pass = work.batch, work.gpus, basis.domain(work.gpus), work.id_bytes, work.table_count, work.all_rows
    batch, gpus, domain, id_bytes, beside, all_rows = map(spread, of_pass)
    law_of_kind = np.broadcast_to(law[:, np.newaxis], shape).ravel()
    shapes = TableShapes(**of_tables, laws=tables.laws, law=law_of_kind)
    training = None
    if basis.training:
        training = Training(basis.state, basis.state, shapes.count_unique(batch * gpus))
    model = LoadInputs(
        shapes, basis, batch, gpus, domain, id_bytes, training, None, beside, all_rows, tables.dtype
    )
    sharded = find_sharded(tables, some, work.gpus)
    kinds = np.broadcast_to(np.where(sharded, kind, int(COPY.kind)), shape)
    parts = np.broadcast_to(np.where(sharded, work.gpus, 1.0), shape)
    place = np.arange(gpus.size).reshape(shape)
    cut = TableCut(model, place, kinds, parts, np.ones(shape), np.zeros(shape))
    return cut, tables.count[some]


def find_sharded(tables: TableKinds, some: slice, gpus: Array) -> NDArray[np.bool_]:
    """Which of some kinds of tables have a row for each GPU [K, C], so that they are cut over all."""
    return tables.rows[some] >= gpus


def choose_exchanges(basis: PassBasis, work: Configs) -> Ints:
    """Code of the exchange of bags of each configuration [C]: the faster, if the library can run two."""
    codes = np.array([int(kind) for kind in basis.exchanges])
    if len(codes) == 1:
        return codes
    times = build_times(basis, work)
    # Steps before the gather, the only step of every pass, are the same with either exchange.
    gather = next(place for place, step in enumerate(times.steps) if step.always)
    rests = []
    for code in codes:
        loads = count_loads(basis, work, code, works=False)
        rests.append(np.sum([times.time_step(step, loads).time_s for step in times.steps[gather:]], axis=0))
    return np.asarray(codes[np.argmin(rests, axis=0)])


def build_times(basis: PassBasis, work: Configs) -> PassTimes:
    """What computes the times of the steps on the GPUs of each configuration."""
    domain = basis.domain(work.gpus)
    digits = ex.sort_digits(work.all_rows / work.gpus)
    groups = LookUpGroups(None, list_codes(work.tables.dtype)).resources
    return PassTimes(basis, work.gpus, domain, basis.steps, groups, digits)


def cost_locally(basis: PassBasis, work: Configs) -> PassCost:
    """Cost of a GPU's batch with all tables in its HBM, however large: gather, and in training the update."""
    alone = replace(work, gpus=np.ones_like(work.gpus))
    loads = count_loads(basis, alone, np.asarray(int(FLAT)))
    times = build_times(basis, alone)
    steps = [step for step in times.steps if step.is_kernel and step.alone and not step.hosted]
    return cost_passes(times, loads, steps)


def count_memory(basis: PassBasis, work: Configs, loads: Array | None = None) -> GpuMemory:
    """Memory that a GPU needs [C]. If a library has two possible exchanges of bags, the larger buffers count.

    loads  of the pass [C, K], if computed before;  Limits: one GPU, or all tables replicated -> no buffers
    """
    per_element, per_row = basis.state
    t = work.tables
    rows = np.zeros(work.gpus.size)
    state = np.zeros(work.gpus.size)
    for some in _list_stacks(work):
        parts = np.where(find_sharded(t, some, work.gpus), work.gpus, 1.0)
        held = t.count[some] * t.rows[some] / ex.count_even_parts(parts, t.buckets[some])
        row = row_bytes(t.dtype[some], t.dim[some], training=basis.training)
        rows += (held * row).sum(axis=0)
        state += (held * (t.dim[some] * per_element + per_row)).sum(axis=0)
    if loads is None or basis.exchanges[1:]:
        passes = [count_loads(basis, work, np.asarray(int(kind)), works=False) for kind in basis.exchanges]
    else:
        passes = [loads]
    times = build_times(basis, work)
    return GpuMemory(rows, state, reduce(np.maximum, (times.count_buffers(sent.T) for sent in passes)))


def _compute_chunks(work: Configs, spans: Sequence[Any], compute: Callable[[Configs], T]) -> list[T]:
    """``compute`` of the configurations of each span (``Configs.select``), on all cores, in order."""
    from concurrent.futures import ThreadPoolExecutor  # which one answer alone does not load

    with ThreadPoolExecutor() as pool:  # numpy releases the lock
        return list(pool.map(lambda span: compute(work.select(span)), spans))


def _count_in_chunks(basis: PassBasis, work: Configs) -> GpuMemory:
    """``count_memory`` of any number of configurations."""
    if not work.gpus.size // CHUNK:
        return count_memory(basis, work)
    spans = [slice(x, x + CHUNK) for x in range(0, work.gpus.size, CHUNK)]
    memories = _compute_chunks(work, spans, lambda chunk: count_memory(basis, chunk))
    return GpuMemory(*map(np.concatenate, zip(*(vars(memory).values() for memory in memories), strict=True)))


def choose_gpus(basis: PassBasis, work: Configs, node: int) -> Configs:
    """The configurations with the number of GPUs whose memory is enough for rows and exchange buffers.

    node  GPUs of a node
    ``needed`` becomes the fewest GPUs that fit; if the user gave no number, ``gpus`` becomes ``needed`` in
    whole nodes. Tables that fill the memory shrink until state and buffers fit, unless buffers alone fill it.
    Limits: no number fits -> the GPUs that the rows and the optimizer state alone need
    """
    if work.filled:
        memory = _count_in_chunks(basis, work)
        left = (1 - memory.buffer_bytes / work.usable_bytes) / (
            1 + memory.optimizer_bytes / memory.rows_bytes
        )
        room = np.where(left > 0, left, 1.0)
        tables = replace(work.tables, rows=np.maximum(work.tables.rows * room, work.gpus))
        return replace(work, table_bytes=work.table_bytes * room, tables=tables)
    if any(basis.state):
        alone = _count_in_chunks(basis, replace(work, gpus=np.ones_like(work.gpus))).kept_bytes
        work = replace(work, needed=capacity.gpus_needed(alone, np.float64(work.usable_bytes), 0.0))
    needed = _find_fewest(basis, work, node)
    if work.given_gpus:
        return replace(work, needed=needed)
    return replace(work, needed=needed, gpus=capacity.round_to_nodes(needed, np.float64(node)))


def _find_fewest(basis: PassBasis, work: Configs, node: int) -> Array:
    """The fewest GPUs n that hold rows and buffers, for each configuration, by an iteration from below.

        n <- the larger of ceil(S / (U - b)) and the zero of the line through (n, S / n + b - U) of two rounds

    S  bytes of sharded tables;  U  usable bytes of a GPU;  b  its buffers at n in whole nodes
    The need S / n + b is convex in n while the same tables are cut, so the line's zero is never beyond the
    fewest GPUs; if what is over the memory does not fall from one round to the next, no number fits.
    Limits: none fits -> the GPUs that the rows alone need
    """
    needed = np.array(work.needed, dtype=np.float64)
    places = np.arange(work.gpus.size)
    before = np.full((3, work.gpus.size), np.nan)  # GPUs, bytes over the memory, tables that are cut
    for _ in range(_ROUNDS):
        unfinished = work if places.size == needed.size else work.select(places)
        taken = needed[places]
        taken = taken if work.given_gpus else capacity.round_to_nodes(taken, np.float64(node))
        memory = _count_in_chunks(basis, replace(unfinished, gpus=taken))
        unfit = np.flatnonzero(~capacity.check_fits(memory.total_bytes, work.usable_bytes))
        t = unfinished.tables
        stacks = _list_stacks(unfinished)
        cut = reduce(np.add, ((t.count[some] * find_sharded(t, some, taken)).sum(axis=0) for some in stacks))
        places = places[unfit]
        taken = taken[unfit]
        cut = cut[unfit]
        room = work.usable_bytes - memory.buffer_bytes[unfit]
        over = memory.total_bytes[unfit] - work.usable_bytes
        taken_before, over_before, cut_before = before[:, places]
        with np.errstate(all="ignore"):
            step = np.ceil(taken * memory.kept_bytes[unfit] / room * _ALMOST)  # ceil(S / (U - b))
            # The line through this round and the one before, if the same tables are cut in both.
            as_cut = cut == cut_before
            slope = (over - over_before) / (taken - taken_before)
            zero = np.ceil((taken - over / slope) * _ALMOST)
            falls = np.signbit(slope)
            step = np.where(as_cut & falls, np.maximum(step, zero), step)
            lost = np.signbit(room) | (as_cut & ~falls) | (step > MOST_GPUS)  # no number of GPUs fits
        before[:, places] = taken, over, cut
        needed[places] = np.where(lost, work.needed[places], step)
        places = places[~lost]
        if not places.size:
            break
    needed[places] = work.needed[places]  # not settled after all rounds
    return needed


Columns = dict[str, NDArray[Any]]  # results of many configurations by name, arrays with one element each


def project_grid(basis: PassBasis, work: Configs) -> Columns:
    """Cost all configurations. Columns, in SI:

    gpus, gpus_needed, memory_bytes (of a GPU: rows, and buffer_bytes of its largest exchange), fits (whether
    memory_bytes is within the memory less the reserve), baseline_time_s (_low_s, _high_s), time_s, low_s,
    high_s, floor_time_s, slowdown, slowdown_low, slowdown_high, slowdown_floor_part +
    slowdown_bytes_part = slowdown, throughput_ratio (samples per second of all GPUs over those of one GPU),
    evidence (rank of the weakest step, or of the local look-up), main_evidence (rank of ``Evidence.main`` of
    the time), and <step>_time_s of every step.
    Limits: one GPU -> slowdown, low and high exactly 1
    """
    if not work.gpus.size // CHUNK:
        return cost_grid(basis, work).columns
    key = work.gpus.astype(np.uint32).astype(np.uint16)  # numpy sorts 16-bit integers by their digits: fast
    order = np.argsort(key, kind="stable")  # a chunk has few numbers of GPUs: few curves
    spans = [order[start : start + CHUNK] for start in range(0, work.gpus.size, CHUNK)]
    grids = _compute_chunks(work, spans, lambda chunk: cost_grid(basis, chunk).columns)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    names = dict.fromkeys(name for grid in grids for name in grid)
    columns: Columns = {}
    for name in names:  # a step that no configuration of a chunk has takes 0 s there
        parts = [grid.get(name, np.zeros(span.size)) for grid, span in zip(grids, spans, strict=True)]
        columns[name] = np.concatenate(parts).take(place)
    return columns


@dataclass(frozen=True, eq=False)
class CostedGrid:
    """Configurations with the costs from which their columns are computed.

    columns  of ``project_grid``;  base, cost  of the batch in local memory, and of the sharded pass
    memory   of a GPU
    """

    columns: Columns
    base: PassCost
    cost: PassCost
    memory: GpuMemory


@np.errstate(all="ignore")
def cost_grid(basis: PassBasis, work: Configs) -> CostedGrid:
    """Time and memory of each configuration, and how much slower it is than the same batch on one GPU.

    The evidence of a configuration is the weakest of its steps. Buffers are reported as they are sent,
    without what the allocator adds (``buffer_weight``).
    Limits: a value so extreme that a time is not finite -> BadInputError
    """
    loads = count_loads(basis, work, choose_exchanges(basis, work))
    base = cost_locally(basis, work)
    cost = cost_passes(build_times(basis, work), loads)
    base_low, _, base_high = bands.sum_band(*base.causes.values())
    memory = count_memory(basis, work, loads)
    floor = sum(step.timing.floor_s for step in cost.steps)
    columns = {
        "gpus": work.gpus,
        "gpus_needed": work.needed,
        "memory_bytes": memory.total_bytes,
        "buffer_bytes": memory.buffer_bytes / basis.buffer_weight,
        "fits": capacity.check_fits(memory.total_bytes, work.usable_bytes),
        "baseline_low_s": base_low,
        "baseline_high_s": base_high,
        "evidence": reduce(np.maximum, (step.timing.evidence for step in (*base.steps, *cost.steps))),
        "main_evidence": cost.main_evidence,
        **compare_with_local(cost.causes, base.causes, floor, work.gpus),
        **{f"{step.step.name}_time_s": step.timing.time_s for step in cost.steps},
    }
    for name in ("time_s", "slowdown"):
        if not np.isfinite(columns[name]).all():
            raise BadInputError(
                f"the {name.removesuffix('_s')} of this configuration is not a finite number.",
                "a value given with --set, or in the machine file, is too large or too small.",
            )
    return CostedGrid(columns, base, cost, memory)
