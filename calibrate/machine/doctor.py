"""Conditions on this machine that spoil measurements: cores, clocks, neighbours, containers, GPUs.

Each check reads a file or a result of ``calibrate.machine.identity``; only the noise probe takes time
(0.3 s).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrate.machine.identity import Host, allowed_cpus, cpu_share
from calibrate.machine.local_gpus import LIMITS, SLOWDOWNS, LocalGpu, names_of
from calibrate.machine.node import ROOT, text_of

PROBE_S = 0.3
_GAP_S = 20e-6  # longer than a timer interrupt, shorter than a time slice
_NOISY_SHARE = 0.02
_BUSY_LOAD = 0.5  # running processes per core
_LEAST_SHARED_BYTES = 256 * 2**20  # per rank: buffers of the transports and a symmetric heap
_LEAST_MEMORY_BYTES = 2**30  # per rank
_MOST_FOREIGN_BYTES = 2**30  # a driver alone uses less memory of a GPU
_BUSY_GPU = 0.05
_POWER_CAP = 0x4
_CLOCKS_SET = 0x2
_STEADY_GOVERNORS = ("performance", "userspace")


@dataclass(frozen=True)
class MachineDoubt:
    """A condition of this machine that would spoil measurements.

    name  short, for JSON;  text  the observation;  advice  what to do about it
    """

    name: str
    text: str
    advice: str = ""


@dataclass(frozen=True)
class Noise:
    """Interruptions, by other processes, of a process that only reads the clock.

    stolen_share  share of the time during which it did not run, on the worst core
    longest_s     longest time during which it did not run [s]
    load          processes that run or wait, mean of the last minute
    """

    stolen_share: float
    longest_s: float
    load: float


def examine(
    host: Host, ranks: int | None = None, noise: Noise | None = None, root: Path = ROOT
) -> list[MachineDoubt]:
    """Everything that would spoil a calibration by ``ranks`` ranks on this node, worst first.

    ranks  ranks on this node (default: one per GPU, else one per core)
    noise  result of the probe (default: it is run, 0.3 s)
    Limits: no doubts -> empty
    """
    wanted = ranks or len(host.gpus) or host.cores
    seen = probe_noise() if noise is None else noise
    return [
        *_ranks(host, wanted),
        *_noise(seen, host),
        *_frequency(root),
        *_battery(root),
        *_container(wanted, root),
        *_shared_memory(wanted, root),
        *_memory(wanted, root),
        *gpu_findings(host.gpus),
    ]


def _ranks(host: Host, ranks: int) -> Iterator[MachineDoubt]:
    if ranks > host.cores and host.gpus:
        text = f"{host.cores} cores for {ranks} GPUs: host threads wait for each other"
        yield MachineDoubt("cores", text, "give this process more cores: at least one per GPU")
    elif ranks > host.cores:
        text = f"{ranks} ranks on {host.cores} cores: they take turns, so times depend on the scheduler"
        advice = f"--ranks {host.cores}" if host.cores > 1 else "a machine with more cores"
        yield MachineDoubt("cores", text, advice)


def probe_noise(duration_s: float = PROBE_S, clock: Callable[[], float] = time.perf_counter) -> Noise:
    """Measure how often other work interrupts a process that only reads the clock.

    It runs for ``duration_s`` in all, divided over at most four of the allowed cores, spread over all of
    them. Afterwards the process may use the same cores as before.
    """
    cpus = allowed_cpus()
    chosen = cpus[:: max(1, len(cpus) // 4)][:4]
    seen = [_spin(cpu, duration_s / len(chosen), clock) for cpu in chosen]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)
    try:
        load = os.getloadavg()[0]
    except OSError:
        load = 0.0
    return Noise(max(share for share, _ in seen), max(longest for _, longest in seen), load)


def _spin(cpu: int, duration_s: float, clock: Callable[[], float]) -> tuple[float, float]:
    """(share of the time lost, longest pause [s]) of a loop on processor ``cpu`` that reads the clock."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [cpu])
    start = last = clock()
    lost = longest = 0.0
    while last - start < duration_s:
        now = clock()
        gap = now - last
        if gap > _GAP_S:
            lost += gap
            longest = max(longest, gap)
        last = now
    return lost / (last - start), longest


