"""Answers by hand, by their limits and over the whole domain; communication is an alpha-beta fake."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.alpha_beta import AlphaBeta, one, setting

from perfmodel.answer import prepare, project_grid, project_one, project_row_wise, sweep
from perfmodel.answer.ranking import answer_question
from perfmodel.answer.what_would_help import list_helping
from perfmodel.collectives.estimate import Libraries
from perfmodel.engine import grid
from perfmodel.engine.settings import BEST
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import Clock, Evidence
from perfmodel.schema.machine import load_machine
from perfmodel.schema.workload import Table, TableSet


def test_ten_terabytes_step_by_step() -> None:
    p = one(table_bytes=10e12)
    assert (p.gpus, p.gpu_count.needed) == (128, 125)
    assert str(p.gpu_count) == "10 TB ÷ 80 GB = 125  →  128 (whole nodes of 8)"
    assert p.gpu_count.shard_bytes == 10e12 / 128
    times = {step.name: step.time_s for step in p.steps}
    # ids: 1024 * 32 * 8 bytes, 127/128 of them over the wire at 100 GB/s
    assert times["all_to_all_ids"] == pytest.approx(10e-6 + 262_144 * 127 / 128 / 100e9)
    assert times["reduce_scatter_bags"] == pytest.approx(10e-6 + 128 * 1024 * 128 * 127 / 128 / 100e9)
    read, bag = 1024 * 32 * (128 + 8), 1.2 * 136
    assert times["gather_pool"] == pytest.approx(4.0e-6 + (read + 128 * 1024 * bag) / 2.077e12, rel=1e-4)
    assert p.baseline_time_s == pytest.approx(4.0e-6 + (read + 1024 * bag) / 2.077e12, rel=1e-4)
    assert p.time_s == pytest.approx(sum(times.values()))
    assert p.slowdown == pytest.approx(p.time_s / p.baseline_time_s)
    assert p.totals["throughput_ratio"] == pytest.approx(128 / p.slowdown)
    assert sum(step.share for step in p.steps) == pytest.approx(1)


def test_a_table_that_fits_one_gpu() -> None:
    p = one(table_bytes=50e9)
    assert (p.gpus, p.slowdown, p.band) == (1, 1.0, (1.0, 1.0))
    assert [step.name for step in p.steps] == ["gather_pool"]
    assert p.gpu_count.rule == "fits one GPU"
    assert list_helping(p.pinned, answer_question) == ()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"table_bytes": 639e9}, "639 GB ÷ 80 GB = 7.987  →  8 (inside one node)"),
        ({"table_bytes": 2**20 * 80e9, "gpus_per_node": 1}, "→  1 048 576 (whole nodes of 1)"),
        ({"table_bytes": 719e9, "gpus_per_node": 4}, "719 GB ÷ 80 GB = 8.988  →  12 (whole nodes of 4)"),
        ({"table_bytes": 79e9, "reserve": 0.5}, "79 GB ÷ 40 GB = 1.975  →  2 (inside one node)"),
        ({"table_bytes": 80e9, "gpus": 6}, "80 GB over 6 GPUs as given (the rows alone need 1)"),
        ({"gpus": 32, "gpus_per_node": 8}, "over 32 GPUs as given (the rows alone need 32)"),
    ],
)
def test_how_the_gpus_came_about(values: dict[str, Any], text: str) -> None:
    assert str(one(**values).gpu_count).endswith(text)


def test_best_takes_the_faster_library_at_each_size() -> None:
    large = AlphaBeta(alpha=20e-6, beta=400e9)
    small = AlphaBeta(alpha=2e-6, beta=50e9, clock=Clock.DEVICE)
    libraries = {"nccl": large, "nvshmem": small}
    p = one(Libraries(libraries), backend=BEST, gpus=64, batch=4096)
    used = {step.name: step.library for step in p.steps if step.collective}
    assert used["all_to_all_splits"] == "nvshmem"
    assert used["reduce_scatter_bags"] == "nccl"
    alone = [
        one(Libraries({name: times}), backend=name, gpus=64, batch=4096) for name, times in libraries.items()
    ]
    assert p.time_s < min(q.time_s for q in alone)
    assert any("mixes clocks" in note for note in p.notes)


def test_weakest_evidence_wins() -> None:
    machine = load_machine("h100-sxm-ib")
    known = {k: q.model_copy(update={"evidence": Evidence.MEASURED}) for k, q in machine.values.items()}
    measured = machine.model_copy(update={"values": known})
    for evidence in (Evidence.MEASURED, Evidence.EXTRAPOLATED, Evidence.DATASHEET):
        assert one(AlphaBeta(evidence=evidence), measured, gpus=16).evidence is evidence
    assert one(AlphaBeta(evidence=Evidence.MEASURED), machine, gpus=16).evidence is Evidence.ASSUMED
    what_if = measured.with_overrides({"gather_bytes_per_s": 3e12})
    assert one(AlphaBeta(evidence=Evidence.MEASURED), what_if, gpus=16).evidence is Evidence.ASSUMED


def test_band_of_communication_alone() -> None:
    """With exact kernels the band is the 30 % of the communication steps, added up."""
    chosen = setting()
    constants = chosen.constants
    exact = constants["mean_relative_error"].model_copy(update={"value": 0.0})
    chosen = replace(chosen, constants={**constants, "mean_relative_error": exact})
    known = {key: each.model_copy(update={"log_sd": None}) for key, each in chosen.machine.values.items()}
    chosen = replace(chosen, machine=chosen.machine.model_copy(update={"values": known}))
    p = project_one(None, chosen.machine, setting=chosen, gpus=64)
    links = sum(step.time_s for step in p.steps if step.collective)
    assert p.totals["high_s"] - p.time_s == pytest.approx(0.3 * links)
    assert p.band[1] - p.slowdown == pytest.approx(0.3 * links / p.baseline_time_s)


@pytest.mark.parametrize(("table_bytes", "is_cached"), [(1e6, True), (10e9, False)])
def test_a_gather_is_as_uncertain_as_what_serves_it(table_bytes: float, is_cached: bool) -> None:
    chosen = setting()
    sd = {"l2_bytes_per_s": 0.5, "gather_bytes_per_s": 0.1}
    values = {k: q.model_copy(update={"log_sd": sd.get(k)}) for k, q in chosen.machine.values.items()}
    exact = chosen.constants["mean_relative_error"].model_copy(update={"value": 0.0})
    constants = {**chosen.constants, "mean_relative_error": exact}
    machine = chosen.machine.model_copy(update={"values": values})
    known = replace(chosen, machine=machine, constants=constants)
    (step,) = project_one(None, machine, setting=known, gpus=1, table_bytes=table_bytes, batch=10**6).steps
    log_sd = math.log(step.high_s / step.time_s) / 1.96
    assert log_sd == pytest.approx(0.5 if is_cached else 0.1, rel=0.05)


def test_unlike_tables_add_up_and_tiny_ones_are_not_sharded() -> None:
    big, tiny = Table("big", 10**9, 32, 4.0), Table("tiny", 3, 128, 1.0)
    chosen = setting()
    both = project_one(TableSet("two", (big, tiny), ""), chosen.machine, setting=chosen, gpus=8)
    assert both.to_frame()["time_s"].sum() == pytest.approx(both.time_s)
    alone = project_one(TableSet("one", (big,), ""), chosen.machine, setting=chosen, gpus=8)
    sent = [{s.name: s.payload_bytes for s in p.steps if s.collective} for p in (both, alone)]
    assert sent[0] == sent[1]
    assert both.baseline_time_s > alone.baseline_time_s
    only = project_one(TableSet("one", (tiny,), ""), chosen.machine, setting=chosen, gpus=8)
    assert [s.name for s in only.steps] == ["gather_pool"]
    assert only.slowdown == 1
    assert any("1 table has fewer rows than 8 GPUs" in note for note in both.notes)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"table_bytes": -1}, "table_bytes -1 cannot .*\nit must be a number above 0, at most 1e\\+18.$"),
        ({"table_bytes": float("nan")}, "table_bytes nan"),
        ({"table_bytes": "ten"}, "not a number"),
        ({"gpus": 0}, "gpus 0"),
        ({"gpus": 2.5}, "gpus 2.5 .*\nit must be a whole number above 0, at most 1048576.$"),
        ({"gpus": 8, "batch": 0}, "batch 0"),
        ({"gpus": 8, "pooling": -2}, "pooling -2 .*\n.* a number above 0, at least 1e-06, at most"),
        ({"gpus": 8, "dtype": "fp31"}, "fp31"),
        ({"gpus": 8, "id_bytes": 5}, "id_bytes 5 cannot be used.\nit must be 4 or 8.$"),
        ({"gpus": 8, "bacth": 5}, "bacth"),
        ({"gpus": 8, "reserve": 1.0}, "reserve 1"),
        ({"gpus": 8, "gpus_per_node": 9}, "gpus_per_node 9"),
        ({"gpus": [2, 4], "batch": [1, 2, 3]}, "do not combine"),
        ({"gpus": []}, "empty"),
        ({"table_bytes": 1e18}, "1 EB of tables need 1.25e\\+07 GPUs of 80 GB"),
        ({}, "neither a table size"),
        ({"table_bytes": 10e12, "gpus": 64}, "156 GB of rows each, above the 80 GB"),
        ({"table_bytes": 100, "table_count": 1}, "less than one row of 128 bytes"),
        ({"table_bytes": 1280, "gpus": 128}, "cannot be cut into 128 row shards"),
    ],
)
def test_bad_input_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        one(**values)


def test_names_that_do_not_exist_are_refused() -> None:
    for values in ({"machine": "h100-sxm"}, {"backend": "oneccl"}):
        with pytest.raises(BadInputError, match="known"):
            project_row_wise(gpus=8, **values)


sizes = st.floats(1e9, 1e14)
config = {
    "table_bytes": sizes,
    "batch": st.integers(1, 1 << 16),
    "table_count": st.integers(1, 64),
    "pooling": st.integers(1, 256),
    "dim": st.sampled_from([4, 16, 32, 48, 64, 128, 256, 1024]),
    "dtype": st.sampled_from(["fp32", "bf16", "int8"]),
    "backend": st.sampled_from(["nccl", "nvshmem"]),
}


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_wider_rows_are_never_looked_up_faster(dtype: str) -> None:
    dims = list(range(1, 300))
    frame = project_row_wise(gpus=1, table_bytes=50e9, batch=16384, dim=dims, dtype=dtype)
    assert (frame["time_s"].diff().dropna() > 0).all()


def columns(backend: str, **values: Any) -> dict[str, Any]:
    slow = AlphaBeta(beta=20e9)  # below the network card of the machine, as any library is
    chosen = setting(slow, backend=backend)
    basis, work = prepare(None, chosen.machine, setting=chosen, **values)
    return project_grid(basis, work)


@settings(max_examples=60)
@given(st.fixed_dictionaries(config))
def test_what_holds_everywhere(values: dict[str, Any]) -> None:
    c = columns(**values)
    assert np.all(np.isfinite(c["time_s"])) and np.all(c["time_s"] > 0)
    assert np.all(c["floor_time_s"] <= c["time_s"])
    assert np.all(c["low_s"] <= c["time_s"]) and np.all(c["time_s"] <= c["high_s"])
    assert np.all(c["slowdown_low"] <= c["slowdown"]) and np.all(c["slowdown"] <= c["slowdown_high"])
    assert np.all(c["slowdown_low"] > 0)
    parts = c["slowdown_floor_part"] + c["slowdown_bytes_part"]
    assert parts == pytest.approx(c["slowdown"])
    if c["gpus"][0] == 1:
        assert (c["slowdown"][0], c["slowdown_low"][0], c["slowdown_high"][0]) == (1, 1, 1)


@settings(max_examples=40)
@given(st.fixed_dictionaries(config), st.sampled_from(["batch", "pooling"]))
def test_more_work_never_takes_less_time(values: dict[str, Any], axis: str) -> None:
    more = np.unique(np.round(values[axis] * np.array([1, 1.5, 2, 8, 64])))
    c = columns(**{**values, axis: more})
    for name in ("time_s", "baseline_time_s", "low_s", "high_s", "floor_time_s"):
        assert np.all(np.diff(c[name]) >= -1e-12 * c[name][1:]), name


@settings(max_examples=40)
@given(st.fixed_dictionaries(config))
def test_larger_tables_never_take_less_time(values: dict[str, Any]) -> None:
    c = columns(**{**values, "table_bytes": values["table_bytes"] * np.array([1, 2, 4, 16, 64])})
    assert np.all(np.diff(c["gpus"]) >= 0)
    assert np.all(np.diff(c["time_s"]) >= -1e-12 * c["time_s"][1:])


def test_many_configurations_are_the_single_ones_in_order() -> None:
    axes = sweep.combine_axes(gpus=(1, 8, 64, 128), batch=range(1, 1501), pooling=range(1, 13))
    chosen = setting()
    frame = project_row_wise(axes, chosen.machine, setting=chosen, reserve=0)
    assert len(frame) == 72_000 and frame["evidence"].cat.ordered  # more than one chunk
    for at in (0, 17_999, 65_535, 65_536, 71_999):
        row = frame.iloc[at]
        p = one(gpus=int(row["gpus"]), batch=int(row["batch"]), pooling=float(row["pooling"]))
        assert p.slowdown == row["slowdown"]
        assert p.totals["high_s"] == row["high_s"]
        assert str(p.evidence) == row["evidence"]
        assert str(p.main_evidence) == row["main_evidence"]


def test_a_chunk_without_a_step_has_zeros_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "CHUNK", 4)
    frame = project_row_wise(gpus=[1] * 5 + [16] * 5, table_bytes=1e9)
    sent = frame["reduce_scatter_bags_time_s"]
    assert (sent[:5] == 0).all() and (
        sent[5:] == project_one(gpus=16, table_bytes=1e9).steps[-1].time_s
    ).all()


def test_the_main_evidence_is_what_more_than_a_fifth_rests_on() -> None:
    assert Evidence.main({Evidence.MEASURED: 0.81, Evidence.ASSUMED: 0.19}) is Evidence.MEASURED
    assert Evidence.main({Evidence.MEASURED: 0.79, Evidence.ASSUMED: 0.21}) is Evidence.ASSUMED
    weak = {Evidence.MEASURED: 0.7, Evidence.TRANSFERRED: 0.15, Evidence.ASSUMED: 0.15}
    assert Evidence.main(weak) is Evidence.TRANSFERRED
    assert Evidence.main({each: 1 / 6 for each in Evidence}) is Evidence.DATASHEET
    assert Evidence.main({Evidence.EXTRAPOLATED: 1.0}) is Evidence.EXTRAPOLATED
    assert Evidence.main({}) is Evidence.MEASURED


def test_only_a_hot_row_makes_a_part_fuller_than_the_mean() -> None:
    """A row that is asked for always: its part gets all ids, 16 times the mean."""
    hot, even = (project_one(table_bytes=10e9, gpus=16, distribution=d) for d in ("one-row", "uniform"))
    assert hot.fullest_part == 16 and "hottest row gets 16.0×" in hot.uneven
    assert even.fullest_part == pytest.approx(1) and not even.uneven
    assert replace(even, fullest_part=1.5).uneven


def with_set(**options: Any) -> Any:
    overrides = {k: options.pop(k) for k in list(options) if k.endswith("_s") or k in _COUNTS}
    return project_one(overrides=overrides, **options)


_COUNTS = ("nics_per_node", "sm_count", "nvlink_domain_gpus")


def test_kernels_follow_the_rate_of_the_memory() -> None:
    p = with_set(table_bytes=10e12, reserve=0, hbm_bytes_per_s=3.35e11)
    machine = p.setting.machine
    assert machine.value("gather_bytes_per_s") == pytest.approx(2.077e11)
    assert machine.value("local_sum_bytes_per_s") == pytest.approx(3.015e11)
    assert machine.value("bucketize_bytes_per_s") == pytest.approx(2.73e10)
    assert machine.quantity("gather_bytes_per_s").evidence is Evidence.ASSUMED
    assert machine.overrides == {"hbm_bytes_per_s"}
    assert any("follow hbm_bytes_per_s, × 0.1" in note for note in p.notes)
    own = with_set(table_bytes=10e12, reserve=0, hbm_bytes_per_s=3.35e11, gather_bytes_per_s=1e12)
    assert own.setting.machine.value("gather_bytes_per_s") == 1e12


def test_half_the_cards_are_half_the_rate_of_each_gpu() -> None:
    half = with_set(table_bytes=10e12, reserve=0, nics_per_node=4)
    assert half.setting.machine.value("nic_bytes_per_s") == 25e9
    assert half.time_s == with_set(table_bytes=10e12, reserve=0, nic_bytes_per_s=25e9).time_s
    both = with_set(table_bytes=10e12, reserve=0, nics_per_node=4, nic_bytes_per_s=40e9)
    assert both.setting.machine.value("nic_bytes_per_s") == 40e9


def idle(answer: Any) -> list[str]:
    return [note.split()[0] for note in answer.notes if note.endswith("changes nothing in this answer")]


def test_values_that_change_nothing_are_said() -> None:
    assert idle(with_set(table_bytes=10e12, reserve=0, sm_count=64, nic_bytes_per_s=25e9)) == ["sm_count"]
    assert idle(with_set(gpus=8, nic_bytes_per_s=25e9)) == ["nic_bytes_per_s"]
    assert idle(with_set(gpus=8, nvlink_bytes_per_s=100e9)) == []


def test_one_domain_for_all_follows_nvlink_and_no_card() -> None:
    """arXiv 2512.05831, figure 9: 128 GPUs in one domain, as nobody makes it."""
    wide = {"machine": "h100-paper", "table_bytes": 10e12, "reserve": 0}
    plain, fast = project_one(**wide), with_set(**wide, nvlink_bytes_per_s=900e9)
    assert fast.time_s < plain.time_s
    assert {step.evidence for step in plain.steps if step.collective} == {Evidence.ASSUMED}
    assert idle(with_set(**wide, nic_bytes_per_s=1e9)) == ["nic_bytes_per_s"]


def test_a_kernel_is_labelled_by_its_larger_part() -> None:
    limits = {s.name: s.limit for s in project_one(gpus=8, batch=1).steps if not s.collective}
    assert limits == {"bucketize": "bucketize_floor_s", "gather_pool": "launch_floor_s"}
    slow = with_set(machine="h200-sxm-ib", backend="nvshmem", gpus=8, local_sum_bytes_per_s=1e9)
    assert next(s.limit for s in slow.steps if s.name == "local_sum") == "local_sum_bytes_per_s"
    large = project_one(gpus=8, batch=1 << 16)
    assert next(s.limit for s in large.steps if s.name == "gather_pool") == "gather_bytes_per_s"
