"""Sittings on one GPU: order, time, parts that fail or hang, one archive, the summary of a made-up run."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import gpu_needs
import gpu_session
import gpu_summary
import one_gpu
import pytest
from gpu_session import Part, Session
from waiting import PATIENCE_S, gone, until

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

PYTHON = (sys.executable, "-c")


def contents(archive: Path) -> dict[str, str]:
    """Texts of the files of an archive, by name."""
    with tarfile.open(archive) as made:
        return {Path(one.name).name: made.extractfile(one).read().decode() for one in made if one.isfile()}  # type: ignore[union-attr]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_session, "ENDING_S", 0.5)


def held(archive: Path) -> set[str]:
    with tarfile.open(archive) as made:
        return {Path(name).name for name in made.getnames()}


def test_a_part_that_fails_hangs_or_is_missing_ends_alone(tmp_path: Path) -> None:
    session = Session(tmp_path / "results", tmp_path / "out" / "all.tar.gz", math.inf)
    assert session.together(Part("good", (*PYTHON, "print('answer')"), PATIENCE_S))
    assert session.together(Part("bad", (*PYTHON, "import sys; sys.exit('because')"), PATIENCE_S))
    stuck = "trap '' TERM; sleep 900 & echo $! $$; wait; wait"
    assert session.together(Part("stuck", ("sh", "-c", stuck), 0.5))
    assert gone([int(word) for word in (tmp_path / "results/stuck").read_text().split()])
    assert not session.together(Part("missing", ("/no/such/program",), PATIENCE_S, must=True))
    assert (tmp_path / "results/good").read_text() == "answer\n"
    assert (tmp_path / "results/bad.log").read_text() == "because\n"
    session.ends_s = 0.0
    session.together(Part("late", (*PYTHON, "print(1)"), PATIENCE_S))
    assert session.codes == {"good": 0, "bad": 1, "stuck": 124, "missing": 127, "late": 124}
    told = session.closing()
    assert "1 of 5 parts ended well" in told and "  because" in told and "no time was left" in told


def test_parts_of_a_group_run_side_by_side_and_groups_one_after_the_other(tmp_path: Path) -> None:
    """Two parts wait for each other's file: alone, each would wait for ever."""
    session = Session(tmp_path / "results", tmp_path / "all.tar.gz", math.inf)
    wait = 'touch "$1"; until [ -e "$2" ]; do sleep 0.01; done'

    def part(name: str, mine: str, other: str, most_s: float) -> Part:
        return Part(name, ("sh", "-c", wait, "sh", str(tmp_path / mine), str(tmp_path / other)), most_s)

    session.together(part("a", "one", "two", PATIENCE_S), part("b", "two", "one", PATIENCE_S))
    assert session.codes == {"a": 0, "b": 0}
    session.together(part("alone", "one", "three", 0.5))
    assert session.codes["alone"] == 124


