"""Laws of collectives: the limits that each docstring promises, with numbers one can divide by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.model import collectives as c
from perfmodel.model import laws
from perfmodel.model.unknowns import Group, StepConstants

US = 1e-6


def by_protocol(*microseconds: float) -> dict[str, float]:
    return dict(zip(c.PROTOCOLS, [each * US for each in microseconds], strict=True))


STEPS = StepConstants(
    ring_base_s=by_protocol(6, 14, 8),
    tree_base_s=by_protocol(7, 14, 8),
    ring_inside_s=by_protocol(1, 2, 4),
    tree_inside_s=by_protocol(1, 2, 4),
    ring_network_s=by_protocol(3, 4, 14),
    tree_network_s=by_protocol(5, 8, 14),
    network_overhead_s=by_protocol(2, 1, 1),
    nvls_s=25 * US,
    nvls_tree_step_s=20 * US,
    nvls_channels=16,
    nvls_channel_bytes=16384.0,
    nvls_tree_chunk_bytes=131072.0,
    nvls_channel_s=0.02 * US,
    ll_bytes_per_s=15e9,
    ll128_fraction=0.9,
    tree_fraction=0.9,
    nvls_tree_fraction=0.8,
    pat_base_s=8 * US,
    pat_rank_s=3 * US,
    pat_overlap=3.5,
    pat_fraction=0.75,
    has_nvls=True,
    ring_sharpness={"LL": 1.0, "LL128": 2.0, "Simple": 1.0},
    tree_sharpness={"LL": 1.0, "LL128": 1.0, "Simple": 0.5},
    rate_sharpness=6.0,
    choice_sharpness=1e3,
    rendezvous_half_bytes=65536.0,
    p2p_round_s=5 * US,
    p2p_channels=16,
    p2p_batch=8,
)
RING = dict(
    zip(
        laws.LINK_LAWS["ring_tree"].names,
        [1.0] * 9 + [300e9, 50e9, 300e9, 0.4, 1, 1, 400e9] + [1.0] * 4,
        strict=True,
    )
)
PAIRS = dict(
    zip(
        laws.LINK_LAWS["pairwise"].names,
        [5 * US, 1 * US, 1 * US, 2 * US, 60 * US, 6 * US, 300e9, 0.0, 50e9, 40e9],
        strict=True,
    )
)
RINGS = [f"ring {protocol}" for protocol in c.PROTOCOLS]


def candidates(collective: str, group: Group, unknowns: dict[str, float] = RING) -> dict[str, laws.Candidate]:
    return {each.name: each for each in laws.list_candidates(unknowns, STEPS, collective, group)}


def test_shapes_of_rings_and_trees() -> None:
    assert c.compute_bus_factor("all_reduce", [1, 2, 4]).tolist() == [0, 1, 1.5]
    assert c.compute_bus_factor("all_gather", [1, 2, 4]).tolist() == [0, 0.5, 0.75]
    assert c.compute_bus_factor("broadcast", [1, 8]).tolist() == [1, 1]
    assert c.count_ring_steps("all_gather", 8, 1) == (7, 0)
    assert c.count_ring_steps("all_gather", 16, 2) == (14, 1)
    assert c.count_ring_steps("all_reduce", 16, 16) == (0, 30)
    assert [c.count_tree_levels(domains) for domains in (1, 2, 3, 4, 512)] == [0, 1, 2, 2, 9]
    assert [c.count_tree_copies(domains) for domains in (2, 3, 4, 512)] == [1, 1.5, 2, 2]


def test_rates_of_two_links() -> None:
    assert c.join_rates(100, 1e9, 6) == pytest.approx(100)
    assert c.compute_ring_bandwidth(300e9, 1e9, 8, 1, 6) == 300e9
    assert c.compute_ring_bandwidth(300e9, 1e9, 8, 4, 6) == pytest.approx(8e9, rel=1e-6)


def test_two_domains_reduce_faster_than_many() -> None:
    """With slow cards a double tree over two domains moves each byte once, over many twice."""
    two = c.compute_tree_bandwidth(1e15, 50e9, 16, 8, 2, 6)
    many = c.compute_tree_bandwidth(1e15, 50e9, 8192, 8, 1024, 6)
    assert two == pytest.approx(2 * 15 / 16 * 400e9)
    assert many == pytest.approx(400e9, rel=1e-3)


@pytest.mark.parametrize("payload", [1e4, 1e7, 1e10])
def test_a_tree_forwards_chunks_of_the_best_size(payload: float) -> None:
    """The opponent: a chain of hops that forwards whole chunks, at every size of them."""
    found = candidates("all_reduce", Group.of(64, 8))["tree Simple"]
    hops, moved = found.hops_s, payload / found.bus_bytes_per_s
    depth = 18  # cancels: only its product with the latency counts
    latency, rate = hops / depth, found.bus_bytes_per_s
    chunk = np.geomspace(1e-3, 1e13, 200_001)
    chain = depth * (latency + chunk / rate) + moved * (1 + latency * rate / chunk)
    assert found.time_s(payload) - found.base_s == pytest.approx(chain.min(), rel=1e-3)


def test_the_floor_of_nvls_is_the_same_for_any_number_of_gpus() -> None:
    floors = [candidates("all_reduce", Group.of(n, 72))["NVLS"].time_s(0.0) for n in (8, 32, 72)]
    assert floors == [25 * US] * 3


def test_the_channels_of_nvls_take_part_one_by_one() -> None:
    """16 channels of 32 GPUs cost 10 us: nothing at first, half with 16 KiB each, all with many bytes."""
    found = candidates("all_reduce", Group.of(32, 72))["NVLS"]
    moved = [n / found.bus_bytes_per_s for n in (0.0, 507904.0, 1e15)]
    rest = [found.time_s(s) - found.base_s for s in (0.0, 507904.0, 1e15)]
    assert rest[0] == 0
    assert rest[1] - moved[1] * (1 + (1 + 1 / 128) ** (-3 / 7)) == pytest.approx(16 * 32 * 0.02 * US / 2)
    assert rest[2] == pytest.approx(moved[2], rel=1e-2)


@pytest.mark.parametrize("octave", range(10, 30))
def test_small_chunks_cost_as_much_as_their_bytes(octave: int) -> None:
    """The opponent: NCCL's own chunk for these bytes of a channel and GPU, each as dear as 16 KiB more."""
    mine, kib = 2.0**octave, 1024
    chunk = next(chunk for chunk, to in ((16, 64), (32, 512), (64, 8192), (128, 2**40)) if mine < to * kib)
    assert 1 + c.compute_chunk_cost(mine, 64 * kib) == pytest.approx(1 + 16 / chunk, rel=0.17)


