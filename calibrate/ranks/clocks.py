"""The timing loops: how one rank times an operation in one visit, by each clock; and what slows its GPU.

    eager    barrier, clock, one call, wait for it, clock: the time that a call takes its caller
    stream   barrier, then calls back to back: between two events on a GPU, by the host's clock on a CPU

On a GPU, a kernel that only waits is launched first, then an untimed call, then the calls of the batch. So
all calls are queued before the first begins: they are timed as fast as the GPU takes them from its queue, not
as fast as Python launches them. Host times are of the machine's monotonic clock, which the ranks of a node
share. Times of different clocks are never combined: each clock has points of its own.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from calibrate.operations import Operation, RankTimes
from calibrate.ranks import process
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.evidence import Clock

if TYPE_CHECKING:
    import torch

WARM_UP_CALLS = 3
"""Untimed calls before the timed calls of every visit, which warm up code, buffers and connections."""

LONG_BYTES = 64 * 2**20
"""From this payload on, one untimed call is enough: it maps the pages, and no cache holds this much."""

BATCHES = 5
"""Times per visit of the stream clock; the calls of the visit are divided among them."""

HOLD_HZ = 2e9
"""Approximate ticks of a GPU's clock per second; a slower clock holds the queue a little longer."""

SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
"""Bits of NVML's clocks event reasons for a GPU that is slower than it should be."""

_HOLD_MARGIN = 1.3  # the waiting kernel holds the queue this many times as long as queueing took before,
_HOLD_LEAST_S = 50e-6  # and between these times
_HOLD_MOST_S = 20e-3

Action = Callable[[], None]
"""Something to do or to time: a call, a batch of calls, a barrier."""


class Cpu:
    """A device that runs the calls, and times batches of them: a CPU, whose calls end when they return."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now

    def synchronize(self) -> None:
        """Wait until all launched work is done."""

    def time_queueing_s(self, action: Action) -> float:
        """Host time to launch ``action`` once [s]; 0 on a CPU, which queues nothing and does not call it."""
        return 0.0

    def time_batch(self, batch: Action, lead_in: Action, queue_s: float = 0.0) -> tuple[float, float]:
        """Run ``batch``; returns the monotonic times at which it began and ended [s].

        lead_in  an untimed call before the batch, so that all ranks begin the batch together; not on a CPU
        queue_s  host time to launch the batch [s]: a GPU does not begin before all of it is queued
        """
        start = self._now()
        batch()
        return start, self._now()

    def take_slowdowns(self) -> list[str]:
        """Why the device was slower than it should be in the last batch, else now; a CPU does not say."""
        return []

    def count_held_bytes(self) -> float:
        """Memory that the process has allocated [bytes]: on a GPU, of the device."""
        return process.count_held_bytes()

    def require_alive(self, error: BaseException) -> None:
        """Raise NoHardwareError if the device cannot be used any more after ``error``; a CPU always can."""


class Cuda(Cpu):
    """An NVIDIA GPU through torch; the calls run on torch's current stream."""

    def __init__(
        self, torch: Any, watch: Callable[[], list[str]] = list, now: Callable[[], float] = time.perf_counter
    ) -> None:
        """watch  says why the GPU is slow (``watch_gpu``);  now  the host's clock [s]"""
        super().__init__(now)
        self._cuda = torch.cuda
        self._watch = watch
        self._slowdowns: list[str] | None = None

    def synchronize(self) -> None:
        """Wait for all streams of the GPU."""
        self._cuda.synchronize()

    def time_queueing_s(self, action: Action) -> float:
        """Host time to launch ``action`` once [s], measured while the GPU's queue is empty."""
        start = self._now()
        action()
        return self._now() - start

    def time_batch(self, batch: Action, lead_in: Action, queue_s: float = 0.0) -> tuple[float, float]:
        """As in ``Cpu``, by CUDA events; slowdowns are read in the first batch of a visit."""
        start = self._now()
        hold_s = min(_HOLD_LEAST_S + _HOLD_MARGIN * queue_s, _HOLD_MOST_S)
        self._cuda._sleep(int(hold_s * HOLD_HZ))
        lead_in()
        begin = record_event(self._cuda)
        batch()
        end = record_event(self._cuda)
        if self._slowdowns is None:
            self._slowdowns = self._watch()
        end.synchronize()
        return start, start + read_elapsed_s(begin, end)

    def take_slowdowns(self) -> list[str]:
        """Why the GPU was slow in the last timed batch. A second call says why it is slow now."""
        slowdowns, self._slowdowns = self._slowdowns, None
        return self._watch() if slowdowns is None else slowdowns

    def count_held_bytes(self) -> float:
        """Memory of tensors [bytes]; torch's unused cache is freed first."""
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


