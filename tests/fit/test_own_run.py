"""From a user's own run to a projection: constants that are known come back, and are used where they hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from oracles import own_run

from perfmodel.answer import project_one
from perfmodel.answer.ranking import build_explained_pass
from perfmodel.engine.settings import load_setting
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.fit.build import select_usable
from perfmodel.fit.context import find_median_interval, select_passes
from perfmodel.fit.kernel_fits import fit_kernels
from perfmodel.fit.run_fits import fit_run
from perfmodel.report.calibration_text import calibration_text
from perfmodel.schema.calibration import (
    GPU_L2,
    Calibration,
    KernelConstants,
    read_calibration,
    save_calibration,
)
from perfmodel.schema.evidence import Clock, Evidence
from perfmodel.schema.fields import Interval
from perfmodel.schema.files import MACHINE_NAME, SAMPLES_NAME
from perfmodel.schema.machine import KEYS, Machine, load_machine, read_machine
from perfmodel.schema.run_files import Run, calibration_in, read_run
from perfmodel.schema.runs import PointKind, Status


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_run.write_run(tmp_path_factory.mktemp("home") / "runs" / "four-cores-01234567")


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_run.write_run(tmp_path_factory.mktemp("noisy"), noise=0.05)


def calibration_of(folder: Path) -> Calibration:
    return read_calibration(calibration_in(folder))


def machine_of(folder: Path) -> Machine:
    return read_machine(folder / MACHINE_NAME)


def asked(folder: Path, gpus: int = 2, **options: Any) -> Any:
    values = {"table_bytes": 100e6, "gpus": gpus, "batch": 128, "table_count": 2, "pooling": 10, "dim": 64}
    known = {"backend": "mpi", "calibration": calibration_in(folder)}
    return project_one(None, machine_of(folder), **{**values, **known, **options})


def test_constants_come_back(folder: Path) -> None:
    found = calibration_of(folder)
    assert found.kernels is not None
    values = {key: interval.value for key, interval in found.kernels.values.items()}
    assert values["bucketize_floor_s"] == pytest.approx(1.5 * 20e-6, rel=1e-3)
    assert values["bucketize_bytes_per_s"] == pytest.approx(1e9 / 1.5, rel=1e-3)
    assert values["launch_floor_s"] == pytest.approx(1.1 * 4e-6, rel=1e-3)
    assert values["gather_bytes_per_s"] == pytest.approx(8e9 / 1.1, rel=1e-3)
    assert values["l2_bytes_per_s"] == pytest.approx(24e9 / 1.1, rel=1e-3)
    assert values["row_access_bytes"] == pytest.approx(200, rel=1e-3)
    assert values["bag_factor"] == pytest.approx(1.4, rel=1e-3)
    assert found.kernels.at_bound == []
    assert [fit.loo_p90 for fit in found.kernels.fits.values()] == pytest.approx([0, 0], abs=1e-6)
    counts = {name: fit.sample_count for name, fit in found.kernels.fits.items()}
    assert counts == {"bucketize": 3, "gather_pool": 32 + 3}  # cells, and passes that time them


EVEN = (0.02, -0.02, -0.02, 0.02) * 100
"""2 % of noise that is the same for small and large, early and late."""


def untold(factor: float = 1.0, noise: Sequence[float] = EVEN) -> Run:
    """A run whose gathers all miss the cache: how fast the cache is does not show.

    factor  of the time of the gathers: of fast ones the cache of the machine would be the limit
    noise   of ln t of each point
    """
    made, errors = Run(own_run.HEADER, {}, {}, {}), iter(noise)
    for point, time in (*own_run.collectives(), *own_run.kernels()):
        if point.operation == "gather_pool" and (point.work is None or point.work.rows < 1_000_000):
            continue
        if point.kind is PointKind.COLLECTIVE and point.payload_bytes not in own_run.SIZES[::3]:
            continue
        time *= (factor if point.operation == "gather_pool" else 1.0) * float(np.exp(next(errors)))
        seen = own_run.Visit(key=point.key, round=0, at="now", times_s=[time], checked=1)
        made.points[point.key], made.visits[point.key] = point, [seen]
        made.finishes[point.key] = own_run.Finish(key=point.key, status=Status.OK, median_s=time)
    return made


def test_kernels_are_those_of_the_most_ranks() -> None:
    """Gathers of one rank alone, in half the time, change nothing."""
    seen = untold()
    (before,) = fit_run(seen, own_run.machine_from_run(seen, 8e9))
    for key, point in [*seen.points.items()]:
        if point.operation == "gather_pool":
            other = point.model_copy(update={"gpus": 1, "gpus_per_node": 1})
            visits = [
                visit.model_copy(update={"times_s": [visit.times_s[0] / 2]}) for visit in seen.visits[key]
            ]
            seen.points[other.key], seen.visits[other.key] = other, visits
            seen.finishes[other.key] = seen.finishes[key].model_copy(update={"key": other.key})
    (after,) = fit_run(seen, own_run.machine_from_run(seen, 8e9))
    assert before.kernels and after.kernels and after.kernels.values == before.kernels.values


@pytest.mark.parametrize("seed", range(8))
def test_no_noise_looks_like_a_cache(seed: int) -> None:
    """A cache slower than the memory behind it would fit as well, with the two rates exchanged."""
    seen = untold(noise=np.random.default_rng(seed).normal(0, 0.02, 400).tolist())
    (found,) = fit_run(seen, own_run.machine_from_run(seen, 8e9))
    assert found.kernels is not None
    cache = found.kernels.values.get("l2_bytes_per_s")
    assert cache is None or not cache.known
    assert found.kernels.values["gather_bytes_per_s"].value == pytest.approx(8e9, rel=0.06)


@pytest.mark.parametrize(
    ("nodes", "card", "network"),
    [(1, "", "none"), (2, "", "ethernet"), (2, "efa", "efa"), (4, "token-ring", "ethernet")],
)
def test_a_host_is_a_node_on_the_network_that_it_names(nodes: int, card: str, network: str) -> None:
    header = own_run.HEADER.model_copy(update={"nodes": nodes, "stack": {"network": card}})
    machine = own_run.machine_from_run(own_run.Run(header, {}, {}, {}), 8e9)
    assert machine.links.network == network
    assert machine.gpus_per_node == 4 // nodes and machine.value("hbm_bytes") == 8e9


def test_a_constant_that_no_sample_tells_stays_the_machines_own(tmp_path: Path) -> None:
    """Gathers that miss read 8 GB/s; the cache (copies: 12 GB/s) is at no time the limit."""
    seen = untold()
    machine = own_run.machine_from_run(seen, 8e9)
    cache = machine.quantity("l2_bytes_per_s")
    assert (cache.value, cache.why) == (pytest.approx(1.2e10, rel=0.05), "fastest copy of any size")
    (found,) = fit_run(seen, machine)
    assert found.kernels is not None
    assert found.kernels.untold == ["l2_bytes_per_s"] and "l2_bytes_per_s" not in found.kernels.values
    assert found.kernels.values["gather_bytes_per_s"].value == pytest.approx(8e9, rel=0.05)
    assert "l2_bytes_per_s  unknown: the machine's value is used" in re.sub(
        " {3,}", "  ", calibration_text(found)
    )
    save_calibration(found, tmp_path / "mine.json")
    asked = {"table_bytes": 1e9, "gpus": 2, "calibration": str(tmp_path / "mine.json"), "backend": "mpi"}
    told = {name: more for name, *more in gather_sources(machine, asked)}
    assert told["l2_bytes_per_s"] == [str(cache).split(" (")[0], str(cache.evidence), cache.source]
    assert re.fullmatch(r"[78]\.\d+ GB/s", told["gather_bytes_per_s"][0])
    assert told["gather_bytes_per_s"][1] == "measured"
    assert gather_evidence(machine, asked) == "interpolated"  # nothing hangs on the cache where it was timed
    assert gather_evidence(machine, {**asked, "batch": 10**6}) == "extrapolated"
    assert gather_evidence(machine.with_overrides({"l2_bytes_per_s": 1e9}), asked) == "assumed"


def gather_sources(machine: Machine, asked: dict[str, Any]) -> tuple[tuple[str, str, str, str], ...]:
    return build_explained_pass(project_one(None, machine, **asked)).explain("gather").sources


def gather_evidence(machine: Machine, asked: dict[str, Any]) -> str:
    (gather,) = [s for s in project_one(None, machine, **asked).steps if s.name == "gather_pool"]
    return str(gather.evidence)


def test_a_constant_that_is_at_least_something_is_kept_and_is_not_measured(tmp_path: Path) -> None:
    """Gathers three times as fast as the copies: their cache cannot be the machine's, but what is it?"""
    seen = untold(1 / 3)
    slow = own_run.machine_from_run(seen, 8e9).with_overrides({"l2_bytes_per_s": 1e10})
    machine = slow.unchanged().model_copy(update={"values": slow.values})
    (found,) = fit_run(seen, machine)
    assert found.kernels is not None and found.kernels.untold == []
    assert not found.kernels.values["l2_bytes_per_s"].known
    save_calibration(found, tmp_path / "mine.json")
    asked = {"table_bytes": 1e9, "gpus": 2, "calibration": str(tmp_path / "mine.json"), "backend": "mpi"}
    told = {name: how for name, _, how, _ in gather_sources(machine, asked)}
    assert told["l2_bytes_per_s"] == "assumed"


