"""The tables of a plan as arrays, one element per table."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import BadInputError
from perfmodel.model import access, capacity
from perfmodel.model.popularity import build_popularity
from perfmodel.schema.priors import load_kernel_constants
from perfmodel.schema.table_files import load_tables
from perfmodel.schema.workload import DTYPE_BYTES, DTYPES, UNIFORM, WEIGHT_BYTES, Distribution, TableSet
from perfmodel.units import counted

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


SHAPE = "rows", "dim", "dtype", "pooling", "weight_bytes", "features", "buckets"
"""Fields of ``TableShapes`` that hold a number for each table."""


@dataclass(frozen=True, eq=False)
class TableShapes:
    """What the equations of loads need to know of T tables: arrays of shape [T].

    rows           E [rows]
    dim            D, elements of a row [-]
    dtype          type of an element, as its place in ``DTYPES``
    pooling        L, rows summed for one sample [-]
    weight_bytes   bytes of the weight that comes with an id; 0 if bags are not weighted [bytes]
    features       that look rows up in the table, each with a bag of its own for each sample [-]
    buckets        of rows, which stay together; 0: rows are cut anywhere [-]
    laws, law      the different distributions of look-ups over rows; each table's index among them
    """

    rows: Array
    dim: Array
    dtype: Array
    pooling: Array
    weight_bytes: Array
    features: Array
    buckets: Array
    laws: tuple[Distribution, ...]
    law: Ints

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> dict[str, Array]:
        """The fields ``SHAPE`` by name, each [T]."""
        return {name: getattr(self, name) for name in SHAPE}

    @property
    def element_bytes(self) -> Array:
        """Bytes of an element, without what else a row has [bytes], shape [T]."""
        return np.asarray(WIDTHS[self.dtype.astype(np.int64)])

    def count_unique(self, samples: float | Array) -> Array:
        """U, distinct rows among the look-ups of ``samples`` samples in each table [rows], shape [T].

        Source: ``access.count_unique_uniform``; of skewed ids ``access.count_unique_rows``
        Limits: never more than the rows of the table, nor than the look-ups
        """
        lookups = samples * self.features * self.pooling
        unique = access.count_unique_uniform(self.rows, lookups)
        skewed = np.array([not law.uniform for law in self.laws])[self.law]
        for table in np.flatnonzero(skewed).tolist():
            ids = self.laws[self.law[table]]
            unique[table] = build_popularity(ids, float(self.rows[table])).unique(
                float(lookups[table]), slice(None)
            )
        return np.minimum(unique, np.minimum(self.rows, lookups))


@dataclass(frozen=True, eq=False)
class PlanTables(TableShapes):
    """The tables of a plan, with their names.

    model  name of the set of tables;  names  of its tables, all different
    apart  a number per table: equal tables may be swapped only if their numbers are equal; None: always
    Limits: no table, or two of one name -> BadInputError
    """

    model: str
    names: tuple[str, ...]
    apart: Array | None = None

    @staticmethod
    def of(tables: TableSet, ids: Distribution | Sequence[Distribution] = UNIFORM) -> PlanTables:
        """The tables of a set as arrays.

        ids  distribution of ids: one for the tables that specify none, or a list, one per table, which
             overrides
        Limits: fewer or more distributions than tables -> BadInputError
        """
        if not tables.tables:
            raise BadInputError(f"{tables.name} has no tables.", "give at least one.")
        if isinstance(ids, Distribution):
            ids = [table.distribution or ids for table in tables.tables]
        if len(ids) != len(tables.tables):
            raise BadInputError(
                f"{counted(len(ids), 'distribution')} of ids for {counted(len(tables.tables), 'table')}.",
                "give one, or one for each table.",
            )
        shapes = [
            (t.rows, t.dim, DTYPES.index(t.dtype), t.pooling, t.weight_bytes, t.features, t.buckets)
            for t in tables.tables
        ]
        names = tuple(table.name for table in tables.tables)
        columns = dict(zip(SHAPE, np.array(shapes, dtype=np.float64).T.copy(), strict=True))
        laws, law = collect_laws(ids)
        return PlanTables(**columns, laws=laws, law=law, model=tables.name, names=names)

    @staticmethod
    def load(
        name_or_path: str | Path | TableSet, ids: Distribution | Sequence[Distribution] = UNIFORM
    ) -> PlanTables:
        """The tables of a set: an object, a shipped name or a path. ids  as in ``of``"""
        return PlanTables.of(load_tables(name_or_path), ids)

    def replace_ids(self, ids: Sequence[Distribution]) -> PlanTables:
        """The same tables with other distributions of ids."""
        laws, law = collect_laws(ids)
        return replace(self, laws=laws, law=law)

    @cached_property
    def ids(self) -> tuple[Distribution, ...]:
        """The distribution of ids of each table."""
        return tuple(self.laws[number] for number in self.law.tolist())

    def add_weights(self) -> PlanTables:
        """The same tables, all with a weight per id if any has one: it is 1 where bags were not weighted."""
        if self.weight_bytes.all() or not self.weight_bytes.any():
            return self
        return replace(self, weight_bytes=np.full(len(self), float(WEIGHT_BYTES)))

    def count_bytes(self, *, training: bool) -> Array:
        """Bytes of each table's rows in HBM [T]. training  as in ``row_bytes``"""
        return self.rows * row_bytes(self.dtype, self.dim, training=training)

    @property
    def total_bytes(self) -> float:
        """Bytes of all tables in a forward pass."""
        return float(np.sum(self.count_bytes(training=False)))

    @property
    def distribution(self) -> str | list[str]:
        """Name of the distribution of ids: one for all tables, or a list with one per table."""
        names = [law.name for law in self.ids]
        different = set(names)
        return different.pop() if len(different) == 1 else names

    @cached_property
    def kinds(self) -> tuple[Ints, Ints, Ints]:
        """Groups of tables that are equal except for their names, Q in all: (index of the first table of each
        group [Q], group of every table [T], number of tables in each group [Q]).
        """
        columns = [self.rows, self.dim, self.dtype, self.pooling, self.weight_bytes, self.law]
        columns += [self.features, self.buckets]
        if self.apart is not None:
            columns.append(self.apart)
        _, firsts, kind_of, count = np.unique(
            np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        return firsts, kind_of.ravel(), count

    @cached_property
    def fingerprint(self) -> str:
        """A digest of names, shapes, element sizes and order of the tables, by which a plan is theirs."""
        text = "\n".join(
            f"{name}\t{rows:.0f}\t{dim:.0f}\t{width:.0f}"
            for name, rows, dim, width in zip(
                self.names, self.rows, self.dim, self.element_bytes, strict=True
            )
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def collect_laws(ids: Sequence[Distribution]) -> tuple[tuple[Distribution, ...], Ints]:
    """(the different distributions, index of each of ``ids`` among them)."""
    objects = {id(law): law for law in ids}  # often one for thousands of tables, compared once
    place = {law: number for number, law in enumerate(dict.fromkeys(objects.values()))}
    of = {key: place[law] for key, law in objects.items()}
    return tuple(place), np.array([of[id(law)] for law in ids], dtype=np.int64)


WIDTHS = np.array([float(DTYPE_BYTES[name]) for name in DTYPES])  # bytes of an element of each of ``DTYPES``
_SCALED = np.isin(DTYPES, ["int8"])
"""Which of them have a scale and a bias in each row: FBGEMM's 8-bit floats have none."""
_PADDED = np.isin(DTYPES, ["fp16", "fp8", "int8"])  # rows of FBGEMM's inference kernels are aligned


def row_bytes(dtype: ArrayLike, elements: ArrayLike, *, training: bool) -> Array:
    """Bytes of a row of so many elements in HBM, with its scale and padding (``capacity.pad_row_bytes``).

    dtype  types, as places in ``DTYPES``;  training  whether they are rows of FBGEMM's training kernels
    """
    code = np.asarray(dtype, dtype=np.int64)
    constants = load_kernel_constants()
    scale = constants["trained_row_scale_bytes" if training else "row_scale_bytes"].value * _SCALED[code]
    align = np.where(_PADDED[code] & (not training), constants["row_align_bytes"].value, 1.0)
    return capacity.pad_row_bytes(elements, WIDTHS[code], scale, align)
