"""The configurations of a question, checked, as arrays; why so many GPUs, and what memory each needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.basis import PassBasis
from perfmodel.engine.grid import Configs, TableKinds, count_memory
from perfmodel.engine.memory import GpuMemory
from perfmodel.engine.tables import PlanTables, collect_laws, row_bytes
from perfmodel.errors import BadInputError
from perfmodel.model import capacity
from perfmodel.question.groups import RANGES
from perfmodel.schema.gate import MOST_GPUS
from perfmodel.schema.workload import DTYPES, ID_DTYPE_BYTES, Distribution, TableSet, element_bytes
from perfmodel.units import counted, format_bytes, format_count

Array = NDArray[np.float64]
write = partial(format_bytes, binary=False)

DEFAULTS: dict[str, Any]
DEFAULTS = {"batch": 1024, "table_count": 1, "pooling": 32, "dim": 32, "dtype": "fp32", "id_bytes": 8}
"""The default configuration: one table, 1024 samples per GPU, 128-byte rows."""

DEFAULT_RESERVE = 0.15
"""Share of a GPU's memory for CUDA, NCCL and dense layers; the same as in TorchRec's planner."""

_WHOLE = ("gpus", "batch", "table_count", "dim")


def read_columns(values: Mapping[str, object]) -> dict[str, Array]:
    """The given values as one-dimensional arrays of one length, each finite and above 0.

    Limits: shapes that do not broadcast, 0, negative, NaN, fractions where whole -> BadInputError
    """
    values_given = {name: value for name, value in values.items() if value is not None}
    arrays = {
        name: _read_dtypes(value) if name == "dtype" else _read_numbers(name, value)
        for name, value in values_given.items()
    }
    try:
        spread = np.broadcast_arrays(*arrays.values())
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items() if array.ndim)
        raise BadInputError(
            f"the values given do not combine: {shapes}.", "give single values, or arrays of one length."
        ) from None
    return {name: np.atleast_1d(array).ravel() for name, array in zip(arrays, spread, strict=True)}


def _read_numbers(name: str, value: object) -> Array:
    """The values of a column of this name as an array of any shape. Limits: as ``read_columns``"""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInputError(
            f"{name} {value!r:.60} is not a number.", "give a number or an array of them."
        ) from None
    if not array.size:
        raise BadInputError(f"{name} is empty.", "give at least one value.")
    bad = ~np.isfinite(array) | (array <= 0)
    if name in _WHOLE:
        bad |= array != np.floor(array)
    if name == "id_bytes":
        bad |= ~np.isin(array, list(ID_DTYPE_BYTES.values()))
    low, high = RANGES.get(name, (0.0, np.inf))
    bad |= (array < low) | (array > high)
    if bad.any():
        kind = f"{'a whole number' if name in _WHOLE else 'a number'} above 0"
        wanted = f"{kind}, at least {low:g}" if low else kind
        wanted = f"{wanted}, at most {high:.15g}" if name in RANGES else wanted
        wanted = "4 or 8" if name == "id_bytes" else wanted
        raise BadInputError(f"{name} {array[bad].flat[0]:.15g} cannot be used.", f"it must be {wanted}.")
    return array


def _read_dtypes(value: object) -> Array:
    """A dtype name, an array of names, or a pandas column, as places in ``DTYPES``."""
    if isinstance(value, str):
        names, codes = [value], np.zeros((), dtype=np.intp)
    else:
        unique, codes = np.unique(np.asarray(value, dtype=str), return_inverse=True)
        names = unique.tolist()
    for name in names:
        element_bytes(name)  # raises if unknown
    return np.array([float(DTYPES.index(name)) for name in names])[codes]


@dataclass(frozen=True, eq=False)
class Room:
    """Memory for rows, from which the number of GPUs follows.

    hbm_bytes  of one GPU, or what stands for it;  reserve  share of it that tables may not use [-]
    node  GPUs of a node, in which GPUs are handed out;  training  whether rows are those of a training pass
    usable_bytes  memory of one GPU that tables may use
    Limits: a reserve below 0, or of 1 and more -> BadInputError
    """

    hbm_bytes: float
    reserve: float
    node: int
    training: bool
    usable_bytes: float = field(init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.reserve < 1:
            raise BadInputError(
                f"reserve {self.reserve:g} cannot be used.",
                "it is a fraction of the memory: 0 <= reserve < 1.",
            )
        usable = float(capacity.usable_bytes(self.hbm_bytes, self.reserve))
        object.__setattr__(self, "usable_bytes", usable)

    def count_gpus(self, table_bytes: Array, given: Array | None) -> tuple[Array, Array]:
        """(fewest GPUs whose memory holds the rows, GPUs that are used). given  by the user"""
        with np.errstate(all="ignore"):  # overflow is refused by name: too many GPUs, too few rows
            needed = capacity.gpus_needed(table_bytes, self.hbm_bytes, self.reserve)
            return needed, capacity.round_to_nodes(needed, float(self.node)) if given is None else given


def group_equal(values: Mapping[str, object], room: Room, ids: Distribution) -> Configs:
    """Configurations with equal tables; a missing table size or number of GPUs follows from the other.

    values  numbers or arrays by the names of ``question.COLUMNS``;  ids  distribution of the ids
    """
    a, needed, gpus, row = find_sizes(values, room)
    _check_fit(a["table_bytes"], gpus, needed, room)
    rows = a["table_bytes"] / (a["table_count"] * row)
    _check_rows(rows, gpus, row)
    columns = {"count": a["table_count"], "rows": rows, "dim": a["dim"]}
    columns |= {"dtype": a["dtype"], "pooling": a["pooling"], "features": np.ones(1)}
    columns |= {"weight_bytes": np.zeros(1), "buckets": np.zeros(1)}
    # A column with one value for all configurations, whose stride is 0, is [1, 1]; others are [1, C].
    kinds: dict[str, Any]
    kinds = {name: x[np.newaxis] if x.strides[0] else x[np.newaxis, :1] for name, x in columns.items()}
    laws, law = collect_laws([ids])
    tables = TableKinds(**kinds, laws=laws, law=law)
    filled = values.get("table_bytes") is None
    return Configs(a["table_bytes"], gpus, needed, a["batch"], a["id_bytes"], tables, "gpus" in a, filled)


def find_sizes(values: Mapping[str, object], room: Room) -> tuple[dict[str, Array], Array, Array, Array]:
    """(values as arrays [C] by name, with the table size; GPUs needed; GPUs used; bytes of a row).

    values  numbers or arrays by the names of ``question.COLUMNS``; those that are missing have defaults
    """
    a = read_columns({**DEFAULTS, **{k: v for k, v in values.items() if v is not None}})
    if "table_bytes" not in a:
        if "gpus" not in a:
            raise BadInputError(
                "neither a table size nor a number of GPUs is given.", "give --table-size or --gpus."
            )
        a["table_bytes"] = a["gpus"] * room.usable_bytes
    counts = room.count_gpus(a["table_bytes"], a.get("gpus"))
    return a, *counts, row_bytes(a["dtype"], a["dim"], training=room.training)


def group_set(tables: TableSet, values: Mapping[str, object], room: Room, ids: Distribution) -> Configs:
    """Configurations of a set of different tables: only batch, ids and GPUs vary.

    values  numbers or arrays by the names of ``question.COLUMNS``;  ids  of tables that name no distribution
    """
    names = ("table_bytes", "table_count", "dim", "pooling", "dtype")
    if fixed := [name for name in names if values.get(name) is not None]:
        raise BadInputError(
            f"{fixed[0]} is given beside the table set {tables.name}, which has its own.",
            "leave one of them out.",
        )
    filled = DEFAULTS | {name: value for name, value in values.items() if value is not None}
    a = read_columns({name: filled.get(name) for name in ("batch", "gpus", "id_bytes")})
    total = np.full(a["batch"].shape, _sum_bytes(tables, room.training))
    needed, gpus = room.count_gpus(total, a.get("gpus"))
    _check_fit(total, gpus, needed, room)
    return Configs(total, gpus, needed, a["batch"], a["id_bytes"], _list_kinds(tables, ids), "gpus" in a)


@lru_cache(maxsize=8)
def _sum_bytes(tables: TableSet, training: bool) -> float:
    """Bytes of all rows of a set. training  as in ``Room``"""
    return float(PlanTables.of(tables).count_bytes(training=training).sum())


@lru_cache(maxsize=8)
def _list_kinds(tables: TableSet, ids: Distribution) -> TableKinds:
    """The kinds of equal tables of a set. They are kept: a what-if asks of the same tables again."""
    laws, law = collect_laws([table.distribution or ids for table in tables.tables])
    names_of: dict[tuple[float, ...], list[str]] = {}
    for t, place in zip(tables.tables, law.tolist(), strict=True):
        kind = t.rows, t.dim, t.pooling, DTYPES.index(t.dtype), t.weight_bytes, t.features, t.buckets, place
        names_of.setdefault(kind, []).append(t.name)
    kinds = sorted(names_of)
    columns = np.array([(len(names_of[kind]), *kind) for kind in kinds], dtype=np.float64).T
    names = "count", "rows", "dim", "pooling", "dtype", "weight_bytes", "features", "buckets"
    numbers = dict(zip(names, columns[:-1, :, np.newaxis], strict=True))
    of_tables = tuple(name for kind in kinds for name in names_of[kind])
    return TableKinds(**numbers, laws=laws, law=columns[-1].astype(np.int64), names=of_tables)


class TooFewGpusError(BadInputError):
    """Raised if the rows alone exceed the memory of the GPUs."""


def _check_fit(table_bytes: Array, gpus: Array, needed: Array, room: Room) -> None:
    """Refuse rows that no memory holds; missing memory for exchanges or the reserve is reported later."""
    usable, hbm = room.usable_bytes, room.hbm_bytes
    many = needed > MOST_GPUS
    if many.any():
        place = int(np.argmax(many))
        raise BadInputError(
            f"{write(table_bytes.flat[place])} of tables need {needed.flat[place]:.3g} GPUs of "
            f"{write(usable)}.",
            f"this model describes at most {MOST_GPUS} GPUs: a smaller --table-size, or more hbm_bytes.",
        )
    small = gpus < capacity.gpus_needed(table_bytes, hbm, 0.0)
    if small.any():
        place = int(np.argmax(small))
        size, count = table_bytes.flat[place], gpus.flat[place]
        raise TooFewGpusError(
            f"{write(size)} of tables over {counted(int(count), 'GPU')} is {write(size / count)} of rows "
            f"each, above the {write(usable)} of {write(hbm)} that tables may use.",
            f"the rows alone need {needed.flat[place]:.0f} GPUs; {count:.0f} have room for "
            f"{write(usable * count)} of rows.",
        )


def _check_rows(rows: Array, gpus: Array, row_bytes: Array) -> None:
    """Refuse tables of less than a row, or of fewer rows than GPUs. rows  of each table, not rounded"""
    empty = rows < 1
    if empty.any():
        place = int(np.argmax(empty))
        raise BadInputError(
            f"{write(rows.flat[place] * row_bytes.flat[place])} is less than one row of "
            f"{row_bytes.flat[place]:.0f} bytes in each table.",
            "a number without a unit is bytes: give a size like 10GB or 10TB (--table-size).",
        )
    few = gpus > rows
    if few.any():
        place = int(np.argmax(few))
        raise BadInputError(
            f"a table of {rows.flat[place]:.6g} rows of {row_bytes.flat[place]:.0f} bytes "
            f"cannot be cut into {gpus.flat[place]:.0f} row shards.",
            "use fewer GPUs or tables, a larger --table-size, or shorter rows.",
        )


def share_equally(total: int, gpus: int) -> int:
    """How many of ``total`` samples each GPU gets.

    Limits: it cannot be divided equally -> BadInputError with the nearest divisible numbers, and more GPUs
    """
    if total % gpus:
        near = sorted({max(total // gpus, 1) * gpus, (total // gpus + 1) * gpus})
        larger = next((count for count in range(gpus, 2 * gpus) if not total % count), None)
        raise BadInputError(
            f"--set global_batch {total} is no whole number for each of {format_count(gpus)} GPUs.",
            f"the nearest: {' or '.join(map(str, near))}" + (f"; or --gpus {larger}." if larger else "."),
        )
    return total // gpus


GIVEN = "given"  # the rule of a number of GPUs that the user gave
_MANY = 1000  # numbers from here on are printed with grouped digits: 1 250, not 1.25e+03


@dataclass(frozen=True)
class GpuCount:
    """How the number of GPUs was determined, and whether what one GPU then holds ``fits``; sizes in bytes.

    gpus, needed     GPUs of the job, and the fewest that can hold row-wise parts and exchange buffers
    rule             why ``gpus`` is used for ``needed``, in words: given, fits one GPU, whole nodes of 8
    table_bytes, state_bytes    rows, and optimizer state, of all tables;  shard_bytes  table_bytes / gpus
    hbm_bytes, usable_bytes     HBM of one GPU; the part for tables, if a share ``reserve`` stays free
    rows_bytes, optimizer_bytes, buffer_bytes   on one GPU: rows (parts and replicas), their optimizer state,
        buffers of the largest exchange
    """

    gpus: int
    needed: int  # fewer GPUs may do for another sharding
    rule: str
    table_bytes: float
    hbm_bytes: float
    usable_bytes: float
    reserve: float
    gpus_per_node: int
    shard_bytes: float
    rows_bytes: float = 0.0
    optimizer_bytes: float = 0.0
    state_bytes: float = 0.0
    buffer_bytes: float = 0.0
    fits: bool = True  # whether all that one GPU holds is within the usable memory

    @property
    def memory_bytes(self) -> float:
        """Memory that a GPU needs [bytes]."""
        return self.rows_bytes + self.optimizer_bytes + self.buffer_bytes

    @property
    def for_rows(self) -> int:
        """GPUs that the rows and the optimizer state alone need: no sharding fits fewer."""
        return int(capacity.gpus_needed(self.table_bytes + self.state_bytes, self.usable_bytes, 0.0))

    def describe_memory(self, form: str = "{}: {}") -> str:
        """``66.3 GB of a GPU's 68 GB: rows 65.8 GB, exchange buffers 541 MB``. form  joins sum and parts"""
        named = [("rows", self.rows_bytes), ("optimizer state", self.optimizer_bytes)]
        named += [("exchange buffers", self.buffer_bytes)]
        texts = [f"{name} {write(size)}" for name, size in named if size]
        parts = ", ".join(texts) or "no rows, no buffers"
        return form.format(f"{write(self.memory_bytes)} of a GPU's {write(self.usable_bytes)}", parts)

    def __str__(self) -> str:
        """How the number follows: ``10 TB ÷ 68 GB = 147.1  →  152 (whole nodes of 8)``"""
        room = self.usable_bytes
        size, usable = write(self.table_bytes), write(self.usable_bytes)
        if self.state_bytes:
            size = f"({size} + {write(self.state_bytes)} of optimizer state)"
        alone = capacity.round_to_nodes(self.for_rows, self.gpus_per_node)
        if self.fits and alone < self.gpus:
            room -= self.buffer_bytes
            usable = f"({usable} − {write(self.buffer_bytes)} of buffers)"
        ratio = (self.table_bytes + self.state_bytes) / room
        if self.rule == GIVEN:
            fewest = format_count(self.for_rows)
            return f"{size} over {counted(self.gpus, 'GPU')} as given (the rows alone need {fewest})"
        if self.gpus == 1:
            return f"{size} ÷ {usable} = {ratio:.3g}  →  1 ({self.rule})"
        times = format_count(ratio) if ratio >= _MANY else f"{ratio:.4g}"
        return f"{size} ÷ {usable} = {times}  →  {format_count(self.gpus)} ({self.rule})"


