"""``import`` ends with the samples beside what is shipped, the answer that moves, the largest left out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_calls import called

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.schema.machine import load_machine
from perfmodel.schema.samples import COLUMNS, write_samples

MODEL = CollectiveModel.load(load_machine("h100-sxm-ib"))
SIZES = 2.0 ** np.arange(14, 29, 2)
GROUPS = ((8, 1), (16, 2), (32, 4))


def made(path: Path, factor: float, groups: tuple[tuple[int, int], ...] = GROUPS) -> list[str]:
    """Samples at so many times what is shipped, and the words that import them."""
    rows = []
    for gpus, nodes in groups:
        times = factor * np.asarray(MODEL.estimate("all_to_all", SIZES, gpus).time_s)
        for size, time in zip(SIZES, times, strict=True):
            row = dict.fromkeys(COLUMNS, "")
            row |= {"source_id": "mine", "backend": "nccl", "library_version": "2.29.2", "clock": "stream"}
            row |= {"machine": "h100-sxm-ib", "gpu": "H100", "collective": "all_to_all", "datatype": "float"}
            shape = {"gpus": gpus, "nodes": nodes, "gpus_per_node": gpus // nodes, "variant": "default"}
            rows.append(
                row | shape | {"payload_bytes": int(size), "time_s": time, "in_place": False, "flag": "ok"}
            )
    write_samples(pd.DataFrame(rows, columns=list(COLUMNS)), path)
    return ["import", str(path), "--machine", "h100-sxm-ib"]


@pytest.mark.parametrize("factor", [1.0, 1.25])
def test_samples_at_the_shipped_times_and_at_others(factor: float, tmp_path: Path) -> None:
    words = made(tmp_path / "mine.csv", factor)
    done = called(*words, "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)["beside_shipped"]
    told = record["shipped"]
    assert told["calibration_id"] == "h100-sxm-ib/nccl-2.29.2-stream"
    assert told["points"] == len(GROUPS) * SIZES.size
    assert told["error"] == pytest.approx(1 - 1 / factor, abs=2e-3)
    assert told["inside"] == told["points"] if factor == 1 else told["inside"] > 0
    sides = record["default_answer"]
    plain = json.loads(called("project", "--table-size", "10TB", "--json").out)
    assert sides["shipped"]["gpus"] == sides["own"]["gpus"] == 152
    assert sides["shipped"]["time_s"] == pytest.approx(plain["time_s"])
    own = tmp_path / "own.json"
    assert called(*words, "--out", str(own)).code == 0
    moved = called("project", "--table-size", "10TB", "--calibration", str(own), "--json")
    assert sides["own"]["time_s"] == pytest.approx(json.loads(moved.out)["time_s"])
    left = record["left_out"]
    assert (left["by"], left["left_out"], left["seen"]) == ("nodes", 4, 2)
    assert left["told"]["points"] == SIZES.size and left["told"]["error"] < 0.25
    text = " ".join(called(*words).out.split())
    assert "h100-sxm-ib/nccl-2.29.2-stream would have said your samples with a median error of" in text
    assert "Your answer 10 TB on 152 GPUs: " in text and " → " in text
    assert "4 nodes left out of the fit and predicted from up to 2: a median error of" in text


def test_what_cannot_be_said_is_left_out(tmp_path: Path) -> None:
    """Of one group nothing is left out; without nodes it is the largest number of GPUs."""
    alone = json.loads(called(*made(tmp_path / "one.csv", 1.0, GROUPS[:1]), "--json").out)["beside_shipped"]
    assert "shipped" in alone and "left_out" not in alone
    inside = json.loads(called(*made(tmp_path / "two.csv", 1.0, ((4, 1), (8, 1))), "--json").out)[
        "beside_shipped"
    ]
    assert (inside["left_out"]["by"], inside["left_out"]["left_out"]) == ("gpus", 8)
