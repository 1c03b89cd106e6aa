"""A session on one GPU: parts that fail or hang, and the summary of a made-up run."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import (
    DeviceConditions,
    Finish,
    LookupWork,
    Point,
    PointKind,
    PointLine,
    RunHeader,
    Status,
    Visit,
)

FILE = Path(__file__).parents[2] / "benchmarks/one_gpu.py"


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("one_gpu", FILE)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "one_gpu", made)
    spec.loader.exec_module(made)
    monkeypatch.setattr(made, "ENDING_S", 0.5)
    return made


def test_a_part_that_fails_hangs_or_is_missing_ends_alone(one_gpu: Any, tmp_path: Path) -> None:
    parts = one_gpu.Session(tmp_path, time.monotonic() + 30)
    python = [sys.executable, "-c"]
    assert parts.part("good", [*python, "print('answer')"], 20) == 0
    assert parts.part("bad", [*python, "import sys; sys.exit('because')"], 20) == 1
    began = time.monotonic()
    stuck = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1); time.sleep(60)"
    assert parts.part("stuck", ["sh", "-c", f'sleep 60 & "{sys.executable}" -c "{stuck}"'], 0.5) == 124
    assert time.monotonic() - began < 10
    assert parts.part("missing", ["/no/such/program"], 20) == 127
    assert (tmp_path / "good").read_text() == "answer\n"
    assert (tmp_path / "bad.log").read_text() == "because\n"
    parts.ends_s = time.monotonic()
    assert parts.part("late", [*python, "print(1)"], 20) == 124
    assert parts.codes == {"good": 0, "bad": 1, "stuck": 124, "missing": 127, "late": 124}


def write_run(folder: Path) -> None:
    """A copy at 4 TB/s, gathers at 1 and 2 TB/s, a launch of 3 us, and a point that failed."""
    folder.mkdir(parents=True)
    header = RunHeader(
        fingerprint="0123456789", started_at="2026-01-02", machine="h200", stack={}, ranks=1, nodes=1
    )
    lines: list[Any] = [header]

    def add(operation: str, payload_bytes: int, time_s: float, status: Status = Status.OK) -> None:
        point = Point(
            kind=PointKind.KERNEL, operation=operation, implementation="torch", clock=Clock.STREAM,
            payload_bytes=payload_bytes, gpus=1, gpus_per_node=1, work=LookupWork(batch=1),
        )  # fmt: skip
        state = DeviceConditions(sm_clock_hz=1.98e9, limits=["power cap"])
        visit = Visit(key=point.key, round=1, at="", times_s=[time_s], checked=1, conditions=state)
        reason = "12 of 12 elements are wrong" if status is Status.FAILED else ""
        lines.extend([PointLine(key=point.key, point=point), visit])
        lines.append(Finish(key=point.key, status=status, reason=reason, visits=1))

    add("copy", 2**16, 4e-6)
    add("copy", 2**30, 2**30 / 4e12)
    add("gather_pool", 10**6, 1e-6)
    add("gather_pool", 10**9, 10**9 / 2e12)
    add("launch_floor", 0, 3e-6)
    add("bucketize", 10**6, 9e-6, Status.FAILED)
    text = "".join(line.model_dump_json(exclude_none=True) + "\n" for line in lines)
    (folder / "samples.jsonl").write_text(text)
    kernels = {
        "clock": "stream",
        "loo_median": 0.05,
        "values": {"launch_floor_s": {"value": 3e-6, "low": 2e-6, "high": 4e-6}},
    }
    (folder / "nccl-stream.json").write_text(json.dumps({"calibration_id": "h200/x", "kernels": kernels}))


def test_the_summary_sets_kernels_beside_copies(one_gpu: Any, tmp_path: Path) -> None:
    assert "No samples" in one_gpu.summary(tmp_path)
    write_run(tmp_path / "runs/h200-01234567")
    text = one_gpu.summary(tmp_path)
    assert "Copies reach 4000 GB/s" in text
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if " torch " in line}
    assert rows["gather_pool"] == ["torch", "stream", "2", "1.0", "us", "2000", "50", "%"]
    assert rows["launch_floor"] == ["torch", "stream", "1", "3.0", "us", "-", "-"]
    assert rows["copy"][-2:] == ["100", "%"]
    assert "6 visits: sm_clock_hz 1980 to 1980 MHz; power cap: 6 visits" in text
    assert "Points: 5 ok, 0 noisy, 0 throttled, 1 failed, 0 not ended" in text
    assert "failed bucketize stream 1000000 B: 12 of 12 elements are wrong" in text
    assert "launch_floor_s" in text and "(2e-06 to 4e-06)" in text


def test_a_session_goes_on_when_parts_fail(
    one_gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Doctor fails, the calibration writes samples and hangs, a benchmark is missing: the summary is."""
    out = tmp_path / "results"
    fake = tmp_path / "fake.sh"
    write_run(tmp_path / "made")
    fake.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "doctor) echo broken >&2; exit 3;;\n"
        f'calibrate) mkdir -p "{out}/runs/h200-01234567"; cp "{tmp_path}"/made/* "{out}/runs/h200-01234567"; '
        'echo "$*" >&2; exec sleep 60;;\n'
        'project) echo "$*";;\n'
        "esac\n"
    )
    monkeypatch.setattr(one_gpu, "PERFMODEL", ("sh", str(fake)))
    monkeypatch.setattr(one_gpu, "AFTERWARDS_S", 1.0)
    monkeypatch.setattr(one_gpu, "STARTING_S", 1.0)
    quick = [("missing", [], 5.0)]  # a benchmark that is not there fails alone too
    monkeypatch.setattr(one_gpu, "_benchmarks", lambda out: iter(quick))
    monkeypatch.setattr(one_gpu.Session, "left_s", lambda self: 20.0)
    began = time.monotonic()
    assert one_gpu.session(out, 1 / 60, []) == 124
    assert time.monotonic() - began < 60
    assert "--time-limit 1s --json" in (out / "calibrate.json.log").read_text()
    assert "h200-01234567/nccl-stream.json" in (out / "project.txt").read_text()
    assert json.loads((out / "environment.json").read_text())["python"]
    assert "Copies reach 4000 GB/s" in (out / "summary.txt").read_text()
    told = capsys.readouterr().out
    assert "doctor.json: exit code 3" in told and "  broken" in told and "Copies reach" in told


def test_without_the_sanitizer_nothing_is_claimed(
    one_gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERFMODEL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "executable", "true")
    monkeypatch.setattr(one_gpu.shutil, "which", lambda name: None)
    assert one_gpu.checks(tmp_path) == 4
    assert "checked nothing" in capsys.readouterr().out


@pytest.mark.parametrize(("finds", "code"), [("racecheck", 1), ("nothing", 0)])
def test_every_tool_of_the_sanitizer_runs_and_one_finding_fails(
    one_gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finds: str, code: int
) -> None:
    tool = tmp_path / "tool.sh"
    tool.write_text(f'#!/bin/sh\necho "$2"; [ "$2" != {finds} ] || exit 9\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PERFMODEL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "executable", "true")
    monkeypatch.setattr(one_gpu.shutil, "which", lambda name: str(tool))
    assert one_gpu.checks(tmp_path / "out") == code
    seen = {path.read_text().strip() for path in (tmp_path / "out").glob("sanitizer_*.txt")}
    assert seen == {"memcheck", "racecheck", "initcheck", "synccheck"}
