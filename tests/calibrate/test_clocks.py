"""The timing loops on a fake machine: every call takes a known time and everything that happens is noted."""

from __future__ import annotations

import gc
from collections.abc import Mapping

import pytest

from calibrate.ranks.clocks import BATCHES, GRAPH_CALLS, WARM_UP_CALLS, Cpu, Timer, graph_calls
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


def test_the_garbage_collector_rests_during_a_visit_and_runs_again_when_it_fails() -> None:
    machine = Machine()

    class Failing(FakeOperation):
        def steps_s(self) -> Mapping[str, float]:
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        Timer(Failing(machine), Clock.EAGER, "default", Cpu(), machine.barrier).visit(1, [])
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("calls", "captured"), [(1, 1), (5, 1), (10, 2), (12, 3), (200, 40), (10_000, GRAPH_CALLS)]
)
def test_a_graph_holds_a_batch(calls: int, captured: int) -> None:
    """5 batches: 200 calls are 40 each, replayed once, so that no set of ids comes twice in a batch."""
    assert graph_calls(calls) == captured
    assert captured == GRAPH_CALLS or captured * BATCHES >= calls
