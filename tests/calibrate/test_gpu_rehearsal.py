"""A calibration of one GPU from end to end, with a rank whose GPU is this CPU: only times are made up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from calibrate.planning import kernel_cells
from calibrate.planning.measurement_plan import Request
from calibrate.ranks.team import RankTeam, TeamRequest, start_ranks
from calibrate.running import session
from calibrate.running.interfaces import Listener, RunOptions
from perfmodel.schema.evidence import Clock
from perfmodel.schema.run_files import read_run
from perfmodel.schema.runs import KERNELS, PointKind, Status

RANK = (sys.executable, str(Path(__file__).with_name("fake_gpu.py")))


class Silent(Listener):
    def started(self, *_: object) -> None: ...

    def progress(self, *_: object) -> None: ...

    def warning(self, text: str) -> None:
        print(text)

    def finished(self, *_: object) -> None: ...


def options(folder: Path, **more: object) -> RunOptions:
    request = Request(preset="quick", only=["kernels"], noise=0.9, **more)  # type: ignore[arg-type]
    return RunOptions(request, "h200-sxm-ib", folder, stack={"gpu": "none"}, environment={})


def test_every_kernel_at_every_clock_through_a_whole_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shortest point of each kernel and clock of the quick grid for a small GPU, every result exact."""
    monkeypatch.setitem(kernel_cells.MOST_BYTES, "cuda", 2**20)
    request = TeamRequest(1, "cuda")
    with RankTeam(start_ranks(request, program=RANK), request) as team:
        world = team.world()
        assert (world.ranks, world.device, world.providers["torch"].usable) == (1, "cuda", True)
        kept = options(tmp_path)
        plan = session.make_plan(kept.request, world)
        shortest = {}
        for point in sorted(plan.points, key=lambda one: -one.payload_bytes):
            shortest[point.operation, point.clock, point.dtype] = point
        small = type(plan)(tuple(shortest.values()), (), plan.preset, plan.world)
        monkeypatch.setattr(session, "make_plan", lambda request, world: small)
        outcome = session.calibrate(kept, team, Silent())
    assert outcome.with_status(Status.FAILED) == []
    assert outcome.complete and outcome.wrong == 0 < outcome.checked
    run = read_run(outcome.samples)
    clocks = (Clock.EAGER, Clock.STREAM, Clock.GRAPH)
    seen = {(p.operation, p.clock) for p, _, _ in run.usable(PointKind.KERNEL)}
    assert {(kernel, clock) for kernel in KERNELS for clock in clocks[1:]} <= seen
    assert ("launch_floor", Clock.EAGER) in seen
