"""What ``latest`` means: which run, and which of its calibrations."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from oracles import own_run

from perfmodel.errors import NoCalibrationError
from perfmodel.fit.runs import fit_run
from perfmodel.schema.calibration import Calibration, read_calibration, save_calibration
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.files import HOME_VARIABLE, SAMPLES_NAME
from perfmodel.schema.run_files import (
    Run,
    calibrate_line,
    calibration_in,
    latest_run,
    measured_groups,
    read_run,
    run_folder,
)
from perfmodel.schema.runs import Finish, Point, Status, Visit

FULL = "mpi-5.0.11-eager.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One calibration: curves of three collectives at 2 and 4 ranks."""
    return own_run.write_run(tmp_path_factory.mktemp("runs") / "four-cores-01234567")


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    return Path(shutil.copytree(made, tmp_path / "runs" / made.name))


def add(folder: Path, name: str, keep: Any = lambda _: True, **fields: Any) -> Calibration:
    """Another calibration in the folder, with some of the curves of the full one."""
    full = read_calibration(folder / FULL)
    curves = [curve for curve in full.curves if keep(curve)]
    item = full.model_copy(update={"curves": curves, **fields})
    save_calibration(item, folder / name)
    return item


def test_the_fuller_calibration_is_taken_before_the_preferred_clock(folder: Path) -> None:
    add(folder, "mpi-5.0.11-stream.json", lambda c: c.collective == "all_to_all", clock=Clock.STREAM)
    assert calibration_in(folder).name == FULL
    add(folder, "a.json", lambda c: c.gpus == 2, clock=Clock.STREAM)  # one group of two
    assert calibration_in(folder).name == FULL
    add(folder, "b.json", clock=Clock.STREAM)  # as full: the clock decides
    assert calibration_in(folder).name == "b.json"
    assert calibration_in(folder, clock="eager").name == FULL


def test_a_complete_calibration_goes_before_a_partial_one_and_one_that_projects_before_both(
    folder: Path,
) -> None:
    add(folder, FULL, complete=False)
    add(folder, "gloo.json", lambda c: c.gpus == 2, backend=Backend.GLOO, complete=True)
    assert calibration_in(folder).name == "gloo.json"
    add(folder, "gloo.json", lambda c: c.collective == "all_to_all", backend=Backend.GLOO, complete=True)
    assert calibration_in(folder).name == FULL


def test_groups_that_a_pass_needs(folder: Path) -> None:
    full = read_calibration(folder / FULL)
    assert measured_groups(full) == [2, 4] == measured_groups(full, ("all_reduce",))
    less = add(folder, FULL, lambda c: (c.collective, c.gpus) != ("reduce_scatter", 4))
    assert measured_groups(less) == [2] and measured_groups(less, ("all_to_all",)) == [2, 4]
    assert measured_groups(less.model_copy(update={"backend": Backend.NVSHMEM})) == [2, 4]


def test_a_fit_prefers_what_a_projection_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stream goes before eager, but not with all-to-alls alone."""
    monkeypatch.setattr(own_run, "SIZES", own_run.SIZES[::3])
    own, few = list(own_run.collectives()), list(own_run.collectives(clock="stream"))
    few = [(point, time) for point, time in few if point.operation == "all_to_all"]
    assert [(c.clock, c.preferred) for c in fit_run(run_of(own + few), machine())] == [
        (Clock.EAGER, True),
        (Clock.STREAM, False),
    ]
    both = own + list(own_run.collectives(clock="stream"))
    assert [c.clock for c in fit_run(run_of(both), machine())] == [Clock.STREAM, Clock.EAGER]


def test_latest_is_the_newest_run_with_a_calibration(folder: Path) -> None:
    newer = folder.with_name("newer")
    newer.mkdir()
    (newer / SAMPLES_NAME).write_text(own_run.HEADER.model_dump_json() + "\n", encoding="utf-8")
    os.utime(folder / SAMPLES_NAME, (1000, 1000))
    assert latest_run() == folder == run_folder("latest")
    shutil.copy(folder / FULL, newer)
    assert latest_run() == newer


def test_a_functional_check_is_never_latest_and_never_fitted(folder: Path) -> None:
    lines = (folder / SAMPLES_NAME).read_text(encoding="utf-8").split("\n", 1)
    header = {**json.loads(lines[0]), "functional_only": True}
    (folder / SAMPLES_NAME).write_text(json.dumps(header) + "\n" + lines[1], encoding="utf-8")
    with pytest.raises(NoCalibrationError, match="no run holds a calibration"):
        latest_run()
    with pytest.raises(NoCalibrationError, match="functional check"):
        fit_run(read_run(folder), machine())


def test_nothing_measured_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    with pytest.raises(NoCalibrationError, match="nothing was measured yet"):
        latest_run()


def machine() -> Any:
    return own_run.machine_from_run(Run(own_run.HEADER, {}, {}, {}), 8e9)


def run_of(points: list[tuple[Point, float]]) -> Run:
    """A run of collectives without noise: one visit a point."""
    run = Run(own_run.HEADER, {}, {}, {})
    for point, time in points:
        key, fields = point.key, {"median_s": time, "low_s": time, "high_s": time}
        run.points[key] = point
        run.visits[key] = [Visit(key=key, round=0, at="2026-01-02T03:04:06Z", times_s=[time], checked=8)]
        run.finishes[key] = Finish(key=key, status=Status.OK, **fields)
    return run


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    from perfmodel.cli import run

    code = run(list(words))
    return code, " ".join(capsys.readouterr().err.split())


def functional(folder: Path) -> None:
    first, rest = (folder / SAMPLES_NAME).read_text(encoding="utf-8").split("\n", 1)
    header = {**json.loads(first), "functional_only": True}
    (folder / SAMPLES_NAME).write_text(json.dumps(header) + "\n" + rest, encoding="utf-8")


@pytest.mark.parametrize("command", [("show",), ("project", "--table-size", "1GB", "--calibration")])
def test_a_folder_that_gives_no_calibration_says_why(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    other = tmp_path / "no run"
    other.mkdir()
    (other / "settings.json").write_text("{}", encoding="utf-8")
    code, said = shown(capsys, *command, str(other))
    assert code == 2 and "is not a run" in said
    functional(folder)
    code, said = shown(capsys, *command, str(folder))
    assert code == 3 and "functional check" in said and "collective" not in said


def test_a_calibration_cut_short_is_written_anew_by_the_line_that_is_printed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / FULL).write_bytes((folder / FULL).read_bytes()[:200])
    for words in (("show", "latest"), ("project", "--gpus", "2", "--calibration", str(folder))):
        code, said = shown(capsys, *words)
        assert code == 2 and FULL in said
        assert "perfmodel calibrate --quick --machine four-cores" in said


def test_the_line_that_measures_goes_to_the_same_place(folder: Path, tmp_path: Path) -> None:
    assert calibrate_line(folder) == "perfmodel calibrate --quick --machine four-cores"
    assert calibrate_line(folder, preset="") == "perfmodel calibrate --machine four-cores"
    away = Path(shutil.copytree(folder, tmp_path / "my runs" / folder.name))
    line = calibrate_line(away, "--only", "gloo")
    assert line == (
        f"perfmodel calibrate --only gloo --quick --out '{tmp_path / 'my runs'}' --machine four-cores"
    )


def test_passes_over_a_library_without_a_calibration_say_what_to_measure(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / FULL).unlink()
    code, said = shown(capsys, "validate", "--run", str(folder))
    assert code == 3 and "perfmodel calibrate --only mpi --quick" in said and "began" not in said
