"""Each cause from numbers: with it planted it is found, with what it explains; without it nothing is said."""

from __future__ import annotations

import pytest

from perfmodel.validate.traced import causes
from perfmodel.validate.traced.causes import Cause


def test_a_straggler_causes_most_of_the_waiting() -> None:
    found = causes.waiting([{3: 4e-3, 0: 0.2e-3}] * 8, 4.2e-3, 1e-3)
    assert found is not None and found.cause is Cause.STRAGGLER
    assert found.words.startswith(
        "rank 3 comes late: the mean rank waits 4.00 ms for it, 95.2 % of its waiting"
    )
    assert found.explains_s == pytest.approx(4e-3)  # what it causes, not all waiting


def test_uneven_arrival_names_nobody() -> None:
    by_turns = causes.waiting([{0: 4e-3}, {1: 4e-3}, {2: 4e-3}, {3: 4e-3}], 4e-3, 1e-3)
    assert by_turns is not None and by_turns.cause is Cause.SKEW
    assert "not always the same" in by_turns.words
    once = causes.waiting([{0: 90e-3}, {1: 2e-3}, {2: 2e-3}, {1: 2e-3}], 2e-3, 1e-3)  # one stop is no habit
    assert once is not None and once.cause is Cause.SKEW
    shared = causes.waiting([{0: 2e-3, 1: 1.9e-3}] * 4, 3.9e-3, 1e-3)
    assert shared is not None and shared.cause is Cause.SKEW


def test_little_waiting_is_no_reason() -> None:
    assert causes.waiting([{3: 0.1e-3}] * 4, 0.1e-3, 1e-3) is None
    assert causes.waiting([{3: 0.26e-3}] * 4, 0.26e-3, 1e-3) is not None
    assert causes.waiting([{}] * 4, 0.0, 1e-3) is None
    assert causes.waiting([], 0.0, 1e-3) is None


EVEN = dict.fromkeys(range(4), 1.0)


def test_a_card_at_half_its_rate() -> None:
    kernels = [{0: 1e-3, 1: 2e-3, 2: 1.1e-3, 3: 1e-3}, {0: 4e-4, 1: 8e-4, 2: 4e-4, 3: 4e-4}]
    found = causes.slow_rank(kernels, [EVEN, EVEN])
    assert found is not None and found.cause is Cause.SLOW_RANK
    assert found.words.startswith("rank 1 takes 2.00× as long") and "half its rate" in found.words
    assert found.explains_s == pytest.approx(1e-3 + 4e-4)


def test_a_rank_with_more_bytes_is_not_slow() -> None:
    """It has twice the bytes by the plan, and takes twice as long."""
    kernels = [{0: 1e-3, 1: 2e-3, 2: 1e-3, 3: 1e-3}]
    assert causes.slow_rank(kernels, [{0: 0.8, 1: 1.6, 2: 0.8, 3: 0.8}]) is None
    assert causes.slow_rank(kernels, [EVEN]) is not None


def test_one_slow_kernel_of_four_is_no_slow_rank() -> None:
    alike = dict.fromkeys(range(4), 1e-3)
    assert causes.slow_rank([alike | {2: 5e-3}, alike, alike, alike], [EVEN] * 4) is None
    assert causes.slow_rank([alike | {2: 1.3e-3}], [EVEN]) is None
    assert causes.slow_rank([{0: 1e-3}], [EVEN]) is None
    assert causes.slow_rank([], []) is None


def test_a_rail_at_half_its_rate() -> None:
    found = causes.slow_network([(2e-3, 1e-3), (4.2e-3, 2e-3)], [(1.05e-3, 1e-3)])
    assert found is not None and found.cause is Cause.SLOW_NETWORK
    assert found.explains_s == pytest.approx(3.2e-3)


def test_a_network_is_blamed_only_where_the_inside_is_well() -> None:
    slow, well = [(2e-3, 1e-3)], [(1e-3, 1e-3)]
    assert causes.slow_network(slow, []) is None  # nothing to compare with
    assert causes.slow_network(slow, [(2e-3, 1e-3)]) is None  # all is slow
    assert causes.slow_network([*slow, (1e-3, 1e-3)], well) is None  # one of two is well
    assert causes.slow_network([], well) is None


def test_a_host_that_launches_too_late() -> None:
    found = causes.host_bound(3e-3, 10e-3)
    assert found is not None and found.cause is Cause.HOST_BOUND
    assert "30.0 % of the pass" in found.words and found.explains_s == 3e-3
    assert causes.host_bound(1e-3, 10e-3) is None
    assert causes.host_bound(0.0, 0.0) is None