def test_hand_overs_come_back(folder: Path) -> None:
    found = calibration_of(folder)
    assert {name: round(each.value * 1e6, 1) for name, each in found.handover_s.items()} == {
        "all_to_all_splits": 3.0,
        "all_to_all_lengths": 1.0,
        "all_to_all_ids": 2.0,
        "reduce_scatter_bags": 4.0,
        "between_steps": 5.0,
    }


def test_one_calibration_of_measured_cells_and_no_law(folder: Path) -> None:
    found = calibration_of(folder)
    assert found.calibration_id == "four-cores/mpi-5.0.11-eager"
    assert (found.preferred, found.complete, found.checked, found.laws) == (True, True, True, [])
    assert {(c.collective, c.gpus) for c in found.curves} == {
        (name, gpus) for name in ("all_to_all", "reduce_scatter", "all_reduce") for gpus in (2, 4)
    }
    curve = found.curve("all_to_all", 4, 4)
    assert curve is not None and curve.alpha_s.value == pytest.approx(2e-6, rel=1e-2)
    assert calibration_in(folder).name == "mpi-5.0.11-eager.json"


def test_each_implementation_is_fitted_and_fbgemms_come_first(folder: Path) -> None:
    """Twice as fast is twice the rate; how many samples another has changes nothing."""
    timed = read_run(folder / SAMPLES_NAME).work_samples(PointKind.KERNEL)
    fast = {
        name: timed.assign(implementation=name, time_s=timed["time_s"] / 2)
        for name in ("fbgemm", "perfmodel")
    }

    def fitted(*samples: pd.DataFrame) -> list[KernelConstants]:
        return fit_kernels(pd.concat(samples), machine_of(folder), Clock.EAGER)

    (alone,) = fitted(timed)
    assert alone.implementation == "torch"
    every = fitted(fast["perfmodel"], fast["perfmodel"], timed, fast["fbgemm"])
    assert [one.implementation for one in every] == ["fbgemm", "torch", "perfmodel"]
    assert every[1] == alone
    for one in (every[0], every[2]):
        ratio = one.values["gather_bytes_per_s"].value / alone.values["gather_bytes_per_s"].value
        assert ratio == pytest.approx(2, rel=1e-3)


