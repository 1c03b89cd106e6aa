"""The resource that limits a plan: its improvement saves most time, with tables placed as they are.

saving of twice the rate   = sum over its steps of (t - floor) / 2                                  [s]
saving of half the latency = sum over its steps of floor / 2                                        [s]
t  time of a step;  floor  the part of it that is latency
"""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.answer.question import format_exact
from perfmodel.engine.steps import INSIDE, STEPS, StepRow
from perfmodel.plan.outcome import Planned
from perfmodel.schema.machine import Machine
from perfmodel.units import format_rate, format_time

LATENCY = "latency"
_HALVED = {
    LATENCY: "the latency of exchanges halved",
    "equal-ids": "the time to find equal ids halved",
}
_LAUNCHES = {
    "launch_floor_s": ("launch", "kernel launches"),
    "bucketize_floor_s": ("sorting-launch", "launches of sorting ids"),
}
_WORDS = {
    "nic_bytes_per_s": ("network", "network"),
    "nvlink_bytes_per_s": ("nvlink", "NVLink"),
    "pcie_bytes_per_s": ("pcie", "PCIe"),
    "gather_bytes_per_s": ("memory-bandwidth", "memory bandwidth that look-ups reach"),
    "l2_bytes_per_s": ("l2", "L2 bandwidth"),
    "bucketize_bytes_per_s": ("sorting", "rate of sorting ids"),
    "local_sum_bytes_per_s": ("sums", "rate of sums"),
}
_HALF = 0.5


@dataclass(frozen=True)
class Limiting:
    """The change of one resource that saves most time, with tables placed as they are.

    name, words  of the change;  saving_s  time of a pass that it saves [s]
    values       the machine values to set for the change, by key; empty if the resource is no machine value:
                 the latency of exchanges, of look-ups in a cache and of deduplication
    """

    name: str
    words: str
    values: dict[str, float]
    saving_s: float

    @property
    def option(self) -> str:
        """The command-line options that make the change; "" if there are none."""
        units = {key: "s" if key in _LAUNCHES else "byte/s" for key in self.values}
        return " ".join(f"--set {key}={format_exact(x, units[key])}" for key, x in self.values.items())


def limiting(answer: Planned) -> Limiting:
    """The limiting resource of a plan. Limits: the plan must have at least one step"""
    saved: dict[str, float] = {}
    for row in answer.found.cost.rows:
        rate, latency = _resources(row, answer)
        faster = _HALF * max(row.time_s - row.floor_s, 0.0)
        saved[rate] = saved.get(rate, 0.0) + faster
        saved[latency] = saved.get(latency, 0.0) + _HALF * row.floor_s
    most = max(saved, key=lambda name: saved[name])
    return _change(most, answer.evaluator.setting.machine, saved[most])


def _resources(row: StepRow, answer: Planned) -> tuple[str, str]:
    """(rate, latency) that determine the time of a step, each as the key of a machine value or a name."""
    e = answer.evaluator
    if not row.is_kernel:
        inside = e.domain >= e.gpus or (row.name in STEPS and STEPS[row.name].ranks == INSIDE)
        joined = e.setting.machine.value("nvlink_bytes_per_s") > 0
        near = "nvlink_bytes_per_s" if joined else "pcie_bytes_per_s"
        return near if inside else "nic_bytes_per_s", LATENCY
    step = STEPS[row.name]
    if step.sorts:
        return "equal-ids", "equal-ids"
    if step.gathers:
        return "l2_bytes_per_s" if row.limit == "l2_bytes_per_s" else "gather_bytes_per_s", "launch_floor_s"
    if step.name == "bucketize":
        return "bucketize_bytes_per_s", "bucketize_floor_s"
    return "local_sum_bytes_per_s", "launch_floor_s"


def _change(resource: str, machine: Machine, saving_s: float) -> Limiting:
    if resource in _HALVED:
        return Limiting(resource, _HALVED[resource], {}, saving_s)
    rate = machine.value(resource)
    if resource in _LAUNCHES:
        name, what = _LAUNCHES[resource]
        words = f"{what} {format_time(rate)} → {format_time(_HALF * rate)}"
        return Limiting(name, words, {resource: _HALF * rate}, saving_s)
    name, what = _WORDS[resource]
    words = f"{what} {format_rate(rate)} → {format_rate(2 * rate)}"
    return Limiting(name, words, {resource: 2 * rate}, saving_s)
