"""What TorchRec sends equals the model's formulas to the byte: 8 and 128 fake ranks, four shardings."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import forked_ranks
import numpy as np
import pytest

from perfmodel.model import exchanges as ex

forked_ranks.require_torchrec()

PROGRAM = Path(__file__).with_name("fake_torchrec.py")
LOCAL, BATCH = 8, 6
SHARDINGS = ("row_wise", "table_wise", "column_wise", "table_row_wise")


def case(sharding: str, dims: list[int], dtype: str = "FP32", weighted: bool = False) -> dict[str, Any]:
    lengths = np.random.default_rng(len(dims)).integers(0, 9, BATCH * len(dims)).tolist()
    return {"sharding": sharding, "dims": dims, "lengths": lengths, "dtype": dtype, "weighted": weighted}


CASES = [
    *(case(sharding, dims) for sharding in SHARDINGS for dims in ([64], [16, 32, 128])),
    *(case(sharding, [32, 64], weighted=True) for sharding in SHARDINGS),
    *(case(sharding, [32, 64], dtype="FP16") for sharding in SHARDINGS),
]


@functools.cache
def logged(world: int) -> list[list[list[Any]]]:
    answer: list[list[list[Any]]] = json.loads(forked_ranks.said_by(PROGRAM, str(world), json.dumps(CASES)))
    return answer


def expected(one: dict[str, Any], G: int) -> list[tuple[str, int, float]]:
    """(collective, ranks, bytes) of rank 0 in order, by the model's formulas."""
    dims, N = one["dims"], G // LOCAL
    bags, lookups = BATCH * len(dims), sum(one["lengths"])
    fields = 4 if one["weighted"] else 3
    holders, copies = {
        "row_wise": (G, 1),
        "table_wise": (1, 1),
        "column_wise": (2, 2),
        "table_row_wise": (LOCAL, 1),
    }[one["sharding"]]
    sent = [
        ("all_to_all", G, ex.splits_bytes(G, fields, 8)),
        ("all_to_all", G, ex.lengths_bytes(holders, bags, 8)),
        ("all_to_all", G, ex.ids_bytes(copies * lookups, 8)),
    ]
    if one["weighted"]:
        sent.append(("all_to_all", G, ex.ids_bytes(copies * lookups, 4)))
    if one["sharding"] == "row_wise":
        back = [("reduce_scatter", G, ex.bags_sent_bytes(G, BATCH, 1, sum(dims) * 4))]
    elif one["sharding"] == "table_row_wise":  # node 0 holds every N-th table
        held = BATCH * sum(dims[::N])
        back = [("reduce_scatter", LOCAL, ex.bags_sent_bytes(G, held, 1, 4))]
        if N > 1:
            back.append(("all_to_all", N, ex.across_bytes(1, N, held, 4)))
    else:  # rank 0 holds table 0, or its first half of columns
        own = BATCH * dims[0] / (2 if one["sharding"] == "column_wise" else 1)
        back = [("all_to_all", G, ex.bags_sent_bytes(G, own, 1, 4))]
    return [(name, ranks, float(size)) for name, ranks, size in sent + back]


@pytest.mark.parametrize("world", [8, 128])
@pytest.mark.parametrize(
    "index", range(len(CASES)), ids=[f"{c['sharding']}-{i}" for i, c in enumerate(CASES)]
)
def test_torchrec_sends_what_the_model_counts(world: int, index: int) -> None:
    got = [(name, ranks, float(size)) for name, ranks, size, _ in logged(world)[index]]
    assert got == expected(CASES[index], world)


def test_bags_are_sent_in_fp32_and_ids_in_int64() -> None:
    for one, sent in zip(CASES, logged(8), strict=True):
        kinds = [kind for _, _, _, kind in sent]
        assert kinds[:3] == ["int64"] * 3
        assert set(kinds[3:]) == {"float32"}, one
