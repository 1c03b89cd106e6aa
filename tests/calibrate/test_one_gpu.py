"""Sittings on one GPU: parts that fail or hang, one archive, a rehearsal with a stand-in for the GPU."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import replace
from importlib.metadata import requires
from pathlib import Path

import one_gpu
import pytest
from one_gpu import Part, Session
from waiting import PATIENCE_S, gone, until

PYTHON = (sys.executable, "-c")
MACHINE = one_gpu.ROOT / "requirements" / "gpu-machine.txt"


def contents(archive: Path) -> dict[str, str]:
    """Texts of the files of an archive, by name."""
    with tarfile.open(archive) as tar:
        members = [member for member in tar if member.isfile()]
        return {Path(m.name).name: tar.extractfile(m).read().decode() for m in members}  # type: ignore[union-attr]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_gpu, "ENDING_S", 0.5)


def test_a_part_that_fails_hangs_or_is_missing_ends_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two parts of a group wait for each other's file: alone, each would wait for ever."""
    session = Session(tmp_path / "results", tmp_path / "out" / "all.tar.gz", math.inf)
    assert session.run([Part("good", (*PYTHON, "print('answer')"), PATIENCE_S)])
    wait = 'touch "$1"; until [ -e "$2" ]; do sleep 0.01; done'
    pair = [(str(tmp_path / one), str(tmp_path / other)) for one, other in (("a", "b"), ("b", "a"))]
    assert session.run([Part(p[0][-1], ("sh", "-c", wait, "sh", *p), PATIENCE_S) for p in pair])
    assert session.run([Part("bad", (*PYTHON, "import sys; sys.exit('because')"), PATIENCE_S)])
    stuck = "trap '' TERM; sleep 900 & echo $! $$; wait; wait"
    assert session.run([Part("stuck", ("sh", "-c", stuck), 0.5)])
    assert gone([int(word) for word in (tmp_path / "results/stuck").read_text().split()])
    assert not session.run([Part("missing", ("/no/such/program",), PATIENCE_S, must=True)])
    session.ends_s = 0.0
    session.run([Part("late", (*PYTHON, "print(1)"), PATIENCE_S)])
    codes = {"good": 0, "a": 0, "b": 0, "bad": 1, "stuck": 124, "missing": 127, "late": 124}
    assert session.codes == codes
    seen = contents(tmp_path / "out" / "all.tar.gz")
    assert seen["good"] == "answer\n" and seen["bad.log"] == "because\n"
    assert "stuck: exit code 124" in seen["parts.txt"] and "  because" in capsys.readouterr().out