def test_ids_by_owner_are_those_of_the_pass_for_every_implementation(folder: Path) -> None:
    run = read_run(folder / SAMPLES_NAME)
    timed, passes = (
        run.work_samples(PointKind.KERNEL),
        select_passes(run.work_samples(PointKind.COMPOSED), "mpi", "eager"),
    )
    ours = timed.assign(implementation="perfmodel")
    torch, own = fit_kernels(pd.concat([timed, ours]), machine_of(folder), Clock.EAGER, passes)
    assert own.values["bucketize_floor_s"] == torch.values["bucketize_floor_s"]
    assert own.fits["bucketize"] == torch.fits["bucketize"]


def test_a_projection_takes_them(folder: Path) -> None:
    answer = asked(folder)
    steps = {step.name: step for step in answer.steps}
    # 128 x 2 x 10 ids of 8 bytes and 2 x 256 lengths of 8: 24 576 bytes at 1 GB/s, 1.5 times slower in a pass
    assert steps["bucketize"].time_s == pytest.approx(1.5 * (20e-6 + 24_576 / 1e9), rel=1e-3)
    # 3 + 1 + 2 + 4 us in a pass, 5 us between the steps
    assert steps["handover"].time_s == pytest.approx(10e-6 + 5e-6, rel=0.02)
    assert steps["handover"].label == "handover"
    assert {step.clock for step in answer.steps} == {Clock.EAGER}
    assert steps["gather_pool"].evidence is Evidence.INTERPOLATED
    assert sum(step.time_s for step in answer.steps) == pytest.approx(answer.time_s)
    assert answer.evidence.rank <= Evidence.EXTRAPOLATED.rank


