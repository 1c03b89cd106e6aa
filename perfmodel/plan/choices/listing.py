"""Lists the schemes of many kinds of table as columns; kinds with equal width share one list of schemes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.answer.uniform_plans import VECTOR
from perfmodel.engine.placement import COPY, Scheme
from perfmodel.engine.schemes import EXCHANGED, HOT, fits
from perfmodel.engine.tables import Array, Ints

Mask = NDArray[np.bool_]

MOST_FINE = 256  # kinds of table, up to which all schemes are listed; of more, those that good plans use
_ANY_ROWS = 1 << 62  # more than any table has


@dataclass(frozen=True, eq=False)
class Listing:
    """Schemes of all kinds of table (equal tables are one kind), sorted by kind: an array entry per scheme.

    group  index of the kind of table;  exchange  kind of exchange;  r, c  number of row and column parts
    hot    number of replicated hot rows;  further  whether it is one of the further schemes
    """

    group: Ints
    exchange: Ints
    r: Ints
    c: Ints
    hot: Ints
    further: Mask

    def add(self, more: Sequence[set[Scheme]]) -> Listing:
        """The listing with further schemes of each kind of table, at its end; all of ``more`` are marked."""
        if not any(more):
            return self
        kind = np.repeat(np.arange(len(more)), [len(schemes) for schemes in more])
        group = np.concatenate([self.group, kind])
        new = [_to_numbers(scheme) for schemes in more for scheme in sorted(schemes)]
        columns = np.column_stack([[self.exchange, self.r, self.c, self.hot], np.array(new).T])
        keys = np.vstack([group, columns])
        _, begin, number = np.unique(keys, axis=1, return_index=True, return_inverse=True)  # each once
        further = np.zeros(begin.size, dtype=bool)
        further[number.ravel()[self.group.size :]] = True
        order = np.lexsort((begin, group[begin]))  # by kind, then in the order in which they came
        exchange, r, c, hot = columns[:, begin[order]]
        return Listing(group[begin[order]], exchange, r, c, hot, further[order])


def list_columns(rows: Array, dim: Array, gpus: int, domain: int, hot: Sequence[Sequence[int]]) -> Listing:
    """All schemes of Q kinds of table, in the order of ``list_possible_schemes``.

    rows, dim  [Q] size of a table of each kind;  gpus, domain  GPUs of the job, and of a scale-up domain
    hot  numbers of hot rows that may be replicated, for each kind
    Limits: more than ``MOST_FINE`` kinds -> column parts are powers of two, beside rows that are whole or in
            parts over one domain
    """
    # Kinds of equal width and as many numbers of hot rows share a list, in which hot rows are 1, 2, 3 ...
    shape = np.stack([dim, [len(numbers) for numbers in hot]]).astype(np.int64)
    parts = []
    for width, slots in np.unique(shape, axis=1).T.tolist():
        kinds = np.flatnonzero((shape == [[width], [slots]]).all(axis=0))
        schemes = list(list_possible_schemes(_ANY_ROWS, width, gpus, domain, range(1, slots + 1)))
        if rows.size > MOST_FINE:
            powers = (scheme for scheme in schemes if scheme.col_parts.bit_count() == 1)
            schemes = [s for s in powers if s.col_parts == 1 or s.row_parts in (1, domain)]
        exchange, r, c, slot = np.array([_to_numbers(scheme) for scheme in schemes], dtype=np.int64).T
        few = np.array([[0, *hot[q]] for q in kinds.tolist()], dtype=np.int64)[:, slot]
        kind, place = np.nonzero(r <= rows[kinds, np.newaxis] - few)  # tables with enough rows
        parts.append((kinds[kind], np.stack([exchange[place], r[place], c[place], few[kind, place]])))
    group = np.concatenate([kinds for kinds, _ in parts])
    order = np.argsort(group, kind="stable")
    exchange, r, c, few = np.concatenate([columns for _, columns in parts], axis=1)[:, order]
    return Listing(group[order], exchange, r, c, few, np.zeros(group.size, dtype=bool))


def _to_numbers(scheme: Scheme) -> tuple[int, int, int, int]:
    """(code of the exchange, row parts, column parts, hot rows)."""
    return int(scheme.kind), scheme.row_parts, scheme.col_parts, scheme.hot_rows


def list_possible_schemes(
    rows: int, dim: int, gpus: int, domain: int, hot: Sequence[int] = ()
) -> Iterator[Scheme]:
    """All schemes that a search considers for a table; replication comes first.

    Row parts are powers of two, 1, 2, 4 ... whole scale-up domains, and all GPUs or a half, a fourth ... of
    them.

    rows, dim  size of the table;  gpus, domain  GPUs of the job, and of a scale-up domain
    hot  numbers of hot rows that may be replicated, in schemes with either row parts or column parts
    Limits: one rank -> replication and one shard;  never more row parts than rows, or shards than ranks
    """
    yield COPY
    exponents = range(gpus.bit_length())
    powers = {1 << k for k in exponents}
    halves = {gpus >> k for k in exponents if not gpus % (1 << k)}
    domains = {domain << k for k in exponents}
    widths = [1, *(c for c in range(2, dim // VECTOR + 1) if not dim % (VECTOR * c))]
    for r in sorted(r for r in powers | halves | domains if r <= rows):
        for c in widths:
            if r * c > gpus:
                break
            yield from (Scheme(kind, r, c) for kind in EXCHANGED if fits(kind, r, c, gpus, domain))
            few = hot if gpus > 1 and 1 in (r, c) else ()
            yield from (Scheme(kind, r, c, h) for h in few for kind in HOT if r <= rows - h)
