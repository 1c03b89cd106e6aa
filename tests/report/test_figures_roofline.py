"""Roofline of the gather: lines are projections of one GPU, marks timed kernels, ceilings the machine's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles import own_run

from perfmodel.answer import Answer, project_one, project_row_wise
from perfmodel.report.figures import Block, Missing
from perfmodel.report.figures.roofline import list_timed
from perfmodel.report.figures.roofline import roofline as draw
from perfmodel.report.figures.subject import Subject
from perfmodel.schema.machine import load_machine, read_machine
from perfmodel.schema.run_files import read_run


def asked(**more: Any) -> Answer:
    return project_one(**{"table_bytes": 10e12, "batch": 1024, **more})


def roofline(answer: Answer) -> Block | Missing:
    return draw(Subject(answer, answer))


def block(found: Block | Missing) -> Block:
    assert isinstance(found, Block), found
    return found


def lines(found: Block) -> list[Any]:
    return [t for t in found.figure.data if str(t.name).startswith("batch") and not t.fill]


def test_lines_are_the_local_times_of_a_projection() -> None:
    found = block(roofline(asked()))
    rows = [row for row in found.data if row["batch"] == 1024]
    sizes = np.array([row["working_set_bytes"] for row in rows])
    local = project_row_wise(table_bytes=sizes, gpus=1, batch=1024)
    assert [row["time_s"] for row in rows] == pytest.approx(local["baseline_time_s"].tolist())
    bytes_asked = 1024 * 32 * (32 * 4 + 8) + 1024 * (32 * 4 + 8)
    assert rows[0]["requested_bytes"] == bytes_asked
    assert [row["bytes_per_s"] for row in rows] == pytest.approx(
        [bytes_asked / row["time_s"] for row in rows]
    )
    line = next(t for t in lines(found) if t.name == "batch 1 024")
    assert list(line.x) == sizes.tolist() and list(line.y) == [row["bytes_per_s"] for row in rows]


def test_larger_batches_are_beside_what_was_asked() -> None:
    found = block(roofline(asked()))
    assert [t.name for t in lines(found)] == ["batch 1 024", "batch 8 192", "batch 65 536"]
    last = [t.y[-1] for t in lines(found)]
    assert last == sorted(last)
    most = block(roofline(asked(batch=2**30, gpus=128, pooling=1)))
    assert [t.name for t in lines(most)] == ["batch 1 073 741 824"]


def test_ceilings_are_the_machines_values_dashed_by_evidence() -> None:
    found, machine = block(roofline(asked())), load_machine("h100-sxm-ib")
    ceilings = {t.name.split()[0]: t for t in found.figure.data if "TB/s" in t.name}
    assert list(ceilings["memory"].y) == [machine.value("hbm_bytes_per_s")] * 2
    assert list(ceilings["gather"].y) == [machine.value("gather_bytes_per_s")] * 2
    assert list(ceilings["L2"].y) == [machine.value("l2_bytes_per_s")] * 2
    assert ceilings["memory"].line.dash == "longdash" and ceilings["L2"].line.dash == "dashdot"
    (shade,) = [shape for shape in found.figure.layout.shapes if shape.type == "rect"]
    assert shade.x1 == machine.value("l2_bytes")


def test_bands_are_whole_inside_the_axes() -> None:
    figure = block(roofline(asked())).figure
    bands = np.concatenate([np.asarray(t.y, float) for t in figure.data if t.fill == "toself"])
    low, high = (10**end for end in figure.layout.yaxis.range)
    assert low < bands.min() and bands.max() < high


def test_the_sentence_follows_the_data() -> None:
    small, large = block(roofline(asked())), block(roofline(asked(batch=1_000_000)))
    assert "kernel launches take 64.2 % of the time" in small.title
    assert "launches" not in large.title and "of the rate for long rows" in large.title
    slow = block(roofline(asked(overrides={"gather_bytes_per_s": 1e12})))
    assert slow.title != small.title


def test_tables_of_a_set_scale_together() -> None:
    found = block(roofline(project_one(tables="mlperf-dlrm-dcnv2", gpus=16, batch=512)))
    rows = [row for row in found.data if row["batch"] == 512]
    assert rows[-1]["working_set_bytes"] == load_machine("h100-sxm-ib").value("hbm_bytes")
    assert np.isfinite([row["bytes_per_s"] for row in found.data]).all()


def test_timed_gathers_are_marks(tmp_path: Path) -> None:
    folder = own_run.write_run(tmp_path / "four-cores-01234567")
    samples = read_run(folder).kernel_samples()
    path = next(iter(folder.glob("mpi*.json")))
    answer = project_one(
        None, read_machine(folder / "machine.toml"), backend="mpi", calibration=path, table_bytes=1e8, gpus=2
    )
    found = block(roofline(answer))
    gathers = samples[samples["operation"] == "gather_pool"]
    (marks,) = [t for t in found.figure.data if t.name == "timed here"]
    assert list(marks.x) == [
        4.0 * rows * dim for rows, dim in zip(gathers["rows"], gathers["dim"], strict=True)
    ]
    work = gathers.iloc[0]
    moved = work["batch"] * work["pooling"] * (4 * work["dim"] + 8) + work["batch"] * (4 * work["dim"] + 8)
    assert marks.y[0] == pytest.approx(moved / work["time_s"])
    assert len(marks.x) == 32 and "32 gathers timed on it" in found.source
    assert {row["evidence"] for row in found.data if row["kind"] == "timed"} == {"measured"}
    rows = list_timed(answer.basis, samples.assign(shards=4))  # a quarter of the rows, bags of four ranks
    assert [row["working_set_bytes"] for row in rows] == [size / 4 for size in marks.x]
    moved += 3 * work["batch"] * (4 * work["dim"] + 8)
    assert rows[0]["bytes_per_s"] == pytest.approx(moved / work["time_s"])
    assert list_timed(answer.basis, samples.assign(flag="throttled")) == []
    kinds = {t.line.dash for t in lines(found)}
    assert kinds == {"dash", "dot"}  # inside the bytes that were timed, and beyond them
    assert "dashed = interpolated, dotted = extrapolated." in found.how_to_read
    assert "no gather was timed on this machine" in block(roofline(asked())).how_to_read
