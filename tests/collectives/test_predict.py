"""Predictions of collectives: measured cells are met, invariants hold, what-ifs move the right part."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel
from perfmodel.collectives import derivation
from perfmodel.collectives import link_laws as grid
from perfmodel.collectives.choose import choose_calibration, rank_version
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.time_tables import find_latency_share
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.model.collectives import compute_light_time
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Curve, list_calibrations
from perfmodel.schema.evidence import COLLECTIVES, Backend, Clock, Evidence
from perfmodel.schema.machine import Machine, list_machines, load_machine
from perfmodel.schema.priors import load_priors

NCCL_CALIBRATIONS = [name for name in list_calibrations() if "/nccl-" in name]


@cache
def model_of(machine: str = "h100-sxm-ib", backend: str | None = None) -> CollectiveModel:
    return CollectiveModel.load(load_machine(machine), backend)


def cell_of(collective: str, gpus: int) -> Curve:
    """A measured cell of one node of H100."""
    cell = model_of().calibration.curve(collective, gpus, gpus)
    if cell is None:
        pytest.fail(f"{collective} was not measured on {gpus} GPUs")
    return cell


def estimate(overrides: dict[str, float], *question: Any) -> Any:
    return CollectiveModel.load(load_machine("h100-sxm-ib").with_overrides(overrides)).estimate(*question)


def predict(machine: str = "h100-sxm-ib", **columns: object) -> pd.DataFrame:
    return perfmodel.predict_collectives(pd.DataFrame(columns), machine=machine)


def test_a_measured_point_is_given_back() -> None:
    curve = cell_of("all_gather", 8)
    answer = model_of().estimate("all_gather", curve.anchor_bytes, 8)
    assert answer.time_s == pytest.approx(curve.anchor_times_s, rel=2e-3)
    assert {Evidence.from_rank(r) for r in answer.evidence} == {Evidence.MEASURED}


def test_what_was_asked_before_changes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows from a calibration alone is kept: no what-if may see what another one made of it."""
    shipped = load_machine("h100-sxm-ib")
    changes: list[dict[str, float]] = [{}, {"nic_bytes_per_s": 1e11}, {"gpus_per_node": 4.0}]
    machines = [shipped.with_overrides(each) for each in changes] + [load_machine("h200-sxm-ib")]
    slow = shipped.quantity("nic_bytes_per_s").model_copy(update={"value": 2e10})
    machines.append(shipped.model_copy(update={"values": {**shipped.values, "nic_bytes_per_s": slow}}))

    def times(machine: Machine) -> list[list[float]]:
        model = CollectiveModel.load(machine)
        return [model.estimate(name, [2**14, 2**24], 64).time_s.tolist() for name in COLLECTIVES]

    first, again = ([times(machine) for machine in machines] for _ in range(2))
    for machine, before, after in zip(machines, first, again, strict=True):
        monkeypatch.setattr(derivation, "_cache", {})
        assert times(machine) == before == after
    assert first[0] != first[1] and derivation._cache


@pytest.mark.parametrize("machine", ["h100-sxm-ib", "h100-sxm-efa", "b200-sxm-ib"])
def test_an_exchange_in_wider_domains_takes_no_longer(machine: str) -> None:
    """Of 512 GPUs in domains of 8, 16 … 512: more peers are near, and as many share a channel."""
    box, sizes = load_machine(machine), [2**12, 2**20, 2**24, 2**28]
    wider = [box.with_overrides({"nvlink_domain_gpus": 2.0**n}) for n in range(3, 10)]
    times = [CollectiveModel.load(each).estimate("all_to_all", sizes, 512).time_s for each in wider]
    assert (np.diff(times, axis=0) <= 0).all()