def record_event(cuda: ModuleType) -> torch.cuda.Event:
    """An event that the GPU passes after all work that is queued so far. cuda  torch.cuda"""
    event: torch.cuda.Event = cuda.Event(enable_timing=True)
    event.record()
    return event


def read_elapsed_s(first: torch.cuda.Event, last: torch.cuda.Event) -> float:
    """Time between two events that the GPU has passed [s]."""
    return float(first.elapsed_time(last)) * 1e-3


def watch_gpu(uuid: str) -> Callable[[], list[str]]:
    """A function that says why the GPU with this UUID (``GPU-...``) is slow, in about a millisecond.

    Limits: NVML's binding (nvidia-ml-py), the driver or this GPU is missing -> it never is
    """
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        names = [f"nvmlDeviceGetCurrentClocks{word}Reasons" for word in ("Event", "Throttle")]  # new, old
        read = next(getattr(pynvml, name) for name in names if hasattr(pynvml, name))
        read(handle)
    except Exception:  # not installed, no driver, unknown GPU; NVML's error class may not be importable
        return list

    def list_reasons() -> list[str]:
        """Names of the reasons why the GPU is slow now."""
        try:
            mask = read(handle)
        except pynvml.NVMLError:  # one batch without a reason does not end a run
            return []
        return [name for bit, name in SLOWDOWNS.items() if mask & bit]

    return list_reasons


class Timer:
    """Times one operation in several visits, by one clock."""

    def __init__(
        self, operation: Operation, clock: Clock, device: Cpu, barrier: Action, payload_bytes: int = 0
    ) -> None:
        """clock          eager or stream, another -> BadInputError;  device  that runs the operation
        barrier        function that returns when all ranks of the group have called it
        payload_bytes  large payloads get fewer warm-up calls
        """
        if clock not in (Clock.EAGER, Clock.STREAM):
            raise BadInputError(f"nothing here can be timed by the {clock} clock.", "eager or stream.")
        self.operation = operation
        self._eager = clock is Clock.EAGER
        self._device = device
        self._barrier = barrier
        self._warm_up_calls = 1 if payload_bytes >= LONG_BYTES else WARM_UP_CALLS

    def visit(self, calls: int, ends: list[float], now: Callable[[], float] = time.perf_counter) -> RankTimes:
        """Time about ``calls`` calls, and check the last result.

        ends   an empty list, which gets an entry when a call has ended;  now  the host's clock [s]
        """
        starts: list[float] = []
        steps: dict[str, list[float]] = {}
        calls_each = 1
        for _ in range(self._warm_up_calls):
            self.operation.before()
            self.operation.run()
        self._device.synchronize()
        collecting = gc.isenabled()
        gc.disable()
        try:
            if self._eager:
                self._time_calls(calls, starts, ends, steps, now)
            else:
                calls_each = self._time_batches(calls, starts, ends)
        finally:
            if collecting:
                gc.enable()
        slowdowns = self._device.take_slowdowns()
        wrong, checked = self.operation.check()
        return RankTimes(
            starts_s=starts,
            ends_s=list(ends),
            calls_each=calls_each,
            bytes_sent=self.operation.bytes_sent,
            checked=checked,
            wrong=wrong,
            steps_s=steps,
            slowdowns=slowdowns,
        )

    def _time_calls(
        self,
        calls: int,
        starts: list[float],
        ends: list[float],
        steps: dict[str, list[float]],
        now: Callable[[], float],
    ) -> None:
        """Time single calls, each after a barrier; each appends to ``starts``, ``ends`` and ``steps`` [s]."""
        operation = self.operation
        synchronize = self._device.synchronize
        for _ in range(calls):
            operation.before()
            synchronize()
            self._barrier()
            start = now()
            operation.run()
            synchronize()
            ends.append(now())
            starts.append(start)
            for name, seconds in operation.steps_s().items():
                steps.setdefault(name, []).append(seconds)

    def _time_batches(self, calls: int, starts: list[float], ends: list[float]) -> int:
        """Time batches of back-to-back calls, added to ``starts``, ``ends`` [s]; returns calls per batch."""
        batches = min(BATCHES, calls)
        run = self.operation.run
        size = -(-calls // batches)
        queue_s = size * self._device.time_queueing_s(run)

        def run_all() -> None:
            for _ in range(size):
                run()

        for _ in range(batches):
            self.operation.before()
            self._device.synchronize()
            self._barrier()
            start, end = self._device.time_batch(run_all, run, queue_s)
            starts.append(start)
            ends.append(end)
        return size
