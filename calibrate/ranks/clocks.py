"""The timing loops: how one rank times an operation in one visit, by each clock.

    eager    barrier, clock, one call, wait for it, clock: the time that a call takes its caller
    stream   barrier, then calls back to back: between two events on a GPU, by the host's clock on a CPU
    graph    the same calls, captured in a CUDA graph that is replayed between two events

On a GPU, a kernel that only waits is launched first, then an untimed call, then the calls of the batch. So
all calls are queued before the first begins: they are timed as fast as the GPU takes them from its queue, not
as fast as Python launches them. Host times are of the machine's monotonic clock, which the ranks of a node
share. Times of different clocks are never combined: each clock has points of its own.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from calibrate.operations import Operation, RankTimes
from calibrate.ranks import process
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import DeviceConditions

WARM_UP_CALLS = 3
"""Untimed calls before the timed calls of every visit, which warm up code, buffers and connections."""

LONG_BYTES = 64 * 2**20
"""From this payload on, one untimed call is enough: it maps the pages, and no cache holds this much."""

BATCHES = 5
"""Times per visit of a back-to-back clock; the calls of the visit are divided among them."""

GRAPH_CALLS = 64
"""Most calls in a CUDA graph. It holds a whole batch, so that no call of a batch is replayed twice."""

HOLD_HZ = 2e9
"""Approximate ticks of a GPU's clock per second; a slower clock holds the queue a little longer."""

_HOLD_MARGIN, _HOLD_LEAST_S, _HOLD_MOST_S = 1.3, 50e-6, 20e-3

AFTER_KERNEL = "after_kernel"

Action = Callable[[], None]


class Cpu:
    """A device that runs the calls, and times batches of them: a CPU, whose calls end when they return."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now

    def synchronize(self) -> None:
        """Wait until all launched work is done."""

    def queueing_s(self, action: Action) -> float:
        """Host time to launch ``action`` once [s]; 0 on a CPU, which queues nothing and does not call it."""
        return 0.0

    def timed(self, batch: Action, lead_in: Action, queue_s: float = 0.0) -> tuple[float, float]:
        """Run ``batch``; returns the monotonic times at which it began and ended [s].

        lead_in  an untimed call before the batch, so that all ranks begin the batch together; not on a CPU
        queue_s  host time to launch the batch [s]: a GPU does not begin before all of it is queued
        """
        start = self._now()
        batch()
        return start, self._now()

    def capture(self, run: Action, calls: int) -> Action:
        """``calls`` calls of ``run`` as one graph replay. Limits: a CPU has no graphs -> BadInputError"""
        raise BadInputError("there is no graph clock on a CPU.", "use --clock eager or --clock stream.")

    def conditions(self) -> DeviceConditions | None:
        """The device's clock and its limits in the last batch, else now.

        Limits: unreadable, as on a CPU without special rights -> None
        """
        return None

    def held_bytes(self) -> float:
        """Memory that the process has allocated [bytes]: on a GPU, of the device."""
        return process.held_bytes()

    def require_alive(self, error: BaseException) -> None:
        """Raise NoHardwareError if the device cannot be used any more after ``error``; a CPU always can."""


class Cuda(Cpu):
    """An NVIDIA GPU through torch; the calls run on torch's current stream.

    watch    reads the state of the GPU (calibrate.ranks.gpu_conditions)
    """

    def __init__(
        self,
        torch: Any,
        watch: Callable[[], DeviceConditions | None] = lambda: None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(now)
        self._cuda = torch.cuda
        self._watch = watch
        self._seen: DeviceConditions | None = None
        self._side: Any = None

    def synchronize(self) -> None:
        """Wait for all streams of the GPU."""
        self._cuda.synchronize()

    def queueing_s(self, action: Action) -> float:
        """Host time to launch ``action`` once [s], measured while the GPU's queue is empty."""
        start = self._now()
        action()
        return self._now() - start

    def timed(self, batch: Action, lead_in: Action, queue_s: float = 0.0) -> tuple[float, float]:
        """As in ``Cpu``, by CUDA events; conditions are read in the first batch of a visit."""
        first = self._cuda.Event(enable_timing=True)
        last = self._cuda.Event(enable_timing=True)
        start = self._now()
        hold_s = min(_HOLD_LEAST_S + _HOLD_MARGIN * queue_s, _HOLD_MOST_S)
        self._cuda._sleep(int(hold_s * HOLD_HZ))
        lead_in()
        first.record()
        batch()
        last.record()
        if self._seen is None:
            self._seen = self._watch()
        last.synchronize()
        return start, start + first.elapsed_time(last) * 1e-3

    def capture(self, run: Action, calls: int) -> Action:
        """As in ``Cpu``; warm-up and capture use one side stream, as libraries allocate state per stream.

        Memory that calls allocate during capture belongs to the graph, as long as its replay is kept.
        """
        self.synchronize()
        if self._side is None:
            self._side = self._cuda.Stream()
        main, side = self._cuda.current_stream(), self._side
        side.wait_stream(main)
        with self._cuda.stream(side):
            for _ in range(WARM_UP_CALLS):
                run()
        main.wait_stream(side)
        self.synchronize()
        graph = self._cuda.CUDAGraph()
        try:
            with self._cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                for _ in range(calls):
                    run()
        finally:
            self._cuda.set_stream(main)  # torch does not, if the calls cannot be a graph
        self.synchronize()
        replay: Action = graph.replay
        return replay

    def conditions(self) -> DeviceConditions | None:
        """Clock and limits of the GPU in the last timed batch. A second call reads those of now."""
        seen, self._seen = self._seen, None
        return seen or self._watch()

    def held_bytes(self) -> float:
        """Memory of tensors and captured graphs [bytes]; torch's unused cache is freed first."""
        self._cuda.empty_cache()
        return float(self._cuda.memory_reserved())

    def require_alive(self, error: BaseException) -> None:
        """As in ``Cpu``: after some kernel errors every later CUDA call of the process fails."""
        if "CUDA error" not in str(error):
            return
        try:
            self.synchronize()
        except RuntimeError as problem:
            raise NoHardwareError(f"the GPU no longer answers: {error}") from problem


