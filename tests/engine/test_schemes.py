"""Names of shardings and exchanges: every one that was ever read, and what is asked of each."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.engine.placement import Scheme
from perfmodel.engine.schemes import (
    EXCHANGED,
    WAYS,
    Exchange,
    exchange_named,
    find_way,
    fits,
    replace_sparse,
)
from perfmodel.errors import BadInputError

NAMES = {
    Exchange.DP: "dp copies copy data-parallel data_parallel",
    Exchange.RB: "rb bags all-to-all all_to_all RB",
    Exchange.RS: "rs reduced reduce-scatter reduce_scatter",
    Exchange.SPARSE: "sparse row-wise-sparse",
    Exchange.TWO_LEVEL: "two_level two-level Two-Level row-wise-two-level",
    Exchange.UB: "ub unique row-wise-ub row_wise_ub",
}


@pytest.mark.parametrize(
    ("kind", "name"), [(k, name) for k, names in NAMES.items() for name in names.split()]
)
def test_every_name_of_an_exchange_is_read(kind: Exchange, name: str) -> None:
    assert exchange_named(name) is kind
    assert exchange_named(f" {name} ") is kind


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((way, way) for way in WAYS),
        *(("two_level", "row-wise-two-level"), ("sparse", "row-wise-sparse"), ("ub", "row-wise-ub")),
        *(("unique", "row-wise-ub"), ("dp", "data-parallel"), ("TABLE_WISE", "table-wise")),
    ],
)
def test_every_name_of_a_way_is_read(name: str, way: str) -> None:
    assert find_way(name) == way


def test_an_unknown_way_is_refused_with_the_shortest_names() -> None:
    with pytest.raises(BadInputError, match="row_wize") as refused:
        find_way("row_wize", "best")
    known = refused.value.next_step.partition("known: ")[2].removesuffix(".").split(", ")
    assert {"best", "ub", "row-wise"} < set(known) and not {"all", "row-wise-ub"} & set(known)
    assert not any(exchange_named(name) for name in ("none", "", "auto", "row-wise", "levels"))


def test_where_an_exchange_fits() -> None:
    """On 8 GPUs in domains of 4: 4 and 8 row parts fill domains; alone, one part is sent whole."""
    assert [kind.key for kind in EXCHANGED if fits(kind, 1, 1, 8, 4)] == ["rb", "ub"]
    assert [kind.key for kind in EXCHANGED if fits(kind, 4, 2, 8, 4)] == ["rb", "sparse", "ub", "two_level"]
    every = ["rb", "sparse", "ub", "two_level", "rs"]
    for G, g in ((8, 4), (2, 2)):
        assert [kind.key for kind in EXCHANGED if fits(kind, G, 1, G, g)] == every
    assert not fits(Exchange.TWO_LEVEL, 4, 1, 9, 4) and not fits(Exchange.TWO_LEVEL, 6, 1, 8, 4)
    assert [kind.key for kind in Exchange if fits(kind, 1, 1, 1, 1)] == ["dp", "rb"]


def test_names_of_cuts_and_torchrecs_types() -> None:
    """On 8 GPUs in domains of 4."""
    named = {
        ("dp", 1, 1): "data-parallel", ("rb", 1, 1): "table-wise", ("ub", 1, 4): "column-wise",
        ("rs", 8, 1): "row-wise", ("two_level", 4, 1): "table-row-wise", ("two_level", 4, 2): "grid",
        ("rb", 2, 2): "3d", ("two_level", 8, 1): "row-wise",
    }  # fmt: skip
    for (key, r, c), name in named.items():
        kind = exchange_named(key)
        assert kind is not None
        assert Scheme(kind, r, c).sharding(8, 4) == name
    assert Scheme(Exchange.RB, 1, 4).sharding(8, 4, inside=True) == "table-column-wise"
    assert Scheme(Exchange.RB, 1, 4).sharding(4, 4, inside=True) == "column-wise"


def test_sparse_bags_of_one_row_part_are_all_bags() -> None:
    codes = np.array([Exchange.SPARSE, Exchange.SPARSE, Exchange.UB, Exchange.TWO_LEVEL])
    assert replace_sparse(codes, np.array([1, 2, 1, 1])).tolist() == [1, 3, 5, 4]
