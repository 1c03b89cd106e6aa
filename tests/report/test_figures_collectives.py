"""Figures of collectives: marks are medians of samples, lines are fits, sentences follow the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from oracles import own_run

from perfmodel.answer import Question
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.errors import BadInputError
from perfmodel.model.curves import hockney_time
from perfmodel.report.figures import Block, Missing
from perfmodel.report.figures.collective_curves import MeasuredLibrary, collectives, measured
from perfmodel.report.figures.registry import ALL_TO_ALL as FIGURE
from perfmodel.report.figures.registry import LIBRARIES, REDUCE_SCATTER, Figure
from perfmodel.report.figures.subject import Subject, find_subject
from perfmodel.report.figures.words import hover, safe, sentence, signed
from perfmodel.schema.calibration import Calibration, load_calibration, save_calibration, shipped_calibration
from perfmodel.schema.machine import load_machine, read_machine
from perfmodel.validate.points import curve_samples, run_of, samples_of

H200 = load_machine("h200-sxm-ib")
NVSHMEM = "h200-sxm-ib/nvshmem-3.3.9-device"


def block(*libraries: MeasuredLibrary | None, collective: str = "all_to_all", gpus: int = 8) -> Block:
    found = collectives([each for each in libraries if each], collective, FIGURE, gpus)
    assert isinstance(found, Block), found
    return found


def traces(found: Block, mode: str) -> list[Any]:
    return [trace for trace in found.figure.data if trace.mode == mode]


def slower(one: MeasuredLibrary, factor: float) -> MeasuredLibrary:
    """The same library with every time so much longer."""
    c = one.model.calibration
    curves = [
        curve.model_copy(
            update={
                "anchor_times_s": [t * factor for t in curve.anchor_times_s],
                "alpha_s": scaled(curve.alpha_s, factor),
                "beta_bytes_per_s": scaled(curve.beta_bytes_per_s, 1 / factor),
            }
        )
        for curve in c.curves
    ]
    assert one.samples is not None
    samples = one.samples.assign(time_s=one.samples["time_s"] * factor)
    model = CollectiveModel(one.model.machine, c.model_copy(update={"curves": curves}))
    return MeasuredLibrary(model, samples)


def scaled(interval: Any, factor: float) -> Any:
    return type(interval)(**{key: value * factor for key, value in interval.model_dump().items()})


@pytest.fixture(scope="module")
def nccl() -> MeasuredLibrary:
    found = measured(H200, "nccl")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def nvshmem() -> MeasuredLibrary:
    found = measured(H200, "nvshmem", "device")
    assert found is not None
    return found


def test_marks_are_the_medians_that_the_curve_was_fitted_to(nccl: MeasuredLibrary) -> None:
    curve = nccl.model.calibration.curve("all_to_all", 8, 8)
    assert curve is not None and nccl.samples is not None
    time, rate, residual = traces(block(nccl), "markers")
    rows = nccl.samples[(nccl.samples["collective"] == "all_to_all") & (nccl.samples["gpus"] == 8)]
    medians = rows.groupby("payload_bytes")["time_s"].median()
    assert list(time.x) == list(medians.index) == curve.anchor_bytes
    assert list(time.y) == medians.tolist()
    assert list(rate.y) == pytest.approx(medians.index.to_numpy() * 7 / 8 / medians.to_numpy())
    fitted = hockney_time(medians.index, curve.alpha_s.value, curve.beta_bytes_per_s.value, curve.p.value)
    assert list(residual.y) == pytest.approx(100 * (medians.to_numpy() / fitted - 1))
    whiskers = rows.groupby("payload_bytes")["time_s"].max() - medians
    assert list(time.error_y.array) == pytest.approx(whiskers.tolist())


def test_lines_are_the_fit_dashed_inside_the_samples_and_dotted_outside(nccl: MeasuredLibrary) -> None:
    curve = nccl.model.calibration.curve("all_to_all", 8, 8)
    assert curve is not None
    lines = traces(block(nccl), "lines")[::2]  # of the time; the others are of the bandwidth
    for line in lines:
        expected = hockney_time(line.x, curve.alpha_s.value, curve.beta_bytes_per_s.value, curve.p.value)
        assert list(line.y) == pytest.approx(expected.tolist())
    inside, below, above = lines
    assert [line.line.dash for line in lines] == ["dash", "dot", "dot"]
    assert (min(inside.x), max(inside.x)) == pytest.approx((curve.anchor_bytes[0], curve.anchor_bytes[-1]))
    assert max(below.x) == pytest.approx(curve.anchor_bytes[0]) and min(above.x) == pytest.approx(
        max(inside.x)
    )


def test_the_crossover_is_in_the_sentence_and_follows_the_data(
    nccl: MeasuredLibrary, nvshmem: MeasuredLibrary
) -> None:
    both = block(nccl, nvshmem)
    assert both.title == (
        "All-to-all on 8 GPUs: NVSHMEM 3.3.9 (device) is faster below 79.5 KiB, NCCL 2.29.2 (stream) "
        "at larger sizes."
    )
    assert [shape.x0 for shape in both.figure.layout.shapes] == pytest.approx([81386.4] * 3)
    slow = block(nccl, slower(nvshmem, 100))
    assert "NCCL 2.29.2 (stream) is faster than NVSHMEM 3.3.9 (device) at every size" in slow.title
    assert not slow.figure.layout.shapes
    assert "reaches" in block(nccl).title and "reaches" not in both.title


def test_data_are_the_marks(nccl: MeasuredLibrary, nvshmem: MeasuredLibrary) -> None:
    found = block(nccl, nvshmem)
    time = [
        trace for trace in traces(found, "markers") if trace.error_y.array is not None and trace.yaxis == "y"
    ]
    assert [row["time_s"] for row in found.data] == [t for trace in time for t in trace.y]
    assert {row["clock"] for row in found.data} == {"stream", "device"}
    assert sum(row["samples"] for row in found.data) == 42 + 21
    assert "42 samples of aic_h200_nccl2.29.2" in found.source


def test_what_was_not_measured_is_missing_with_the_command(nccl: MeasuredLibrary) -> None:
    found = collectives([nccl], "all_to_all", FIGURE, 6)
    assert isinstance(found, Missing)
    assert found.why == (
        "no all-to-all on 6 GPUs was measured on this machine: perfmodel calibrate --only nccl:all_to_all "
        "--ranks 6"
    )
    assert isinstance(collectives([], "all_to_all", FIGURE), Missing)
    assert measured(load_machine("h100-sxm-ib"), "gloo") is None


def test_another_machines_curves_are_not_drawn_as_measured() -> None:
    borrowed = CollectiveModel(load_machine("h100-sxm-ib"), shipped_calibration(NVSHMEM))
    assert isinstance(collectives([MeasuredLibrary(borrowed, None)], "all_to_all", FIGURE), Missing)


def test_samples_that_are_not_here_leave_the_medians_of_the_fit(nccl: MeasuredLibrary) -> None:
    found = block(MeasuredLibrary(nccl.model, None))
    assert [row["samples"] for row in found.data] == [0] * len(found.data)
    time = traces(found, "markers")[0]
    curve = nccl.model.calibration.curve("all_to_all", 8, 8)
    assert curve is not None and list(time.y) == curve.anchor_times_s
    assert "samples are not available" in time.hovertext[0]


def test_words_of_a_file_stay_text(nccl: MeasuredLibrary) -> None:
    odd = nccl.model.calibration.model_copy(update={"library_version": "<script>x</script>"})
    found = block(MeasuredLibrary(CollectiveModel(H200, odd), nccl.samples))
    assert "<script>" not in found.figure.to_json() and "\\u003cscript" not in found.figure.to_json()
    assert all("&lt;script&gt;" in trace.name for trace in found.figure.data)


# Samples behind a calibration


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_run.write_run(tmp_path_factory.mktemp("runs") / "four-cores-01234567", noise=0.05)


def calibration_in(folder: Path) -> tuple[Path, Calibration]:
    path = next(iter(folder.glob("mpi*.json")))
    return path, load_calibration(path)


def test_an_own_run_shows_each_visit(folder: Path) -> None:
    path, calibration = calibration_in(folder)
    machine = read_machine(folder / "machine.toml")
    rows = curve_samples(calibration, machine, path)
    assert run_of(path) == folder and set(rows["variant"]) == {"default"}
    for curve in calibration.curves:
        cell = rows[(rows["collective"] == curve.collective) & (rows["gpus"] == curve.gpus)]
        assert len(cell) == curve.sample_count
        assert sorted(set(cell["payload_bytes"])) == curve.anchor_bytes
    found = block(measured(machine, "mpi", calibration=path), gpus=4)
    assert [row["samples"] for row in found.data] == [4] * len(own_run.SIZES)
    assert all(row["low_s"] < row["time_s"] < row["high_s"] for row in found.data)
    cell = rows[(rows["collective"] == "all_to_all") & (rows["gpus"] == 4)]
    medians = cell.groupby("payload_bytes")["time_s"].median()
    assert [row["time_s"] for row in found.data] == medians.tolist()


def test_samples_of_a_copy_elsewhere_are_not_here(folder: Path, tmp_path: Path) -> None:
    _, calibration = calibration_in(folder)
    alone = tmp_path / "mine.json"
    save_calibration(calibration, alone)
    assert run_of(alone) is None
    with pytest.raises(BadInputError, match="are not here"):
        samples_of(calibration, alone)
    found = measured(read_machine(folder / "machine.toml"), "mpi", calibration=alone)
    assert found is not None and found.samples is None


def test_shipped_samples_are_those_of_the_curves() -> None:
    calibration = shipped_calibration(NVSHMEM)
    rows = curve_samples(calibration, H200)
    counts = rows.groupby(["collective", "gpus", "domain_gpus"]).size()
    assert isinstance(counts, pd.Series)
    for curve in calibration.curves:
        assert counts[curve.collective, curve.gpus, min(curve.gpus, curve.domain_gpus)] == curve.sample_count
    assert np.isfinite(rows["time_s"]).all()


# Of a question


def test_a_question_shows_the_libraries_of_its_machine_and_both_where_both_were_measured() -> None:
    machines = ("h100-sxm-ib", "h200-sxm-ib")
    h100, h200 = (find_subject(Question.of(table_bytes=1e12, machine=name)) for name in machines)

    def calibrations(figure: Figure, subject: Subject) -> set[str]:
        found = figure.draw(subject)
        assert isinstance(found, Block)
        return {str(row["calibration"]).split("/")[1].split("-")[0] for row in found.data}

    assert calibrations(FIGURE, h100) == calibrations(REDUCE_SCATTER, h100) == {"nccl"}
    assert calibrations(FIGURE, h200) == calibrations(LIBRARIES, h100) == {"nccl", "nvshmem"}


# Words


def test_words() -> None:
    assert safe("<script>alert(1)</script>") == "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert sentence("two are left") == "Two are left." and sentence("Done.") == "Done."
    assert hover(["a", "", "b"]) == "a<br>b"
    assert signed(0.021) == "+2.1 %" and signed(-0.03) == "−3.0 %"
