"""The mapper of tables to cores: against every mapping of small cases, its bound, its moves."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from recorded import assert_recorded

from perfmodel.chip.look_up_options import LookUpOptions
from perfmodel.chip.mapping import Mapper

CORES, TABLES, DRAWS, ROOM = 3, 4, 60, 100.0


def options(
    pieces: list[int], piece_ps: list[float], held: list[float], shared: float = 0.0
) -> LookUpOptions:
    """Options by numbers of pieces, their times, the bytes that each keeps, and the time of the memory."""
    count = len(pieces)
    none, one = np.zeros(count), np.ones(count, dtype=np.int64)
    loads = np.full((count, 2), shared)
    times = np.rint(np.array(piece_ps, dtype=float))
    return LookUpOptions(one, np.array(pieces), one, none, times, none, np.array(held, dtype=float), loads)


def drawn(random: np.random.Generator) -> LookUpOptions:
    """A table that one, two or three cores gather, or that one or two cores keep."""
    work, fixed = random.uniform(1e6, 2e7), random.uniform(1e5, 1e6)
    rows, faster = random.uniform(20, 140), random.uniform(2, 8)
    gathered = [work / k + fixed for k in (1, 2, 3)]
    kept = [work / faster / k + fixed for k in (1, 2)]
    return options([1, 2, 3, 1, 2], [*gathered, *kept], [0, 0, 0, rows, rows / 2], work / 20)


def best_of_all(tables: list[LookUpOptions]) -> float:
    """The least time of all mappings: every option of every table on every set of cores [ps].

    Cores are alike, so the first table is on the first cores.
    """
    loads, held = np.zeros((1, CORES)), np.zeros((1, CORES))
    for table, o in enumerate(tables):
        places = [
            (option, cores)
            for option in range(o.pieces.size)
            for cores in combinations(range(CORES), int(o.pieces[option]))
            if table or cores == tuple(range(int(o.pieces[option])))
        ]
        there = np.array([[core in cores for core in range(CORES)] for _, cores in places], dtype=float)
        index = [option for option, _ in places]
        held = (held[:, np.newaxis] + there * o.held_bytes[index, np.newaxis]).reshape(-1, CORES)
        fits = (held <= ROOM).all(axis=1)
        loads = (loads[:, np.newaxis] + there * o.piece_ps[index, np.newaxis]).reshape(-1, CORES)[fits]
        held = held[fits]
    shared = sum(float(o.shared_ps[0, 0]) for o in tables)
    return max(float(loads.max(axis=1).min()), shared)


def test_the_mapper_is_near_the_best_of_all_mappings_and_never_below() -> None:
    """4 tables on 3 cores, 28 561 mappings of each of 60 draws: 1.5 % slower in the mean, 14 % at worst."""
    random = np.random.default_rng(7)
    ratios, moves = [], 0
    for _ in range(DRAWS):
        tables = [drawn(random) for _ in range(TABLES)]
        mapper = Mapper(tables, CORES, ROOM, budget=150)
        mapping, best = mapper.run(), best_of_all(tables)
        assert mapper.bound_s * 1e12 <= best * (1 + 1e-9)
        assert (mapping.held_bytes <= ROOM * (1 + 1e-6)).all()
        ratios.append(mapping.time_s * 1e12 / best)
        moves += mapper.moves
    assert_recorded("mapper", moves, float(np.mean(ratios)))
    assert min(ratios) >= 1 - 1e-9
    assert np.mean(ratios) < 1.03 and max(ratios) < 1.2, (np.mean(ratios), max(ratios))


def test_a_memory_that_all_share_is_a_limit() -> None:
    tables = [options([1], [1e6], [0], shared=2e6)] * 4
    mapper = Mapper(tables, 4, np.inf)
    assert mapper.run().time_s == mapper.bound_s == pytest.approx(8e-6)