def test_its_band_is_that_of_its_own_fit(folder: Path, noisy: Path) -> None:
    exact, wide = ({s.name: s for s in asked(one).steps}["gather_pool"] for one in (folder, noisy))
    assert exact.high_s / exact.low_s < 1.02
    fit = calibration_of(noisy).kernels
    assert fit is not None
    assert wide.high_s / wide.time_s == pytest.approx(np.exp(1.96 * fit.fits["gather_pool"].log_sd), rel=1e-3)


def test_a_what_if_wins_over_the_calibration_and_another_machine_cannot_have_it(folder: Path) -> None:
    answer = asked(folder, overrides={"gather_bytes_per_s": 1e9})
    assert {s.name: s.evidence for s in answer.steps}["gather_pool"] is Evidence.ASSUMED
    other = machine_of(folder).model_copy(update={"name": "other"})
    with pytest.raises(BadInputError, match="is of four-cores"):
        project_one(None, other, table_bytes=100e6, gpus=2, backend="mpi", calibration=calibration_in(folder))


def test_in_place_sums_are_fitted_where_there_is_nothing_else() -> None:
    own = Run(own_run.HEADER, {}, {}, {})
    for line in own_run.lines():
        if getattr(line, "type", "") == "point" and line.point.operation == "all_reduce":
            point = line.point.model_copy(update={"backend": "gloo"})
            seen = own_run.Visit(key=point.key, round=0, at="now", times_s=[1e-5], checked=1)
            own.points[point.key], own.visits[point.key] = point, [seen]
            own.finishes[point.key] = own_run.Finish(key=point.key, status=Status.NOISY, median_s=1e-5)
    (found,) = fit_run(own, own_run.truth())
    assert {c.collective for c in found.curves} == {"all_reduce"} and found.library_version == "2.13"
    frame = own.collective_samples()
    both = pd.concat([frame, frame.assign(in_place=False, time_s=2e-5)])
    assert set(select_usable(both)["time_s"]) == {2e-5}


def test_an_unfinished_run_is_partial_and_an_empty_one_has_nothing(folder: Path) -> None:
    found = read_run(folder)
    mpi = next(point for point in found.points.values() if point.backend == "mpi")
    alike = (mpi.kind, mpi.operation, mpi.gpus)
    for other in (p for p in list(found.points.values()) if (p.kind, p.operation, p.gpus) != alike):
        del found.finishes[other.key]  # kernels and passes: no point of the library
        if other.kind == "collective":  # one curve is enough
            del found.points[other.key], found.visits[other.key]
    unbegun = [mpi.model_copy(update=update) for update in ({"backend": "gloo"}, {"clock": Clock.STREAM})]
    assert [c.complete for c in fit_run(found, machine_of(folder), unbegun)] == [True]
    more = mpi.model_copy(update={"payload_bytes": 12})
    assert [c.complete for c in fit_run(found, machine_of(folder), [more])] == [False]
    del found.finishes[mpi.key]
    assert [c.complete for c in fit_run(found, machine_of(folder))] == [False]
    with pytest.raises(NoCalibrationError, match="no finished point"):
        fit_run(Run(own_run.HEADER, {}, {}, {}), machine_of(folder))


