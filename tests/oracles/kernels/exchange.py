"""The row-wise look-up over several ranks, one id after the other: what kernels/exchange.cu must give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer]
Floats = NDArray[np.floating]


def pushed(
    ids: Ints, lengths: Ints, rows: Sequence[int], ranks: int
) -> tuple[list[NDArray[np.int64]], NDArray[np.int64], list[int]]:
    """What one rank sends: the ids for each owner, as rows of its block, in the order of the bags; offsets of
    each bag among them [ranks, T B + 1]; and positions of ids that are in no table.

    ids   rows of their own table, in the order table, sample;  lengths  of each bag [T B]
    rows  E of each table
    """
    batch = len(lengths) // len(rows)
    sent: list[list[int]] = [[] for _ in range(ranks)]
    offsets = np.zeros((ranks, len(lengths) + 1), np.int64)
    faults = []
    start = 0
    for bag, length in enumerate(lengths):
        block = -(-rows[bag // batch] // ranks)
        for position in range(start, start + int(length)):
            row = int(ids[position])
            if 0 <= row < rows[bag // batch]:
                sent[row // block].append(row % block)
            else:
                faults.append(position)
        start += int(length)
        offsets[:, bag + 1] = [len(rank_ids) for rank_ids in sent]
    return [np.array(rank_ids, np.int64) for rank_ids in sent], offsets, faults


def row_wise(
    held: Sequence[Sequence[Floats]],
    asked: Sequence[tuple[Ints, Ints]],
    rows: Sequence[int],
) -> list[NDArray[np.float64]]:
    """Bags of each rank's samples in double precision, [B, T, D].

    held  rows of each rank, of each table [block, D];  asked  ids and lengths of each rank
    rows  E of each table
    """
    ranks, dim = len(held), held[0][0].shape[1]
    answers = []
    for ids, lengths in asked:
        batch = len(lengths) // len(rows)
        sent, offsets, _ = pushed(ids, lengths, rows, ranks)
        bags = np.zeros((batch, len(rows), dim))
        for owner in range(ranks):
            for bag in range(len(lengths)):
                piece = sent[owner][offsets[owner, bag] : offsets[owner, bag + 1]]
                table, sample = divmod(bag, batch)
                bags[sample, table] += held[owner][table][piece].astype(np.float64).sum(0)
        answers.append(bags)
    return answers
