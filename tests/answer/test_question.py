"""What is asked: limits of the values, what is assumed and said, and a batch of all GPUs."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.answer import project_one, project_row_wise, sweep
from perfmodel.cli import run
from perfmodel.errors import BadInputError
from perfmodel.schema.machine import load_machine


@pytest.mark.parametrize("key", ["hbm_bytes", "hbm_bytes_per_s", "l2_bytes_per_s", "gather_bytes_per_s"])
@pytest.mark.parametrize("extreme", [1e-300, 1e300])
def test_absurd_machines_are_refused_or_answered_without_a_warning(key: str, extreme: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            p = project_one(
                table_bytes=10e12, machine=load_machine("h100-sxm-ib").with_overrides({key: extreme})
            )
        except BadInputError:
            return
        assert np.isfinite(p.slowdown)


def test_which_points_of_a_grid_are_possible() -> None:
    machine = load_machine("h100-sxm-ib")
    hbm = machine.value("hbm_bytes")
    columns = sweep.combine_axes(table_bytes=(1e12, 64 * hbm, 10e12), gpus=(8, 64, 128))
    for reserve in (0.15, 0.5):  # what leaves no room for the reserve is answered, and marked
        feasible = sweep.find_feasible(columns, machine, reserve).reshape(3, 3).tolist()
        assert feasible == [[False, True, True], [False, True, True], [False, False, True]]
    assert sweep.find_feasible({"table_bytes": np.array([2**19 * hbm])}, machine, 0.5).tolist() == [True]
    marked = project_row_wise({"table_bytes": [1e12, 10e12], "gpus": [64, 128]}, reserve=0.5)
    assert marked["fits"].tolist() == [True, False]
    # 1000 rows of 128 bytes cannot be cut into 1024 shards
    rows = sweep.combine_axes(table_bytes=(128_000,), gpus=(1000, 1024))
    assert sweep.find_feasible(rows, machine).tolist() == [True, False]


def test_tables_that_fill_the_memory_are_said() -> None:
    p = project_one(gpus=8, reserve=0)
    assert any("assumed to fill the memory, 680 GB" in note for note in p.notes)
    assert p.gpu_count.fits and p.gpu_count.memory_bytes == pytest.approx(84.94e9)  # with the buffers
    assert not any("fill" in note for note in project_one(gpus=8, table_bytes=640e9).notes)


def test_a_sweep_leaves_out_what_is_impossible_and_counts_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "--table-size", "1TB,10TB", "--gpus", "8,64,128", "--json"]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["rows"]) == 3
    assert "3 of 6 configurations left out" in captured.err
    assert run(["sweep", "--table-size", "10TB", "--gpus", "8"]) == 2
    assert "--gpus 144 fits, sharded row-wise." in capsys.readouterr().err


def test_each_gpu_has_its_part(cli: Any) -> None:
    for words in (("--table-size", "10TB", "--gpus", "256"), ("--model", "criteo-1tb", "--gpus", "64")):
        whole = json.loads(cli("project", *words, "--set", "global_batch=65536", "--json").out)
        part = json.loads(cli("project", *words, "--batch", str(65536 // int(words[-1])), "--json").out)
        assert whole | {"changes": []} == part | {"changes": []}  # a larger batch is tried of each alone


def test_without_gpus_it_is_of_those_that_the_tables_need(cli: Any) -> None:
    """At 1 sample of each 10 TB need as many GPUs as at 1 024, and their exchange buffers are small."""
    found = json.loads(cli("project", "--table-size", "10TB", "--batch", "1024", "--json").out)
    total = 1024 * found["gpus"]
    again = json.loads(cli("project", "--table-size", "10TB", "--set", f"global_batch={total}", "--json").out)
    assert again["time_s"] == found["time_s"] and again["batch"] == 1024
    text = " ".join(cli("project", "--table-size", "10TB", "--set", f"global_batch={total}").out.split())
    assert f"1 024 samples a GPU, {f'{total:,}'.replace(',', ' ')} in all" in text
    refused = cli("project", "--table-size", "10TB", "--set", f"global_batch={total + 1}")
    assert refused.code == 2 and f"the nearest: {total} or {total + found['gpus']}" in refused.err


def test_a_plan_scales_with_the_batch_of_all_gpus_held(cli: Any, tmp_path: Path) -> None:
    tables = tmp_path / "tables.csv"
    tables.write_text("name,rows,dim,pooling\n" + "".join(f"t{i},100000,64,{4 + i}\n" for i in range(6)))
    words = ("plan", "--model", str(tables), "--effort", "quick", "--set", "global_batch=8192", "--gpus")
    found = json.loads(cli(*words, "2,8", "--json").out)
    assert (found["batch"], found["global_batch"]) == (None, 8192)
    for each in found["scaling"]:
        assert each["samples_per_s"] == pytest.approx(8192 / each["time_s"])
    text = " ".join(cli(*words, "2,8").out.split())
    assert "8 192 samples on all GPUs together" in text and "Batch:" not in text
    assert json.loads(cli(*words, "8", "--json").out)["batch"] == 1024
    refused = cli(*words, "2,3")
    assert refused.code == 2 and "each of 3 GPUs" in refused.err and "8190 or 8193" in refused.err


@pytest.mark.parametrize("command", ["project", "plan", "project --explain gather"])
def test_both_batches_are_refused(cli: Any, command: str) -> None:
    words = ("--model", "criteo-1tb", "--gpus", "8", "--batch", "64", "--set", "global_batch=512")
    done = cli(*command.split(), *words)
    assert done.code == 2 and "--batch and --set global_batch cannot be combined" in done.err


def test_a_sweep_over_gpus_holds_the_batch_of_all(cli: Any) -> None:
    words = ("sweep", "--table-size", "1TB", "--gpus", "16..64", "--machine", "h100-sxm-ib,h200-sxm-ib")
    words += ("--sharding", "row-wise")  # the same steps, so the same columns, at any batch
    rows = json.loads(cli(*words, "--set", "global_batch=65536", "--json").out)["rows"]
    assert [row["batch"] * row["gpus"] for row in rows] == [65536] * 6
    own = json.loads(cli(*words, "--batch", "1024", "--json").out)["rows"]
    same = [row for row in own if row["gpus"] == 64]
    assert [row for row in rows if row["gpus"] == 64] == same
    assert "Each GPU has as many" not in cli(*words, "--set", "global_batch=65536").out
    for more, says in (
        ((), "on which GPUs?"),
        (("--gpus", "16,24"), "each of 24 GPUs"),
        (("--gpus", "16", "--batch", "64"), "cannot be combined"),
        (("--grid", "paper-2", "--gpus", "128"), "cannot be combined"),
    ):
        size = () if "--grid" in more else ("--table-size", "1TB")
        refused = cli("sweep", *size, "--set", "global_batch=65536", *more)
        assert refused.code == 2 and says in refused.err, refused.err
