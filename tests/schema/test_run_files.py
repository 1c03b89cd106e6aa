"""A run's file, read line by line and turned into tables; its folder, and what ``latest`` means."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_calls import called, is_an_error
from oracles import own_run

from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.fit.run_fits import fit_run
from perfmodel.schema import files
from perfmodel.schema.calibration import Calibration, read_calibration, save_calibration
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.run_files import (
    calibrate_line,
    calibration_in,
    latest_run,
    measured_groups,
    read_header,
    read_run,
    run_folder,
)
from perfmodel.schema.runs import Finish, LookupWork, Point, PointKind, PointLine, RunHeader, Status, Visit
from perfmodel.schema.samples import parse_samples, write_samples

HEADER = RunHeader(
    fingerprint="0123456789abcdef", started_at="2026-01-02T03:04:05Z", machine="two-cores", ranks=2, nodes=1,
    stack={"mpi": "5.0.11", "gpu": "a CPU"},
)  # fmt: skip


def collective(size: int = 1024, **fields: object) -> Point:
    known = {"kind": "collective", "operation": "all_to_all", "backend": "mpi", "clock": "eager", "gpus": 2}
    return Point.model_validate({**known, "gpus_per_node": 2, "payload_bytes": size, **fields})


def kernel(operation: str = "gather_pool", **fields: object) -> Point:
    known = {"kind": "kernel", "operation": operation, "implementation": "torch", "clock": "eager"}
    work = LookupWork(batch=64, pooling=4, rows=1000)
    return Point.model_validate({**known, "gpus": 1, "gpus_per_node": 1, "work": work, **fields})


def visit(point: Point, *times_s: float, **fields: object) -> Visit:
    line = {"key": point.key, "round": 0, "at": "2026-01-02T03:04:06Z", "times_s": list(times_s)}
    return Visit.model_validate({**line, **fields})


def finish(point: Point, status: Status = Status.OK) -> Finish:
    return Finish(key=point.key, status=status, median_s=2e-6, low_s=1e-6, high_s=3e-6, visits=1, calls=3)


def lines_of(point: Point, *visits: Visit, status: Status | None = Status.OK) -> list[object]:
    end = [] if status is None else [finish(point, status)]
    return [PointLine(key=point.key, point=point), *visits, *end]


def write(folder: Path, *lines: object, tail: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(line if isinstance(line, str) else line.model_dump_json() + "\n" for line in lines)  # type: ignore[attr-defined]
    (folder / files.SAMPLES_NAME).write_text(text + tail, encoding="utf-8")
    return folder


def test_the_name_of_a_point_stays_and_its_ranks_fit() -> None:
    shared = '"clock":"eager","gpus":2,"gpus_per_node":2,"kind":"collective","operation":"all_to_all"'
    assert collective().key == f'{{"backend":"mpi",{shared},"payload_bytes":1024}}'
    with pytest.raises(ValueError, match="do not fit"):
        collective(nodes=3)


def test_a_visit_is_a_row_with_its_median(tmp_path: Path) -> None:
    point = collective()
    lines = lines_of(point, visit(point, 1e-6, 2e-6, 9e-6), visit(point, 4e-6))
    run = read_run(write(tmp_path, HEADER, *lines))
    frame = run.collective_samples()
    assert frame["time_s"].to_list() == [2e-6, 4e-6] and [*frame["note"]] == ["visit 1", "visit 2"]
    assert set(frame["library_version"]) == {"5.0.11"}
    assert set(frame["source_id"]) == {"two-cores-01234567"}
    write_samples(frame, tmp_path / "samples.csv")
    text = (tmp_path / "samples.csv").read_text(encoding="utf-8")
    assert len(parse_samples(text, "mine")) == 2


def test_what_ended_badly_is_left_out_and_what_is_doubtful_is_flagged(tmp_path: Path) -> None:
    lines: list[object] = [HEADER]
    ends = {16: Status.FAILED, 32: None, 33: None, 64: Status.NOISY, 128: Status.THROTTLED}
    for size, status in ends.items():
        point = collective(size)
        lines += lines_of(point, *[visit(point, 1e-6)] * (3 if size == 33 else 2), status=status)
    wrong = collective(256)
    lines += lines_of(wrong, visit(wrong, 1e-6, wrong=1), visit(wrong, 5e-6))
    run = read_run(write(tmp_path, *lines))
    frame = run.collective_samples()
    flags = {33: "noisy", 64: "noisy", 128: "throttled", 256: "ok"}
    assert dict(zip(frame["payload_bytes"], frame["flag"], strict=True)) == flags
    assert frame["time_s"].to_list() == [*[1e-6] * 7, 5e-6]
    assert not run.complete


def test_kernels_and_passes_are_apart(tmp_path: Path) -> None:
    gather, copy = kernel(), kernel("copy", payload_bytes=4096, work=None)
    whole = Point.model_validate(
        {"kind": "composed", "operation": "row_wise", "backend": "mpi", "clock": "eager", "gpus": 2,
         "gpus_per_node": 2, "work": LookupWork(batch=8), "held_out": True}
    )  # fmt: skip
    steps = {"gather_pool": [2e-6, 4e-6]}
    run = read_run(write(
        tmp_path, HEADER, *lines_of(gather, visit(gather, 1e-6)), *lines_of(copy, visit(copy, 3e-6)),
        *lines_of(whole, visit(whole, 5e-6, 7e-6, steps_s=steps)),
    ))  # fmt: skip
    kernels, composed = run.work_samples(PointKind.KERNEL), run.work_samples(PointKind.COMPOSED)
    assert kernels["operation"].to_list() == ["gather_pool", "copy"]
    assert kernels[["batch", "pooling"]].to_numpy().tolist() == [[64, 4], [1, 1]]
    assert kernels["payload_bytes"].to_list() == [0, 4096]
    assert composed[["time_s", "gather_pool_time_s"]].to_numpy().tolist() == [[6e-6, 3e-6]]
    assert composed["held_out"].to_list() == [True]
    assert [len(list(run.usable(kind))) for kind in PointKind] == [0, 2, 1, 0]


def test_a_torn_last_line_is_left_out_even_if_it_could_be_read(tmp_path: Path) -> None:
    point = collective()
    torn = visit(point, 2e-6).model_dump_json()
    for tail in (torn[:30], torn):
        run = read_run(write(tmp_path, HEADER, *lines_of(point, visit(point, 1e-6), status=None), tail=tail))
        assert [v.times_s for v in run.visits[point.key]] == [[1e-6]]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"type": "visit", "key"\n', "line 3"),
        (visit(collective(99), 1e-6).model_dump_json() + "\n", "a visit of a point"),
        (finish(collective(99)).model_dump_json() + "\n", "a finish of a point"),
        (HEADER.model_dump_json() + "\n", "second header"),
        (PointLine(key="other", point=collective()).model_dump_json() + "\n", "not that of the point"),
        *(
            (visit(collective(), 1.5).model_dump_json().replace("1.5", time) + "\n", "visit.times_s.0")
            for time in ("-1", "1e308", "1e-300", "NaN", '"0.001"')
        ),
        (
            PointLine(key="", point=collective()).model_dump_json().replace("1024", "0") + "\n",
            "at least 1 byte",
        ),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    point = collective()
    path = write(tmp_path, HEADER, *lines_of(point, status=None), line, visit(point, 1e-6))
    with pytest.raises(BadInputError, match="line 3") as refused:
        read_run(path)
    assert said in str(refused.value)


@pytest.mark.parametrize("line", ["\n", "  \r\n", "\0" * 4096 + "\n"])
def test_lines_that_hold_nothing_count_for_nothing(tmp_path: Path, line: str) -> None:
    """What a lost machine or an editor leaves: blank lines, zero bytes before a line and behind the last."""
    point = collective()
    timed = "\0\0" + visit(point, 1e-6).model_dump_json() + "\n"
    lines = [*lines_of(point, status=None), line, timed, finish(point)]
    run = read_run(write(tmp_path, HEADER, *lines, tail="\0" * 100))
    assert run.complete and [v.times_s for v in run.visits[point.key]] == [[1e-6]]


def test_a_point_without_a_time_is_not_at_its_end(tmp_path: Path) -> None:
    point = collective()
    untimed = visit(point, 1.5).model_dump_json().replace("[1.5]", "[]") + "\n"
    with pytest.raises(BadInputError, match="a visit without times says why"):
        read_run(write(tmp_path, HEADER, *lines_of(point, status=None), untimed, finish(point)))
    dropped = visit(point, note="dropped: the clock jumped")
    with pytest.raises(BadInputError, match="the end of a point that was never timed"):
        read_run(write(tmp_path, HEADER, *lines_of(point, dropped)))
    with pytest.raises(BadInputError, match="the end of a point of 1 visit, of which 0 are there"):
        read_run(write(tmp_path, HEADER, *lines_of(point)))
    assert read_run(write(tmp_path, HEADER, *lines_of(point, dropped, status=Status.FAILED))).complete


def test_files_that_are_no_run_are_refused(tmp_path: Path) -> None:
    point = collective()
    with pytest.raises(BadInputError, match="line 1"):
        read_run(write(tmp_path, *lines_of(point)))
    with pytest.raises(BadInputError, match="no whole line"):
        read_run(write(tmp_path))
    with pytest.raises(BadInputError, match="cannot be read"):
        read_run(tmp_path / "nowhere")


def test_the_header_alone_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(files.HOME_VARIABLE, "  ")
    assert files.home_folder().name == "perfmodel"
    assert read_header(write(tmp_path / "new", HEADER)) == HEADER
    for folder, said in ((write(tmp_path / "odd", finish(collective())), "line 1"), (tmp_path, "be read")):
        with pytest.raises(BadInputError, match=said):
            read_header(folder if folder != tmp_path else tmp_path / "nowhere")


def test_a_run_of_the_development_version_says_what_to_do(tmp_path: Path) -> None:
    old = HEADER.model_dump_json().replace('"schema_version":2', '"schema_version":1') + "\n"
    with pytest.raises(BadInputError, match=r"schema_version: must be 2 \(found 1\)") as refused:
        read_run(write(tmp_path, old))
    assert "put the folder away and measure again:\n  mv " in refused.value.next_step


# --- folders of runs ------------------------------------------------------------------------------------

FULL = "mpi-5.0.11-eager.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One calibration: curves of three collectives at 2 and 4 ranks."""
    return own_run.write_run(tmp_path_factory.mktemp("runs") / "four-cores-01234567")


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(files.HOME_VARIABLE, str(tmp_path))
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