def test_columns_and_rows_are_kept_and_one_rank_takes_no_time() -> None:
    columns = {"collective": ["all_reduce", "all_to_all", "all_to_all"], "payload_bytes": [2**20] * 3}
    frame = pd.DataFrame({**columns, "gpus": [8, 8, 1], "tag": "x"}, index=[7, 3, 5])
    answer = perfmodel.predict_collectives(frame)
    assert answer.index.tolist() == [7, 3, 5]
    assert list(answer.columns) == [
        *frame.columns, "time_s", "low_s", "high_s",
        "algbw_bytes_per_s", "busbw_bytes_per_s", "evidence", "clock",
    ]  # fmt: skip
    times, rates = answer["time_s"].to_numpy(), answer["algbw_bytes_per_s"].to_numpy()
    assert rates[:2] == pytest.approx(2**20 / times[:2]) and times[2] == answer["high_s"].iloc[2] == 0
    assert answer["busbw_bytes_per_s"].iloc[0] == pytest.approx(rates[0] * 1.75)
    mapping = perfmodel.predict_collectives({**columns, "gpus": [8, 8, 1]})
    assert mapping["time_s"].tolist() == times.tolist()
    with pytest.raises(ValueError, match="same length"):
        perfmodel.predict_collectives({"collective": ["all_gather"], "payload_bytes": [1, 2], "gpus": [8]})


@settings(max_examples=60)
@given(
    machine=st.sampled_from(list_machines()),
    collective=st.sampled_from(COLLECTIVES),
    gpus=st.integers(2, 2048),
    per_node=st.sampled_from([1, 2, 4, 8]),
)
def test_invariants_over_the_whole_domain(machine: str, collective: str, gpus: int, per_node: int) -> None:
    """Monotone in bytes, positive, inside its band, never faster than light, floor below everything."""
    where = load_machine(machine)
    model = CollectiveModel.load(where)
    sizes = np.exp2(np.linspace(np.log2(gpus), 42, 200))
    answer = model.estimate(collective, sizes, gpus, per_node)
    assert (answer.time_s > 0).all()
    assert (np.diff(answer.time_s) >= -1e-15).all()
    assert (answer.low_s <= answer.time_s).all()
    assert (answer.time_s <= answer.high_s).all()
    assert (answer.floor_s <= answer.time_s * (1 + 1e-12)).all()
    per_domain = per_node if per_node > where.gpus_per_node else per_node * where.domain_gpus_of(1)
    group = Group.of(gpus, per_domain)
    link = where.value("nvlink_bytes_per_s") or where.value("pcie_bytes_per_s")
    least = compute_light_time(
        collective, sizes, group.gpus, group.domain_gpus, group.domains, link, where.value("nic_bytes_per_s"),
        in_switch=where.links.nvls,
    )  # fmt: skip
    assert (answer.low_s >= least * (1 - 1e-3)).all()


@pytest.mark.parametrize("calibration", NCCL_CALIBRATIONS)
def test_every_shipped_calibration_predicts_every_collective(calibration: str) -> None:
    machine, stem = calibration.split("/")
    clock = stem.rsplit("-", 1)[1]
    model = CollectiveModel.load(load_machine(machine), "nccl", clock, calibration)
    for name in COLLECTIVES:
        answer = model.estimate(name, [2**12, 2**26], [[4], [100]])
        assert np.isfinite(answer.time_s).all()


@pytest.mark.parametrize("faster", [1, 2])
def test_several_domains_take_what_one_needs_for_its_part(faster: float) -> None:
    """On a machine that borrows its curves too, and with links of another rate."""
    machine = load_machine("h100-sxm-ib")
    machine = machine.with_overrides({"nvlink_bytes_per_s": faster * machine.value("nvlink_bytes_per_s")})
    model = CollectiveModel.load(machine, Backend.NVSHMEM, Clock.STREAM)
    assert model.borrowed
    sizes = np.array([2.0**20, 2.0**23, 2.0**26])
    for gpus in (16, 32):
        whole = model.estimate("all_to_all", sizes, gpus).time_s
        part = model.estimate("all_to_all", sizes * 8 / gpus, 8).time_s
        assert (whole >= part * (1 - 1e-6)).all()


