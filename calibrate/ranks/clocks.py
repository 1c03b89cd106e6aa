"""The timing loops: one visit of one operation on one rank, by each clock.

    eager    barrier, clock, one call, wait for it, clock: what one call costs who makes it
    stream   barrier, then calls back to back: between two events on a GPU, by the host's clock on a CPU
    graph    the same calls, captured in one CUDA graph that is replayed between two events

On a GPU the calls of a batch are queued behind a kernel that only waits, and one untimed call: short kernels
are timed as fast as the GPU takes them from its queue, not as fast as Python launches them.

Host times are of the machine's monotonic clock, which the ranks of one node share. The clocks are never
mixed: each gives its own points.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any, Protocol

from calibrate.operations import Operation, RankTimes
from calibrate.ranks import process
from calibrate.ranks.control import RankProgress
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import DeviceConditions

WARM_UP_CALLS = 3
"""Untimed calls before the timed ones of every visit: code, buffers and connections are warm."""

LONG_BYTES = 64 * 2**20
"""From this size on one such call is enough: it takes the pages, and nothing stays in a cache."""

BATCHES = 5
"""Times that a visit of a back-to-back clock gives; its calls are shared out among them."""

GRAPH_CALLS = 64
"""Most calls in one CUDA graph: it holds a whole batch, so that no call of a batch comes twice."""

HOLD_HZ = 2e9
"""Ticks of a GPU's clock in a second, about: it holds a little longer where the clock is slower."""

_HOLD_MARGIN, _HOLD_LEAST_S, _HOLD_MOST_S = 1.3, 50e-6, 20e-3

AFTER_KERNEL = "after_kernel"

Action = Callable[[], None]


class Device(Protocol):
    """What runs the calls, and times batches of them."""

    def synchronize(self) -> None:
        """Wait until all that was launched is done."""

    def queueing_s(self, action: Action) -> float:
        """Host time that launching ``action`` takes [s]; 0 where calls have ended when they return."""

    def timed(self, batch: Action, lead_in: Action, queue_s: float = 0.0) -> tuple[float, float]:
        """Monotonic times at which ``batch`` began and ended [s].

        lead_in  one more call, untimed: ranks come out of it together
        queue_s  host time that launching the batch takes [s]: a GPU begins when all of it is queued
        """

    def capture(self, run: Action, calls: int) -> Action:
        """``calls`` calls of ``run`` as one replay. Raises BadInputError where nothing can be captured."""

    def conditions(self) -> DeviceConditions | None:
        """The state of the device in the last batch, or now; None where nobody can read it."""

    def held_bytes(self) -> float:
        """Memory of the device that this process holds now."""

    def require_alive(self, error: BaseException) -> None:
        """Raises NoHardwareError where ``error`` left a device that does nothing any more."""


class Cpu:
    """Calls return when they are done."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now

    def synchronize(self) -> None:
        """Nothing is under way."""

    def queueing_s(self, action: Action) -> float:
        """Nothing is queued, and nothing is called."""
        return 0.0

    def timed(self, batch: Action, lead_in: Action, queue_s: float = 0.0) -> tuple[float, float]:
        """By the host's clock. A CPU needs no lead-in."""
        start = self._now()
        batch()
        return start, self._now()

    def capture(self, run: Action, calls: int) -> Action:
        """A CPU has no graphs."""
        raise BadInputError("there is no graph clock on a CPU.", "use --clock eager or --clock stream.")

    def conditions(self) -> DeviceConditions | None:
        """Nobody can read a CPU's clock without rights to do so."""
        return None

    def held_bytes(self) -> float:
        """Memory of the process."""
        return process.held_bytes()

    def require_alive(self, error: BaseException) -> None:
        """A CPU is."""


