"""The timing loops on a fake GPU: a host that launches, a queue, and a GPU that works through it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from calibrate.ranks.clocks import BATCHES, WARM_UP_CALLS, Cuda, Timer
from perfmodel.errors import NoHardwareError
from perfmodel.schema.evidence import Clock

LAUNCH_S, KERNEL_S = 10e-6, 2e-6
"""A short kernel: Python takes five times as long to launch it as the GPU to run it."""


class FakeTorch:
    """torch.cuda as far as the clocks use it. ``now_s``: clock of the host; ``idle_s``: the GPU is done."""

    def __init__(self, kernel_s: float = KERNEL_S) -> None:
        self.cuda = self
        self.kernel_s = kernel_s
        self.log: list[str] = []
        self.now_s = self.idle_s = 0.0
        self.captured: list[Any] | None = None
        self.stream_name = "main"
        self.reserved = 0
        self.dead = False

    def now(self) -> float:
        return self.now_s

    def queue(self, seconds: float, what: str, host_s: float = LAUNCH_S) -> None:
        self.now_s += host_s
        self.idle_s = max(self.idle_s, self.now_s) + seconds
        self.log.append(what)

    def launch(self, effect: Any = lambda: None) -> None:
        """A kernel: runs now, or is captured."""
        if self.captured is not None:
            assert self.stream_name == "side"
            self.captured.append(effect)
            self.log.append("capture")
            return
        self.queue(self.kernel_s, "launch")
        effect()

    def _sleep(self, cycles: int) -> None:
        assert isinstance(cycles, int)
        self.queue(cycles / 2e9, "hold")

    def synchronize(self) -> None:
        if self.captured is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        if self.dead:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.now_s = max(self.now_s, self.idle_s)
        self.log.append("synchronize")

    def empty_cache(self) -> None:
        self.reserved = min(self.reserved, 600)

    def memory_reserved(self) -> int:
        return self.reserved

    def Event(self, enable_timing: bool) -> Any:
        torch = self

        class Event:
            def record(self) -> None:
                self.at_s = max(torch.idle_s, torch.now_s)
                torch.log.append("record")

            def synchronize(self) -> None:
                torch.now_s = max(torch.now_s, self.at_s)
                torch.log.append("wait")

            def elapsed_time(self, last: Any) -> float:
                return float(last.at_s - self.at_s) * 1e3

        assert enable_timing
        return Event()

    def Stream(self) -> Any:
        self.log.append("new stream")
        return self

    def current_stream(self) -> Any:
        return self

    def wait_stream(self, stream: Any) -> None:
        self.log.append("wait_stream")

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        self.stream_name = "side"
        self.log.append("side")
        yield
        self.stream_name = "main"
        self.log.append("main")

    def set_stream(self, stream: Any) -> None:
        self.stream_name = "main"

    def CUDAGraph(self) -> Any:
        torch = self

        class Graph:
            effects: tuple[Any, ...] = ()

            def replay(self) -> None:
                torch.queue(torch.kernel_s * len(self.effects), "replay")
                for effect in self.effects:
                    effect()

        return Graph()

    @contextmanager
    def graph(self, graph: Any, stream: Any, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        self.captured, self.stream_name = [], "side"
        self.log.append("side")
        try:
            yield
        except BaseException:
            self.captured = None
            raise  # torch's own graph forgets to leave its stream here
        self.log.append("main")
        self.stream_name = "main"
        graph.effects, self.captured = tuple(self.captured), None


class GpuOperation:
    """Writes 1 where ``before`` wrote 0; ``broken``: what is captured writes nothing."""

    bytes_sent = 8

    def __init__(self, torch: FakeTorch, broken: bool = False) -> None:
        self.torch, self.broken, self.value = torch, broken, 0

    def prepare(self, salt: int) -> None:
        self.torch.log.append("prepare")

    def before(self) -> None:
        self.value = 0
        self.torch.log.append("before")

    def run(self) -> None:
        silent = self.broken and self.torch.captured is not None
        self.torch.launch(lambda: None if silent else setattr(self, "value", 1))

    def check(self) -> tuple[int, int]:
        return 1 - self.value, 1

    def steps_s(self) -> Mapping[str, float]:
        return {}


def timer(torch: FakeTorch, clock: Clock, **more: Any) -> Timer:
    device = Cuda(torch, more.pop("watch", lambda: None), torch.now)
    return Timer(GpuOperation(torch, **more), clock, "default", device, lambda: torch.log.append("barrier"))


def micros(found: Any) -> list[float]:
    spans = zip(found.starts_s, found.ends_s, strict=True)
    return [round((end - start) / found.calls_each * 1e6, 3) for start, end in spans]


def test_a_stream_times_the_gpu_and_not_the_host_that_launches() -> None:
    """2 us a kernel, though one is launched every 10 us; without a full queue it would be 10."""
    torch = FakeTorch()
    found = timer(torch, Clock.STREAM).visit(20 * BATCHES, [])
    assert found.calls_each == 20
    assert micros(found) == [2.0] * BATCHES


def test_a_graph_is_captured_on_one_side_stream_and_replayed_once_a_batch() -> None:
    torch = FakeTorch()
    made = timer(torch, Clock.GRAPH)
    made.prepare(1, 40)
    warm = ["prepare", "synchronize", "new stream", "wait_stream", "side", *["launch"] * WARM_UP_CALLS]
    assert torch.log == [
        *warm,
        *("main", "wait_stream", "synchronize"),
        *("side", *["capture"] * 8, "main", "synchronize"),
    ]
    torch.log.clear()
    found = made.visit(40, [])
    assert (found.calls_each, micros(found)) == (8, [2.0] * BATCHES)
    batch = ["before", "synchronize", "barrier", "hold", "launch", "record", "replay", "record", "wait"]
    assert torch.log[2 * WARM_UP_CALLS + 2 :] == [
        *batch * BATCHES,
        *("before", "synchronize", "barrier", "replay", "synchronize"),  # the replay that is checked
    ]
    torch.log.clear()
    made.prepare(2, 40)
    assert torch.log.count("capture") == 8  # buffers may have moved: captured anew
    assert "new stream" not in torch.log  # libraries keep state for each stream


def test_what_no_graph_can_hold_leaves_the_stream_as_it_was() -> None:
    torch = FakeTorch()
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        Cuda(torch).capture(lambda: torch.synchronize() if torch.captured is not None else None, 2)
    assert torch.stream_name == "main"


def test_a_graph_that_writes_nothing_is_wrong() -> None:
    for broken in (False, True):
        made = timer(FakeTorch(), Clock.GRAPH, broken=broken)
        made.prepare(1, 10)
        assert made.visit(10, []).wrong == broken


def test_eager_waits_for_every_call() -> None:
    torch = FakeTorch()
    found = timer(torch, Clock.EAGER).visit(1, [], torch.now)
    assert torch.log[2 * WARM_UP_CALLS + 1 :] == [
        *("before", "synchronize", "barrier", "launch", "synchronize"),
        "synchronize",
    ]
    assert micros(found) == [12.0]  # launched and run


def test_a_gpu_that_fails_for_good_ends_its_rank() -> None:
    torch = FakeTorch()
    device = Cuda(torch)
    device.require_alive(RuntimeError("CUDA error: operation not permitted when stream is capturing"))
    torch.dead = True
    device.require_alive(ValueError("a table is too long"))  # nothing of the GPU: not even asked
    with pytest.raises(NoHardwareError, match="illegal memory access"):
        device.require_alive(RuntimeError("CUDA error: an illegal memory access was encountered"))
