"""The simulation of a service against closed forms, an exact chain, and a program a request at a time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from perfmodel.model import queueing, schedule
from perfmodel.schema.evidence import Evidence
from perfmodel.service.arrivals import Poisson
from perfmodel.service.events import Rule, ServedRequests, simulate
from perfmodel.service.served import ServedPass, ServedStep
from perfmodel.service.stragglers import Lateness

Array = NDArray[np.float64]
GATHER = ServedStep("gather_pool", "", schedule.COMPUTE)
IDS = ServedStep("all_to_all_ids", "all_to_all", schedule.NETWORK)
BAGS = ServedStep("reduce_scatter_bags", "reduce_scatter", schedule.NETWORK)


def served(*steps: tuple[ServedStep, float, float], gpus: int = 1, most: int = 4096) -> ServedPass:
    """Steps of (fixed, a sample more) seconds."""
    samples = np.array([1.0, most])
    times = np.array([[fixed + each, fixed + each * most] for _, fixed, each in steps])
    names = tuple(step for step, _, _ in steps)
    return ServedPass(gpus, samples, names, times, times, times, (Evidence.MEASURED,) * 2, np.ones(2, bool))


def one_at_a_time(rate: float, one: ServedPass, late: Lateness | None = None) -> ServedRequests:
    arrivals = Poisson(3).times(rate, 1, 150_000)
    return simulate(one, Rule(1, 0.0, overlap=False), arrivals, late)


@pytest.mark.parametrize("rho", [0.3, 0.7])
def test_one_at_a_time_is_m_d_1(rho: float) -> None:
    found = one_at_a_time(rho / 1e-3, served((GATHER, 1e-3, 0)))
    assert found.parts_s["queue"].mean() == pytest.approx(queueing.mean_wait(rho / 1e-3, 1e-3), rel=0.03)
    assert found.mean_s == pytest.approx(queueing.mean_wait(rho / 1e-3, 1e-3) + 1e-3, rel=0.03)


def test_one_at_a_time_with_random_times_is_m_g_1() -> None:
    draws = np.random.default_rng(5).standard_exponential((2**14, 1)) - 1  # mean 0, variance 1
    found = one_at_a_time(600.0, served((IDS, 1e-3, 0)), Lateness(0.0, 0.8, draws))
    wait = queueing.mean_wait(600.0, 1e-3, (0.8e-3) ** 2)
    assert found.parts_s["queue"].mean() == pytest.approx(wait, rel=0.05)
    fixed = queueing.mean_wait(600.0, 1e-3)
    assert wait > 1.5 * fixed  # else this says nothing of the variance


@pytest.mark.parametrize("asked", [0.2, 1.0, 5.0])
def test_a_pass_that_takes_all(asked: float) -> None:
    arrivals = Poisson(3).times(asked / 1e-3, 1, 150_000)
    found = simulate(served((GATHER, 1e-3, 0)), Rule(10_000, 0.0, overlap=False), arrivals)
    wait = queueing.unlimited_batch_wait(asked / 1e-3, 1e-3)
    assert found.mean_s == pytest.approx(wait + 1e-3, rel=0.01)
    assert found.latency_s.max() <= 2e-3 + 1e-11


def bulk_mean_inside(asked: float, most: int, states: int = 400) -> float:
    """Mean number of requests inside where a pass of 1 s takes up to ``most``: the exact embedded chain.

    States are requests left when a pass ends; the next takes up to ``most`` of them, or the first to come.
    """
    counts = np.arange(states)
    logs = (
        counts * np.log(asked) - asked - np.array([float(np.log(np.arange(1, n + 1)).sum()) for n in counts])
    )
    came = np.exp(logs)
    move = np.zeros((states, states))
    for left in range(states):
        rest = max(max(left, 1) - most, 0)
        move[left, rest:] = came[: states - rest]
        move[left, -1] += 1 - move[left].sum()
    share = np.full(states, 1 / states)
    for _ in range(3000):
        share = share @ move
    queue = np.maximum(np.maximum(counts, 1) - most, 0)  # while a pass runs: the rest, and those that come
    taken = np.minimum(np.maximum(counts, 1), most)
    in_pass = float(share @ (queue + taken)) + asked / 2
    idle = share[0] / asked  # seconds a pass, in which nobody is inside
    return in_pass / (1 + idle)


@pytest.mark.parametrize(("asked", "most"), [(3.0, 4), (6.5, 8), (0.5, 2)])
def test_batches_of_a_most_are_the_exact_chain(asked: float, most: int) -> None:
    arrivals = Poisson(7).times(asked, 1, 200_000)
    found = simulate(served((GATHER, 1.0, 0)), Rule(most, 0.0, overlap=False), arrivals)
    assert asked * found.mean_s == pytest.approx(bulk_mean_inside(asked, most), rel=0.03)  # Little's law


def test_alone_a_request_waits_and_passes() -> None:
    arrivals = np.arange(200) * 10.0
    one = served((IDS, 1e-3, 1e-4), (GATHER, 2e-3, 0))
    for overlap in (False, True):
        for requests in (1, 8):
            found = simulate(one, Rule(requests, 0.5, overlap=overlap), arrivals)
            expected = queueing.light_load_latency(requests, 0.5, one.total(1))
            assert found.latency_s == pytest.approx(float(expected))
            assert found.parts_s["queue"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("overlap", [False, True])
def test_all_at_once_is_served_at_capacity(overlap: bool) -> None:
    one = served((IDS, 1e-3, 1e-5), (GATHER, 2e-3, 2e-5), (BAGS, 1.5e-3, 1e-5))
    found = simulate(one, Rule(32, 0.0, overlap=overlap), np.linspace(0, 1e-9, 32 * 400))
    last = found.latency_s.max() - found.latency_s.min()
    each = last / (found.latency_s.size / 32 - 1)
    assert each == pytest.approx(one.gap(32, overlap), rel=0.01)
    rate = queueing.batch_capacity(32, one.gap(32, overlap))
    assert 32 / each == pytest.approx(float(rate), rel=0.01)
    assert one.gap(32, True) < one.gap(32, False)


def test_overlap_is_the_schedule_of_the_model() -> None:
    one = served((GATHER, 0.7e-3, 0), (IDS, 1e-3, 0), (GATHER, 2e-3, 0), (BAGS, 1.5e-3, 0))
    steps = tuple(ServedStep(f"{at}", s.collective, s.device) for at, s in enumerate(one.steps))
    one = ServedPass(1, one.batches, steps, one.time_s, one.low_s, one.high_s, one.evidence, one.fits)
    tasks = [
        schedule.Task(f"{task.name}", task.stream, task.duration_s, task.after, (), task.device)
        for task in one.tasks(1)
    ]
    planned = schedule.schedule(tasks, 40)
    ends = [planned.spans[(at + 1) * len(tasks) - 1].end_s for at in range(40)]
    found = simulate(one, Rule(1, 0.0, overlap=True), np.zeros(40))
    assert found.latency_s == pytest.approx(ends[4:39], rel=1e-9)  # the first tenth and the last are left out


def plain(one: ServedPass, full: int, wait: float, come: Array) -> list[float]:
    """Latencies, a request at a time: one batch after the other."""
    waiting, ends, free, at = [], [], 0.0, 0
    while at < come.size or waiting:
        if not waiting:
            waiting.append(come[at])
            at += 1
        while at < come.size and len(waiting) < full and come[at] <= max(free, waiting[0] + wait):
            waiting.append(come[at])
            at += 1
        begin = waiting[-1] if len(waiting) == full else waiting[0] + wait
        begin = max(begin, free)
        free = begin + one.total(np.ceil(len(waiting) / one.gpus))
        ends += [free - each for each in waiting]
        waiting = []
    return ends


@pytest.mark.parametrize("seed", range(6))
def test_a_request_at_a_time_gives_the_same(seed: int) -> None:
    random = np.random.default_rng(seed)
    one = served((IDS, 1e-3, 1e-4), (GATHER, 2e-3, 3e-5), gpus=int(random.integers(1, 4)))
    full, wait = int(random.integers(1, 20)), float(random.choice([0.0, 2e-3, 2e-2]))
    come = np.cumsum(random.standard_exponential(3000)) / (
        random.uniform(0.2, 1.1) * full / one.gap(full, False)
    )
    found = simulate(one, Rule(full, wait if full > 1 else 0.0, overlap=False), come)
    expected = plain(one, full, wait if full > 1 else 0.0, come)
    assert found.latency_s == pytest.approx(expected[300 : 300 + found.latency_s.size], abs=1e-9)


@pytest.mark.parametrize("overlap", [False, True])
def test_requests_inside_are_little_s_law_and_parts_add_up(overlap: bool) -> None:
    one = served((IDS, 1e-3, 1e-5), (GATHER, 2e-3, 2e-5), (BAGS, 1e-3, 1e-5))
    rate = 0.8 * 16 / one.gap(16, overlap)
    come = Poisson(1).times(rate, 1, 60_000)
    late = Lateness(1e-5, 0.1, np.random.default_rng(2).standard_exponential((512, 3)))
    found = simulate(one, Rule(16, 1e-3, overlap=overlap), come, late)
    assert sum(found.parts_s.values()) == pytest.approx(found.latency_s)
    assert min(part.min() for part in found.parts_s.values()) >= -1e-12
    seen = come[6000 : 6000 + found.latency_s.size]
    left = np.sort(seen + found.latency_s)
    watch = np.random.default_rng(4).uniform(seen[0], seen[-1], 20_000)  # looks inside at any time
    inside = np.searchsorted(seen, watch, "right") - np.searchsorted(left, watch, "right")
    assert inside.mean() == pytest.approx(float(queueing.requests_inside(rate, found.mean_s)), rel=0.03)
    assert sum(found.made_of(0.99).values()) == pytest.approx(found.quantile(0.99))


def test_following_one_request_in_many_changes_little() -> None:
    one = served((GATHER, 1e-3, 1e-6), (BAGS, 1e-3, 1e-6))
    whole, some = (
        simulate(one, Rule(2000, 1e-3, overlap=True, grain=m), Poisson(1).times(6e5, 1, 400_000 // m, m))
        for m in (1, 20)
    )
    for share in (0.5, 0.99):
        assert some.quantile(share) == pytest.approx(whole.quantile(share), rel=0.02)
    assert some.requests == pytest.approx(whole.requests, rel=0.02)


def test_the_same_seed_gives_the_same_times() -> None:
    one = served((IDS, 1e-3, 1e-5), (GATHER, 1e-3, 1e-5))
    a, b, c = (
        simulate(one, Rule(8, 1e-3), Poisson(seed).times(2000, 1, 5000)).quantile(0.99) for seed in (1, 1, 2)
    )
    assert a == b != c
