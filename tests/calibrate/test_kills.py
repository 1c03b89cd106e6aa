"""``kill -9`` in the middle of a run: at most the visit under way is lost, and the next start goes on."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from oracles import environment
from waiting import PATIENCE_S

from perfmodel.schema.run_files import read_run

PROGRAM = """
import sys
from pathlib import Path
from calibrate.planning.measurement_plan import Request
from calibrate.running.interfaces import RunOptions
from calibrate.running.session import calibrate
from oracles.simulated_team import Recorder, SimulatedTeam, TrueCurve

class Loud(Recorder):
    def progress(self, done, total, point, summary, left_s):
        print("visit", flush=True)

    def finished(self, outcome):
        print("finished", outcome.stopped or "whole", outcome.done, outcome.total, flush=True)

class Waiting(SimulatedTeam):
    def visit(self, *words, **named):
        if len(self.visits) + 1 == int(sys.argv[2]):
            print("waits", flush=True)
            sys.stdin.readline()
        return super().visit(*words, **named)

team = Waiting({"": TrueCurve(5e-6, 1e9)})
request = Request("quick", only=["gloo:all_to_all", "gloo:all_reduce"])
options = RunOptions(request, "m", Path(sys.argv[1]), {"gloo": "5"}, {}, seed=1)
calibrate(options, team, Loud(), team.clock)
"""
POINTS = 17 + 17  # all-to-all, all-reduce


def start(folder: Path, waits: int = 0) -> subprocess.Popen[str]:
    """A calibration that waits in one of its visits for a line to read."""
    command = [sys.executable, "-c", PROGRAM, str(folder), str(waits)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment())


def waiting(folder: Path, visit: int) -> tuple[subprocess.Popen[str], int]:
    """A calibration that waits there, and how many visits it told of before."""
    process, told = start(folder, visit), 0
    assert process.stdout is not None
    while (line := process.stdout.readline()) == "visit\n":
        told += 1
    assert line == "waits\n", process.communicate()
    return process, told


def visits_on_disk(folder: Path) -> int:
    (samples,) = folder.glob("*/samples.jsonl")
    return sum(len(found) for found in read_run(samples).visits.values())


@pytest.mark.parametrize("visit", [3, 70])
def test_killed_in_a_visit_it_goes_on(tmp_path: Path, visit: int) -> None:
    first, told = waiting(tmp_path, visit)
    first.kill()
    assert first.wait(PATIENCE_S) == -signal.SIGKILL
    kept = visits_on_disk(tmp_path)
    assert kept == told > 0
    second = start(tmp_path)
    out, problems = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, problems
    assert out.splitlines()[-1] == f"finished whole {POINTS} {POINTS}"
    assert out.count("visit") == 3 * POINTS - kept
    assert visits_on_disk(tmp_path) == 3 * POINTS


def test_the_second_of_two_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    first, _ = waiting(tmp_path, 3)
    _, problems = (second := start(tmp_path)).communicate(timeout=PATIENCE_S)
    assert second.returncode == 1
    assert f"another calibration is writing to {tmp_path}" in problems
    assert f"(process {first.pid})" in problems
    assert "finished whole" in first.communicate("go on\n", timeout=PATIENCE_S)[0]


FULL = """
set -e
mount -t tmpfs -o size=48k none "$1"
"$2" -c "$3" "$1" 0 && echo "no error" || true
"$2" -c "from perfmodel.schema.run_files import read_run; import glob, sys
print('kept', sum(map(len, read_run(glob.glob(sys.argv[1] + '/*/samples.jsonl')[0]).visits.values())))" "$1"
mount -t tmpfs -o remount,size=10m none "$1"
"$2" -c "$3" "$1" 0
"""


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """A file system of 48 KiB, seen by this test's processes only; then the same one with room again."""
    own = ["unshare", "--map-root-user", "--mount"]
    probe = [*own, "mount", "-t", "tmpfs", "none", str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody mount a file system of one's own: no really full disk here")
    command = [*own, "sh", "-c", FULL, "sh", str(tmp_path), sys.executable, PROGRAM]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment()
    )
    assert "samples.jsonl cannot be written: no space left on device" in done.stderr
    assert "free some space, then rerun the command to resume" in done.stderr
    lines = done.stdout.splitlines()
    stopped = next(i for i, line in enumerate(lines) if line.startswith("finished error"))
    kept = int(lines[stopped + 1].removeprefix("kept "))
    assert lines[:stopped].count("visit") <= kept < 3 * POINTS
    assert done.returncode == 0 and lines[-1] == f"finished whole {POINTS} {POINTS}"
    assert lines[stopped:].count("visit") == 3 * POINTS - kept
