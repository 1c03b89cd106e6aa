"""Text of a run: numbers that a human can divide, lines that fit, what the terminal sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calibrate.running.interfaces import RunOutcome
from calibrate.running.stopping import Summary
from perfmodel.report.calibration_text import calibration_text, with_interval
from perfmodel.report.run_text import (
    constants_text,
    describe_rate,
    fitted_text,
    format_clock,
    head_text,
    list_warnings,
    name_point,
    outcome_text,
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
    kernel = PASS.model_copy(update={"kind": PointKind.KERNEL})
    assert name_point(kernel) == "exchange row_wise G=2 4 KiB eager"
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


def plan_of(*points: Point) -> Any:
    left_out = [SimpleNamespace(what="x", why="no card", install="pip install x")] * 9
    world, target = SimpleNamespace(nodes=1, ranks=8), SimpleNamespace(relative=0.03)
    by_key = {point.key: point for point in points}
    return SimpleNamespace(points=points, world=world, target=target, left_out=left_out, by_key=by_key)


def header_of(**stack: str) -> Any:
    return SimpleNamespace(machine="here", functional_only=not stack, stack=stack)


def outcome_of(*ends: tuple[Point, Finish], calls: int = 0, wrong: int = 0, begun: int = 0) -> RunOutcome:
    """A run of these points, the first ``begun`` of which have not ended."""
    states = {
        point.key: SimpleNamespace(
            point=point, finish=end if place >= begun else None, calls=calls, checked=calls, wrong=wrong
        )
        for place, (point, end) in enumerate(ends)
    }
    plan = plan_of(*(point for point, _ in ends))
    return RunOutcome(plan, header_of(nccl="2"), Path("here"), states)  # type: ignore[arg-type]


HEAD = """\
Machine   here: 8× H100 · driver 550 · 4 cores (of 8) · 1 node, 8 ranks
          by the GPU
Stack     NCCL 2.29 · torch 2.9 · perfmodel 1.0 (git abc)
Plan      nccl: all_to_all × G = 8, 16 on 2 nodes × 3 sizes 1 KiB – 1 MiB × stream, 1 of them held
          out to check with
          ours: 4 kernels × G = 8 × stream
          exchange: row_wise × G = 2 × eager
          9 points, 2 of them done already, 7 to go; noise target 3.0 %, about 89 s. Ctrl-C is safe:
          what was measured is kept.
Left out"""


def test_the_head_of_a_run_says_machine_stack_and_plan() -> None:
    points = [A2A.model_copy(update={"payload_bytes": 2**k, "held_out": k == 12}) for k in (10, 12, 20)]
    points.append(A2A.model_copy(update={"gpus": 16, "nodes": 2}))
    ours = {"kind": PointKind.KERNEL, "implementation": "ours"}
    points += [A2A.model_copy(update={**ours, "operation": name}) for name in "abcd"]
    gpus = (SimpleNamespace(name="H100", driver="550"),) * 8
    host: Any = SimpleNamespace(gpus=gpus, cores=4, cores_online=8, note="by the GPU")
    header = header_of(nccl="NCCL 2.29", torch="2.9", git="abc", perfmodel="1.0", other="1")
    text = head_text(host, header, plan_of(*points, PASS), 89.4, 2)
    assert text.startswith(HEAD) and text.count("x: no card (pip install x)") == 8
    assert text.endswith("and 1 more (--json has all)")
    cpu: Any = SimpleNamespace(gpus=(), cores=8, cores_online=8, note="", cpu="EPYC", caches={"L2": 2**20})
    check, one = "functional check only, not a calibration: more ranks than cores", plan_of(A2A)
    for done, words in ((0, "1 point; noise target 3.0 %, about 2 min."), (1, "1 point, all of them done")):
        text = head_text(cpu, header_of(), one, 90.0, done)
        assert "EPYC · 8 cores · L2 1 MiB · 1 node" in text and words in text and check in text
        assert "all_to_all × G = 8 × 1 size 1 MiB × stream\n" in text


def test_the_end_of_a_run_says_what_was_checked_and_where_it_is() -> None:
    ended = [(point, Finish(key=point.key, status="ok", median_s=1.0)) for point in (A2A, PASS)]
    ours = calibration("gloo", curve(4e-6, 2e9, sources=["shipped"])).model_copy(update={"note": "borrowed"})
    text = outcome_text(outcome_of(*ended, calls=500), [ours], ["mine.json"], "")
    assert text.startswith("\nCollectives  not measured here: borrowed\n\nChecked")
    assert "every point's result verified (0 wrong of 1 000 elements; 1 000 timed calls)" in text
    assert text.endswith("Wrote    mine.json\n         here/samples.jsonl (2 points, complete)")
    text = outcome_text(outcome_of(*ended, calls=1, wrong=1, begun=1), [], [], "again")
    assert "2 of 2 elements wrong: those points are not used" in text
    ended = "Ended    at the time limit, before anything could be fitted\nResume   again"
    assert text.endswith(f"(1 of 2 points done, 1 more measured in part)\n{ended}")
    failed = [(A2A, Finish(key=A2A.key, status="failed", reason="no card"))]
    text = outcome_text(outcome_of(*failed), [calibration("gloo", curve(4e-6, 2e9))], [], "")
    assert text.startswith("\nFitted") and "nothing was measured" in text and "Collectives" not in text
    name = "nccl all_to_all G=8 1 MiB stream"
    assert f"Warnings\n 1  nccl: {name} failed: no card. Not used. Rerun the command" in text


def test_a_calibration_says_what_its_samples_leave_open() -> None:
    unknown = Interval(value=1e-6, low=1e-7, high=1e-5)
    vague = curve(4e-6, 2e9, collective="broadcast").model_copy(update={"alpha_s": unknown})
    text = calibration_text(calibration("gloo", curve(4e-6, 2e9), vague))
    assert "9 fitted, complete; 3 of 4 floors and rates are known" in text and "Unknown: the samples" in text
    assert "known" not in calibration_text(calibration("gloo", curve(4e-6, 2e9)))
    for width, words in ((0.9, "1000"), (1, "1000 ± 0.1 %"), (200, "1000 ± 10.0 %"), (2100, "unknown")):
        low = max(1000 - width / 2, 1e-9)
        around = Interval(value=1000, low=low, high=low + width)
        assert with_interval(around, "{:.0f}".format) == words


def test_points_that_stayed_noisy_are_named_with_the_widest_interval() -> None:
    """Of three all-to-alls one is precise; the others are known to 12 and 30 %."""
    points = [A2A.model_copy(update={"payload_bytes": 2**size}) for size in (10, 20, 30)]
    ends = [
        Finish(key=point.key, status=status, median_s=2.0, low_s=1.0, high_s=high)
        for point, status, high in zip(points, ("ok", "noisy", "noisy"), (9.0, 2.6, 2.24), strict=True)
    ]
    (warning,) = list_warnings(outcome_of(*zip(points, ends, strict=True)))
    assert "2 points (all_to_all 2) stayed noisy, up to ± 30.0 %." in warning
    assert warning.endswith("Try --only nccl:all_to_all --noise 1%.")
    both = [(p, Finish(key=p.key, status="noisy", median_s=2.0, high_s=3.0)) for p in (A2A, points[0])]
    both[1] = both[1][0].model_copy(update={"operation": "broadcast"}), both[1][1]
    assert list_warnings(outcome_of(*both))[0].endswith("Try --only nccl --noise 1%.")