def test_an_nvl72_is_one_domain_whatever_its_trays_hold() -> None:
    model = model_of("gb200-nvl72")
    trays, rack, plain = (model.estimate("all_to_all", 2**26, 64, node).time_s for node in (4, 72, None))
    assert trays == rack == plain and model.estimate("all_to_all", 2**26, 144).time_s > 2 * plain


def test_a_faster_card_moves_bytes_and_not_floors() -> None:
    question = "all_to_all", [4096, 2**32], 128
    old, new = (estimate(values, *question) for values in ({}, {"nic_bytes_per_s": 100e9}))
    assert new.time_s[0] == pytest.approx(old.time_s[0], rel=0.02)
    assert new.time_s[1] == pytest.approx(old.time_s[1] / 2, rel=0.05)
    assert {Evidence.from_rank(r) for r in new.evidence} == {Evidence.ASSUMED}
    same = estimate({"nic_bytes_per_s": load_machine("h100-sxm-ib").value("nic_bytes_per_s")}, *question)
    assert same.time_s == pytest.approx(old.time_s)


def test_no_nvlink_means_pcie_rates_and_steps() -> None:
    machine = load_machine("h100-sxm-ib")
    old, new = (estimate(v, "all_gather", [4096, 2**32], 8) for v in ({}, {"nvlink_domain_gpus": 1}))
    assert new.time_s[1] == pytest.approx(old.time_s[1] * 450 / 64, rel=0.05)
    assert old.time_s[0] < new.time_s[0] < old.time_s[0] * 3
    with pytest.raises(BadInputError, match="not modelled"):
        machine.with_overrides({"nvlink_domain_gpus": 4})


@pytest.mark.parametrize("machine", [name for name in list_machines() if name != "gb200-nvl72"])
def test_more_domains_never_beat_one(machine: str) -> None:
    """What the ranks of one domain need for their part bounds every larger group."""
    model = CollectiveModel.load(load_machine(machine))
    domain = model.calibration.domain_gpus
    for name in ("all_gather", "reduce_scatter", "all_reduce"):
        if model.calibration.curve(name, domain, domain) is None:
            continue
        one = model.estimate(name, 2.0 ** np.arange(12, 33), domain).time_s
        many = model.estimate(name, 2.0 ** np.arange(12, 33), model.calibration.domain_gpus * 4).time_s
        assert (many >= one * 0.999).all(), name


def test_a_lone_gpu_on_the_last_node_carries_the_rest_through_one_card() -> None:
    answer = predict(collective=["all_to_all", "all_gather"], payload_bytes=[9 * 2**30] * 2, gpus=[9, 9])
    assert (answer["low_s"] >= 8 * 2**30 / 50e9 * 0.999).all()
    even = predict(collective=["all_to_all"], payload_bytes=[9 * 2**30], gpus=[16])
    assert answer["time_s"].iloc[0] > even["time_s"].iloc[0]


def test_latency_is_the_part_that_no_rate_shortens_and_labels_say_what_does() -> None:
    answer = model_of().estimate("reduce_scatter", [2**12, 2**24, 2**36], 128)
    share = answer.floor_s / answer.time_s
    assert share[0] > 0.95 and share[2] < 0.05 and (np.diff(share) < 0).all()
    for name, gpus, labels in (
        ("all_to_all", 128, ["network latency", "NIC rate"]),
        ("all_gather", 8, ["link latency", "link rate"]),
    ):  # fmt: skip
        answer = model_of().estimate(name, [2**12, 2**34], gpus)
        assert [answer.limit_names[i] for i in answer.limit] == labels


def test_one_sided_exchanges_are_borrowed_and_reach_what_deepep_does() -> None:
    """43 to 44 of 50 GB/s a card on 32 and 64 H100 (DeepEP, NCCL EP), by two nodes of H200."""
    model = model_of("h100-sxm-ib", "nvshmem")
    assert model.calibration.machine == "h200-sxm-ib"
    for gpus in (32, 64):
        answer = model.estimate("all_to_all", 2.0**30, gpus)
        assert Evidence.from_rank(int(answer.evidence)) is Evidence.TRANSFERRED
        assert 42e9 < 2.0**30 * (gpus - 8) / gpus / answer.time_s < 46e9


