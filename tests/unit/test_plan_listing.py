"""Columns of schemes are the schemes that are written down one by one."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.engine.placement import Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.plan.choices.listing import Listing, schemes

ROWS = np.array([3.0, 7, 40, 1000, 10**6])
DIM = np.array([16.0, 64, 16, 48, 64])
HOT = [(), (1, 3), (), (10, 100), (50_000,)]


def one_by_one(gpus: int, domain: int) -> list[tuple[int, Scheme]]:
    return [
        (q, scheme)
        for q, hot in enumerate(HOT)
        for scheme in schemes(int(ROWS[q]), int(DIM[q]), gpus, domain, hot)
    ]


def listed(found: Listing) -> list[tuple[int, Scheme]]:
    columns = zip(
        *(x.tolist() for x in (found.group, found.exchange, found.r, found.c, found.hot)), strict=True
    )
    return [(q, Scheme(Exchange(kind), r, c, hot)) for q, kind, r, c, hot in columns]


@pytest.mark.parametrize(("gpus", "domain"), [(1, 1), (2, 2), (6, 3), (24, 8), (128, 8)])
def test_columns_are_all_schemes_in_their_order(gpus: int, domain: int) -> None:
    found = Listing.of(ROWS, DIM, gpus, domain, HOT, [set() for _ in ROWS])
    assert listed(found) == one_by_one(gpus, domain)
    assert not found.asked.any()


def test_schemes_that_are_asked_for_are_marked_or_added_last() -> None:
    known, new = Scheme(Exchange.RB, 2, 2), Scheme(Exchange.RB, 3)
    found = Listing.of(ROWS, DIM, 8, 8, HOT, [set(), set(), {new, known}, set(), {known}])
    usual, got = one_by_one(8, 8), listed(found)
    last = max(at for at, (q, _) in enumerate(usual) if q == 2)
    assert got == [*usual[: last + 1], (2, new), *usual[last + 1 :]]
    assert [each for each, asked in zip(got, found.asked, strict=True) if asked] == [
        (2, known),
        (2, new),
        (4, known),
    ]