def test_compute_beside_an_exchange() -> None:
    found = causes.overlap([2e-3, 2e-3, 1e-3, 1e-3, 2e-3], [True, True, False, False, True])
    assert found is not None and found.cause is Cause.OVERLAP
    assert found.explains_s == pytest.approx(1e-3)
    always = causes.overlap([1e-3, 1e-3], [True, True])
    assert always is not None and always.explains_s == 0
    assert causes.overlap([1e-3, 1e-3], [False, False]) is None
    assert causes.overlap([1.05e-3, 1e-3, 1e-3], [True, False, False]) is None


def test_other_bytes_than_the_plans() -> None:
    planned = {0: 1e6, 1: 1e6}
    found = causes.other_bytes({0: 2e6, 1: 2e6}, planned, 5e-4, by_ids=False, batch=2.0)
    assert found is not None and found.cause is Cause.BYTES and "another batch" in found.words
    assert found.explains_s == 5e-4
    padded = causes.other_bytes({0: 1.3e6, 1: 1.3e6}, planned, 1e-4, by_ids=True)
    assert padded is not None and "padding" in padded.words and "poolings" in padded.words
    halves = causes.other_bytes({0: 5e5, 1: 5e5}, planned, -1e-4, by_ids=False)
    assert halves is not None and "fp16" in halves.words
    assert causes.other_bytes({0: 1.05e6, 1: 0.97e6}, planned, 0.0, by_ids=True) is None
    assert causes.other_bytes({}, planned, 0.0, by_ids=True) is None


def test_skewed_ids() -> None:
    planned = dict.fromkeys(range(4), 1e6)
    found = causes.other_bytes(planned | {2: 3e6}, planned, 1e-3, by_ids=True)
    assert found is not None and found.cause is Cause.UNEVEN_BYTES
    assert "rank 2 has the most" in found.words
    uneven_as_planned = {0: 3e6, 1: 1e6}
    assert causes.other_bytes(uneven_as_planned, uneven_as_planned, 1e-3, by_ids=True) is None


def test_another_collective_does_the_work() -> None:
    found = causes.ran_as("reduce_scatter", "all_reduce", 3e-4)
    assert found is not None and found.cause is Cause.RAN_AS
    assert found.words == "it ran as all-reduce, not as reduce-scatter, predicted 300 µs longer"
    assert causes.ran_as("all_to_all", "all_to_all", None) is None
    unknown = causes.ran_as("reduce_scatter", "all_reduce", None)
    assert unknown is not None and unknown.explains_s == 0


def test_another_protocol_by_its_time() -> None:
    times = {"ring LL": 4e-3, "ring LL128": 1.4e-3, "ring Simple": 1e-3}
    found = causes.other_protocol(4.2e-3, "ring Simple", times)
    assert found is not None and found.cause is Cause.PROTOCOL and found.explains_s == pytest.approx(3e-3)
    assert found.words.startswith(
        "it takes what ring LL would, 4.00 ms, and the prediction is for ring Simple"
    )
    assert causes.other_protocol(1.05e-3, "ring Simple", times) is None  # its own
    assert causes.other_protocol(2.4e-3, "ring Simple", times) is None  # none takes that long
    assert causes.other_protocol(4.2e-3, "pairwise", times) is None


def test_the_likeliest_explains_most_in_the_right_direction() -> None:
    slower = causes.waiting([{3: 4e-3}] * 4, 4e-3, 1e-3)
    little = causes.host_bound(3e-3, 10e-3)
    faster = causes.other_bytes({0: 5e5}, {0: 1e6}, -9e-3, by_ids=False)
    assert causes.likeliest([little, None, slower, faster], 5e-3) == [slower, little]
    assert causes.likeliest([little, None, slower, faster], -5e-3) == [faster]
    assert causes.likeliest([None], 1.0) == []
    off = causes.the_curve(9e-3, 1e-3, "measured", "")
    assert causes.likeliest([little, off], 5e-3) == [off, little]  # 8 ms, and 3 ms of gaps
    rest = causes.the_curve(2e-3, 1e-3, "extrapolated", "NIC rate")
    assert (
        rest.words
        == "nothing in the trace explains 2.00× the predicted time, which is extrapolated (NIC rate)"
    )


def test_what_a_cause_leaves_unexplained_is_the_predictions() -> None:
    steps = [("gather", 9e-3, 1e-3, 0.0), ("sort", 5e-3, 1e-3, 1e-3)]
    found = causes.several_curves(steps)
    assert found is not None and found.explains_s == pytest.approx(8e-3 + 3e-3)
    assert found.words.startswith("1 step without a cause in the traces, and the rest of 1 step with one,")
    assert causes.several_curves([("sort", 5e-3, 1e-3, 4e-3)]) is None
    assert causes.several_curves([]) is None
