"""Limits of embedding_bag, sharding, bounds and bands, asserted as the docstrings state them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.model import bands, capacity
from perfmodel.model import embedding_bag as eb

ranks = st.integers(1, 4096)


def test_message_sizes_are_what_torchrec_sent_on_128_fake_ranks() -> None:
    # the logged job: N=128 ranks, B=64 samples, F=1 table, L=10 ids, D=32, int64 ids, fp32 bags
    N, B, F, L, D = 128, 64, 1, 10, 32
    assert eb.splits_bytes(N, 3, 8) == 3 * 8 * N == 3072
    assert eb.lengths_bytes(N, B * F, 8) == 8 * N * B * F
    assert eb.ids_bytes(B * F * L, 8) == 8 * B * L * F
    assert eb.partial_bags_bytes(N, B * F * D, 4) == 4 * N * B * D


def test_message_limits() -> None:
    assert eb.splits_bytes(1, 3, 8) == 24
    assert eb.lengths_bytes(1, 10, 4) == 40
    assert eb.partial_bags_bytes(1, 320, 4) == 1280
    assert eb.lengths_bytes(np.array([2, 4]), 10, 4).tolist() == [80, 160]
    assert eb.ids_bytes(np.array([10, 20]), 8).tolist() == [80, 160]


def test_kernel_bytes_limits() -> None:
    assert eb.bucketize_bytes(0, 8, 3, 10, 8) == 3 * 10 * 8
    assert eb.bucketize_bytes(100, 8, 1, 10, 8) == 800 + 80
    assert eb.local_sum_bytes(1, 320, 4) == 2 * 1280
    big = 1e9
    assert eb.local_sum_bytes(big, 320, 4) / eb.partial_bags_bytes(big, 320, 4) == pytest.approx(1)


def test_gpus_needed_limits() -> None:
    assert capacity.gpus_needed(10e12, 80e9, 0) == 125
    assert capacity.gpus_needed(80e9, 80e9, 0) == 1
    assert capacity.gpus_needed(1, 80e9, 0) == 1
    assert capacity.gpus_needed(80e9 + 1e3, 80e9, 0) == 2
    assert capacity.gpus_needed(10e12, 80e9, 0.5) == 250
    assert capacity.gpus_needed(0.3, 0.1, 0) == 3  # 0.3 / 0.1 is a hair below 3 in floats
    assert capacity.gpus_needed(3 * 80e9, 80e9, 0) == 3


def test_whole_nodes_limits() -> None:
    assert capacity.whole_nodes([1, 5, 8, 9, 125, 128], 8).tolist() == [1, 5, 8, 16, 128, 128]


@given(ranks, st.integers(1, 72))
def test_whole_nodes_adds_less_than_a_node(n: int, g: int) -> None:
    assert n <= capacity.whole_nodes(n, g) <= n + g - 1


def test_rows_per_table_limits() -> None:
    assert capacity.rows_per_table(128, 1, 128) == 1
    assert capacity.rows_per_table(10e12, 1, 128) == 7.8125e10
    assert capacity.rows_per_table(10e12, 10, 128) == 7.8125e9


def test_quadrature_limits() -> None:
    assert bands.quadrature(3, 4) == 5
    assert bands.quadrature(-3, 0) == 3
    assert bands.quadrature(1, 1) == pytest.approx(np.sqrt(2))


def test_slowdown_band_limits() -> None:
    exact = (10.0, 10.0, 10.0)
    none = (0.0, 0.0, 0.0)
    assert bands.slowdown_band(none, ((5, 10, 20), (5, 10, 20))) == (1, 1)
    assert bands.slowdown_band((30.0, 30.0, 30.0), (exact, exact)) == (4, 4)
    assert bands.slowdown_band((20.0, 30.0, 60.0), (exact, exact)) == (3, 7)


def test_slowdown_band_grows_when_the_baseline_is_faster_than_thought() -> None:
    # all kernels twice as fast: communication 30 over a baseline of 5, (30 + 5) / 5 = 7 against 4
    low, high = bands.slowdown_band((30, 30, 30), ((5, 10, 20), (5, 10, 20)))
    assert high == 7
    assert low == 2.5


@given(st.floats(0, 1), st.floats(1, 3), st.floats(1, 3))
def test_band_brackets_the_centre(comm: float, comm_factor: float, get_kernel_factor: float) -> None:
    low, high = bands.slowdown_band(
        (comm / comm_factor, comm, comm * comm_factor),
        ((1 / get_kernel_factor, 1, get_kernel_factor), (1 / get_kernel_factor, 1, get_kernel_factor)),
    )
    assert low <= comm + 1 <= high
    assert low >= 0
