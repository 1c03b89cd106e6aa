"""Ranks that torchrun or srun started: they find each other, and none outlives its launcher."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from team_processes import CALLER, launcher_environment, usable
from waiting import PATIENCE_S, a_moment, gone


def check_lines(lines: Sequence[str]) -> None:
    """Only rank 0 prints: its two lines; both ranks measured 10 checked calls."""
    assert len(lines) == 2
    seen = json.loads(lines[1])
    assert seen == {"seen": [[10, 0, seen["seen"][0][2], 32768]] * 2, "hosts": 1}
    assert seen["seen"][0][2] > 0


def run_external(command: Sequence[str], **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**launcher_environment(), **variables},
    )


def test_no_rank_outlives_a_torchrun_that_is_killed() -> None:
    """After some calls, in the middle of many more."""
    usable("gloo")
    beside = Path(sys.executable).parent / "torchrun"
    torchrun = str(beside) if beside.exists() else shutil.which("torchrun")
    if torchrun is None:
        pytest.skip("torchrun is not installed")
    ranks = (*CALLER[1:], "gloo", "2", "10", str(10**8))
    launcher = run_external([torchrun, "--standalone", "--nproc-per-node=2", *ranks])
    assert launcher.stdout is not None
    lines = [launcher.stdout.readline() for _ in range(2)]
    check_lines(lines)
    launcher.kill()
    assert gone(json.loads(lines[0])["pids"])
    launcher.communicate()


def step_of_srun(backend: str, calls: int, step: int, **more: str) -> list[subprocess.Popen[str]]:
    """Two ranks, rank 0 first. SLURM's variables are all that they have in common."""
    job = {
        **more,
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": str(step),
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NODELIST": "localhost",
    }
    return [run_external([*CALLER, backend, "2", str(calls)], SLURM_PROCID=rank, **job) for rank in "01"]


def test_the_first_rank_of_srun_is_awaited() -> None:
    """The second looks for a store before the first has one."""
    usable("gloo")
    first, second = step_of_srun("gloo", 10, 3)
    first.kill()
    first.communicate()
    again, spare = step_of_srun("gloo", 10, 3)
    spare.kill()
    spare.communicate()
    (lines, errors), (nothing, silent) = (rank.communicate(timeout=PATIENCE_S) for rank in (again, second))
    assert (again.returncode, second.returncode, nothing) == (0, 0, ""), errors + silent
    check_lines(lines.splitlines())


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_of_srun_that_is_killed_ends_the_others(killed: int) -> None:
    usable("gloo")
    ranks = step_of_srun("gloo", 10**8, 1 + killed, TEAM_DEADLINE_S="5")
    assert ranks[0].stdout is not None
    pids = json.loads(ranks[0].stdout.readline())["pids"]
    os.kill(ranks[1].pid, signal.SIGTERM)  # a launcher's request to end is for rank 0 to judge
    a_moment()
    assert all(rank.poll() is None for rank in ranks)
    ranks[killed].kill()
    _, errors = ranks[0].communicate(timeout=PATIENCE_S)
    ranks[1].communicate(timeout=PATIENCE_S)
    assert gone(pids)
    assert killed == 0 or "RankLostError: rank 1 (node 0) has not answered for 5 s: it was stopped" in errors
