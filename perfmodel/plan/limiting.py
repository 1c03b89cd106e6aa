"""The resource that limits a plan: its improvement saves most time, with tables placed as they are.

saving of twice the rate   = sum over its steps of min((t - floor) / 2, t - t_beside)               [s]
saving of half the latency = sum over its steps of floor / 2                                        [s]
t         time of a step;  floor  the part of it that is latency
t_beside  for gathers from HBM and host memory at once, the time of the other gather, which remains
"""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.passes.steps import INSIDE, STEPS, StepRow
from perfmodel.passes.tier_times import SSDS
from perfmodel.passes.timing import LOOK_UPS
from perfmodel.plan.outcome import Planned
from perfmodel.projections.understood import exact_text
from perfmodel.schema.machine import Machine
from perfmodel.units import format_count, format_rate, format_time

LATENCY = "latency"
_HALVED = {
    LATENCY: "the latency of exchanges halved",
    "cache-lookup": "the time to find rows in the cache halved",
    "equal-ids": "the time to find equal ids halved",
}
_LAUNCHES = {
    "launch_floor_s": ("launch", "kernel launches"),
    "bucketize_floor_s": ("sorting-launch", "launches of sorting ids"),
    "ssd_latency_s": ("ssd-latency", "latency of a read from SSDs"),
}
_WORDS = {
    "nic_bytes_per_s": ("network", "network"),
    "nvlink_bytes_per_s": ("nvlink", "NVLink"),
    "pcie_bytes_per_s": ("pcie", "PCIe"),
    "gather_bytes_per_s": ("memory-bandwidth", "memory bandwidth that look-ups reach"),
    "l2_bytes_per_s": ("l2", "L2 bandwidth"),
    "bucketize_bytes_per_s": ("sorting", "rate of sorting ids"),
    "local_sum_bytes_per_s": ("sums", "rate of sums"),
    "host_link_bytes_per_s": ("host-link", "link to host memory"),
    "host_bytes_per_s": ("host-memory", "bandwidth of host memory"),
    "ssd_reads_per_s": ("ssd-reads", "reads per second of the SSDs"),
    "ssd_queue_depth": ("ssd-queue", "reads in flight on the SSDs"),
    "ssd_bytes_per_s": ("ssd-rate", "rate of reads from the SSDs"),
    "ssd_write_bytes_per_s": ("ssd-writes", "rate of writes to the SSDs"),
}
_COUNTS = {"ssd_reads_per_s": "1/s", "ssd_queue_depth": "count"}
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
        units = {key: "s" if key in _LAUNCHES else _COUNTS.get(key, "byte/s") for key in self.values}
        return " ".join(f"--set {key}={exact_text(x, units[key])}" for key, x in self.values.items())


def limiting(answer: Planned) -> Limiting:
    """The limiting resource of a plan. Limits: the plan must have at least one step"""
    saved: dict[str, float] = {}
    for row in answer.found.cost.rows:
        rate, latency = _resources(row, answer)
        faster = _HALF * max(row.time_s - row.floor_s, 0.0)
        faster = min(faster, row.time_s - row.beside_s)  # the other side remains
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
    if step.name in LOOK_UPS:
        return "cache-lookup", "cache-lookup"
    if step.sorts:
        return "equal-ids", "equal-ids"
    if step.name == "write_ssd":
        return "ssd_write_bytes_per_s", "ssd_latency_s"
    if row.limit in SSDS:
        return _slowest_of_ssds(e.setting.machine), "ssd_latency_s"
    if step.below_hbm:
        over = slice(0, 2) if step.name == "read_ssd" else slice(-2, None)
        moved, wire = e.loads(answer.plan).values[list(step.resources[over]), row.rank]
        memory, link = e.times.slopes(step)[over]
        slower = "host_bytes_per_s" if moved * memory > wire * link else "host_link_bytes_per_s"
        return slower, "launch_floor_s"
    if step.gathers:
        return "l2_bytes_per_s" if row.limit == "l2_bytes_per_s" else "gather_bytes_per_s", "launch_floor_s"
    if step.name == "bucketize":
        return "bucketize_bytes_per_s", "bucketize_floor_s"
    return "local_sum_bytes_per_s", "launch_floor_s"


def _slowest_of_ssds(machine: Machine) -> str:
    """Key of the machine value that limits the SSDs' reads per second (``tiers.ssd_reads_per_s``)."""
    value = machine.value
    rates = {
        "ssd_reads_per_s": value("ssd_reads_per_s"),
        "ssd_queue_depth": value("ssd_queue_depth") / value("ssd_latency_s"),
        "ssd_bytes_per_s": value("ssd_bytes_per_s") / value("ssd_block_bytes"),
    }
    return min(rates, key=lambda key: rates[key])


def _change(resource: str, machine: Machine, saving_s: float) -> Limiting:
    if resource in _HALVED:
        return Limiting(resource, _HALVED[resource], {}, saving_s)
    rate = machine.value(resource)
    if resource in _LAUNCHES:
        name, what = _LAUNCHES[resource]
        words = f"{what} {format_time(rate)} → {format_time(_HALF * rate)}"
        return Limiting(name, words, {resource: _HALF * rate}, saving_s)
    name, what = _WORDS[resource]
    shown = format_count if resource in _COUNTS else format_rate
    words = f"{what} {shown(rate)} → {shown(2 * rate)}"
    return Limiting(name, words, {resource: 2 * rate}, saving_s)