def test_a_complete_calibration_goes_before_a_partial_one(folder: Path) -> None:
    add(folder, FULL, complete=False)
    add(folder, "gloo.json", lambda c: c.gpus == 2, backend=Backend.GLOO, complete=True)
    assert calibration_in(folder).name == "gloo.json"
    add(folder, "gloo.json", lambda c: c.collective == "all_to_all", backend=Backend.GLOO, complete=True)
    assert calibration_in(folder).name == FULL


def test_groups_that_a_pass_needs(folder: Path) -> None:
    full = read_calibration(folder / FULL)
    assert measured_groups(full) == [2, 4]
    less = add(folder, FULL, lambda c: (c.collective, c.gpus) != ("reduce_scatter", 4))
    assert measured_groups(less) == [2]
    assert measured_groups(less.model_copy(update={"backend": Backend.NVSHMEM})) == [2, 4]


def test_latest_is_the_newest_run_with_a_calibration(folder: Path) -> None:
    newer = folder.with_name("newer")
    newer.mkdir()
    (newer / files.SAMPLES_NAME).write_text(own_run.HEADER.model_dump_json() + "\n", encoding="utf-8")
    os.utime(folder / files.SAMPLES_NAME, (1000, 1000))
    assert latest_run() == folder == run_folder("latest")
    shutil.copy(folder / FULL, newer)
    assert latest_run() == newer
    newer.rename(newer.with_name("newer.broken"))
    assert latest_run() == folder