class Timer:
    """Times one operation in several visits, by one clock.

    variant        after_kernel: ranks wait for each other before the kernel, not between it and the call
    barrier        function that returns when all ranks of the group have called it
    payload_bytes  large payloads get fewer warm-up calls
    """

    def __init__(
        self,
        operation: Operation,
        clock: Clock,
        variant: str,
        device: Cpu,
        barrier: Action,
        payload_bytes: int = 0,
    ) -> None:
        if clock not in (Clock.EAGER, Clock.STREAM, Clock.GRAPH):
            raise BadInputError(
                f"the clock {clock} is read inside a kernel; nothing here can be timed by it."
            )
        self.operation = operation
        self._clock = clock
        self._variant = variant
        self._device = device
        self._barrier = barrier
        self._warm_up_calls = 1 if payload_bytes >= LONG_BYTES else WARM_UP_CALLS
        self._captured = 1
        self._action: Action = operation.run

    def prepare(self, salt: int, calls: int) -> None:
        """Fill the buffers; for the graph clock, capture a new graph, as buffers may have moved."""
        self._action = self.operation.run
        self.operation.prepare(salt)
        if self._clock is Clock.GRAPH:
            self._captured = graph_calls(calls)
            self._action = self._device.capture(self.operation.run, self._captured)

    def visit(self, calls: int, ends: list[float], now: Callable[[], float] = time.perf_counter) -> RankTimes:
        """Time about ``calls`` calls, and check the last result.

        ends   an empty list, which gets an entry when a call has ended;  now  the host's clock [s]
        """
        starts: list[float] = []
        steps: dict[str, list[float]] = {}
        for _ in range(self._warm_up_calls):
            self.operation.before()
            self.operation.run()
        self._device.synchronize()
        collecting = gc.isenabled()
        gc.disable()
        try:
            if self._clock is Clock.EAGER:
                each = 1
                self._eager(calls, starts, ends, steps, now)
            else:
                each = self._batches(calls, starts, ends)
        finally:
            if collecting:
                gc.enable()
        conditions = self._device.conditions()
        if self._clock is Clock.GRAPH:
            self._replay_once_more()
        self._device.synchronize()
        wrong, checked = self.operation.check()
        self._action = self.operation.run  # frees the memory of the graph
        return RankTimes(
            starts_s=starts,
            ends_s=list(ends),
            calls_each=each,
            bytes_sent=self.operation.bytes_sent,
            checked=checked,
            wrong=wrong,
            steps_s=steps,
            conditions=conditions,
        )

    def _replay_once_more(self) -> None:
        """Replay the graph, so that the check sees a result of the graph and not of another call."""
        self.operation.before()
        self._device.synchronize()
        self._barrier()
        self._action()

    def _eager(
        self,
        calls: int,
        starts: list[float],
        ends: list[float],
        steps: dict[str, list[float]],
        now: Callable[[], float],
    ) -> None:
        """Time single calls. The barrier is before the call; for after_kernel, before the kernel."""
        operation, barrier, synchronize = self.operation, self._barrier, self._device.synchronize
        joined = self._variant == AFTER_KERNEL
        for _ in range(calls):
            if joined:
                barrier()
            operation.before()
            synchronize()
            if not joined:
                barrier()
            start = now()
            operation.run()
            synchronize()
            end = now()
            starts.append(start)
            ends.append(end)
            for name, seconds in operation.steps_s().items():
                steps.setdefault(name, []).append(seconds)

    def _batches(self, calls: int, starts: list[float], ends: list[float]) -> int:
        """Time batches of back-to-back calls; returns the number of calls per batch."""
        batches = min(BATCHES, calls)
        size, action = self._captured, self._action
        times = -(-calls // (batches * size))
        queue_s = times * self._device.queueing_s(action)

        def batch() -> None:
            for _ in range(times):
                action()

        for _ in range(batches):
            self.operation.before()
            self._device.synchronize()
            self._barrier()
            start, end = self._device.timed(batch, self.operation.run, queue_s)
            starts.append(start)
            ends.append(end)
        return times * size


def graph_calls(calls: int) -> int:
    """Number of calls in one CUDA graph, for a visit of ``calls`` calls in BATCHES batches.

    Limits: up to BATCHES calls -> 1; more than BATCHES GRAPH_CALLS -> GRAPH_CALLS
    """
    return min(GRAPH_CALLS, -(-calls // BATCHES))
