"""The timing loops on a fake CPU and a fake GPU, where every call takes a known time and all is noted."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from calibrate.ranks.clocks import BATCHES, WARM_UP_CALLS, Cpu, Cuda, Timer, watch_gpu
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.evidence import Clock

LAUNCH_S, KERNEL_S = 10e-6, 2e-6
"""A short kernel: Python takes five times as long to launch it as the GPU to run it."""


class Machine:
    """A clock that moves only when something happens; ``log`` is what happened."""

    def __init__(self, call_s: float = 3.0) -> None:
        self.now_s, self.call_s = 100.0, call_s
        self.log: list[str] = []

    def now(self) -> float:
        self.log.append("clock")
        return self.now_s

    def barrier(self) -> None:
        self.log.append("barrier")
        self.now_s += 50


class FakeOperation:
    """Takes ``call_s``; its two steps take a third and two thirds."""

    bytes_sent = 512

    def __init__(self, machine: Any) -> None:
        self.machine = machine

    def prepare(self, salt: int) -> None: ...

    def before(self) -> None:
        self.machine.log.append("before")
        self.machine.now_s += 20

    def run(self) -> None:
        assert not gc.isenabled() or len(self.machine.log) < 3 * WARM_UP_CALLS
        self.machine.log.append("run")
        self.machine.now_s += self.machine.call_s

    def check(self) -> tuple[int, int]:
        self.machine.log.append("check")
        return 0, 64

    def steps_s(self) -> Mapping[str, float]:
        return {"first": self.machine.call_s / 3, "second": self.machine.call_s * 2 / 3}


def test_eager_times_one_call_at_a_time_after_a_barrier() -> None:
    machine = Machine()
    timer = Timer(FakeOperation(machine), Clock.EAGER, Cpu(), machine.barrier)
    times = timer.visit(2, [], machine.now)
    assert machine.log[2 * WARM_UP_CALLS :] == [*["before", "barrier", "clock", "run", "clock"] * 2, "check"]
    assert [end - start for start, end in zip(times.starts_s, times.ends_s, strict=True)] == [3.0, 3.0]
    assert (times.calls_each, times.bytes_sent, times.wrong, times.checked) == (1, 512, 0, 64)
    assert times.steps_s == {"first": [1.0, 1.0], "second": [2.0, 2.0]}
    assert times.slowdowns == []


def test_stream_shares_the_calls_out_among_batches() -> None:
    machine = Machine()
    timer = Timer(FakeOperation(machine), Clock.STREAM, Cpu(machine.now), machine.barrier)
    times = timer.visit(3 * BATCHES, [], machine.now)
    batch = ["before", "barrier", "clock", "run", "run", "run", "clock"]
    assert machine.log[2 * WARM_UP_CALLS :] == [*batch * BATCHES, "check"]
    assert times.calls_each == 3
    assert [end - start for start, end in zip(times.starts_s, times.ends_s, strict=True)] == [9.0] * BATCHES
    with pytest.raises(BadInputError, match="by the graph clock"):
        Timer(FakeOperation(machine), Clock.GRAPH, Cpu(), machine.barrier)


def test_the_garbage_collector_rests_during_a_visit_and_runs_again_when_it_fails() -> None:
    machine = Machine()

    class Failing(FakeOperation):
        def steps_s(self) -> Mapping[str, float]:
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        Timer(Failing(machine), Clock.EAGER, Cpu(), machine.barrier).visit(1, [])
    assert gc.isenabled()


class FakeTorch:
    """torch.cuda as far as the clocks use it. ``now_s``: clock of the host; ``idle_s``: the GPU is done."""

    def __init__(self) -> None:
        self.cuda = self
        self.log: list[str] = []
        self.now_s = self.idle_s = 0.0
        self.dead = False

    def now(self) -> float:
        return self.now_s

    def queue(self, seconds: float, what: str) -> None:
        self.now_s += LAUNCH_S
        self.idle_s = max(self.idle_s, self.now_s) + seconds
        self.log.append(what)

    def _sleep(self, cycles: int) -> None:
        assert isinstance(cycles, int)
        self.queue(cycles / 2e9, "hold")

    def synchronize(self) -> None:
        if self.dead:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.now_s = max(self.now_s, self.idle_s)
        self.log.append("synchronize")

    def Event(self, enable_timing: bool) -> Any:
        torch = self

        class Event:
            def record(self) -> None:
                self.recorded_s = max(torch.idle_s, torch.now_s)
                torch.log.append("record")

            def synchronize(self) -> None:
                torch.now_s = max(torch.now_s, self.recorded_s)
                torch.log.append("wait")

            def elapsed_time(self, last: Any) -> float:
                return float(last.recorded_s - self.recorded_s) * 1e3

        assert enable_timing
        return Event()


class GpuOperation(FakeOperation):
    """A kernel of two microseconds."""

    def before(self) -> None:
        self.machine.log.append("before")

    def run(self) -> None:
        self.machine.queue(KERNEL_S, "launch")

    def steps_s(self) -> Mapping[str, float]:
        return {}


def visit_gpu(torch: FakeTorch, clock: Clock, calls: int) -> list[float]:
    """Microseconds of each time of a visit."""
    device = Cuda(torch, now=torch.now)
    timer = Timer(GpuOperation(torch), clock, device, lambda: torch.log.append("barrier"))
    times = timer.visit(calls, [], torch.now)
    spans = zip(times.starts_s, times.ends_s, strict=True)
    return [round((end - start) / times.calls_each * 1e6, 3) for start, end in spans]


def test_a_stream_times_the_gpu_and_not_the_host_that_launches() -> None:
    """2 us a kernel, though one is launched every 10 us; without a full queue it would be 10."""
    torch = FakeTorch()
    assert visit_gpu(torch, Clock.STREAM, 2 * BATCHES) == [2.0] * BATCHES
    batch = ["before", "synchronize", "barrier", "hold", *["launch"], "record", *["launch"] * 2]
    start = 2 * WARM_UP_CALLS + 2
    assert torch.log[start : start + len(batch)] == batch


def test_eager_waits_for_every_call_of_a_gpu() -> None:
    torch = FakeTorch()
    assert visit_gpu(torch, Clock.EAGER, 1) == [12.0]  # launched and run
    log = torch.log[2 * WARM_UP_CALLS + 1 :]
    assert log == ["before", "synchronize", "barrier", "launch", "synchronize", "check"]


def test_a_gpu_that_fails_for_good_ends_its_rank() -> None:
    torch = FakeTorch()
    device = Cuda(torch)
    device.require_alive(RuntimeError("CUDA error: out of memory"))
    torch.dead = True
    device.require_alive(ValueError("a table is too long"))  # nothing of the GPU: not even asked
    with pytest.raises(NoHardwareError, match="illegal memory access"):
        device.require_alive(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_nvml_says_what_slows_a_gpu_and_without_it_nothing_does(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml: Any = ModuleType("pynvml")
    nvml.nvmlInit = lambda: None
    nvml.nvmlDeviceGetHandleByUUID = {"GPU-0f": "handle"}.__getitem__
    masks = {"handle": 0x40 | 0x4 | 0x1}  # a cap, idle
    nvml.nvmlDeviceGetCurrentClocksEventReasons = masks.__getitem__
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert watch_gpu("GPU-0f")() == ["thermal (hardware)"]
    assert watch_gpu("GPU-another")() == []
    nvml.NVMLError = KeyError
    watch = watch_gpu("GPU-0f")
    masks.clear()  # the driver fails from here on
    assert watch() == []
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert watch_gpu("GPU-0f")() == []