class Cuda:
    """One NVIDIA GPU through torch; the calls run on torch's current stream.

    watch    reads the state of the GPU (calibrate.ranks.gpu_conditions)
    """

    def __init__(
        self,
        torch: Any,
        watch: Callable[[], DeviceConditions | None] = lambda: None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._cuda = torch.cuda
        self._watch = watch
        self._now = now
        self._seen: DeviceConditions | None = None
        self._side: Any = None

    def synchronize(self) -> None:
        """All streams of the GPU."""
        self._cuda.synchronize()

    def queueing_s(self, action: Action) -> float:
        """By one call into an empty queue."""
        start = self._now()
        action()
        return self._now() - start

    def timed(self, batch: Action, lead_in: Action, queue_s: float = 0.0) -> tuple[float, float]:
        """By two events of the stream. The GPU's state is read while it works on a visit's first batch."""
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
        """Warms up and captures on one side stream: libraries keep state per stream, and allocate it.

        Memory that calls take while they are captured is the graph's own, as long as its replay is kept.
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
            self._cuda.set_stream(main)  # torch does not when what was captured cannot be a graph
        self.synchronize()
        replay: Action = graph.replay
        return replay

    def conditions(self) -> DeviceConditions | None:
        """Those of the last batch; without one, those of now."""
        seen, self._seen = self._seen, None
        return seen or self._watch()

    def held_bytes(self) -> float:
        """Memory of tensors and of captured graphs; what torch only kept for later is given back."""
        self._cuda.empty_cache()
        return float(self._cuda.memory_reserved())

    def require_alive(self, error: BaseException) -> None:
        """After some errors of a kernel every later call fails: this process can only end."""
        if "CUDA error" not in str(error):
            return
        try:
            self.synchronize()
        except RuntimeError as problem:
            raise NoHardwareError(f"the GPU no longer answers: {error}") from problem


class Timer:
    """Times the visits of one operation.

    barrier  waits for the ranks of the group, and leaves with them
    """

    def __init__(
        self,
        operation: Operation,
        clock: Clock,
        variant: str,
        device: Device,
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
        """Fills the buffers, and captures what ``calls`` calls need anew: buffers may have moved."""
        self._action = self.operation.run
        self.operation.prepare(salt)
        if self._clock is Clock.GRAPH:
            self._captured = graph_calls(calls)
            self._action = self._device.capture(self.operation.run, self._captured)

    def visit(
        self, calls: int, progress: RankProgress | None = None, now: Callable[[], float] = time.perf_counter
    ) -> RankTimes:
        """Times about ``calls`` calls and checks the last one's result."""
        progress = progress or RankProgress()
        starts: list[float] = []
        ends: list[float] = []
        steps: dict[str, list[float]] = {}
        progress.enter("warm-up")
        self._warm_up()
        progress.enter("timed calls", ends)
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
        progress.enter("check")
        conditions = self._device.conditions()
        if self._clock is Clock.GRAPH:
            self._replay_once_more()
        self._device.synchronize()
        wrong, checked = self.operation.check()
        self._action = self.operation.run  # the memory of a graph is free again
        return RankTimes(
            starts_s=starts,
            ends_s=ends,
            calls_each=each,
            bytes_sent=self.operation.bytes_sent,
            checked=checked,
            wrong=wrong,
            steps_s=steps,
            conditions=conditions,
        )

    def _replay_once_more(self) -> None:
        """What a check sees then is what the graph wrote, and no call beside it."""
        self.operation.before()
        self._device.synchronize()
        self._barrier()
        self._action()

    def _warm_up(self) -> None:
        for _ in range(self._warm_up_calls):
            self.operation.before()
            self.operation.run()
        self._device.synchronize()

    def _eager(
        self,
        calls: int,
        starts: list[float],
        ends: list[float],
        steps: dict[str, list[float]],
        now: Callable[[], float],
    ) -> None:
        """One call at a time. After a kernel the barrier goes first, so that nothing comes between."""
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
        """Back-to-back calls; returns the calls behind each time."""
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
    """Calls captured in one graph for a visit of ``calls``: those of a batch.

    Limits: up to BATCHES calls -> 1; more than BATCHES GRAPH_CALLS -> GRAPH_CALLS
    """
    return min(GRAPH_CALLS, -(-calls // BATCHES))
