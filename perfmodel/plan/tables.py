"""The tables of a plan as arrays, one element a table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import BadInputError
from perfmodel.model import access
from perfmodel.schema.workload import DTYPE_BYTES, TableSet, load_tables

Array = NDArray[np.float64]

_BINS_PER_OCTAVE = 64


@dataclass(frozen=True, eq=False)
class PlanTables:
    """T tables: arrays of shape [T].

    names          of the tables, all different
    rows           E [rows]
    dim            D, elements of a row [-]
    element_bytes  w, bytes of a stored element [bytes]
    pooling        L, rows summed for one sample [-]
    alpha          exponent of Zipf's law of the ids [-]; 0: uniform
    Limits: no table, or two of one name -> BadInputError
    """

    model: str
    names: tuple[str, ...]
    rows: Array
    dim: Array
    element_bytes: Array
    pooling: Array
    alpha: Array

    def __len__(self) -> int:
        return len(self.names)

    @staticmethod
    def of(tables: TableSet, alpha: ArrayLike = 0.0) -> PlanTables:
        """The tables of a set; ``alpha`` is one exponent for all, or one for each.

        Limits: negative or infinite alpha, names that repeat -> BadInputError
        """
        names = tuple(table.name for table in tables.tables)
        if not names:
            raise BadInputError(f"{tables.name} has no tables.", "give at least one.")
        if len(set(names)) < len(names):
            twice = next(name for at, name in enumerate(names) if name in names[:at])
            raise BadInputError(
                f"{tables.name} has two tables of the name {twice!r}.",
                "a plan names its tables: give each its own name.",
            )
        return PlanTables(
            tables.name,
            names,
            _column(table.rows for table in tables.tables),
            _column(table.dim for table in tables.tables),
            _column(DTYPE_BYTES[table.dtype] for table in tables.tables),
            _column(table.pooling for table in tables.tables),
            _exponents(alpha, len(names)),
        )

    @staticmethod
    def load(name_or_path: str | Path, alpha: ArrayLike = 0.0) -> PlanTables:
        """A shipped table set by name, or a file (``schema.workload.read_tables``)."""
        return PlanTables.of(load_tables(name_or_path), alpha)

    @property
    def total_bytes(self) -> float:
        """Bytes of all tables."""
        return float(np.sum(self.rows * self.dim * self.element_bytes))

    @property
    def fingerprint(self) -> str:
        """The same for the same tables in the same order, and for no others; ids and batch do not count."""
        text = "\n".join(
            f"{name}\t{rows:.0f}\t{dim:.0f}\t{width:.0f}"
            for name, rows, dim, width in zip(
                self.names, self.rows, self.dim, self.element_bytes, strict=True
            )
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def unique_rows(self, samples: float) -> Array:
        """U, distinct rows among the look-ups of ``samples`` samples in each table [rows], shape [T].

        Source: ``access.unique_rows_uniform`` where alpha is 0, else ``access.unique_rows_zipf``
        Limits: never more than the rows of the table, nor than the look-ups
        """
        lookups = samples * self.pooling
        unique = access.unique_rows_uniform(self.rows, lookups)
        for at in np.flatnonzero(self.alpha > 0):
            unique[at] = access.unique_rows_zipf(
                float(self.rows[at]), lookups[at], float(self.alpha[at]), _BINS_PER_OCTAVE
            )
        return np.minimum(unique, np.minimum(self.rows, lookups))


def _column(values: Iterable[float]) -> Array:
    return np.fromiter(values, dtype=np.float64)


def _exponents(alpha: ArrayLike, count: int) -> Array:
    given = np.asarray(alpha, dtype=np.float64)
    if given.shape not in ((), (count,)):
        raise BadInputError(
            f"{given.size} exponents of skew are given for {count} tables.",
            "give one, or one for each table.",
        )
    bad = ~(np.isfinite(given) & (given >= 0))
    if bad.any():
        raise BadInputError(
            f"skew {given[bad].flat[0]:g} cannot be used.", "it is an exponent: 0 (uniform ids) or more."
        )
    return np.array(np.broadcast_to(given, (count,)))
