"""Lists the schemes of many kinds of table as columns; kinds with equal width share one list of schemes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.answer.uniform_plans import VECTOR
from perfmodel.engine.placement import COPY, Scheme
from perfmodel.engine.schemes import EXCHANGED, HOT, fits

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


MOST_FINE = 256
"""Kinds of table, up to which all schemes are listed; of more, those that good plans use (``schemes``)."""

_ANY_ROWS = 1 << 62


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

    @staticmethod
    def of(
        rows: Array,
        dim: Array,
        gpus: int,
        domain: int,
        hot: Sequence[Sequence[int]],
        more: Sequence[set[Scheme]],
    ) -> Listing:
        """All schemes of Q kinds of table, in the order of ``schemes``.

        rows, dim  [Q] size of a table of each kind;  gpus, domain  GPUs of the job, and of a scale-up domain
        hot  numbers of hot rows that may be replicated, for each kind;  more  further schemes for each kind
        """
        shape = np.stack([dim, [len(few) for few in hot]]).astype(np.int64)
        parts = []
        for width, slots in np.unique(shape, axis=1).T.tolist():
            kinds = np.flatnonzero((shape == [[width], [slots]]).all(axis=0))
            alike = schemes(_ANY_ROWS, width, gpus, domain, range(1, slots + 1), rows.size > MOST_FINE)
            table = [(s.kind, s.row_parts, s.col_parts, s.hot_rows) for s in alike]
            exchange, r, c, slot = np.array(table, dtype=np.int64).T
            few = np.array([[0, *hot[q]] for q in kinds.tolist()], dtype=np.int64)[:, slot]
            which, at = np.nonzero(r <= rows[kinds, np.newaxis] - few)
            parts.append((kinds[which], np.stack([exchange[at], r[at], c[at], few[which, at]])))
        group, columns = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
        order = np.argsort(group, kind="stable")
        exchange, r, c, few = columns[:, order]
        found = Listing(group[order], exchange, r, c, few, np.zeros(group.size, dtype=bool))
        return found._with(more) if any(more) else found

    def _with(self, more: Sequence[set[Scheme]]) -> Listing:
        """These schemes and ``more``, a set per kind of table. The further schemes come last in their kind.

        Schemes of ``more``, even if listed already, are marked as ``further``.
        """
        columns = np.stack([self.exchange, self.r, self.c, self.hot])
        kind = np.repeat(np.arange(len(more)), [len(each) for each in more])
        new = [[s.kind, s.row_parts, s.col_parts, s.hot_rows] for each in more for s in sorted(each)]
        both = np.column_stack([columns, np.array(new, dtype=np.int64).T])
        group = np.concatenate([self.group, kind])
        _, first, of = np.unique(np.vstack([group, both]), axis=1, return_index=True, return_inverse=True)
        further = np.zeros(first.size, dtype=bool)
        further[of.reshape(-1)[self.group.size :]] = True
        order = np.lexsort((first, group[first]))
        at = first[order]
        exchange, r, c, few = both[:, at]
        return Listing(group[at], exchange, r, c, few, further[order])


def schemes(
    rows: int, dim: int, gpus: int, domain: int, hot: Sequence[int] = (), coarse: bool = False
) -> Iterator[Scheme]:
    """All schemes that a search considers for a table; replication comes first.

    Row parts are powers of two, whole scale-up domains, and all GPUs or a half, a fourth ... of them.

    rows, dim  size of the table;  gpus, domain  GPUs of the job, and of a scale-up domain
    hot  numbers of hot rows that may be replicated, in schemes with either row parts or column parts
    coarse  column parts are powers of two, beside rows that are whole or in parts over one domain
    Limits: one rank -> replication and one shard;  never more row parts than rows, or shards than ranks
    """
    yield COPY
    powers = {1 << k for k in range(gpus.bit_length()) if 1 << k <= gpus}
    halves = {gpus >> k for k in range(gpus.bit_length()) if gpus % (1 << k) == 0}
    row_parts = sorted(r for r in {*powers, *halves, *_domains(gpus, domain)} if r <= rows)
    widths = [1, *(c for c in range(2, dim // VECTOR + 1) if dim % (VECTOR * c) == 0)]
    if coarse:
        widths = [c for c in widths if c in powers]
    for r in row_parts:
        for c in widths:
            if r * c > gpus or (coarse and c > 1 and r not in (1, domain)):
                break
            yield from (Scheme(kind, r, c) for kind in EXCHANGED if fits(kind, r, c, gpus, domain))
            few = hot if gpus > 1 and 1 in (r, c) else ()
            yield from (Scheme(kind, r, c, h) for h in few for kind in HOT if r <= rows - h)


def _domains(gpus: int, domain: int) -> set[int]:
    """Numbers of row parts that fill 1, 2, 4 ... scale-up domains."""
    whole = gpus // domain
    return {domain << k for k in range(whole.bit_length()) if 1 << k <= whole}
