"""Kernels on one real GPU: exact at every clock, nothing waits while it is timed, tables of gigabytes."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from calibrate.machine.node import find_gpus
from calibrate.operations import Place
from calibrate.ranks.clocks import BATCHES, Cuda, Timer, watch_gpu
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import KERNELS, LookupWork, Point

if not find_gpus():
    pytest.skip("NOT TESTED on a GPU: there is none here", allow_module_level=True)
torch = pytest.importorskip("torch")

from oracles.points import make_kernel  # noqa: E402
from sizes import REHEARSAL, sized  # noqa: E402

from calibrate.passes.pattern_rows import fill_rows  # noqa: E402
from calibrate.passes.torch_kernels import TorchKernels  # noqa: E402

COMMAND = (sys.executable, "-c", "from perfmodel.cli import main; main()")
WORK = LookupWork(batch=100, tables=4, pooling=5.5, dim=32, rows=50_000)
CLOCKS = (Clock.EAGER, Clock.STREAM)


@pytest.fixture(scope="module")
def library() -> Iterator[TorchKernels]:
    made = TorchKernels()
    made.open(Place(0, 1, device="cuda"), {})
    yield made
    made.close()


def point(operation: str, clock: Clock, **fields: int) -> Point:
    return make_kernel(operation, 1, clock=clock, dtype="fp32", work=WORK.model_copy(update=fields))


def visit(library: TorchKernels, cell: Point, calls: int) -> float:
    """Seconds of a call."""
    operation = library.operation(cell, [0])
    timer = Timer(operation, cell.clock, Cuda(torch), lambda: None)
    for salt in range(2):
        operation.prepare(salt)
        times = timer.visit(calls, [])
        assert times.wrong == 0 < times.checked
    spans = sorted(end - start for start, end in zip(times.starts_s, times.ends_s, strict=True))
    return float(spans[len(spans) // 2] / times.calls_each)


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_is_exact_at_every_clock(library: TorchKernels, kernel: str, clock: Clock) -> None:
    fields = {"dim": 4_000_000} if kernel == "copy" else {}
    call_s = visit(library, point(kernel, clock, **fields), 20 * BATCHES)
    print(f"{kernel} {clock}: {1e6 * call_s:.2f} us")
    assert 0 < call_s < 0.5


@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_waits_inside_a_call(library: TorchKernels, kernel: str) -> None:
    operation = library.operation(point(kernel, Clock.STREAM), [0])
    operation.prepare(1)
    operation.run()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            operation.run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert operation.check()[0] == 0


@pytest.mark.alone
def test_a_short_kernel_is_timed_without_the_host(library: TorchKernels) -> None:
    """Back to back; one host call each takes longer."""
    times = {clock: visit(library, point("copy", clock), 200) for clock in CLOCKS}
    print({str(clock): f"{1e6 * time_s:.2f} us" for clock, time_s in times.items()})
    assert times[Clock.STREAM] < times[Clock.EAGER]


def test_tables_of_gigabytes_are_written_on_the_gpu_in_one_memory(library: TorchKernels) -> None:
    """The host's own memory does not grow by a table."""
    size = min(8 * 2**30, torch.cuda.mem_get_info()[0] // 4)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for dim in (32, 128, 64):
        rows = library.tables.rows(0, size // (4 * dim), dim, "fp32")
        torch.cuda.synchronize()
        last = torch.empty(1, dim)
        fill_rows(last, rows.shape[0] - 1)
        assert torch.equal(rows[-1:].cpu(), last)
        del rows
    library.tables.clear()
    assert Cuda(torch).count_held_bytes() < 2 * 2**30
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert REHEARSAL or grown < size / 4


@pytest.mark.alone
def test_the_state_of_the_gpu_can_be_read() -> None:
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    assert watch_gpu(uuid)() == [], "something slows this GPU down"


def calibrate(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [*COMMAND, "calibrate", "--quick", "--device", "cuda", "--out", str(folder), *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=240, check=False)


def test_one_rank_calibrates(tmp_path: Path) -> None:
    done = calibrate(tmp_path, "--ranks", "1", "--time-limit", f"{sized(20, 5)}s", "--only", "kernels:copy")
    assert done.returncode == 0, done.stderr
    assert "(0 wrong of " in done.stdout


@pytest.mark.skipif(len(find_gpus()) > 1, reason="each rank has a GPU of its own here")
def test_two_ranks_on_one_gpu_are_no_calibration(tmp_path: Path) -> None:
    done = calibrate(tmp_path, "--ranks", "2")
    assert done.returncode == 4, done.stdout
    assert "2 ranks share 1 GPU" in done.stderr
