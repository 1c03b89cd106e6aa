"""Bands of collectives: two ends from one table, which grow with the domains and never beat the light."""

from __future__ import annotations

import itertools
from typing import Any

import bands as benchmark
import numpy as np
import pandas as pd
import pytest

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.link_laws import compute_least_times
from perfmodel.collectives.time_tables import find_curve_errors, name_links
from perfmodel.model.unknowns import Group
from perfmodel.schema.machine import list_machines, load_machine
from perfmodel.schema.priors import load_priors

H100 = load_machine("h100-sxm-ib")


def ends(model: CollectiveModel, collective: str, gpus: int, size: float) -> tuple[float, float]:
    estimate = model.estimate(collective, size, gpus)
    low, time, high = (float(getattr(estimate, name)) for name in ("low_s", "time_s", "high_s"))
    return np.log(time / low), np.log(high / time)


def test_every_machine_has_its_rows() -> None:
    table = load_priors().bands
    for name in list_machines():
        for across, (own, law) in itertools.product(
            (False, True), ((False, False), (False, True), (True, True))
        ):
            row = table.find(name_links(load_machine(name), across=across), this_cluster=own, law=law)
            assert row.operators and min(*row.below, *row.above) > 0


def test_a_measured_group_of_another_cluster_has_the_row_of_its_links() -> None:
    row = load_priors().bands.find("nvlink", this_cluster=False, law=False)
    below, above = ends(CollectiveModel.load(H100), "all_gather", 8, 2.0**30)
    assert (below, above) == pytest.approx((row.below[3], row.above[3]), rel=1e-3)


def test_a_measured_group_of_this_cluster_has_the_error_of_its_curve() -> None:
    model = CollectiveModel.load(H100)
    own = model.calibration.model_copy(update={"this_cluster": True})
    curve = own.curve("all_gather", 8, 8)
    assert curve is not None
    errors = curve.left_out_log_sd, curve.anchor_log_sd
    log_error = float(find_curve_errors(np.array(curve.anchor_bytes), *errors, 2.0**28))
    assert ends(CollectiveModel(H100, own), "all_gather", 8, 2.0**28)[1] == pytest.approx(log_error, rel=1e-3)
    assert log_error < load_priors().bands.find("nvlink", this_cluster=False, law=False).above[3]


@pytest.mark.parametrize("size", [2.0**12, 2.0**20, 2.0**26, 2.0**32])
def test_a_band_grows_with_each_doubling_of_domains_that_nobody_measured(size: float) -> None:
    model = CollectiveModel.load(H100)
    above = [ends(model, "all_reduce", gpus, size)[1] for gpus in (256, 1024, 4096)]
    per_doubling = load_priors().bands.growth.above[
        int(np.searchsorted([2**16, 2**25, 2**28], size, "right"))
    ]
    assert np.diff(above) == pytest.approx(2 * per_doubling, abs=5e-3)


@pytest.mark.parametrize("collective", ["all_to_all", "all_reduce", "all_gather"])
def test_no_end_is_faster_than_light_and_none_falls(collective: str) -> None:
    for gpus in (8, 64, 1000):
        table = CollectiveModel.load(H100).table(collective, gpus, 8)
        light = np.log(compute_least_times(H100, collective, Group.of(gpus, 8)))
        assert np.all(table.log_low >= light - 1e-12)
        assert all(np.all(np.diff(column) >= 0) for column in (table.log_low, table.log_time, table.log_high))


def points(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"law": True, "links": "network", "size_class": 3, **columns})


def test_an_end_is_that_of_the_farthest_operator() -> None:
    """Three operators of ten points each: at -0.5, at 0 and from 0 to 0.9."""
    y = [-0.5] * 10 + [0.0] * 10 + [place / 10 for place in range(10)]
    below, above = benchmark.find_ends(points(operator=list("a" * 10 + "b" * 10 + "c" * 10), y=y))
    assert (below, above) == pytest.approx((0.5, 0.9 * 0.975))


def test_no_end_is_nearer_than_two_operators_of_one_configuration() -> None:
    ends = benchmark.find_ends(points(operator=["a", "b"], y=[0.0, 0.0]))
    assert ends == pytest.approx([1.96 / 0.6745 * np.log(1.043)] * 2)


def test_rows_of_few_operators_take_those_of_other_links() -> None:
    rows = points(operator=["a", "b", "c", "d"], links=["network", "network", "nvlink", "slingshot"], y=0.1)
    assert set(benchmark.select(rows, "network", law=True, size_class=3)["operator"]) == {"a", "b", "c"}
    assert set(benchmark.select(rows, "slingshot", law=True, size_class=3)["operator"]) == {"d"}


def test_growth_is_what_far_points_are_farther_a_doubling() -> None:
    """0.1 above with 2 of 4 nodes seen, 0.5 with 2 of 32: 0.4 more in three doublings."""
    rows = pd.concat([
        points(operator="a", seen_nodes=2, nodes=[4, 32], y=[0.2, 0.5], size_class=size_class)
        for size_class in range(4)
    ])  # fmt: skip
    least = 1.96 / 0.6745 * np.log(1.043)
    below, above = list(benchmark.find_growth(rows))[3]
    assert (below, above) == pytest.approx((0, (0.5 - max(0.2, least)) / 3))
