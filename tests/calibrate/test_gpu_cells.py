"""Kernel cells as they run on a GPU, in a CPU's memory: rotation, graphs, one memory for all tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from calibrate.operations import Place  # noqa: E402
from calibrate.passes import id_sets, torch_kernels  # noqa: E402
from calibrate.passes.own_kernels import OwnKernels  # noqa: E402
from calibrate.passes.pattern_rows import PatternTables  # noqa: E402
from calibrate.passes.torch_kernels import KernelOperation, TorchKernels  # noqa: E402
from calibrate.ranks.clocks import BATCHES, WARM_UP_CALLS, Cpu, Timer  # noqa: E402
from perfmodel.schema.evidence import Clock  # noqa: E402
from perfmodel.schema.runs import KERNELS, LookupWork, Point, PointKind  # noqa: E402

WORK = LookupWork(batch=5, tables=3, pooling=2.5, dim=8, rows=40, shards=4)


@pytest.fixture(scope="module", autouse=True)
def home(kernel_home: Path) -> Iterator[None]:
    """Where our own kernels are compiled to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFMODEL_HOME", str(kernel_home))
        yield


def point(operation: str, clock: Clock, work: LookupWork = WORK, dtype: str = "fp32") -> Point:
    return Point(
        kind=PointKind.KERNEL,
        operation=operation,
        clock=clock,
        gpus=1,
        gpus_per_node=1,
        dtype=dtype,
        work=work,
    )


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> TorchKernels:
    """torch's kernels, which take their tensors for a GPU's."""
    return as_on_a_gpu(TorchKernels(), monkeypatch)


def as_on_a_gpu(made: TorchKernels, monkeypatch: pytest.MonkeyPatch) -> TorchKernels:
    """Caches of 10 KB; a table of WORK has 3840 B."""
    monkeypatch.setattr(id_sets, "COLD_BYTES", 10_000)
    monkeypatch.setattr(torch_kernels, "COLD_BYTES", 10_000)
    made.open(Place(0, 1), {})
    made._gpu, made._clearer = True, None
    made.tables = PatternTables(made._device, alone=True)
    return made


class GraphDevice(Cpu):
    """A graph is its calls made again, with the inputs that it was captured with, into the same outputs."""

    def __init__(self, operation: KernelOperation) -> None:
        super().__init__()
        self.operation = operation
        self.replays = 0
        self.inputs: list[Any] = []
        self.dead = False

    def queueing_s(self, action: Callable[[], None]) -> float:
        action()
        return 0.0

    def timed(
        self, batch: Callable[[], None], lead_in: Callable[[], None], queue_s: float = 0.0
    ) -> tuple[float, float]:
        lead_in()
        return super().timed(batch, lead_in, queue_s)

    def capture(self, run: Callable[[], None], calls: int) -> Callable[[], None]:
        for _ in range(WARM_UP_CALLS):
            run()
        self.inputs = []
        for _ in range(calls):
            run()
            self.inputs.append(self.operation._inputs)
        outputs = self.operation._outputs

        def replay() -> None:
            self.replays += 1
            for one in () if self.dead else self.inputs:
                for out, new in zip(outputs, self.operation._call(one), strict=True):
                    if new.data_ptr() not in [x.data_ptr() for x in one]:  # passed on: nothing is written
                        out.copy_(new)

        return replay


def graph_timer(operation: KernelOperation) -> tuple[Timer, GraphDevice]:
    device = GraphDevice(operation)
    return Timer(operation, Clock.GRAPH, "default", device, lambda: None), device


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("clock", [Clock.EAGER, Clock.STREAM, Clock.GRAPH])
def test_every_kernel_is_exact_at_every_clock(library: TorchKernels, kernel: str, clock: Clock) -> None:
    operation = library.operation(point(kernel, clock), [0])
    timer = Timer(operation, clock, "default", GraphDevice(operation), lambda: None)
    for salt in range(3):
        timer.prepare(salt, 20)
        found = timer.visit(20, [])
        assert found.wrong == 0 < found.checked
    assert operation._outputs == () and operation._captured is None  # their memory is free again


@pytest.mark.parametrize("kernel", OwnKernels.operations)
@pytest.mark.parametrize("clock", [Clock.EAGER, Clock.STREAM, Clock.GRAPH])
def test_our_own_kernels_are_exact_too(monkeypatch: pytest.MonkeyPatch, kernel: str, clock: Clock) -> None:
    """Visits of another width in between: tables lie where they lay before, or elsewhere."""
    library = as_on_a_gpu(OwnKernels(), monkeypatch)
    works = [WORK, WORK.model_copy(update={"id_bytes": 4, "dim": 16, "rows": 100})]
    operations = [library.operation(point(kernel, clock, work), [0]) for work in works]
    timers = [Timer(one, clock, "default", GraphDevice(one), lambda: None) for one in operations]
    for salt in range(2):
        for timer in timers:
            timer.prepare(salt, 20)
            found = timer.visit(20, [])
            assert found.wrong == 0 < found.checked


def test_a_graph_reads_each_set_once_and_the_cache_is_emptied_before_it(
    library: TorchKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = WORK.model_copy(update={"pooling": 1, "batch": 1, "tables": 1})  # 32 B a call: 256 sets at most
    operation = library.operation(point("gather_pool", Clock.GRAPH, work), [0])
    swept: list[int] = []
    timer, device = graph_timer(operation)
    monkeypatch.setattr(operation, "_between", lambda: swept.append(device.replays))
    timer.prepare(1, 200)
    timer.visit(200, [])
    assert len(device.inputs) == len({one[0].data_ptr() for one in device.inputs}) == 200 // BATCHES
    # warm-up, a replay that says how long launching takes, one a batch, the one that is checked
    assert swept == [0] * WARM_UP_CALLS + [1, 2, 3, 4, 5, 6]