def test_more_bytes_never_take_nvls_less_time() -> None:
    found = candidates("all_reduce", Group.of(8, 8))["NVLS"]
    assert (np.diff(found.time_s(np.geomspace(1, 1e12, 2000))) > 0).all()


def test_nvls_bandwidth() -> None:
    assert c.compute_nvls_bandwidth(300e9, 1e15, 2, 6) == pytest.approx(200e9)
    assert c.compute_nvls_bandwidth(300e9, 1e15, 10**9, 6) == pytest.approx(600e9)
    assert c.compute_nvls_bandwidth(1e15, 700e9, 64, 6) == pytest.approx(700e9)
    assert c.compute_nvls_bandwidth(300e9, 1e15, 1, 6) == c.compute_nvls_bandwidth(300e9, 1e15, 2, 6)


def test_what_nccl_may_choose_from() -> None:
    """PAT with one rank a node, of which there must be two; trees and NVLS for all_reduce."""
    for collective, group in (("all_gather", Group.of(1, 1)), ("broadcast", Group.of(4, 1))):
        assert list(candidates(collective, group)) == RINGS
    for collective, group in (("all_gather", Group.of(16, 8)), ("broadcast", Group.of(16, 1))):
        assert list(candidates(collective, group)) == RINGS
    assert list(candidates("reduce_scatter", Group.of(2, 1))) == [*RINGS, "PAT"]
    trees = [f"tree {protocol}" for protocol in c.PROTOCOLS]
    for group in (Group.of(2, 1), Group.of(32, 8)):
        assert list(candidates("all_reduce", group)) == [*RINGS, *trees, "NVLS"]
    plain = replace(STEPS, has_nvls=False)
    without = laws.list_candidates(RING, plain, "all_reduce", Group.of(8, 8))
    assert [each.name for each in without] == [*RINGS, *trees]


@pytest.mark.parametrize(
    ("arguments", "in_switch", "time_s"),
    [
        (("all_gather", 8e9, 1, 1, 1, 1e9, 1e9), False, 0),
        (("all_gather", 8e9, 8, 8, 1, 7e9, 1), False, 1),
        (("all_to_all", 16e9, 16, 8, 2, 1e15, 8e9), False, 1),
        (("all_gather", 16e9, 2, 1, 2, 1, 8e9), False, 1),
        (("all_gather", 4e9, 4, 2, 2, 3e9, 1e15), False, 1),
        (("reduce_scatter", 16e9, 16, 8, 2, 1e15, 1e9), False, 1),
        (("all_reduce", 16e9, 16, 8, 2, 1e15, 2e9), False, 1),
        (("all_reduce", 8e9, 8, 8, 1, 14e9, 1), False, 1),
        (("all_reduce", 8e9, 8, 8, 1, 9e9, 1), True, 1),  # a switch that adds leaves S and 1/G of it
        (("all_reduce", 8e9, 2, 2, 1, 8e9, 1), True, 1),
        (("all_gather", 8e9, 8, 8, 1, 7e9, 1), True, 1),
    ],
)
def test_speed_of_light(arguments: tuple[Any, ...], in_switch: bool, time_s: float) -> None:
    assert c.compute_light_time(*arguments, in_switch=in_switch) == pytest.approx(time_s)


