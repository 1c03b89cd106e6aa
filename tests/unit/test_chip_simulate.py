"""The simulator of a chip: cases that a human can count, and a cache against one of few lines."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.onechip.simulate import LOCAL, CoreAction, Fetch, Meet, Simulated, simulate
from perfmodel.schema.chip import Chip, load_chip

LATENCY = 1e-6
PLAIN = {
    "cores": 4,
    "row_latency_s": LATENCY,
    "gm_bytes_per_s": 4e9,
    "channels": 4,
    "cache_bytes": 0,
    "cache_bytes_per_s": 0,
    "cache_slices": 0,
    "cache_latency_s": 0,
}
CACHED = {
    **PLAIN,
    "cache_bytes": 1000,
    "cache_bytes_per_s": 100e9,
    "cache_slices": 1,
    "cache_latency_s": 0.1e-6,
}


def chip(**values: float) -> Chip:
    return load_chip("ascend-910").with_overrides({**PLAIN, **values})


def rows(
    places: list[int], size: float = 100, at_once: int = 1, issue: float = 0, keys: list[int] | None = None
) -> Fetch:
    count = len(places)
    return Fetch([size] * count, [issue] * count, places, keys, [0] * count, [0.0], at_once)


def run(*steps: CoreAction, on: Chip | None = None) -> Simulated:
    return simulate(on or chip(), [iter(steps)])


def test_no_work_takes_no_time() -> None:
    assert run().seconds == 0
    assert simulate(chip(), []).seconds == 0


def test_one_row_at_a_time_is_the_sum_of_latencies() -> None:
    found = run(rows([0] * 10))
    assert found.seconds == pytest.approx(10 * (LATENCY + 100 / 1e9))
    assert found.gm_bytes == 1000 and found.requests == 10


def test_rows_in_flight_share_the_latency() -> None:
    found = run(rows(list(range(40)), size=1e-3, at_once=4))
    assert found.seconds == pytest.approx(10 * LATENCY, rel=1e-5)


def test_one_channel_serves_one_row_after_the_other() -> None:
    found = run(rows([4 * k for k in range(100)], at_once=100))
    assert found.seconds == pytest.approx(100 * 100 / 1e9 + LATENCY)
    assert found.channel_s.tolist() == [pytest.approx(100 * 100 / 1e9), 0, 0, 0]


def test_channels_serve_side_by_side() -> None:
    found = run(rows(list(range(100)), at_once=100))
    assert found.seconds == pytest.approx(25 * 100 / 1e9 + LATENCY)


def test_a_core_asks_no_faster_than_it_can() -> None:
    found = run(rows(list(range(100)), size=1e-3, at_once=100, issue=50e-9))
    assert found.seconds == pytest.approx(99 * 50e-9 + LATENCY, rel=1e-5)


def test_cores_share_channels() -> None:
    both = simulate(chip(), [iter([rows([0] * 50, at_once=50)]) for _ in range(2)])
    assert both.seconds == pytest.approx(100 * 100 / 1e9 + LATENCY)
    apart = simulate(chip(), [iter([rows([k] * 50, at_once=50)]) for k in range(2)])
    assert apart.seconds == pytest.approx(50 * 100 / 1e9 + LATENCY)


def test_work_and_steps_follow_each_other() -> None:
    found = run(2e-6, rows([0]), 3e-6)
    assert found.seconds == pytest.approx(5e-6 + LATENCY + 0.1e-6)


def test_a_write_does_not_wait_for_an_answer() -> None:
    write = Fetch([100.0], [0.0], [0], None, [0], [0.0], 1, posted=True)
    assert run(write).seconds == pytest.approx(0.1e-6)


def chunks(count: int, stream: float, work: float) -> Fetch:
    """Chunks that the core copies inside itself."""
    return Fetch(
        [1.0] * count, [stream] * count, [LOCAL] * count, None, list(range(count)), [work] * count, 9
    )


def test_two_buffers_overlap_copying_and_work() -> None:
    assert run(chunks(10, 1e-6, 2e-6)).seconds == pytest.approx(21e-6)
    assert run(chunks(10, 2e-6, 1e-6)).seconds == pytest.approx(21e-6)
    assert run(chunks(1, 2e-6, 1e-6)).seconds == pytest.approx(3e-6)


def test_a_third_chunk_waits_for_a_buffer() -> None:
    far = Fetch([1e-3] * 6, [0.0] * 6, list(range(6)), None, list(range(6)), [0.0] * 6, 9)
    assert run(far).seconds == pytest.approx(3 * LATENCY, rel=1e-3)
    free = Fetch([1e-3] * 6, [0.0] * 6, list(range(6)), None, list(range(6)), [0.0] * 6, 9, free_from=5)
    assert run(free).seconds == pytest.approx(LATENCY, rel=1e-3)


def test_cores_meet() -> None:
    def late() -> Iterator[CoreAction]:
        yield 5e-6
        yield Meet()
        yield 1e-6

    def early() -> Iterator[CoreAction]:
        yield 1e-6
        yield Meet()
        yield 2e-6

    assert simulate(chip(), [late(), early()]).core_s.tolist() == pytest.approx([6e-6, 7e-6])


def test_the_cache_answers_what_it_has() -> None:
    on = chip(**CACHED)
    found = run(rows([7] * 5, keys=[7] * 5), on=on)
    miss, hit = LATENCY + 100 / 1e9 + 1e-9, 0.1e-6 + 1e-9
    assert found.seconds == pytest.approx(miss + 4 * hit)
    assert found.hits == 4 and found.gm_bytes == 100


def test_a_row_on_its_way_is_waited_for_and_not_fetched_again() -> None:
    found = run(rows([7] * 5, keys=[7] * 5, at_once=5), on=chip(**CACHED))
    assert found.seconds == pytest.approx(LATENCY + 100 / 1e9 + 1e-9)
    assert found.gm_bytes == 100


def brute_hits(keys: list[int], room: int) -> int:
    """Hits of a cache that forgets what was unused for longest."""
    held: list[int] = []
    hits = 0
    for key in keys:
        hits += key in held
        held = [*(other for other in held if other != key), key][-room:]
    return hits


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 15), min_size=1, max_size=120), st.integers(1, 12))
def test_the_cache_is_lru(keys: list[int], room: int) -> None:
    on = chip(**{**CACHED, "cache_bytes": 100 * room})
    assert run(rows(keys, keys=keys), on=on).hits == brute_hits(keys, room)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 15), min_size=1, max_size=120), st.integers(1, 5))
def test_slices_of_a_cache_are_caches(keys: list[int], room: int) -> None:
    on = chip(**{**CACHED, "cache_bytes": 300 * room, "cache_slices": 3})
    parts = [[key for key in keys if key % 3 == part] for part in range(3)]
    assert run(rows(keys, keys=keys), on=on).hits == sum(brute_hits(part, room) for part in parts)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(1, 12),
    st.floats(1, 500),
    st.floats(0, 1e-7),
    st.integers(0, 2**20),
    st.data(),
)
def test_no_chip_is_faster_than_its_parts(
    count: int, at_once: int, size: float, issue: float, seed: int, data: st.DataObject
) -> None:
    places = np.random.default_rng(seed).integers(0, 64, count).tolist()
    found = run(rows(places, size, at_once, issue))
    busiest = max(np.bincount(np.array(places) % 4)) * size / 1e9
    alone = LATENCY + size / 1e9
    least = max(busiest + LATENCY, np.ceil(count / at_once) * LATENCY, (count - 1) * issue + alone)
    assert found.seconds >= least * (1 - 1e-9)
    assert found.seconds <= count * (alone + issue) * (1 + 1e-9)
    more = run(rows(places, size, at_once + 1, issue))
    assert more.seconds <= found.seconds * (1 + 1e-9) or at_once > 1