def make_functional(folder: Path) -> None:
    first, rest = (folder / files.SAMPLES_NAME).read_text(encoding="utf-8").split("\n", 1)
    header = {**json.loads(first), "functional_only": True}
    (folder / files.SAMPLES_NAME).write_text(json.dumps(header) + "\n" + rest, encoding="utf-8")


def test_a_functional_check_is_never_latest_and_never_fitted(folder: Path) -> None:
    make_functional(folder)
    with pytest.raises(NoCalibrationError, match="functional checks do not count"):
        latest_run()
    with pytest.raises(NoCalibrationError, match="functional check"):
        fit_run(read_run(folder), own_run.machine_from_run(read_run(folder), 8e9))


@pytest.mark.parametrize("command", [("show",), ("project", "--table-size", "1GB", "--calibration")])
def test_a_folder_that_gives_no_calibration_says_why(
    folder: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    other = tmp_path / "no run"
    other.mkdir()
    (other / "settings.json").write_text("{}", encoding="utf-8")
    is_an_error(called(*command, str(other)), 2, "is not a run")
    make_functional(folder)
    is_an_error(called(*command, str(folder)), 3, "functional check")


def test_a_calibration_cut_short_is_written_anew_by_the_line_that_is_printed(folder: Path) -> None:
    (folder / FULL).write_bytes((folder / FULL).read_bytes()[:200])
    for words in (("show", "latest"), ("project", "--gpus", "2", "--calibration", str(folder))):
        is_an_error(called(*words), 2, FULL, "perfmodel calibrate --quick --machine four-cores")


def test_the_line_that_measures_goes_to_the_same_place(folder: Path, tmp_path: Path) -> None:
    assert calibrate_line(folder) == "perfmodel calibrate --quick --machine four-cores"
    assert calibrate_line(folder, preset="") == "perfmodel calibrate --machine four-cores"
    away = Path(shutil.copytree(folder, tmp_path / "my runs" / folder.name))
    assert calibrate_line(away, "--only", "gloo").endswith(f" --out '{away.parent}' --machine four-cores")
