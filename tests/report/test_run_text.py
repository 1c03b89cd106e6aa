"""Text of a run: numbers that a human can divide, lines that fit, what the terminal sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calibrate.running.interfaces import RunOutcome
from calibrate.running.stopping import Summary
from perfmodel.report.run_text import (
    constants_text,
    describe_rate,
    fitted_text,
    format_clock,
    list_warnings,
    name_point,
    progress_text,
    select_measured,
)
from perfmodel.schema.calibration import Calibration, Curve
from perfmodel.schema.evidence import Clock
from perfmodel.schema.fields import Interval
from perfmodel.schema.runs import Finish, LookupWork, Point, PointKind

A2A = Point(
    kind=PointKind.COLLECTIVE, operation="all_to_all", backend="nccl", clock=Clock.STREAM,
    payload_bytes=2**20, gpus=8, gpus_per_node=8,
)  # fmt: skip
PASS = Point(
    kind=PointKind.COMPOSED, operation="row_wise", backend="gloo", implementation="exchange",
    clock=Clock.EAGER, payload_bytes=4096, gpus=2, gpus_per_node=2,
    work=LookupWork(batch=64, tables=2, pooling=4.5, dim=48),
)  # fmt: skip
SUMMARY = Summary(14e-6, 13.9e-6, 14.1e-6, 0.004, 6)


def interval(value: float) -> Interval:
    return Interval(value=value, low=0.9 * value, high=1.1 * value)


def curve(
    alpha_s: float, rate: float, sizes: tuple[int, ...] = (1024, 2**15, 2**20), **changes: Any
) -> Curve:
    """t = alpha + S / rate, exactly on its anchors."""
    fields: dict[str, Any] = {
        "collective": "all_to_all", "gpus": 2, "domain_gpus": 2, "alpha_s": interval(alpha_s),
        "beta_bytes_per_s": interval(rate), "p": Interval(value=1, low=1, high=1),
        "anchor_bytes": list(sizes),
        "anchor_times_s": [alpha_s + size / rate for size in sizes], "anchor_log_sd": 0.01, "sample_count": 3,
        "loo_median": 0.02, "loo_p90": 0.06, "sources": ["here"], "library_version": "5",
        "clock": Clock.EAGER,
    }  # fmt: skip
    return Curve.model_validate(fields | changes)


def calibration(backend: str, *curves: Curve) -> Calibration:
    return Calibration(
        schema_version=2, calibration_id=f"here/{backend}-5-eager", machine="here", backend=backend,
        library_version="5", clock=Clock.EAGER, domain_gpus=2, complete=True, checked=True, sample_count=9,
        samples_sha256="", curves=list(curves), laws=[],
    )  # fmt: skip


def test_names_of_points() -> None:
    assert name_point(A2A) == "nccl all_to_all G=8 1 MiB stream"
    across = A2A.model_copy(update={"nodes": 2, "gpus": 16})
    assert name_point(across) == "nccl all_to_all G=16/2 nodes 1 MiB stream"
    assert name_point(PASS) == "exchange row_wise G=2 B=64 T=2 L=4.5 D=48 eager"


def test_bus_bandwidth_of_a_collective_and_plain_of_a_kernel() -> None:
    """1 MiB · 7/8 in 14 µs is 65.5 GB/s on the bus; a pass has no bytes that mean anything."""
    assert describe_rate(A2A, SUMMARY) == "65.5 GB/s bus"
    kernel = A2A.model_copy(
        update={"kind": PointKind.KERNEL, "operation": "copy", "payload_bytes": 28_000_000}
    )
    assert describe_rate(kernel, replace(SUMMARY, median_s=14e-3)) == "2 GB/s"
    assert describe_rate(PASS, SUMMARY) == ""


def test_the_progress_line() -> None:
    line = progress_text(211, 876, A2A, SUMMARY, 666)
    name = "nccl all_to_all G=8 1 MiB stream"
    assert line == f"[ 24 %] 11:06 left  {name}  14.0 µs ± 0.4 %  n=6  65.5 GB/s bus"
    assert "µs" not in progress_text(0, 876, A2A, None, 666)
    assert progress_text(875.99, 876, A2A, None, 0).startswith("[ 99 %]")


@pytest.mark.parametrize(("seconds", "words"), [(7, "0:07"), (666, "11:06"), (3723, "1:02:03")])
def test_time_left(seconds: float, words: str) -> None:
    assert format_clock(seconds) == words


def test_the_fitted_table_shows_bus_bandwidth() -> None:
    """2 GB/s of payload between 2 ranks: half of it crosses the bus."""
    text = fitted_text([calibration("gloo", curve(4e-6, 2e9))])
    assert "4.00 µs ± 10 %" in text and "1 GB/s ± 10 %" in text
    assert "2.0 / 6.0 %" in text and "1 KiB – 1 MiB" in text
    assert fitted_text([calibration("gloo")]) == ""


def test_borrowed_curves_are_not_shown_as_measured() -> None:
    """A run of kernels alone comes with the shipped collectives of its machine."""
    ours = calibration(
        "gloo", curve(4e-6, 2e9), curve(4e-6, 2e9, collective="broadcast", sources=["shipped"])
    )
    (kept,) = select_measured([ours], "here")
    assert [item.collective for item in kept.curves] == ["all_to_all"]
    assert select_measured([ours], "another run")[0].curves == []


def test_what_a_pass_adds_is_told_apart_from_waits() -> None:
    added = {"all_to_all": interval(2e-6), "between_steps": interval(3e-6)}
    text = constants_text([calibration("gloo").model_copy(update={"handover_s": added})])
    assert "gloo all_to_all, eager: 2.00 µs ± 10.0 %" in text
    assert "gloo waits between steps, eager: 3.00 µs" in text


def test_points_that_stayed_noisy_are_named_with_the_widest_interval() -> None:
    """Of three all-to-alls one is precise; the others are known to 12 and 30 %."""
    points = [A2A.model_copy(update={"payload_bytes": 2**size}) for size in (10, 20, 30)]
    ends = [
        Finish(key=point.key, status=status, median_s=2.0, low_s=1.0, high_s=high)
        for point, status, high in zip(points, ("ok", "noisy", "noisy"), (9.0, 2.6, 2.24), strict=True)
    ]
    states = {
        point.key: SimpleNamespace(point=point, finish=end) for point, end in zip(points, ends, strict=True)
    }
    plan: Any = SimpleNamespace(by_key={point.key: point for point in points})
    header: Any = SimpleNamespace(functional_only="")
    outcome = RunOutcome(plan, header, Path(), states)  # type: ignore[arg-type]
    (warning,) = list_warnings(outcome)
    assert "2 points (all_to_all 2) stayed noisy, up to ± 30.0 %." in warning
    assert warning.endswith("Try --only nccl:all_to_all --noise 1%.")
