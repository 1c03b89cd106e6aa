"""The timing loops on a fake CPU and a fake GPU, where every call takes a known time and all is noted."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from calibrate.operations import RankTimes
from calibrate.ranks.clocks import BATCHES, LONG_BYTES, WARM_UP_CALLS, Cpu, Cuda, Timer, watch_gpu
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.evidence import Clock


class FakeOperation:
    """Takes 3 s on a clock that moves only when something happens; its two steps take 1 s and 2 s.

    log   what happened
    """

    bytes_sent, before_s, barrier_s = 512, 20.0, 50.0
    steps: Mapping[str, float] = {"first": 1.0, "second": 2.0}

    def __init__(self) -> None:
        self.now_s, self.log = 100.0, list[str]()

    def now(self) -> float:
        return self.note("clock", 0)

    def barrier(self) -> None:
        self.note("barrier", self.barrier_s)

    def note(self, what: str, seconds: float) -> float:
        self.log.append(what)
        self.now_s += seconds
        return self.now_s

    def prepare(self, salt: int) -> None: ...

    def before(self) -> None:
        self.note("before", self.before_s)

    def run(self) -> None:
        assert not gc.isenabled() or len(self.log) < 3 * WARM_UP_CALLS
        self.note("run", 3)

    def check(self) -> tuple[int, int]:
        self.log.append("check")
        return 0, 64

    def steps_s(self) -> Mapping[str, float]:
        return self.steps


def time_spans(times: RankTimes) -> list[float]:
    return [round(end - start, 12) for start, end in zip(times.starts_s, times.ends_s, strict=True)]


def test_eager_times_one_call_at_a_time_after_a_barrier() -> None:
    fake = FakeOperation()
    times = Timer(fake, Clock.EAGER, Cpu(), fake.barrier).visit(2, [], fake.now)
    assert fake.log[2 * WARM_UP_CALLS :] == [*["before", "barrier", "clock", "run", "clock"] * 2, "check"]
    assert time_spans(times) == [3.0, 3.0]
    assert (times.calls_each, times.bytes_sent, times.wrong, times.checked) == (1, 512, 0, 64)
    assert times.steps_s == {"first": [1.0, 1.0], "second": [2.0, 2.0]}
    assert times.slowdowns == [] and gc.isenabled()


@pytest.mark.parametrize(("calls", "each", "batches"), [(3 * BATCHES, 3, BATCHES), (2, 1, 2)])
def test_stream_shares_the_calls_out_among_batches(calls: int, each: int, batches: int) -> None:
    fake = FakeOperation()
    times = Timer(fake, Clock.STREAM, Cpu(fake.now), fake.barrier).visit(calls, [], fake.now)
    batch = ["before", "barrier", "clock", *["run"] * each, "clock"]
    assert fake.log[2 * WARM_UP_CALLS :] == [*batch * batches, "check"]
    assert times.calls_each == each and time_spans(times) == [3.0 * each] * batches


def test_large_payloads_are_warmed_up_once_and_other_clocks_refused() -> None:
    fake = FakeOperation()
    Timer(fake, Clock.EAGER, Cpu(), fake.barrier, LONG_BYTES).visit(1, [], fake.now)
    assert fake.log == ["before", "run", "before", "barrier", "clock", "run", "clock", "check"]
    with pytest.raises(BadInputError, match="by the graph clock"):
        Timer(fake, Clock.GRAPH, Cpu(), fake.barrier)


def test_the_garbage_collector_runs_again_when_a_visit_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeOperation()
    monkeypatch.setattr(fake, "steps_s", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Timer(fake, Clock.EAGER, Cpu(), fake.barrier).visit(1, [])
    assert gc.isenabled()


class FakeTorch(FakeOperation):
    """torch.cuda as far as the clocks use it, and a kernel of 2 us that Python takes 10 us to launch.

    now_s   clock of the host;  idle_s  the GPU is done
    """

    before_s, barrier_s, steps = 0.0, 0.0, dict[str, float]()

    def __init__(self) -> None:
        super().__init__()
        self.cuda, self.idle_s, self.dead = self, 0.0, False

    def now(self) -> float:
        return self.now_s

    def run(self) -> None:
        self.queue(2e-6, "launch")

    def queue(self, seconds: float, what: str) -> None:
        self.note(what, 10e-6)
        self.idle_s = max(self.idle_s, self.now_s) + seconds

    def _sleep(self, cycles: int) -> None:
        assert isinstance(cycles, int)
        self.held_s = cycles / 2e9
        self.queue(self.held_s, "hold")

    def synchronize(self) -> None:
        if self.dead:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.now_s = max(self.now_s, self.idle_s)
        self.log.append("synchronize")

    def Event(self, enable_timing: bool) -> Any:
        assert enable_timing
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, torch: FakeTorch) -> None:
        self.torch = torch

    def record(self) -> None:
        self.recorded_s = max(self.torch.idle_s, self.torch.now_s)
        self.torch.log.append("record")

    def synchronize(self) -> None:
        self.torch.now_s = max(self.torch.now_s, self.recorded_s)
        self.torch.log.append("wait")

    def elapsed_time(self, last: Any) -> float:
        return float(last.recorded_s - self.recorded_s) * 1e3


def visit_gpu(torch: FakeTorch, clock: Clock, calls: int) -> list[float]:
    """Microseconds of a call in each time of a visit."""
    timer = Timer(torch, clock, Cuda(torch, now=torch.now), torch.barrier)
    times = timer.visit(calls, [], torch.now)
    return [round(span / times.calls_each * 1e6, 3) for span in time_spans(times)]


def test_a_stream_times_the_gpu_and_not_the_host_that_launches() -> None:
    """2 us a kernel, though one is launched every 10 us; without a full queue it would be 10."""
    torch = FakeTorch()
    assert visit_gpu(torch, Clock.STREAM, 2 * BATCHES) == [2.0] * BATCHES
    begin, end = ["before", "synchronize", "barrier", "hold", "launch", "record"], ["record", "wait"]
    batch = [*begin, "launch", "launch", *end]
    start = 2 * WARM_UP_CALLS + 2
    assert torch.log[start : start + len(batch)] == batch
    assert torch.held_s == pytest.approx(50e-6 + 1.3 * 20e-6, abs=1e-9)


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
    device.require_alive(ValueError("a table is too long"))  # nothing of the GPU: it is left alone
    with pytest.raises(NoHardwareError, match="illegal memory access"):
        device.require_alive(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_nvml_says_what_slows_a_gpu_and_without_it_nothing_does(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml: Any = ModuleType("pynvml")
    nvml.nvmlInit = lambda: None
    nvml.nvmlDeviceGetHandleByUUID = {"GPU-0f": "handle"}.__getitem__
    masks = {"handle": 0x40 | 0x4 | 0x1}  # a cap, idle
    nvml.nvmlDeviceGetCurrentClocksEventReasons = masks.__getitem__
    nvml.NVMLError = KeyError
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    watch = watch_gpu("GPU-0f")
    assert watch() == ["thermal (hardware)"]
    assert watch_gpu("GPU-another")() == []
    masks.clear()  # the driver fails from here on
    assert watch() == []
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert watch_gpu("GPU-0f")() == []