@pytest.mark.parametrize(("kinds", "complete"), [("kc", False), ("c", True), ("k", False), ("", True)])
def test_kernels_alone_are_complete_when_no_kernel_is_missing(
    folder: Path, kinds: str, complete: bool
) -> None:
    """What is missing of collectives, which such a run does not fit, is no part of it."""
    run, box = read_run(folder), load_machine("h200-sxm-ib")
    gpu = own_run.HEADER.model_copy(update={"machine": box.name})
    kernels = {key: point for key, point in run.points.items() if point.kind == "kernel"}
    alone = Run(gpu, kernels, run.visits, run.finishes)
    other = {
        "k": next(iter(kernels.values())),
        "c": next(p for p in run.points.values() if p.nodes and p.kind == "collective"),
    }
    unbegun = [other[kind].model_copy(update={"payload_bytes": 12}) for kind in kinds]
    (found,) = fit_run(alone, box, unbegun)
    assert found.complete == complete


@pytest.mark.parametrize("flat", [False, True])
def test_a_constant_at_the_end_of_its_range_is_said_to_be_there(folder: Path, flat: bool) -> None:
    """Gathers that all take a millisecond, whatever they read, are as fast as any rate that is looked for."""
    run = read_run(folder)
    visits = dict(run.visits)
    for key, point in run.points.items():
        if flat and point.kind == "kernel" and point.operation == "gather_pool":
            visits[key] = [visit.model_copy(update={"times_s": [1e-3]}) for visit in visits[key]]
    kept = {key: point for key, point in run.points.items() if point.kind != "composed"}
    (found,) = fit_run(Run(run.header, kept, visits, run.finishes), machine_of(folder))
    assert found.kernels is not None
    rates = {"gather_bytes_per_s", "l2_bytes_per_s"}
    assert rates & set(found.kernels.at_bound) == (rates if flat else set())


@pytest.mark.parametrize(("fitted", "factor_alone"), [(3, True), (4, False)])
def test_three_passes_tell_a_factor_and_four_a_constant_as_well(
    folder: Path, fitted: int, factor_alone: bool
) -> None:
    """Each gather in a pass takes 50 µs longer than 1.1 times what it takes alone."""
    run = read_run(folder)
    points, visits = dict(run.points), dict(run.visits)
    own = [point for point in points.values() if point.kind == "composed"]
    for at, point in enumerate(own):
        points[point.key] = point.model_copy(update={"held_out": at >= fitted})
        for place, visit in enumerate(run.visits[point.key]):
            later = {**visit.steps_s, "gather_pool": [visit.steps_s["gather_pool"][0] + 50e-6]}
            visits[point.key][place] = visit.model_copy(update={"steps_s": later})
    (found,) = fit_run(Run(run.header, points, visits, run.finishes), machine_of(folder))
    assert found.kernels is not None
    there = found.kernels.in_pass["gather_pool"]
    assert there.passes == fitted
    if factor_alone:
        assert there.more_s == 0 and there.factor > 1.15
    else:
        assert (there.factor, there.more_s) == (pytest.approx(1.1, rel=0.01), pytest.approx(50e-6, rel=0.05))


def test_the_l2_cache_is_as_large_as_the_gpu_reports(folder: Path, tmp_path: Path) -> None:
    """60 MiB, where the file of the machine says 50 MB."""
    run, box = read_run(folder), load_machine("h100-sxm-ib")
    stack = {**own_run.HEADER.stack, GPU_L2: "62914560"}
    gpu = own_run.HEADER.model_copy(update={"machine": box.name, "stack": stack})
    kernels = {key: point for key, point in run.points.items() if point.kind == "kernel"}
    (found,) = fit_run(Run(gpu, kernels, run.visits, run.finishes), box)
    assert found.kernels is not None and found.kernels.values["l2_bytes"].value == 62914560
    path = tmp_path / "reported.json"
    save_calibration(found, path)
    setting = load_setting(box, found.backend, calibration=path)
    assert box.value("l2_bytes") == 50e6 and setting.machine.value("l2_bytes") == 62914560
    assert str(setting.machine.quantity("l2_bytes").evidence) == "measured"


