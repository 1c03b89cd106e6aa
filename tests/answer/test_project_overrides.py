"""What-ifs: what follows from a changed machine value, what does not, and the least slowdown there is."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.answer import project_one
from perfmodel.schema.evidence import Evidence


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
