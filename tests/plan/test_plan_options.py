"""The schemes that tables may have, as columns: all that are written down one by one."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.engine.placement import Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.plan.choices.listing import Listing, list_columns, list_possible_schemes
from perfmodel.plan.choices.scheme_options import HOT_SHARES, count_hot_rows
from perfmodel.schema.workload import UNIFORM, zipf

ROWS = np.array([3.0, 7, 40, 1000, 10**6])
DIM = np.array([16.0, 64, 16, 48, 64])
HOT = [(), (1, 3), (), (10, 100), (50_000,)]


def one_by_one(gpus: int, domain: int) -> list[tuple[int, Scheme]]:
    return [
        (q, scheme)
        for q, hot in enumerate(HOT)
        for scheme in list_possible_schemes(int(ROWS[q]), int(DIM[q]), gpus, domain, hot)
    ]


def listed(found: Listing) -> list[tuple[int, Scheme]]:
    columns = np.stack([found.group, found.exchange, found.r, found.c, found.hot]).T.tolist()
    return [(q, Scheme(Exchange(kind), r, c, hot)) for q, kind, r, c, hot in columns]


@pytest.mark.parametrize(("gpus", "domain"), [(1, 1), (2, 2), (6, 3), (24, 8), (128, 8)])
def test_columns_are_all_schemes_in_their_order(gpus: int, domain: int) -> None:
    found = list_columns(ROWS, DIM, gpus, domain, HOT).add([set() for _ in ROWS])
    assert listed(found) == one_by_one(gpus, domain)
    assert not found.further.any()
    assert gpus > 1 or found.group.size == 2 * len(ROWS), "a copy, and the whole table"


def test_of_very_many_kinds_of_table_fewer_schemes_are_listed() -> None:
    """Cut by columns in powers of two, besides rows whole or over one domain; by rows as before."""
    rows, dim = np.full(300, 10**6), np.full(300, 96)
    few = listed(list_columns(rows[:256], dim[:256], 128, 8, [()] * 256))
    many = listed(list_columns(rows, dim, 128, 8, [()] * 300))
    one, other = ([scheme for q, scheme in each if q == 0] for each in (few, many))
    assert set(other) < set(one) and 3 * len(other) < len(one)
    assert {scheme.col_parts for scheme in other} == {1, 2, 4, 8}
    assert 3 in {scheme.col_parts for scheme in one}
    assert {scheme.row_parts for scheme in other if scheme.col_parts > 1} == {1, 8}
    assert {scheme.row_parts for scheme in other} == {scheme.row_parts for scheme in one}


@pytest.mark.parametrize("dim", [1, 2, 4, 10, 32, 50, 96, 100])
def test_column_parts_are_whole_vectors_of_four(dim: int) -> None:
    """FBGEMM refuses other widths."""
    schemes = [scheme for scheme in list_possible_schemes(10**6, dim, 128, 8) if scheme.col_parts > 1]
    assert all(dim % (4 * scheme.col_parts) == 0 for scheme in schemes) and (dim % 8 > 0 or schemes)


@pytest.mark.parametrize("skew", [0.9, 1.2, 2.0])
def test_hot_rows_are_the_fewest_that_get_their_share(skew: float) -> None:
    """Of 8 rows a half, 4, gets 75 or 90 % in some cases: it is the most."""
    shares = np.cumsum(np.arange(1, 9) ** -skew) / np.sum(np.arange(1, 9) ** -skew)
    fewest = {int(np.searchsorted(shares, share)) + 1 for share in HOT_SHARES}
    assert count_hot_rows(zipf(skew), 8) == tuple(sorted(rows for rows in fewest if rows <= 4))
    assert count_hot_rows(UNIFORM, 60) == ()
