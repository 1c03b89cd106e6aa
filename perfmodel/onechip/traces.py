"""Which rows are looked up: drawn from popularities, or read from a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.onechip.popular import RowPopularity
from perfmodel.onechip.work import TableColumns
from perfmodel.schema.files import expected, first_line, read_csv_lines

Ints = NDArray[np.int64]

_WHAT = "trace file"
_COLUMNS = ("table", "sample", "row")
_MOST_SHUFFLED = 2**22
_MOST_SAMPLES = 2**24
_LARGEST = 2**63 - 1


@dataclass(frozen=True, eq=False)
class Trace:
    """Look-ups of a batch: for each table its ids, and where each bag begins.

    ids      of each table, [look-ups];  offsets  of each table, [samples + 1], from 0 to its look-ups
    """

    ids: tuple[Ints, ...]
    offsets: tuple[Ints, ...]

    @property
    def batch(self) -> int:
        """Samples."""
        return self.offsets[0].size - 1

    @property
    def look_ups(self) -> int:
        """Look-ups of all tables."""
        return sum(ids.size for ids in self.ids)

    def popularity(self, tables: TableColumns) -> list[RowPopularity]:
        """How often each row was asked for, as a distribution of each table.

        Limits: a table without look-ups -> uniform
        """
        found = []
        for ids, rows in zip(self.ids, tables.rows, strict=True):
            counts = np.unique(ids, return_counts=True)[1]
            if not counts.size:
                found.append(RowPopularity.uniform(float(rows)))
                continue
            times, alike = np.unique(counts, return_counts=True)
            p, many = times / ids.size, alike.astype(float)
            if rows > counts.size:
                p, many = np.append(p, 0.0), np.append(many, rows - counts.size)
            found.append(RowPopularity.of(p, many, float(rows)))
        return found


def draw(
    tables: TableColumns,
    batch: int,
    popularity: Sequence[RowPopularity] | None = None,
    seed: int = 0,
    *,
    scattered: bool = True,
) -> Trace:
    """Ids drawn independently; the same seed gives the same ids.

    scattered  popular rows are anywhere in the table; False: row 0 is the most popular one, and so on
    A bag has the whole part of the table's pooling look-ups, or one more so often that the mean is met.
    Limits: batch below 1 -> BadInputError
    """
    if batch < 1:
        raise BadInputError(f"a batch of {batch} samples has no work.", "give 1 or more.")
    random = np.random.default_rng(seed)
    popular = popularity or [RowPopularity.uniform(float(rows)) for rows in tables.rows]
    ids, offsets = [], []
    for one, rows, pooling in zip(popular, tables.rows, tables.pooling, strict=True):
        whole = int(np.floor(pooling))
        lengths = whole + (random.random(batch) < pooling - whole)
        offsets.append(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
        ranks = _ranks(one, int(offsets[-1][-1]), random)
        ids.append(_scattered(ranks, int(rows), random) if scattered else np.minimum(ranks, int(rows) - 1))
    return Trace(tuple(ids), tuple(offsets))


def _ranks(one: RowPopularity, count: int, random: np.random.Generator) -> Ints:
    """Ranks of ``count`` draws: a bin by its look-ups, and any of its rows."""
    ends = np.cumsum(one.p * one.rows)
    bins = np.minimum(np.searchsorted(ends, random.random(count) * ends[-1], side="right"), ends.size - 1)
    inside = np.floor(random.random(count) * one.rows[bins])
    return np.asarray(one.edges[bins] + inside, dtype=np.int64)


def _scattered(ranks: Ints, rows: int, random: np.random.Generator) -> Ints:
    """Row of each rank: any order for tables of a usual size, steps of a prime number for larger ones."""
    if rows <= _MOST_SHUFFLED:
        return np.asarray(random.permutation(rows)[np.minimum(ranks, rows - 1)], dtype=np.int64)
    step = int(0.618 * rows)
    while np.gcd(step, rows) != 1:
        step += 1
    return np.asarray(
        (np.minimum(ranks, rows - 1) * step + int(random.integers(rows))) % rows, dtype=np.int64
    )


def read_trace(path: Path, tables: TableColumns, names: Sequence[str]) -> Trace:
    """A user's trace: ``.npz`` with arrays ``NAME.ids`` and ``NAME.offsets``, or CSV with table, sample, row.

    Limits: a table that is not there, a row that it does not have, offsets that do not rise from 0 to the
            number of ids, tables of unequal numbers of samples -> BadInputError
    """
    held = _from_npz(path, names) if path.suffix.lower() == ".npz" else _from_csv(path, names)
    trace = Trace(tuple(ids for ids, _ in held), tuple(offsets for _, offsets in held))
    check_trace(trace, tables, names, f"{_WHAT} {path}")
    return trace


def check_trace(trace: Trace, tables: TableColumns, names: Sequence[str], where: str = "the trace") -> None:
    """Raises BadInputError unless every look-up is one of a row that there is, in bags of one batch."""
    for name, ids, offsets, rows in zip(names, trace.ids, trace.offsets, tables.rows, strict=True):
        bad = (ids < 0) | (ids >= rows)
        if bad.any():
            raise BadInputError(
                f"{where}: {int(bad.sum())} ids of table {name} are out of range, the first is "
                f"{int(ids[bad][0])}.",
                f"rows of {name} are 0 to {int(rows) - 1}.",
            )
        if offsets.size < 2 or offsets[0] != 0 or offsets[-1] != ids.size or (np.diff(offsets) < 0).any():
            raise BadInputError(
                f"{where}: the offsets of table {name} do not cut its {ids.size} ids into bags.",
                "offsets rise from 0 to the number of ids, one more than there are samples.",
            )
        if offsets.size != trace.batch + 1:
            raise BadInputError(
                f"{where}: table {name} has {offsets.size - 1} samples, {names[0]} has {trace.batch}.",
                "every table has one bag, empty or not, of every sample.",
            )


def _from_npz(path: Path, names: Sequence[str]) -> list[tuple[Ints, Ints]]:
    try:
        stored = np.load(path, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise ValueError("it is one array, not an archive of arrays")
        with stored:
            arrays = {key: stored[key] for key in stored.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        reason = first_line(str(error))
        raise BadInputError(f"{_WHAT} {path} cannot be read: {reason}.", expected(_WHAT)) from None
    missing = [
        f"{name}.{kind}" for name in names for kind in ("ids", "offsets") if f"{name}.{kind}" not in arrays
    ]
    if missing:
        raise BadInputError(f"{_WHAT} {path} has no array {missing[0]!r}.", expected(_WHAT))
    return [(_whole(arrays, f"{name}.ids", path), _whole(arrays, f"{name}.offsets", path)) for name in names]


def _whole(arrays: dict[str, Any], key: str, path: Path) -> Ints:
    found = arrays[key]
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise BadInputError(
            f"{_WHAT} {path}: {key} is {found.dtype} of {found.ndim} dimensions.",
            "it is a list of whole numbers.",
        )
    if found.size and int(found.max()) > _LARGEST:
        raise BadInputError(f"{_WHAT} {path}: {key} has {int(found.max())}.", f"at most {_LARGEST} is read.")
    return np.asarray(found, dtype=np.int64)


def _from_csv(path: Path, names: Sequence[str]) -> list[tuple[Ints, Ints]]:
    lines = read_csv_lines(path, _WHAT)
    header = [field.strip() for field in lines[0][1]]
    if sorted(header) != sorted(_COLUMNS):
        raise BadInputError(
            f"{_WHAT} {path} has the columns {', '.join(header)}.", f"they are {', '.join(_COLUMNS)}."
        )
    at = [header.index(column) for column in _COLUMNS]
    known = {name: index for index, name in enumerate(names)}
    found: list[list[tuple[int, int]]] = [[] for _ in names]
    for line, row in lines[1:]:
        try:
            table, sample, value = row[at[0]].strip(), int(row[at[1]]), int(row[at[2]])
        except (IndexError, ValueError):
            raise BadInputError(
                f"{_WHAT} {path}, line {line}: not a table, a sample and a row.", expected(_WHAT)
            ) from None
        if table not in known or sample < 0:
            raise BadInputError(
                f"{_WHAT} {path}, line {line}: table {table!r}, sample {sample}.",
                f"tables are {', '.join(names[:8])}{' …' if len(names) > 8 else ''}; samples are 0 or more.",
            )
        if sample >= _MOST_SAMPLES or abs(value) > _LARGEST:
            raise BadInputError(
                f"{_WHAT} {path}, line {line}: sample {sample}, row {value}.",
                f"at most {_MOST_SAMPLES} samples are read, counted from 0, and rows up to {_LARGEST}.",
            )
        found[known[table]].append((sample, value))
    batch = max((sample + 1 for pairs in found for sample, _ in pairs), default=0)
    return [_bags(pairs, batch) for pairs in found]


def _bags(pairs: list[tuple[int, int]], batch: int) -> tuple[Ints, Ints]:
    """Ids in the order of their samples, and where each sample begins."""
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    both = both[np.argsort(both[:, 0], kind="stable")]
    return both[:, 1], np.searchsorted(both[:, 0], np.arange(batch + 1)).astype(np.int64)