def _noise(noise: Noise, host: Host) -> Iterator[MachineDoubt]:
    if noise.stolen_share > _NOISY_SHARE:
        text = (
            f"other processes took {100 * noise.stolen_share:.0f} % of a core during {PROBE_S} s "
            f"(longest pause {1e3 * noise.longest_s:.1f} ms)"
        )
    elif noise.load > _BUSY_LOAD * host.cores:
        text = f"{noise.load:.1f} processes have been running on {host.cores} cores in the last minute"
    else:
        return
    yield MachineDoubt("noise", text, "stop them, or expect points that stay noisy")


def _frequency(root: Path) -> Iterator[MachineDoubt]:
    governor = text_of(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor and governor not in _STEADY_GOVERNORS:
        text = f"the processors' clock follows the load (governor {governor})"
        yield MachineDoubt("frequency", text, "sudo cpupower frequency-set -g performance")


def _battery(root: Path) -> Iterator[MachineDoubt]:
    supplies = (root / "sys/class/power_supply").glob("*/status")
    if any(text_of(path) == "Discharging" for path in supplies):
        yield MachineDoubt("power", "on battery: clocks are limited", "plug it in")


def _container(ranks: int, root: Path) -> Iterator[MachineDoubt]:
    share = cpu_share(root)
    if share is not None and share < ranks + 1:
        text = (
            f"this container may use {share:g} cores' time: {ranks} busy ranks are paused when it is used up"
        )
        yield MachineDoubt("container", text, f"allow it {ranks + 1} (docker run --cpus {ranks + 1})")


def _shared_memory(ranks: int, root: Path) -> Iterator[MachineDoubt]:
    try:
        state = os.statvfs(root / "dev/shm")
    except OSError:
        return
    free, needed = state.f_bavail * state.f_frsize, ranks * _LEAST_SHARED_BYTES
    if free < needed:
        text = f"/dev/shm has {free // 2**20} MiB left; {ranks} ranks may need {needed // 2**20} MiB"
        yield MachineDoubt("shared memory", text, "docker run --shm-size=1g (or --ipc=host), or empty it")


def _memory(ranks: int, root: Path) -> Iterator[MachineDoubt]:
    limits = [
        text_of(root / "sys/fs/cgroup" / name) for name in ("memory.max", "memory/memory.limit_in_bytes")
    ]
    known = [int(text) for text in limits if text.isdigit()]
    if known and min(known) < ranks * _LEAST_MEMORY_BYTES:
        text = f"this container may use {min(known) // 2**20} MiB of memory: large messages will be left out"
        yield MachineDoubt("memory", text, "allow it 1 GiB per rank")


def gpu_findings(gpus: Sequence[LocalGpu]) -> list[MachineDoubt]:
    """Conditions of the GPUs that would spoil measurements. Limits: none, or nothing readable -> empty"""
    found = [doubt for gpu in gpus for doubt in _gpu(gpu)]
    clocks = {gpu.sm_clock_max_hz for gpu in gpus if gpu.sm_clock_max_hz}
    if len(clocks) > 1:
        words = " and ".join(f"{1e-6 * clock:.0f} MHz" for clock in sorted(clocks))
        found.append(MachineDoubt("GPU clocks", f"the GPUs differ in their highest clock: {words}"))
    return found


def _gpu(gpu: LocalGpu) -> Iterator[MachineDoubt]:
    name = f"GPU {gpu.index}"
    if gpu.mig:
        text = "MIG is on: a slice of a GPU is not the machine's GPU"
        yield MachineDoubt(name, text, "measure a whole GPU")
    if gpu.ecc is False:
        yield MachineDoubt(name, "ECC is off: memory is a little faster than where it is on")
    held = names_of(gpu.throttle_mask, {_POWER_CAP: LIMITS[_POWER_CAP], **SLOWDOWNS})
    if held:
        text = f"its clock is limited now: {', '.join(held)}"
        yield MachineDoubt(name, text, "let it cool, or raise the cap")
    elif gpu.throttle_mask & _CLOCKS_SET:
        yield MachineDoubt(name, "its clocks were set by hand", "nvidia-smi -rac, unless that is meant")
    used, busy = gpu.memory_used_bytes or 0.0, gpu.busy_fraction or 0.0
    if busy > _BUSY_GPU or used > _MOST_FOREIGN_BYTES:
        text = f"other processes use it: {100 * busy:.0f} % busy, {used / 2**30:.1f} GiB taken"
        advice = "wait for them, or choose other GPUs with CUDA_VISIBLE_DEVICES"
        yield MachineDoubt(name, text, advice)