CUTTING = """
import sys
from pathlib import Path
import one_gpu
from one_gpu import Part

def parts(sitting):
    yield (Part("done.txt", ("echo", "whole"), 120),)
    hang = f"echo $$ > {sys.argv[2]}/pid; echo begun; exec sleep 900"
    yield Part("beside.txt", ("echo", "whole too"), 120), Part("hangs.txt", ("sh", "-c", hang), 400)
    yield (Part("never.txt", ("echo", "late"), 120),)

one_gpu.WORK, one_gpu.WHEELS, one_gpu.ENDING_S = Path(sys.argv[2]), Path("/nowhere"), 0.5
one_gpu.SITTINGS["first"] = parts
sys.exit(one_gpu.main(["--out", sys.argv[1]]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_cut_at_any_moment_loses_only_what_was_under_way(tmp_path: Path, number: signal.Signals) -> None:
    """Also beside a part that still runs; nothing is left running, and no other part is begun."""
    out, work = tmp_path / "out", tmp_path / "work"
    work.mkdir()
    paths = os.pathsep.join([str(one_gpu.ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")])
    script = subprocess.Popen(
        [*PYTHON, CUTTING, str(out), str(work)], env={**os.environ, "PYTHONPATH": paths}
    )
    archive = out / "first.tar.gz"
    until(lambda: archive.is_file() and "beside.txt: exit code 0" in contents(archive)["parts.txt"])
    child = int(until(lambda: (work / "pid").is_file() and (work / "pid").read_text()))
    script.send_signal(number)
    assert script.wait(PATIENCE_S) == (143 if number is signal.SIGTERM else -number)
    assert gone([child])
    seen = contents(archive)
    assert (seen["done.txt"], seen["beside.txt"]) == ("whole\n", "whole too\n") and "never.txt" not in seen
    assert ("hangs.txt: exit code 143" in seen["parts.txt"]) == (number is signal.SIGTERM)


@pytest.mark.parametrize("name", one_gpu.SITTINGS)
def test_a_sitting_begins_with_the_smoke_test_and_ends_in_time(name: str, tmp_path: Path) -> None:
    """Nothing else runs while a part is timed."""
    groups = list(one_gpu.SITTINGS[name](one_gpu.Sitting(tmp_path)))
    assert [part.name for part in groups[0]] == ["smoke.txt"] and groups[0][0].must
    assert sum(max(part.most_s for part in group) for group in groups) <= one_gpu.LIMIT_S
    timed = ("gather", "calibrate", "tests_kernels_timed", "gpu_")
    assert all(len(group) == 1 for group in groups if group[0].name.startswith(timed))


def test_what_is_needed_is_there_or_carried() -> None:
    """Every requirement of the core and the gpu extra, and what carried wheels need in turn."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    pages = [path.read_text(encoding="utf-8") for path in (MACHINE, one_gpu.CARRIED)]
    lines = [line for page in pages for line in page.splitlines() if line and line[0] != "#"]
    there = {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in lines}
    assert len(there) == len(lines), "a name is listed twice"
    project = tomllib.loads((one_gpu.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["gpu"], "pytest", "hypothesis"]
    wanted += [text for name in ("pydantic", "plotly", "typing-inspection") for text in requires(name) or []]
    for text in wanted:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            version = there.get(canonicalize_name(requirement.name))
            assert version is not None, f"{text} is neither there nor carried"
            assert requirement.specifier.contains(version, prereleases=True), (text, version)


MOST_S = 300.0  # of a part, however busy this machine is


def list_rehearsed(sitting: one_gpu.Sitting) -> one_gpu.Groups:
    """The smoke test, a file of tests, and a calibration of small sizes."""
    yield tuple(replace(part, most_s=MOST_S) for part in next(sitting.opening()))
    tests = sitting.tests("collectives", "not alone", MOST_S)
    tests = replace(tests, command=tuple(w for w in tests.command if not w.startswith("--timeout")))
    yield (tests,)
    program = str(one_gpu.ROOT / "tests/rehearsal/small_calibration.py")
    words = ["--quick", "--noise", "90%", "--only", "kernels", "--device", "cuda", "--ranks", "1", "--json"]
    line = (sys.executable, program, "calibrate", *words, "--out", str(sitting.results / "runs"))
    yield (Part("calibrate.json", line, MOST_S),)


@pytest.mark.skipif(shutil.which("g++") is None, reason="kernels are built with g++")
def test_a_rehearsal_with_a_stand_in_ends_in_one_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says that it is one, and leaves packed wheels alone. All is exact but times, which are made up."""
    pytest.importorskip("torch")
    pytest.importorskip("cuda.bindings.nvrtc")
    monkeypatch.setattr(one_gpu, "WORK", tmp_path / "work")
    monkeypatch.setattr(one_gpu, "WHEELS", tmp_path)
    (tmp_path / "packed-1.0-cp99-none-any.whl").touch()
    monkeypatch.setitem(one_gpu.SITTINGS, "first", list_rehearsed)
    code = one_gpu.main(["--out", str(tmp_path / "out"), "--rehearse", "--seconds", f"{6 * MOST_S:.0f}"])
    assert code == 0, capsys.readouterr().out
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rehearsal-first.tar.gz"]
    seen = contents(tmp_path / "out" / "rehearsal-first.tar.gz")
    assert seen["smoke.txt"] == "smoke: 2 cases, 0 wrong\n"
    answer = json.loads(seen["calibrate.json"])
    assert answer["complete"] and answer["functional_only"] and answer["wrong"] == 0 < answer["checked"]
    timed = {(point["operation"], point["clock"], point["status"]) for point in answer["points"]}
    wanted = {("gather_pool", "stream"), ("gather_pool", "eager"), ("copy", "stream")}
    assert {(*cell, "ok") for cell in wanted} <= timed
