"""The configurations of a question, checked: table sizes, batches, poolings and so on, as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.row_wise import Configs, TableGroup
from perfmodel.engine.tables import PlanTables, row_bytes
from perfmodel.errors import BadInputError
from perfmodel.model import capacity
from perfmodel.question.groups import RANGES
from perfmodel.schema.gate import MOST_GPUS
from perfmodel.schema.machine import Machine
from perfmodel.schema.workload import DTYPES, ID_DTYPE_BYTES, Distribution, TableSet, element_bytes
from perfmodel.units import format_bytes, format_count

Array = NDArray[np.float64]

DEFAULTS: dict[str, Any] = {
    "batch": 1024,
    "table_count": 1,
    "pooling": 32,
    "dim": 32,
    "dtype": "fp32",
    "id_bytes": 8,
}
"""The default configuration: one table, 1024 samples per GPU, 128-byte rows."""

DEFAULT_RESERVE = 0.15
"""Share of a GPU's memory for CUDA, NCCL and dense layers; the same as in TorchRec's planner."""

_WHOLE = ("gpus", "batch", "table_count", "dim")


def read_columns(values: Mapping[str, Any]) -> dict[str, Array]:
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
    return {name: np.atleast_1d(array).reshape(-1) for name, array in zip(arrays, spread, strict=True)}


def _read_numbers(name: str, value: Any) -> Array:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInputError(
            f"{name} {value!r:.60} is not a number.", "give a number or an array of them."
        ) from None
    if array.size == 0:
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


def _read_dtypes(value: Any) -> Array:
    """Places in ``DTYPES`` of a dtype name, an array of names, or a pandas column."""
    if isinstance(value, str):
        names, codes = [value], np.zeros((), dtype=np.intp)
    else:
        unique, codes = np.unique(np.asarray(value, dtype=str), return_inverse=True)
        names = list(unique)
    for name in names:
        element_bytes(name)  # raises if unknown
    return np.array([float(DTYPES.index(name)) for name in names])[codes]


def group_equal(
    values: Mapping[str, Any],
    machine: Machine,
    reserve: float,
    node: int,
    *,
    training: bool,
    ids: Distribution,
) -> Configs:
    """Configurations with equal tables; a missing table size or number of GPUs follows from the other."""
    a, needed, gpus, row = _find_sizes(values, machine, reserve, node, training=training)
    _check_fit(a["table_bytes"], gpus, needed, machine, reserve)
    _check_rows(a["table_bytes"] / (a["table_count"] * row), gpus, row)
    rows = np.maximum(a["table_bytes"] / (a["table_count"] * row), 1)
    group = TableGroup((ids,), a["table_count"], rows, a["dim"], a["pooling"], a["dtype"], np.zeros(()))
    filled = values.get("table_bytes") is None
    return Configs(a["table_bytes"], gpus, needed, a["batch"], a["id_bytes"], (group,), "gpus" in a, filled)


def _find_sizes(
    values: Mapping[str, Any], machine: Machine, reserve: float, node: int, *, training: bool
) -> tuple[dict[str, Array], Array, Array, Array]:
    """(values as arrays, with the table size; GPUs needed; GPUs used; bytes of a row)."""
    a = read_columns({**DEFAULTS, **{k: v for k, v in values.items() if v is not None}})
    usable = _check_usable(machine, reserve)
    if "table_bytes" not in a:
        if "gpus" not in a:
            raise BadInputError(
                "neither a table size nor a number of GPUs is given.", "give --table-size or --gpus."
            )
        a["table_bytes"] = a["gpus"] * usable
    with np.errstate(all="ignore"):  # overflow is refused by name: too many GPUs, too few rows
        needed = capacity.gpus_needed(a["table_bytes"], machine.value("hbm_bytes"), reserve)
        gpus = a["gpus"] if "gpus" in a else capacity.whole_nodes(needed, np.float64(node))
    return a, needed, gpus, row_bytes(a["dtype"], a["dim"], training=training)


def group_set(
    tables: TableSet,
    values: Mapping[str, Any],
    machine: Machine,
    reserve: float,
    node: int,
    *,
    training: bool,
    ids: Distribution,
) -> Configs:
    """Configurations of a set of different tables: only batch, ids and GPUs vary.

    ids  distribution of the ids of tables that name none
    """
    free = {name: values.get(name) for name in ("batch", "gpus", "id_bytes")}
    fixed = [
        n for n in ("table_bytes", "table_count", "dim", "pooling", "dtype") if values.get(n) is not None
    ]
    if fixed:
        raise BadInputError(
            f"{fixed[0]} is given beside the table set {tables.name}, which has its own.",
            "leave one of them out.",
        )
    defaults = {name: DEFAULTS[name] for name in ("batch", "id_bytes")}
    a = read_columns({**defaults, **{k: v for k, v in free.items() if v is not None}})
    table_bytes = _sum_bytes(tables, training)
    total = np.full(a["batch"].shape, table_bytes)
    with np.errstate(all="ignore"):
        needed = capacity.gpus_needed(total, machine.value("hbm_bytes"), reserve)
        gpus = a["gpus"] if "gpus" in a else capacity.whole_nodes(needed, np.float64(node))
    _check_fit(total, gpus, needed, machine, reserve)
    return Configs(total, gpus, needed, a["batch"], a["id_bytes"], _group_tables(tables, ids), "gpus" in a)


@lru_cache(maxsize=8)
def _sum_bytes(tables: TableSet, training: bool) -> float:
    return float(PlanTables.of(tables).count_bytes(training=training).sum())


@lru_cache(maxsize=8)
def _group_tables(tables: TableSet, ids: Distribution) -> tuple[TableGroup, ...]:
    """The set as groups of equal tables. It is kept: a what-if asks of the same tables again."""
    laws = list(dict.fromkeys(t.distribution or ids for t in tables.tables))
    kinds = Counter(
        (t.rows, t.dim, t.pooling, DTYPES.index(t.dtype), t.weight_bytes, laws.index(t.distribution or ids))
        for t in tables.tables
    )
    return tuple(
        TableGroup((laws[law],), *(np.asarray(x, dtype=np.float64) for x in (count, *numbers)))
        for (*numbers, law), count in sorted(kinds.items())
    )


def _check_usable(machine: Machine, reserve: float) -> float:
    if not 0 <= reserve < 1:
        raise BadInputError(
            f"reserve {reserve:g} cannot be used.", "it is a fraction of the memory: 0 <= reserve < 1."
        )
    return float(capacity.usable_bytes(machine.value("hbm_bytes"), reserve))


class TooFewGpusError(BadInputError):
    """Raised if the rows alone exceed the memory of the GPUs."""


def _check_fit(table_bytes: Array, gpus: Array, needed: Array, machine: Machine, reserve: float) -> None:
    """Refuse rows that no memory holds; missing memory for exchanges or the reserve is reported later."""
    usable, hbm = _check_usable(machine, reserve), machine.value("hbm_bytes")
    if (needed > MOST_GPUS).any():
        place = int(np.argmax(needed > MOST_GPUS))
        all_bytes, room = (format_bytes(x, binary=False) for x in (table_bytes.flat[place], usable))
        raise BadInputError(
            f"{all_bytes} of tables need {needed.flat[place]:.3g} GPUs of {room}.",
            f"this model describes at most {MOST_GPUS} GPUs: a smaller --table-size, or more hbm_bytes.",
        )
    small = gpus < capacity.gpus_needed(table_bytes, hbm, 0.0)
    if small.any():
        place = int(np.argmax(small))
        size, count = table_bytes.flat[place], gpus.flat[place]
        all_bytes, share, room, held, all_ = (
            format_bytes(x, binary=False) for x in (size, size / count, usable, usable * count, hbm)
        )
        raise TooFewGpusError(
            f"{all_bytes} of tables over {count:.0f} GPUs is {share} of rows each, above the {room} of "
            f"{all_} that tables may use.",
            f"the rows alone need {needed.flat[place]:.0f} GPUs; {count:.0f} have room for {held} of rows.",
        )


def _check_rows(rows: Array, gpus: Array, row_bytes: Array) -> None:
    if (rows < 1).any():
        place = int(np.argmax(rows < 1))
        raise BadInputError(
            f"{format_bytes(rows.flat[place] * row_bytes.flat[place], binary=False)} is less than one row of "
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
        larger = next((count for count in range(gpus + 1, 2 * gpus + 1) if total % count == 0), None)
        raise BadInputError(
            f"--set global_batch {total} is no whole number for each of {format_count(gpus)} GPUs.",
            f"the nearest: {' or '.join(map(str, near))}" + (f"; or --gpus {larger}." if larger else "."),
        )
    return total // gpus


Columns = dict[str, NDArray[Any]]


def combine_axes(**axes: Iterable[float]) -> Columns:
    """All combinations of the axes, the last varying fastest; one flat array per axis.

    Limits: one value per axis -> one configuration; sizes 2 and 3 -> 6 configurations
    """
    values = [np.asarray(list(axis), dtype=np.float64) for axis in axes.values()]
    mesh = np.meshgrid(*values, indexing="ij")
    return {name: a.reshape(-1) for name, a in zip(axes, mesh, strict=True)}


def find_feasible(
    columns: Columns,
    machine: Machine,
    reserve: float = DEFAULT_RESERVE,
    gpus_per_node: int | None = None,
    *,
    training: bool = False,
    **values: Any,
) -> NDArray[np.bool_]:
    """Which points of a grid are feasible: rows fit the memory, and every GPU gets a row of each table.

    training  whether the rows are those of a training pass;  values  fixed values of the grid (dtype, ...)
    Limits: 10 TB on 64 GPUs of 80 GB -> False, on 128 -> True;  values that are never valid -> BadInputError
    """
    node = gpus_per_node or machine.gpus_per_node
    a, needed, gpus, row = _find_sizes({**values, **columns}, machine, reserve, node, training=training)
    rows = a["table_bytes"] / (a["table_count"] * row)
    fewest = capacity.gpus_needed(a["table_bytes"], machine.value("hbm_bytes"), 0.0)
    return np.asarray((gpus >= fewest) & (needed <= MOST_GPUS) & (rows >= np.maximum(gpus, 1)))


def list_paper_1(gpus: Iterable[float] = (1, 2, 4, 8)) -> Columns:
    """Grid 1 of arXiv 2512.05831: one table; 192 points with the paper's own GPU counts.

    Source: arXiv 2512.05831, evaluation: T = 1, B 128-1024, D 32-256, L 4-16, G 1-8
    """
    return combine_axes(
        gpus=gpus, table_count=(1,), batch=(128, 256, 512, 1024), dim=(32, 64, 128, 256), pooling=(4, 8, 16)
    )


def list_paper_2(gpus: Iterable[float] = (1, 2, 4, 8)) -> Columns:
    """Grid 2 of arXiv 2512.05831: many tables; 168 points with the paper's own GPU counts.

    Source: arXiv 2512.05831, evaluation: T 1-64, B 128-4096, L = 32, D 32 or 128, G 1-8
    """
    return combine_axes(
        gpus=gpus, table_count=(1, 2, 4, 8, 16, 32, 64), batch=(128, 1024, 4096), dim=(32, 128), pooling=(32,)
    )


GRIDS: dict[str, Callable[..., Columns]] = {"paper-1": list_paper_1, "paper-2": list_paper_2}
"""Presets of ``perfmodel sweep --grid``."""