def count_gpus(
    basis: PassBasis, work: Configs, reserve: float, memory: GpuMemory, place: int = 0
) -> GpuCount:
    """How the number of GPUs of one configuration was determined, and what each holds, sharded row-wise.

    memory  of a GPU of several configurations, of which this one has a place
    """
    machine = basis.setting.machine
    gpus, needed = int(work.gpus[0]), int(work.needed[0])
    node = basis.gpus_per_node or machine.gpus_per_node
    hbm = basis.room_bytes
    alone = "fits one GPU" if gpus == 1 else "inside one node"
    # A number that was given is kept even where it does not fit: the answer then says so.
    rule = GIVEN if work.given_gpus else alone if gpus <= node else f"whole nodes of {node}"
    size = float(work.table_bytes[0])
    per_element, per_row = basis.state
    tables = work.tables
    every = float((tables.count * tables.rows * (tables.dim * per_element + per_row)).sum())
    return GpuCount(
        gpus=gpus,
        needed=needed,
        rule=rule,
        table_bytes=size,
        hbm_bytes=hbm,
        usable_bytes=work.usable_bytes,
        reserve=reserve,
        gpus_per_node=node,
        shard_bytes=size / gpus,
        rows_bytes=float(memory.rows_bytes[place]),
        optimizer_bytes=float(memory.optimizer_bytes[place]),
        state_bytes=every,
        buffer_bytes=float(memory.buffer_bytes[place] / basis.buffer_weight),
        fits=bool(capacity.check_fits(float(memory.total_bytes[place]), work.usable_bytes)),
    )


def explain_too_much(count: GpuCount, basis: PassBasis, work: Configs) -> Iterator[str]:
    """A line that says what does not fit one GPU, and what would; none if all fits."""
    if count.fits:
        return
    # Buffers grow with the batch: a batch that is smaller by this ratio would leave them room.
    room = count.usable_bytes - (count.memory_bytes - count.buffer_bytes)
    buffers = count.buffer_bytes * basis.buffer_weight
    batches = [int(work.batch[0] * room / buffers)] if buffers else []
    larger = replace(work, gpus=work.needed)
    enough = capacity.check_fits(count_memory(basis, larger).total_bytes[0], work.usable_bytes)
    ways = [f"{counted(count.needed, 'GPU')} or more"] if enough else []
    ways += [f"a batch of at most {format_count(batch)}" for batch in batches if batch > 0]
    without_reserve = capacity.check_fits(count.memory_bytes, count.hbm_bytes)
    ways += ["--set reserve=0"] if without_reserve and count.reserve else []
    instead = f"; it would with {' or '.join(ways)}" if ways else ""
    yield f"this does not fit: {count.describe_memory()}{instead}"
