"""Bucketize, one id after the other: what the kernels of bucketize.cu must give."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrate.cuda.split import Split


def bucketize(split: Split, batch: int, ids: Any, offsets: Any) -> dict[str, Any]:
    """``Buckets`` of numpy ids [n] and offsets [T B + 1]: ids, lengths, counts, and faults.

    faults  positions of ids outside their table, rising
    """
    lengths = np.zeros((len(split.shards), batch), np.int32)
    counts = np.zeros(split.ranks, np.int64)
    rows = []
    for bucket, shard in enumerate(split.shards):
        first = shard.row_part * split.blocks[shard.table]
        last = min(first + split.blocks[shard.table], split.rows[shard.table]) - 1
        for sample in range(batch):
            bag = shard.table * batch + sample
            for position in range(offsets[bag], offsets[bag + 1]):
                if first <= ids[position] <= last:
                    rows.append(int(ids[position]) - first + shard.first_row)
                    lengths[bucket, sample] += 1
                    counts[shard.rank] += 1
    table_of = np.repeat(np.arange(len(offsets) - 1) // batch, np.diff(offsets))
    faults = [
        position
        for position, (table, row) in enumerate(zip(table_of, ids, strict=True))
        if not 0 <= row < split.rows[table]
    ]
    return {
        "ids": np.array(rows, ids.dtype),
        "lengths": lengths,
        "counts": counts,
        "faults": faults,
    }