CUTTING = """
import sys
from pathlib import Path
import gpu_session, one_gpu
from gpu_session import Part

def parts(asked):
    yield (Part("done.txt", ("echo", "whole"), 120),)
    hang = f"echo $$ > {sys.argv[2]}/pid; echo begun; sleep 900 & wait"
    yield Part("beside.txt", ("echo", "whole too"), 120), Part("hangs.txt", ("sh", "-c", hang), 400)
    yield (Part("never.txt", ("echo", "late"), 120),)

one_gpu.WORK = Path(sys.argv[2])
one_gpu.SITTINGS["first"] = parts
one_gpu.gpu_needs.WHEELS = Path("/nowhere")
gpu_session.ENDING_S = 0.5
sys.exit(one_gpu.ended_by_signals(["--out", sys.argv[1]]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_cut_at_any_moment_loses_only_what_was_under_way(tmp_path: Path, number: signal.Signals) -> None:
    """Also beside a part that still runs; nothing is left running, and no other part is begun."""
    out, work = tmp_path / "out", tmp_path / "work"
    work.mkdir()
    paths = os.pathsep.join([str(gpu_session.ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")])
    script = subprocess.Popen(
        [*PYTHON, CUTTING, str(out), str(work)], env={**os.environ, "PYTHONPATH": paths}
    )
    archive = out / "first.tar.gz"
    until(lambda: archive.is_file() and "beside.txt: exit code 0" in contents(archive)["parts.txt"])
    child = int(until(lambda: (work / "pid").is_file() and (work / "pid").read_text()))
    script.send_signal(number)
    assert script.wait(PATIENCE_S) == (143 if number is signal.SIGTERM else -number)
    assert gone([child])
    kept = contents(archive)
    assert (kept["done.txt"], kept["beside.txt"]) == ("whole\n", "whole too\n")
    assert "never.txt" not in kept and "beside.txt: exit code 0" in kept["parts.txt"]
    assert ("hangs.txt: cut off" in kept["parts.txt"]) == (number is signal.SIGTERM)


def test_an_archive_that_would_be_too_large_names_what_it_left_out(tmp_path: Path) -> None:
    results, archive = tmp_path / "results", tmp_path / "all.tar.gz"
    (results / "deep").mkdir(parents=True)
    (results / "deep" / "noise.bin").write_bytes(os.urandom(2**18))
    (results / "small.txt").write_text("kept")
    gpu_session.write_archive(results, archive, most_bytes=2**16)
    assert held(archive) == {"small.txt", "LEFT_OUT.txt"} and archive.stat().st_size <= 2**16
    assert (results / "LEFT_OUT.txt").read_text() == "deep/noise.bin\n"


@pytest.mark.parametrize("sitting", one_gpu.SITTINGS)
def test_a_sitting_ends_a_minute_before_its_command_does(sitting: str, tmp_path: Path) -> None:
    """Whatever its parts do: check and smoke first, at most so long; nothing else runs while one is timed."""
    run = tmp_path / "runs" / "h200-01234567"
    write_run(run)  # parts that read a calibration are there too
    groups = list(one_gpu.SITTINGS[sitting](one_gpu.Asked(tmp_path)))
    assert [part.name for group in groups[:2] for part in group] == ["check.txt", "smoke.txt"]
    assert all(part.must for group in groups[:2] for part in group)
    most_s = sum(max(part.most_s for part in group) for group in groups)
    assert one_gpu.LIMIT_S - one_gpu.MARGIN_S == 540 >= most_s
    names = [part.name for group in groups for part in group]
    assert sitting != "timings" or {"project.txt", "kernel_model.txt"} < set(names)
    timed = ("gather", "calibrate", "tests_timed", "gpu_")
    assert all(len(group) == 1 for group in groups if group[0].name.startswith(timed))


def test_what_is_needed_is_there_or_carried() -> None:
    """Every requirement of the core and the gpu extra, and what carried wheels need in turn."""
    from importlib.metadata import requires

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    there = {}
    for page in (gpu_needs.MACHINE, gpu_needs.CARRIED):
        for line in page.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                name, version = line.split("==")
                assert canonicalize_name(name) not in there, f"{name} is listed twice"
                there[canonicalize_name(name)] = version
    import tomllib

    project = tomllib.loads((gpu_needs.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["gpu"], *gpu_needs.TESTING]
    wanted += [one for name in ("pydantic", "plotly", "typing-inspection") for one in requires(name) or []]
    for text in wanted:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found = there.get(canonicalize_name(requirement.name))
            assert found is not None, f"{text} is neither there nor carried"
            assert requirement.specifier.contains(found, prereleases=True), (text, found)


def test_the_check_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = gpu_needs.importlib.metadata.distribution

    def distribution(name: str) -> Any:
        if name in ("pydantic_core", "pydantic-core", "nvidia-cuda-cccl"):
            raise gpu_needs.importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(gpu_needs.importlib.metadata, "distribution", distribution)
    monkeypatch.setattr(gpu_needs.shutil, "which", lambda name: None)
    assert gpu_needs.check() == 4
    told = capsys.readouterr().out
    assert re.search(r"MISSING pydantic.core.*\(for pydantic\): not installed", told)
    assert "MISSING nvidia-cuda-cccl" in told and "MISSING nvidia-smi" in told
    assert "one_gpu.py --pack" in told


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


def test_the_summary_sets_kernels_beside_copies(tmp_path: Path) -> None:
    assert "No samples" in gpu_summary.summary(tmp_path)
    write_run(tmp_path / "runs/h200-01234567")
    text = gpu_summary.summary(tmp_path)
    assert "Copies reach 4000 GB/s" in text
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if " torch " in line}
    assert rows["gather_pool"] == ["torch", "stream", "2", "1.0", "us", "2000", "50", "%"]
    assert rows["launch_floor"] == ["torch", "stream", "1", "3.0", "us", "-", "-"]
    assert rows["copy"][-2:] == ["100", "%"]
    assert "6 visits: sm_clock_hz 1980 to 1980 MHz; power cap: 6 visits" in text
    assert "Points: 5 ok, 0 noisy, 0 throttled, 1 failed, 0 not ended" in text
    assert "failed bucketize stream 1000000 B: 12 of 12 elements are wrong" in text
    assert "launch_floor_s" in text and "(2e-06 to 4e-06)" in text


def test_a_sitting_goes_on_when_parts_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A benchmark fails, the calibration writes samples and hangs: summary and archive are whole."""
    results = tmp_path / "work" / "results" / "timings"
    fake = tmp_path / "fake.sh"
    write_run(tmp_path / "made")
    fake.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f'calibrate) mkdir -p "{results}/runs/h200-01"; cp "{tmp_path}"/made/* "{results}/runs/h200-01"; '
        'echo "$*" >&2; exec sleep 900;;\n'
        'project) echo "$*";;\n'
        "esac\n"
    )
    monkeypatch.setattr(one_gpu, "PERFMODEL", ("sh", str(fake)))
    monkeypatch.setattr(one_gpu, "WORK", tmp_path / "work")
    monkeypatch.setattr(one_gpu, "CALIBRATE_S", 1.0)
    monkeypatch.setattr(one_gpu, "STARTING_S", 0.0)
    monkeypatch.setattr(gpu_needs, "WHEELS", tmp_path / "none")
    nothing = ("sh", "-c", "exit 0")
    check = Part("check.txt", nothing, PATIENCE_S, must=True)
    monkeypatch.setattr(one_gpu, "opening", lambda _: iter([(check,)]))
    monkeypatch.setattr(one_gpu, "tests", lambda _, name: Part(f"tests_{name}.txt", nothing, PATIENCE_S))
    monkeypatch.setattr(one_gpu, "pytest_line", lambda _: nothing)
    missing = (Part("missing.txt", ("/no/such/program",), PATIENCE_S),)
    monkeypatch.setattr(one_gpu.Asked, "benchmark", lambda self, name, *_: missing)
    monkeypatch.setattr(one_gpu, "sorting", lambda: iter([missing]))
    words = ["--out", str(tmp_path / "out"), "--sitting", "timings", "--seconds", "60"]
    assert one_gpu.main_of(words) == 1
    assert "--json --time-limit=1s" in (results / "calibrate.json.log").read_text()
    assert "h200-01/nccl-stream.json" in (results / "project.txt").read_text()
    assert json.loads((results / "environment.json").read_text())["python"]
    told = capsys.readouterr().out
    assert "missing.txt: " in told and "Copies reach 4000 GB/s" in told
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["timings.tar.gz"]
    wanted = {"summary.txt", "samples.jsonl", "project.txt", "missing.txt.log"}
    assert wanted < held(tmp_path / "out" / "timings.tar.gz")
    assert len(told) < 12_000


