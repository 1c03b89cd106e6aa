"""A ring as hops that add and servers that set a pace: limits a human can divide, and a simulation."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import ring_simulation as simulation
from ring_closed_form import (
    ChunkRules,
    RingLinks,
    chain_time,
    chunk_times,
    first_loop_time,
    loop_time,
    ring_hops,
    ring_time,
)
from ring_events import EventRing

LINKS = RingLinks(2e-6, 10e-6, 5e-6, 1e-6, 10e9, 20e9, 1)
SLICES = ChunkRules(200_000, 20_000, 2, 2, 4, False)
WHOLE = ChunkRules(200_000, 20_000, 10, 1, 8, True)


def test_hops_of_a_chunk() -> None:
    assert ring_hops("all_gather", [1, 2, 8]).tolist() == [0, 1, 7]
    assert ring_hops("all_reduce", [1, 2, 8]).tolist() == [0, 2, 14]


def test_slices_are_stored_twice_where_they_cross() -> None:
    times = chunk_times(100_000, SLICES, LINKS)  # two slices of 50 kB: 5 us to copy, 2.5 us on the card
    assert times.kernel_s == pytest.approx(10e-6) and times.hop_s == pytest.approx(7e-6)
    assert times.cross_s == pytest.approx((1 + 2.5 + 10 + 5) * 1e-6)
    assert times.turn_s == pytest.approx(5e-6) and times.trip_s == pytest.approx((5 + 18.5 + 5) * 1e-6)


def test_a_whole_message_waits_for_its_chunk_once() -> None:
    times = chunk_times(100_000, WHOLE, LINKS)  # five units of 2 us; 5 us on the card, the first unit after 1
    assert times.first_s == pytest.approx(10e-6) and times.hop_s == pytest.approx(4e-6)
    assert times.cross_s == pytest.approx((1 + 1 + 4 * 2 + 10 + 2) * 1e-6)


@pytest.mark.parametrize("rules", [replace(SLICES, slots=16), WHOLE])
def test_an_empty_ring_is_the_sum_of_its_hops(rules: ChunkRules) -> None:
    free = replace(LINKS, post_s=0.0, return_s=0.0)
    # 16 ranks on 2 nodes: alone two crossings of 10 us and 13 hops of 2; in a row 15/8 crossings
    assert ring_time("all_gather", 0, 16, 2, rules, free, one_call=True) == pytest.approx(46e-6)
    assert ring_time("all_gather", 0, 16, 2, rules, free) == pytest.approx(
        (15 / 8 * 10 + (15 - 15 / 8) * 2) * 1e-6
    )
    assert ring_time("all_reduce", 0, 8, 1, rules, free) == pytest.approx(28e-6)
    assert ring_time("all_gather", 0, 1, 1, rules, free) == 0


def test_only_slices_of_one_chunk_hide_a_hop() -> None:
    # one node of 8, two slices of x: a step takes 2 x once x > a, else a + x
    for chunk, step in ((30_000, 2 + 1.5), (200_000, 20.0)):
        expected = (chunk / 10e9) + 7 * step * 1e-6
        assert ring_time("all_gather", chunk, 8, 1, SLICES, LINKS) == pytest.approx(expected)


def test_many_chunks_cost_a_loop_each() -> None:
    one = ring_time("reduce_scatter", 200_000, 16, 2, WHOLE, LINKS)
    assert ring_time("reduce_scatter", 1_000_000, 16, 2, WHOLE, LINKS) == pytest.approx(5 * one)


def test_a_slow_proxy_sets_the_pace_and_a_fast_one_does_not() -> None:
    slow = replace(LINKS, post_s=50e-6, channels_per_nic=2)
    # 15 steps of two channels with one message each, 50 us a message
    assert ring_time("all_gather", 1, 16, 2, WHOLE, slow) == pytest.approx(15 * 100e-6, rel=0.01)
    fast, none = (ring_time("all_gather", 1, 16, 2, WHOLE, replace(LINKS, post_s=o)) for o in (0.1e-6, 0.0))
    assert float(fast - none) == pytest.approx(15 / 8 * 0.1e-6)  # once a crossing


def test_few_places_in_a_buffer_set_a_pace_where_the_network_is_far() -> None:
    far = replace(LINKS, network_s=100e-6, return_s=100e-6, post_s=0.0)
    # two of four places a step: two steps in a round trip of 200 us; eight places of one a step: eight steps
    assert ring_time("all_gather", 0, 1024, 128, SLICES, far) == pytest.approx(1023 * 100e-6, rel=0.01)
    assert ring_time("all_gather", 0, 1024, 128, WHOLE, far) == pytest.approx(1023 * 25e-6, rel=0.01)


def test_the_first_loop_is_like_any_other_in_one_node_and_in_a_long_ring() -> None:
    times = chunk_times([100.0, 50_000, 200_000], WHOLE, LINKS)
    for hops, node, near in ((7, np.inf, 1e-9), (4095, 8, 0.01)):
        first, row = first_loop_time(times, hops, node, WHOLE), loop_time(times, hops, node, WHOLE)
        np.testing.assert_allclose(first, row, rtol=near)


def test_chunks_of_a_broadcast_follow_each_other() -> None:
    times = chunk_times(50_000, ChunkRules(50_000, 50_000, 1, 1, 8, False), LINKS)
    one = float(chain_time(times, 7, 0, 1, SLICES))
    assert one == pytest.approx((5 + 7 * 7) * 1e-6)
    assert chain_time(times, 7, 0, 101, SLICES) == pytest.approx(one + 100 * 5e-6)


def test_time_rises_with_the_share_and_takes_arrays() -> None:
    share = np.geomspace(1, 1e9, 400)
    for rules in (SLICES, WHOLE):
        for one_call in (False, True):
            got = ring_time("all_reduce", share, 64, 8, rules, LINKS, one_call)
            assert got.shape == share.shape and np.isfinite(got).all() and (got > 0).all()
    ranks = ring_time("all_gather", 1000, np.array([8, 16, 32]), np.array([1, 2, 4]), WHOLE, LINKS)
    assert (np.diff(ranks) > 0).all()


def test_nodes_are_alike_in_the_simulation() -> None:
    fabric = RingLinks(1e-6, 6e-6, 4e-6, 1e-6, 20e9, 40e9, 2)
    for rules in simulation.PROTOCOLS.values():
        for kind in ("all_gather", "all_reduce"):
            args = kind, 90_000.0, 12, 3, rules, fabric
            assert simulation.simulated(*args, every_rank=True) == pytest.approx(simulation.simulated(*args))


def test_the_closed_form_follows_the_simulation() -> None:
    kinds = [kind for kind in simulation.KINDS if kind[0] != "LL"]
    points = simulation.compared(
        ((8, 1), (16, 2), (64, 8)), [2.0**power for power in (10, 16, 20, 24, 28)], kinds
    )
    points += simulation.compared(((8, 1), (16, 2)), [2.0**power for power in (12, 20)], simulation.KINDS)
    errors = np.abs([point.error for point in points])
    assert np.median(errors) < 0.002 and errors.max() < 0.04
    assert "one node" in simulation.table(points)


def test_parts_of_the_law() -> None:
    # one node of 8: 7 hops of 2 us, 7 steps of 20 kB at 10 GB/s
    assert simulation.law_parts("all_gather", 20_000, 8, 1, WHOLE, LINKS) == pytest.approx(
        (14e-6, 14e-6, 14e-6)
    )
    # two nodes of 8: 14 hops of 2 us and a crossing of 11; two of four places a step: half of 11 + 5 us each
    assert simulation.law_parts("all_gather", 0, 16, 2, SLICES, LINKS) == pytest.approx((39e-6, 123e-6, 0))


def test_the_law_of_the_product_follows_the_simulation_where_it_has_a_pace() -> None:
    rings, sizes = ((8, 1), (16, 2), (64, 8)), [2.0**power for power in (10, 13, 16, 20, 24, 28)]
    points = simulation.compared(
        rings, sizes, [kind for kind in simulation.KINDS[:4] if kind[1] != "broadcast"]
    )
    table = simulation.law_table(points).splitlines()[1:]
    sum_only, median = (np.array([float(row[46:].split()[at]) for row in table]) for at in (1, 2))
    simple_across = slice(3, 5)
    assert all("Simple" in row and "several" in row for row in table[simple_across])
    assert (sum_only[simple_across] > 50).all() and (median[simple_across] < 3).all()
    assert (median < 17).all() and len(table) == 12


def test_queues_in_order_of_arrival_say_the_same() -> None:
    generator = np.random.default_rng(3)
    errors = []
    for name, kind, (ranks, nodes), card in product(
        simulation.PROTOCOLS, ("all_gather", "all_reduce"), ((4, 4), (8, 2), (8, 1), (16, 4)), (1, 2)
    ):
        inside, network, back, post = generator.uniform([1e-6, 5e-6, 2e-6, 0.2e-6], [5e-6, 20e-6, 5e-6, 2e-6])
        links = RingLinks(inside, network, back, post, 20e9, generator.uniform(10e9, 80e9), card)
        rules = simulation.PROTOCOLS[name]
        chunk = float(np.exp(generator.uniform(np.log(100), np.log(rules.chunk_bytes))))
        queues = EventRing(int(ring_hops(kind, ranks)), chunk, ranks, nodes, rules, links).run()
        turns = simulation.simulated(kind, chunk, ranks, nodes, rules, links)
        closed = float(ring_time(kind, chunk, ranks, nodes, rules, links, one_call=True))
        errors.append((turns / queues - 1, closed / queues - 1))
    assert np.abs(errors).max(axis=0) == pytest.approx([0, 0], abs=0.08)
    assert np.quantile(np.abs(errors), 0.9, axis=0) == pytest.approx([0, 0], abs=0.01)


def test_calls_in_a_row_cross_less_often_than_one_alone() -> None:
    fabric = RingLinks(1e-6, 6e-6, 4e-6, 0.1e-6, 20e9, 40e9, 1)
    for rules in simulation.PROTOCOLS.values():
        args = "all_gather", 500.0, 8, 2, rules, fabric
        alone, row = simulation.simulated(*args), simulation.simulated(*args, calls=12)
        assert alone == pytest.approx(float(ring_time(*args, one_call=True)), rel=0.03)
        assert row == pytest.approx(float(ring_time(*args)), rel=0.03)
        assert row < alone
