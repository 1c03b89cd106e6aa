"""Validation: summaries that a human can divide, verdicts, and the tables in docs/ against a fresh run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from left_out import summary
from scipy.optimize import isotonic_regression

from perfmodel.fit.shipped import load_plan
from perfmodel.schema.calibration import shipped_calibration
from perfmodel.validate import accuracy, medians, validate
from perfmodel.validate.crossover import Comparison, list_common_sizes
from perfmodel.validate.verdicts import Claim, Finding, Outcome, load_claims

MIB = 2**20


def test_errors_are_relative_and_sizes_fall_into_three_classes() -> None:
    sizes = [1.0, 65535.0, 65536.0, 32 * MIB - 1, 32 * MIB, 1e12]
    columns = {
        "time_s": 2.0,
        "predicted_s": [3.0, 1.5, 2, 2, 2, 2],
        "low_s": 1.0,
        "high_s": [2.0, 1.75, 2, 2, 2, 2],
    }
    frame = medians.judge_points(pd.DataFrame({"payload_bytes": sizes, **columns}))
    assert list(frame["error"])[:2] == [0.5, -0.25] and list(frame["inside"])[:2] == [True, False]
    assert list(frame["size"]) == ["floor", "floor", "middle", "middle", "bulk", "bulk"]


def test_summary_of_four_points() -> None:
    times = {"time_s": 10.0, "low_s": [5.0, 9.5, 10.0, 11.0], "high_s": [10.0, 19.0, 20.0, 22.0]}
    rows = pd.DataFrame({"payload_bytes": 1.0, "predicted_s": [11.0, 9.0, 12.0, 15.0], **times})
    row = summary(medians.judge_points(rows).assign(machine="m"), ["machine"]).iloc[0]
    assert row["n"] == 4 and row["inside"] == 0.75 and row["width"] == 2
    assert row["median"] == row["bias"] == pytest.approx(0.15)  # of 0.1 0.1 0.2 0.5, one of them negative
    assert accuracy.summarize(medians.judge_points(rows), "ratio", "4 points").value == pytest.approx(1.15)
    mixed = medians.judge_points(rows.assign(payload_bytes=[1e9, 1.0, 1e6, 1e9])).assign(machine="m")
    assert list(summary(mixed, ["machine", "size"])["size"]) == ["floor", "middle", "bulk"]


ENTRIES = {entry.calibration_id: entry for entry in load_plan().calibration}


@pytest.mark.parametrize("name", list(ENTRIES))
def test_measured_points_are_those_of_the_shipped_curves(name: str) -> None:
    calibration = shipped_calibration(name)
    frame = medians.list_measured_points(ENTRIES[name], medians.load_shipped_samples())
    seen = 0
    for key, cell in frame.groupby(["collective", "gpus", "domain_gpus"], observed=True):
        curve = calibration.curve(str(key[0]), int(key[1]), int(key[2]))
        if curve is None:  # samples that inform the laws only
            continue
        assert list(cell["payload_bytes"]) == curve.anchor_bytes
        logs = isotonic_regression(np.log(cell["time_s"].to_numpy(float))).x
        assert np.exp(logs) == pytest.approx(curve.anchor_times_s, rel=1e-5)
        seen += 1
    assert seen == len(calibration.curves)


def test_other_clusters_inform_no_calibration() -> None:
    used = {
        source
        for name in set(accuracy.OTHER_CLUSTERS.values())
        for law in shipped_calibration(medians.list_preferred_entries()[name].calibration_id).laws
        for source in law.sources
    }
    used |= {source for cluster in load_plan().cluster for source in cluster.sources}
    assert not used & set(accuracy.OTHER_CLUSTERS)


def comparison(nvshmem: list[float], nccl: list[float]) -> Comparison:
    sizes = 1024.0 * 2.0 ** np.arange(len(nccl))
    return Comparison(sizes, np.array(nvshmem), np.array(nccl))


@pytest.mark.parametrize(
    ("nvshmem", "nccl", "size", "winner"),
    [
        ([1.0, 2.0, 4.0, 8.0], [3.0] * 4, 4096, "nvshmem, then nccl"),
        ([1.0, 3.0, 4.0], [3.0] * 3, 4096, "nvshmem, then nccl"),
        ([2.0, 2.0], [1.0, 1.0], 0, "nccl"),
        ([1.0, 2.0], [2.0, 2.0], math.inf, "nvshmem"),
    ],
)
def test_crossover_is_the_size_from_which_nccl_stays_ahead(
    nvshmem: list[float], nccl: list[float], size: float, winner: str
) -> None:
    """Where both take as long, NCCL is not ahead."""
    compared = comparison(nvshmem, nccl)
    assert compared.crossover_bytes == size and compared.winner == winner
    assert compared.small_ratio == nccl[0] / nvshmem[0]
    assert compared.rise(1024, 2048) == (nvshmem[1] / nvshmem[0], nccl[1] / nccl[0])


@pytest.mark.parametrize(
    ("least", "most", "ends", "said"),
    [
        (1, 1, {"low": 1, "high": 2}, "holds"),
        (2, 2, {"low": 1, "high": 2}, "holds"),
        (3, 3, {"low": 1, "high": 2}, "fails"),
        (1, 2, {"low": 1, "high": 2}, "holds"),
        (2.1, 9, {"low": 1, "high": 2}, "fails"),
        (0, 0.9, {"low": 1, "high": 2}, "fails"),
        (1.5, 2.1, {"low": 1, "high": 2}, "cannot say"),
        (0.5, 9, {"low": 1, "high": 2}, "cannot say"),
        (2, 9, {"low": 1, "high": 2}, "cannot say"),
        (25, 90, {"low": 20, "high": math.inf}, "holds"),
        (15, 90, {"low": 20, "high": math.inf}, "cannot say"),
        (1, 1, {}, "compared"),
        (12.7, 30.2, {"low": 8.8, "high": 13.75, "published": 11}, "fails"),
        (10.0, 30.2, {"low": 8.8, "high": 13.75, "published": 11}, "cannot say"),
        (11.5, 12.0, {"low": 8.8, "high": 13.75, "published": 11}, "holds"),
        (20.0, 30.0, {"low": 8.8, "high": 13.75, "published": 11}, "fails"),
    ],
)
def test_a_claim_is_judged_by_the_whole_range(
    least: float, most: float, ends: dict[str, float], said: str
) -> None:
    """All inside, all outside, or both, whatever the number between the ends is; "cannot say" is only of a
    published number, or range, that ours holds."""
    claim = Claim.model_validate({"id": "x", "claim": "", "ask": {}, "why": "", **ends})
    assert {claim.judge(Finding(value, "", least, most)) for value in (least, most)} == {Outcome(said)}
    assert claim.judge(Finding(None, "not measured")) == ("cannot say" if ends else "compared")


def test_a_number_without_a_band_is_its_own_ends() -> None:
    assert Finding(2.0, "").ends == (2.0, 2.0)
    assert Finding.within(2.0, [1.0, 3.0], str) == Finding(2.0, "2.0 (1.0 to 3.0)", 1.0, 3.0)
    assert Finding.within(2.0, [], str) == Finding(2.0, "2.0", 2.0, 2.0)


def test_the_ends_of_a_comparison_are_those_of_its_ratio() -> None:
    """Twice as slow, half as slow: NCCL ahead from 1 KiB, from 4 KiB, nowhere."""
    found = comparison([1.0, 1.0, 1.0], [2.0, 1.0, 0.5])
    fast, slow = replace(found, low=found.nccl_s / 2.1, high=found.nccl_s * 4).ends
    assert (fast.small_ratio, slow.small_ratio) == (pytest.approx(2 / 2.1), 8)
    assert (fast.winner, slow.winner) == ("nccl", "nvshmem")
    names = ("nvshmem-3.3.9-device", "nccl-2.29.2-stream")  # 128 B to 256 MiB, 512 B to 512 MiB
    curves = [shipped_calibration(f"h200-sxm-ib/{name}").curve("all_reduce", 8, 8) for name in names]
    sizes = list_common_sizes([*filter(None, curves)])
    assert (sizes[0], sizes[-1], sizes.size) == (512, 2**28, 19 * 16 + 1)


def test_a_broken_band_is_a_regression() -> None:
    rows = {band.id: band.verdict(Finding(0.95, "made up"), own=True) for band in load_claims("bands")}
    assert rows["in-node median"].regression
    assert rows["in-node median"].verdict is Outcome.FAILS
    assert not rows["in-node interval"].regression


def test_only_held_out_bands_wait_for_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    judge = lambda of, **_: asked.append(of) or Finding(0.95, "made up")  # noqa: E731
    monkeypatch.setattr(accuracy, "judge_left_out", judge)
    every = validate(held_out=True)
    assert len(every) == len(asked) == len(load_claims("bands"))
    slow = asked.count("two_nodes")
    assert slow == 4 and len(validate()) == len(every) - slow and every[0].regression


@pytest.mark.parametrize(
    ("band", "got", "shown"),
    [
        ("at most 0.035", "2.2 %, 1 048 points", "at most 3.5 %"),
        ("20.52 to 25.08", "24.0× (band 15.1× to 37.9×)", "20.5× to 25.1×"),
        ("1024 to 1.04858e+06", "16.7 KiB", "1 KiB to 1.00 MiB"),
        ("192 to 192", "192 of 192 points", "192 to 192"),
    ],
)
def test_bands_are_written_as_what_came_out_is(band: str, got: str, shown: str) -> None:
    from perfmodel.report.validation_text import in_unit_of

    assert in_unit_of(band, got) == shown