def test_nothing_else_is_tried_where_something_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(one_gpu, "WORK", tmp_path / "work")
    monkeypatch.setattr(gpu_needs, "WHEELS", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert one_gpu.main_of(["--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().out
    assert "MISSING nvidia-smi" in told and "nothing else was tried" in told and "smoke.txt" not in told
    assert held(tmp_path / "out" / "first.tar.gz") == {"check.txt", "check.txt.log", "parts.txt"}


@pytest.mark.parametrize("finds", ["racecheck", "nothing"])
def test_every_family_runs_under_every_tool_and_one_finding_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finds: str
) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f'#!/bin/sh\necho "$2"; [ "$2" != {finds} ] || exit 9\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(one_gpu, "WORK", tmp_path / "work")
    monkeypatch.setattr(gpu_needs, "WHEELS", tmp_path / "none")
    monkeypatch.setattr(one_gpu, "opening", lambda _: iter(()))
    monkeypatch.setattr(one_gpu, "PYTHON", "true")
    code = one_gpu.main_of(["--out", str(tmp_path / "out"), "--sitting", "sanitizer"])
    assert code == int(finds == "racecheck")
    seen = {path.name: path.read_text().strip() for path in (tmp_path / "work").rglob("*check_*.txt")}
    assert len(seen) == len(one_gpu.SANITIZERS) * len(one_gpu.FAMILIES)
    assert all(name.split("_")[0] == said for name, said in seen.items())


SKIPPING = """
import pytest

def test_runs(): ...
def test_needs_two(): pytest.skip("it needs two GPUs")
def test_without_a_wheel(): pytest.skip("NVSHMEM is not installed")
"""


def test_a_skip_that_nobody_asked_for_fails(tmp_path: Path) -> None:
    """One test, and a file that is skipped as a whole; what was asked for stays a skip."""
    (tmp_path / "conftest.py").write_text((gpu_session.ROOT / "tests/gpu/conftest.py").read_text())
    (tmp_path / "test_some.py").write_text(SKIPPING)
    whole = "import pytest\npytest.skip('NOT TESTED: no GPU', allow_module_level=True)\n"
    (tmp_path / "test_whole.py").write_text(whole)
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rfEs", "--may-skip=two GPUs"]
    plain = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def said(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [*line, *words], cwd=tmp_path, capture_output=True, text=True, check=False, env=plain
        )
        return done.returncode, done.stdout

    assert said()[0] == 0
    code, text = said("--skips-fail", "--continue-on-collection-errors")
    assert code == 1 and "1 failed, 1 passed, 1 skipped, 1 error" in text
    assert "nobody asked for that" in text and "NVSHMEM is not installed" in text
    assert "NOT TESTED: no GPU" in text


def test_small_cases_say_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(gpu_session.ROOT / "tests" / "gpu"))
    import small_cases

    assert set(small_cases.FAMILIES) == {*one_gpu.FAMILIES, "exchange"}
    monkeypatch.setattr(sys, "argv", ["small_cases.py", "ids", "--device", "cpu"])
    for cases, code in (([("one", True)], 0), ([("one", True), ("two", False)], 1), ([], 1)):
        monkeypatch.setitem(small_cases.FAMILIES, "ids", lambda device, cases=cases: iter(cases))
        assert small_cases.main() == code
    assert "WRONG ids: two" in capsys.readouterr().out


def test_what_is_timed_is_compiled_before() -> None:
    """Kernels of the grid's cells in every variant, and the sets that an exchange of the tests loads."""
    torch = pytest.importorskip("torch")
    import gather_cells
    import gpu_compile

    from calibrate.cuda.device_tables import make_tables
    from calibrate.cuda.gather_pool import GatherOptions, GatherPool
    from calibrate.cuda.gather_variants import VARIANTS

    units = gpu_compile.units()
    assert len(units) == len(set(units))
    compiled = {(one.source, one.name) for unit in units for one in unit}
    kinds = {"fp32": torch.float32, "fp16": torch.float16}
    rows = {of_table[0].table[1:] for of_table in gather_cells.cells([100], more=True)}
    for dim, dtype in sorted(rows):
        tables = make_tables([torch.zeros(100, dim, dtype=kinds[dtype])])
        for variant in VARIANTS:
            for pooling in (1.0, 1000.0):
                pool = GatherPool(tables, 4, GatherOptions(out_dtype=dtype), pooling, variant=variant)
                assert {(each.kernel.source, each.kernel.name) for each in pool.classes} <= compiled
    from calibrate.cuda import row_wise_exchange as exchanging

    wide = exchanging.row_access(64, "fp32", 16)
    assert tuple(exchanging.kernels("fp32", "int64", wide, method="fused").values()) in units