def test_choice_of_calibration() -> None:
    chosen = choose_calibration(load_machine("h100-sxm-ib"), Backend.NCCL, None)
    assert (chosen.machine, chosen.library_version, str(chosen.clock)) == ("h100-sxm-ib", "2.29.2", "stream")
    box = load_machine("h200-sxm-ib")
    for version in (None, "2.26.2"):
        assert choose_calibration(box, Backend.NCCL, Clock.GRAPH, version).clock is Clock.GRAPH
    with pytest.raises(NoCalibrationError):
        choose_calibration(box, Backend.NCCL, Clock.DEVICE)
    assert rank_version("2.29.2") > rank_version("2.9") > rank_version("2-rc") == (2, 0)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"collective": ["all_to_all"], "payload_bytes": [1]}, "gpus"),
        ({"collective": ["gossip"], "payload_bytes": [64], "gpus": [8]}, "gossip"),
        ({"collective": ["all_to_all"], "payload_bytes": [4], "gpus": [8]}, "less than one byte per peer"),
        ({"collective": ["all_to_all"], "payload_bytes": [-4], "gpus": [8]}, "payload_bytes"),
        (
            {"collective": ["all_to_all"], "payload_bytes": ["x"], "gpus": [8]},
            "payload_bytes must be above 0",
        ),
        ({"collective": ["all_to_all"], "payload_bytes": [64], "gpus": [0]}, "gpus"),
        ({"collective": ["all_to_all"], "payload_bytes": [64], "gpus": [2.5]}, "whole number"),
        ({"collective": [None], "payload_bytes": [64], "gpus": [8]}, "no collective"),
        ({"collective": ["all_to_all"], "payload_bytes": [2**60], "gpus": [8]}, "not 1 EiB"),
        ({"collective": ["all_to_all"], "payload_bytes": [0], "gpus": [8]}, "must be above 0"),
        ({"collective": ["all_to_all"], "payload_bytes": [2**30], "gpus": [2_000_000]}, "not 2e"),
        (
            {"collective": ["all_to_all"], "payload_bytes": [64], "gpus": [8], "gpus_per_node": [0]},
            "gpus_per_node",
        ),
    ],
)
def test_bad_frames_are_refused(columns: dict[str, list[object]], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        predict(**columns)


def test_nothing_known_is_said() -> None:
    with pytest.raises(NoCalibrationError, match="nvshmem"):
        CollectiveModel.load(load_machine("l40s-pcie"), "nvshmem")
    with pytest.raises(BadInputError, match="clock"):
        CollectiveModel.load(load_machine("h100-sxm-ib"), "nccl", "sundial")
    nvshmem = CollectiveModel.load(load_machine("h200-sxm-ib"), "nvshmem", "stream")
    with pytest.raises(NoCalibrationError, match="all_reduce"):
        nvshmem.estimate("all_reduce", [2**20], 8)


@pytest.mark.parametrize("own", [True, False])
def test_beyond_its_sizes_a_cell_has_the_law_corrected_by_its_last_size(own: bool) -> None:
    """A cell of 1 .. 4 MiB that shows neither floor nor bandwidth, and takes twice the law's time."""
    machine, known, group = load_machine("h100-sxm-ib"), model_of().calibration, Group.of(8, 8)
    law, octave = known.law("all_gather"), grid.GRID_LOG2
    assert law is not None
    law_s = grid.compute_law_time(law, machine, machine, "all_gather", group)
    anchors = octave[(octave >= 20) & (octave <= 22)]
    times = {"anchor_bytes": 2**anchors, "anchor_times_s": 2 * np.interp(anchors, octave, law_s)}
    lists = {name: values.tolist() for name, values in times.items()}
    cell = cell_of("all_gather", 8).model_copy(update=lists | {"left_out_log_sd": []})
    alone = known.model_copy(update={"curves": [cell], "this_cluster": own})
    derived = derivation.derive_time(derivation.Calibrated.of(machine, alone), "all_gather", group)
    beyond = np.maximum(np.maximum(20 - octave, octave - 22), 0)
    wanted = np.log(2) * np.exp(-beyond / load_priors().shape.fading_octaves)
    np.testing.assert_allclose(derived.log_time - np.log(law_s), wanted, atol=1e-9)
    assert derived.measured.tolist() == (beyond == 0).tolist()
    rank = np.where(beyond > 0, Evidence.EXTRAPOLATED.rank, Evidence.INTERPOLATED.rank)
    assert derived.evidence.tolist() == rank.tolist()


@pytest.mark.parametrize(("collective", "shift"), [("all_gather", 1), ("all_reduce", 0)])
def test_this_clusters_law_is_corrected_by_its_nearest_cell(collective: str, shift: int) -> None:
    """16 ranks were measured at one size, at twice the law's time: so are 32 ranks there."""
    machine = load_machine("h100-sxm-ib")
    known = CollectiveModel.load(machine).calibration
    law, curve = known.law(collective), known.curve(collective, 8, 8)
    assert law is not None and curve is not None
    near = Group.of(16, 8)
    time_s = float(grid.compute_law_time(law, machine, machine, collective, near, np.array([2.0**24]))[0])
    names = {"anchor_bytes": [2.0**24], "anchor_times_s": [2 * time_s], "left_out_log_sd": []}
    cell = curve.model_copy(update={"gpus": 16, "domain_gpus": 8, **names})
    own = known.model_copy(update={"curves": [cell], "this_cluster": True})
    derived = derivation.derive_time(derivation.Calibrated.of(machine, own), collective, Group.of(32, 8))
    law_s = grid.compute_law_time(law, machine, machine, collective, Group.of(32, 8))
    octaves = np.abs(grid.GRID_LOG2 - 24 - shift)
    fade = np.exp(-octaves / load_priors().shape.fading_octaves)
    np.testing.assert_allclose(derived.log_time - np.log(law_s), np.log(2) * fade, atol=1e-12)


def test_between_two_cells_time_is_their_mean_and_nothing_is_surer_than_the_less_sure() -> None:
    """4 GPUs up to 64 KiB, 8 GPUs up to 1 MiB: of 512 KiB on 6 GPUs one of the two is not measured."""
    known, cut = model_of().calibration, [cell_of("all_to_all", gpus) for gpus in (4, 8)]
    for gpus, most in ((4, 2**16), (8, 2**20)):
        cell = cell_of("all_gather", gpus)
        n = sum(size <= most for size in cell.anchor_bytes)
        names = ("anchor_bytes", "anchor_times_s", "left_out_log_sd")
        cut.append(cell.model_copy(update={name: (getattr(cell, name) or [])[:n] for name in names}))
    for curves in (cut, cut[::-1]):
        base = derivation.Calibrated.of(
            load_machine(known.machine), known.model_copy(update={"curves": curves})
        )
        derived = [derivation.derive_time(base, "all_gather", Group.of(gpus, 8)) for gpus in (4, 6, 8)]
        np.testing.assert_allclose(derived[1].log_time, (derived[0].log_time + derived[2].log_time) / 2)
        ranks = derived[1].evidence[[int(np.log2(size) * grid.PER_OCTAVE) for size in (2**15, 2**19)]]
        assert ranks.tolist() == [Evidence.INTERPOLATED.rank, Evidence.EXTRAPOLATED.rank]


@pytest.mark.parametrize(("share", "code"), [(0.52, 1), (0.48, 2)])
def test_without_a_law_latency_decides_from_half_of_the_time_on(share: float, code: int) -> None:
    """The smallest message takes 1 µs; one that takes 1 µs / share is so much latency."""
    log_time = np.log(np.array([1e-6, 1e-6 / share]))
    for gpus, of_network in ((8, 0), (16, 2)):
        asked = (load_machine("h100-sxm-ib"), None, "all_gather", Group.of(gpus, 8), log_time)
        found, codes = find_latency_share(*asked)
        assert found == pytest.approx([1.0, share]) and (codes - of_network).tolist() == [1, code]