def test_ring_hops_are_its_steps() -> None:
    one = candidates("all_gather", Group.of(2, 8)).values()
    assert [each.base_s for each in one] == pytest.approx(np.array([6, 14, 8]) * US)
    assert [each.hops_s for each in one] == pytest.approx(np.array([1, 2, 4]) * US)
    two_nodes = [each.hops_s for each in candidates("all_gather", Group.of(16, 8)).values()]
    assert two_nodes == pytest.approx(np.array([14 * 2 + 3, 14 * 2 + 4, 14 * 4 + 14]) * US)


def test_ll_has_a_rate_of_its_own_across_domains_alone() -> None:
    inside, across = (candidates("all_gather", Group.of(n, 8)) for n in (8, 16))
    rate = inside["ring Simple"].bus_bytes_per_s
    assert inside["ring LL"].bus_bytes_per_s == pytest.approx(0.4 * rate)
    own = c.join_rates(0.4 * across["ring Simple"].bus_bytes_per_s, 15e9, STEPS.rate_sharpness)
    assert across["ring LL"].bus_bytes_per_s == pytest.approx(own) and own < 15e9


def test_one_rank_a_node_offers_pat_and_its_crossings_cost_those_of_trees() -> None:
    alone = candidates("all_gather", Group.of(16, 1))
    assert [each.base_s for each in alone.values()] == pytest.approx(np.array([6, 14, 8, 8]) * US)
    hops = [each.hops_s for each in alone.values()]
    assert hops == pytest.approx(np.array([15 * 5, 15 * 8, 15 * 14, 4 * 14 / 3.5 + 16 * 3]) * US)
    simple = alone["ring Simple"].bus_bytes_per_s
    assert alone["PAT"].bus_bytes_per_s == pytest.approx(0.75 * simple)
    small, large = laws.compute_ring_tree_time(
        RING, STEPS, "all_gather", Group.of(64, 1), np.array([1.0, 2.0**34])
    )
    assert small == pytest.approx((8 + 6 * 4 + 64 * 3) * US, rel=1e-3)
    assert large == pytest.approx(2.0**34 * 63 / 64 / simple, rel=0.01)


def test_trees_between_switches_are_derated_from_three_domains_on() -> None:
    """Of slow cards a tree over two domains gets 2 (G-1)/G g B, over three 2/1.5 times and 0.8 of that."""
    slow = {**RING, "nic_bytes_per_s": 1e6}
    two, three = (candidates("all_reduce", Group.of(8 * n, 8), slow)["NVLS"].bus_bytes_per_s for n in (2, 3))
    assert two == pytest.approx(2 * 15 / 16 * 8e6, rel=1e-6)
    assert three == pytest.approx(0.8 * 2 * 23 / 24 * 8e6 / 1.5, rel=1e-6)


def test_ring_tree_time_takes_the_cheapest() -> None:
    group = Group.of(8, 8)
    small = laws.compute_ring_tree_time(RING, STEPS, "all_gather", group, np.array([0.0]))
    assert small == pytest.approx(13 * US)
    large = laws.compute_ring_tree_time(RING, STEPS, "all_gather", group, np.array([8e12]))
    assert large == pytest.approx(7e12 / 300e9, rel=1e-3)
    overrated = {**RING, "ll128_choice_ratio": 0.1}  # it is taken though it is slow
    slow = laws.compute_ring_tree_time(overrated, STEPS, "all_gather", group, np.array([0.0]))
    assert slow == pytest.approx((14 + 7 * 2) * US)


def test_pairwise_law_limits() -> None:
    for gpus, size, time_s, rel in ((8, 0.0, 12 * US, 1e-6), (16, 1e13, 5e12 / 50e9, 1e-2)):
        times = laws.compute_pairwise_time(PAIRS, STEPS, "all_to_all", Group.of(gpus, 8), np.array([size]))
        assert times == pytest.approx(time_s, rel=rel)


@given(
    gpus=st.integers(2, 2048),
    domain=st.sampled_from([1, 2, 4, 8, 72]),
    collective=st.sampled_from(["all_gather", "reduce_scatter", "all_reduce", "broadcast"]),
)
def test_laws_are_positive_and_never_fall(gpus: int, domain: int, collective: str) -> None:
    sizes = np.exp2(np.linspace(0, 40, 161))
    group = Group.of(gpus, domain)
    for times in (
        laws.compute_ring_tree_time(RING, STEPS, collective, group, sizes),
        laws.compute_pairwise_time(PAIRS, STEPS, "all_to_all", group, sizes),
    ):
        assert (times > 0).all()
        assert (np.diff(times) >= -1e-3 * times[1:]).all()  # rounded corners of equal candidates
