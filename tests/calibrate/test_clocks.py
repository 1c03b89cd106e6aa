"""The timing loops on a fake machine: every call takes a known time and everything that happens is noted."""

from __future__ import annotations

import gc
from collections.abc import Mapping

import pytest

from calibrate.ranks.clocks import BATCHES, GRAPH_CALLS, WARM_UP_CALLS, Cpu, Timer, graph_calls
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import Clock


class Machine:
    """A clock that moves only when something happens; ``log`` is what happened."""

    def __init__(self, call_s: float = 3.0, sync_s: float = 1.0) -> None:
        self.now_s = 100.0
        self.log: list[str] = []
        self.call_s, self.sync_s = call_s, sync_s

    def now(self) -> float:
        self.log.append("clock")
        return self.now_s

    def barrier(self) -> None:
        self.log.append("barrier")
        self.now_s += 50


class FakeOperation:
    """Takes ``call_s``; its two steps take a third and two thirds."""

    bytes_sent = 512

    def __init__(self, machine: Machine, wrong: int = 0) -> None:
        self.machine, self.wrong, self.salt = machine, wrong, -1

    def prepare(self, salt: int) -> None:
        self.salt = salt

    def before(self) -> None:
        self.machine.log.append("before")
        self.machine.now_s += 20

    def run(self) -> None:
        assert not gc.isenabled() or len(self.machine.log) < 3 * WARM_UP_CALLS
        self.machine.log.append("run")
        self.machine.now_s += self.machine.call_s

    def check(self) -> tuple[int, int]:
        self.machine.log.append("check")
        return self.wrong, 64

    def steps_s(self) -> Mapping[str, float]:
        return {"first": self.machine.call_s / 3, "second": self.machine.call_s * 2 / 3}


def timed(log: list[str]) -> list[str]:
    """What happened after the warm-up calls."""
    return log[2 * WARM_UP_CALLS :]


def test_eager_times_one_call_at_a_time_after_a_barrier() -> None:
    machine = Machine()
    timer = Timer(FakeOperation(machine), Clock.EAGER, "default", Cpu(), machine.barrier)
    timer.prepare(7, 2)
    found = timer.visit(2, [], machine.now)
    assert timed(machine.log) == ["before", "barrier", "clock", "run", "clock"] * 2 + ["check"]
    assert [end - start for start, end in zip(found.starts_s, found.ends_s, strict=True)] == [3.0, 3.0]
    assert (found.calls_each, found.bytes_sent, found.wrong, found.checked) == (1, 512, 0, 64)
    assert found.steps_s == {"first": [1.0, 1.0], "second": [2.0, 2.0]}
    assert found.conditions is None


def test_after_a_kernel_nothing_stands_between_it_and_the_call() -> None:
    machine = Machine()
    timer = Timer(FakeOperation(machine), Clock.EAGER, "after_kernel", Cpu(), machine.barrier)
    timer.visit(1, [], machine.now)
    assert timed(machine.log) == ["barrier", "before", "clock", "run", "clock", "check"]


def test_stream_shares_the_calls_out_among_batches() -> None:
    machine = Machine()
    timer = Timer(FakeOperation(machine), Clock.STREAM, "default", Cpu(machine.now), machine.barrier)
    found = timer.visit(3 * BATCHES, [], machine.now)
    assert timed(machine.log) == ["before", "barrier", "clock", "run", "run", "run", "clock"] * BATCHES + [
        "check"
    ]
    assert found.calls_each == 3
    assert [end - start for start, end in zip(found.starts_s, found.ends_s, strict=True)] == [9.0] * BATCHES


@pytest.mark.parametrize(
    ("calls", "times", "each"), [(1, 1, 1), (4, 4, 1), (5, 5, 1), (6, 5, 2), (100, 5, 20)]
)
def test_stream_never_times_fewer_calls_than_asked(calls: int, times: int, each: int) -> None:
    machine = Machine()
    found = Timer(FakeOperation(machine), Clock.STREAM, "default", Cpu(), machine.barrier).visit(calls, [])
    assert (len(found.starts_s), found.calls_each) == (times, each)


def test_wrong_elements_are_reported_and_the_salt_reaches_the_operation() -> None:
    machine = Machine()
    operation = FakeOperation(machine, wrong=2)
    timer = Timer(operation, Clock.EAGER, "default", Cpu(), machine.barrier)
    timer.prepare(41, 1)
    assert operation.salt == 41
    assert timer.visit(1, []).wrong == 2


def test_the_garbage_collector_rests_during_a_visit_and_runs_again_when_it_fails() -> None:
    machine = Machine()

    class Failing(FakeOperation):
        def steps_s(self) -> Mapping[str, float]:
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        Timer(Failing(machine), Clock.EAGER, "default", Cpu(), machine.barrier).visit(1, [])
    assert gc.isenabled()


@pytest.mark.parametrize(("payload_bytes", "calls"), [(0, 3), (64 * 2**20 - 1, 3), (64 * 2**20, 1)])
def test_one_long_call_warms_up(payload_bytes: int, calls: int) -> None:
    machine = Machine()
    Timer(FakeOperation(machine), Clock.EAGER, "default", Cpu(), machine.barrier, payload_bytes).visit(1, [])
    assert machine.log.index("barrier") == 2 * calls + 1


def test_calls_are_counted_while_they_are_timed() -> None:
    machine, ends = Machine(), list[float]()

    class Counting(FakeOperation):
        def run(self) -> None:
            seen.append(len(ends))

    seen: list[int] = []
    Timer(Counting(machine), Clock.EAGER, "default", Cpu(), machine.barrier).visit(3, ends)
    assert seen == [0] * WARM_UP_CALLS + [0, 1, 2] and len(ends) == 3


def test_a_cpu_has_no_graphs_and_nothing_here_reads_a_clock_inside_a_kernel() -> None:
    machine = Machine()
    timer = Timer(FakeOperation(machine), Clock.GRAPH, "default", Cpu(), machine.barrier)
    with pytest.raises(BadInputError, match="no graph clock on a CPU"):
        timer.prepare(1, 5)
    with pytest.raises(BadInputError, match="inside a kernel"):
        Timer(FakeOperation(machine), Clock.DEVICE, "default", Cpu(), machine.barrier)


@pytest.mark.parametrize(
    ("calls", "captured"), [(1, 1), (5, 1), (10, 2), (12, 3), (200, 40), (10_000, GRAPH_CALLS)]
)
def test_a_graph_holds_a_batch(calls: int, captured: int) -> None:
    """5 batches: 200 calls are 40 each, replayed once, so that no set of ids comes twice in a batch."""
    assert graph_calls(calls) == captured
    assert captured == GRAPH_CALLS or captured * BATCHES >= calls