def test_one_gpu_has_its_own_kernels_and_the_shipped_collectives(folder: Path) -> None:
    run = read_run(folder)
    gpu = own_run.HEADER.model_copy(update={"machine": "h100-sxm-ib"})
    kernels = {key: point for key, point in run.points.items() if point.kind == "kernel"}
    (found,) = fit_run(Run(gpu, kernels, run.visits, run.finishes), load_machine("h100-sxm-ib"))
    assert found.calibration_id == "h100-sxm-ib/nccl-2.29.2-stream+h100-sxm-ib-01234567"
    assert found.kernels is not None and found.kernels.clock is Clock.EAGER
    assert "bucketize_floor_s" not in found.kernels.values  # timed in whole passes alone
    assert found.curve("all_to_all", 8, 8) is not None and found.handover_s == {}
    with pytest.raises(NoCalibrationError):
        fit_run(Run(own_run.HEADER, kernels, run.visits, run.finishes), machine_of(folder))


def test_machine_file_says_where_each_value_is_from(folder: Path) -> None:
    machine = machine_of(folder)
    assert machine.name == "four-cores" and set(machine.values) == {key for key in KEYS if KEYS[key].required}
    assert (machine.gpus_per_node, machine.nvlink_domain_gpus, str(machine.defaults.backend)) == (4, 1, "mpi")
    assert machine.value("hbm_bytes") == 8e9 and machine.value("l2_bytes") == 2**20
    rates = [machine.value(f"{name}_bytes_per_s") for name in ("hbm", "pcie")]
    assert rates == [11e9, 12e9]  # of copies from 64 MiB up, and of all
    assert [machine.value(key) for key in ("sm_count", "nics_per_node", "nvlink_bytes_per_s")] == [1, 1, 0]
    assert machine.quantity("launch_floor_s").evidence is Evidence.MEASURED
    assert machine.quantity("bucketize_floor_s").evidence is Evidence.ASSUMED
    assert machine.quantity("nic_bytes_per_s").evidence is Evidence.ASSUMED
    assert all(q.source and q.why for q in machine.values.values())


def test_a_machine_without_kernels_is_assumed_and_has_the_ranks_of_any_start(folder: Path) -> None:
    """The first start had two (``--ranks 2``), a later one four: the folder is the same."""
    run = read_run(folder)
    stack = {"cpu": 'a "quoted" \\ µ name'}
    first = run.header.model_copy(update={"ranks": 2, "stack": stack})
    assert own_run.machine_from_run(Run(first, run.points, run.visits, run.finishes)).gpus_per_node == 4
    bare = own_run.machine_from_run(Run(first, {}, {}, {}))
    assert bare.gpus_per_node == 2 and stack["cpu"] in bare.title
    sent = {key: point for key, point in run.points.items() if point.kind == "collective"}
    sending = own_run.machine_from_run(Run(first, sent, run.visits, run.finishes))
    assert sending.value("pcie_bytes_per_s") == pytest.approx(own_run.BETA, rel=0.01)
    assert bare.quantity("gather_bytes_per_s").evidence is Evidence.ASSUMED


@pytest.mark.parametrize(
    ("caches", "value", "evidence"),
    [
        ("L1 49152, L2 3145728, L3 268435456", 3145728, Evidence.DATASHEET),
        ("L1 49152, L3 65536", 65536, Evidence.DATASHEET),
        ("", 2**20, Evidence.ASSUMED),
    ],
)
def test_the_cache_of_a_core_is_its_l2_else_the_largest(
    caches: str, value: float, evidence: Evidence
) -> None:
    header = own_run.HEADER.model_copy(update={"stack": {**own_run.HEADER.stack, "caches": caches}})
    found = own_run.machine_from_run(Run(header, {}, {}, {})).quantity("l2_bytes")
    assert (found.value, found.evidence) == (value, evidence)


def test_median_interval() -> None:
    assert find_median_interval(np.array([1.0, 2.0])) is None
    assert find_median_interval(np.array([-1.0, 1e-9, 2.0])) is None
    assert find_median_interval(np.array([3.0, 1.0, 2.0])) == Interval(value=2, low=1, high=3)
    values = np.arange(1.0, 21.0)  # of 20 values the 6th and the 15th hold the median in 95.9 of 100 cases
    assert find_median_interval(values) == Interval(value=10.5, low=6, high=15)
