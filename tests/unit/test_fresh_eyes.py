"""What a newcomer types: messages that name what is wrong, and answers that say what they leave out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import is_an_error

from perfmodel.project import project_one


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("project", "--table-size", "10"), ("10 B is less than one row", "without a unit is bytes", "10TB")),
        (("project", "--gpus", "8", "--alpha", "-1"), ("--alpha -1", "Zipf's law", "0 (uniform ids)")),
        (("sweep", "--gpus", "8..2"), ("--gpus 8..2 runs downwards", "--gpus 2..8")),
        (("report", "--model", "criteo-kaggle", "--gpus", "8..2"), ("runs downwards", "--gpus 2..8")),
    ],
)  # fmt: skip
def test_messages_name_what_is_wrong(cli: Any, words: tuple[str, ...], parts: tuple[str, ...]) -> None:
    is_an_error(cli(*words), 2, *parts)


def test_a_grid_that_loses_an_axis_says_so(cli: Any) -> None:
    done = cli("sweep", "--grid", "paper-1", "--table-size", "1TB", "--csv")
    assert len(done.out.splitlines()) == 1 + 48  # of 192
    assert "4 numbers of GPUs of paper-1 are left out" in done.err and "--gpus 1,2,4,8" in done.err
    assert "left out" not in cli("sweep", "--grid", "paper-1", "--csv").err


def test_the_shard_with_the_hottest_row_is_told() -> None:
    """All look-ups of 16 GPUs ask for one row: its owner gets 16 times the mean."""
    p = project_one(table_bytes=1e12, distribution="one-row")
    (said,) = [note for note in p.notes if "hottest row" in note]
    assert p.gpus == 16 and "16.0× the ids of the mean one" in said
    assert not any("hottest" in note for note in project_one(table_bytes=1e12).notes)
    assert not any("hottest" in note for note in project_one(table_bytes=1e9, distribution="one-row").notes)


def test_columns_that_a_narrow_page_leaves_out_are_named(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = cli("project", "--table-size", "10TB").out
    assert "Left out" not in wide
    monkeypatch.setenv("COLUMNS", "60")
    narrow = cli("project", "--table-size", "10TB").out
    assert "Left out at 60 columns: bytes/GPU, 95 % band." in narrow
    assert max(map(len, narrow.splitlines()[:20])) <= 60


@pytest.mark.parametrize("size", [100e9, 1e12, 10e12])
def test_the_same_steps_have_the_same_speed_of_light(size: float) -> None:
    """The better of two libraries runs one of two exchanges: its floor is that of the one that runs."""
    asked: dict[str, Any] = {"table_bytes": size, "machine": "h200-sxm-ib", "batch": 4096}
    best, *others = (project_one(**asked, backend=name) for name in ("best", "nvshmem", "nccl"))
    summed = any(step.name == "local_sum" for step in best.steps)
    same = others[0] if summed else others[1]
    assert best.totals["light_time_s"] == pytest.approx(same.totals["light_time_s"])


def test_the_next_experiment_is_not_what_was_just_done(cli: Any, tmp_path: Path) -> None:
    """Two nodes were imported at 1 to 64 MiB: more nodes, or other sizes of the same, are missing."""
    log, out = tmp_path / "two.csv", tmp_path / "mine.json"
    rows = [
        f"{op},{gpus},{size},{(30e-6 if gpus > 8 else 15e-6) + size / (30e9 if gpus > 8 else 200e9)}"
        for op in ("all_to_all", "reduce_scatter")
        for gpus in (8, 16)
        for size in (2**20, 2**22, 2**24, 2**26)
    ]
    log.write_text("\n".join(["collective,gpus,payload_bytes,time_s", *rows]) + "\n", encoding="utf-8")
    words = ("--machine", "h100-sxm-ib", "--gpus-per-node", "8", "--out", str(out))
    assert cli("import", str(log), *words).code == 0
    asked = ("project", "--calibration", str(out), "--batch", "256")
    far = cli(*asked, "--table-size", "10TB")
    text = " ".join(far.out.split())
    assert "more than the 2 nodes that were measured, 19 if you can, messages of" in text
    document = json.loads(cli(*asked, "--table-size", "10TB", "--json").out)["next_experiment"]
    assert document["nodes"] == 3 and 0 < document["least_bytes"] < document["most_bytes"]
    near = " ".join(cli(*asked, "--gpus", "16").out.split())
    assert "these 16 GPUs, at sizes that were not measured, messages of 384 B" in near
