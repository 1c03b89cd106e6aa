"""``perfmodel.plan_tables``: what the command prints, as frames, and still a light import."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import perfmodel
from perfmodel.errors import BadInputError
from perfmodel.plan import PlanTables, read_plan
from perfmodel.plan.in_python import question_of
from perfmodel.schema.table_files import load_tables

FRAME = pd.DataFrame(
    {
        "name": ["users", "items", "geo"],
        "rows": [3_000_000, 40_000, 300],
        "dim": [64, 32, 16],
        "pooling": [10.0, 2.0, 1.0],
        "distribution": ["zipf:1.05", None, None],
        "weighted": [False, True, False],
    }
)


VARIES = ("changes", "dense_step", "calibration_file", "schema_version", "command")


def told(answer: Any) -> dict[str, Any]:
    """A document without what differs from run to run; a frame of tables has no file."""
    document = json.loads(json.dumps(answer))
    document["plan"]["made_for"].pop("model_file", None)
    return {key: value for key, value in document.items() if key not in VARIES}


def test_a_frame_and_a_file_of_it_have_one_answer(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "tables.csv"
    FRAME.to_csv(path, index=False)
    limits = {"max_hbm_bytes": 2e9, "effort": "quick", "only": ["geo=table-wise"]}
    found = perfmodel.plan_tables(FRAME, 4, batch=512, **limits)
    words = ["plan", "--model", str(path), "--gpus", "4", "--batch", "512"]
    words += ["--set", "max_hbm=2GB", "--effort", "quick", "--only", "geo=table-wise"]
    document = json.loads(cli(*words, "--json").out)
    assert found.answer.found.stopped == "effort", "a search that ends by itself says less"
    assert told(found.to_dict()) == told(document)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_a_plan_costs_the_same_in_python_and_on_the_command_line(
    cli: Any, tmp_path: Path, objective: str
) -> None:
    path, plan = tmp_path / "tables.csv", tmp_path / "plan.json"
    FRAME.to_csv(path, index=False)
    limits = {"max_hbm_bytes": 200e6, "effort": "quick", "payload": "fp16", "id_dtype": "int32"}
    found = perfmodel.plan_tables(FRAME, 8, "h200-sxm-ib", objective, batch=512, **limits)
    found.write(plan)
    words = ["plan", "--model", str(path), "--plan", str(plan), "--machine", "h200-sxm-ib", "--batch", "512"]
    words += [
        "--objective",
        objective,
        "--set",
        "max_hbm=200MB",
        "--set",
        "payload=fp16",
        "--set",
        "id_dtype=int32",
    ]
    document = json.loads(cli(*words, "--json").out)
    again = replace(found.question).given(found.plan)  # without what the search has looked up
    assert told(again.to_dict()) == told(document)
    assert document["time_s"] == pytest.approx(found.time_s, rel=1e-6)


def test_the_frames_add_up() -> None:
    found = perfmodel.plan_tables(
        "criteo-kaggle", gpus=4, machine="h200-sxm-ib", max_hbm_bytes=1e9, effort="quick"
    )
    assert found.steps["time_s"].sum() == pytest.approx(found.time_s)
    assert found.bound_s <= found.time_s
    parts = found.gpus[["rows_bytes", "optimizer_bytes", "buffer_bytes"]].sum(axis=1)
    assert parts.to_list() == pytest.approx(found.gpus["memory_bytes"].to_list())
    assert found.gpus["memory_bytes"].max() <= 1e9 and len(found.gpus) == 4
    tables = PlanTables.load("criteo-kaggle")
    held = pd.Series(0.0, index=range(4))
    for _, row in found.tables.iterrows():
        held[row["ranks"] or list(range(4))] += row["shard_bytes"]
    assert held.to_list() == pytest.approx(found.gpus["rows_bytes"].to_list(), rel=1e-6)
    assert found.tables["table"].tolist() == list(tables.names)
    assert set(found.what_ifs(2.0)["name"]) >= {"cards", "memory", "payload", "batch"}


def test_a_plan_is_written_as_the_command_reads_it(tmp_path: Path) -> None:
    found = perfmodel.plan_tables(load_tables("criteo-kaggle"), 2, effort="quick")
    found.write(tmp_path / "plan.json")
    again = read_plan(tmp_path / "plan.json", PlanTables.load("criteo-kaggle"))
    assert [p.ranks.tolist() for p in again.placements] == [p.ranks.tolist() for p in found.plan.placements]


def test_a_plan_says_itself_on_a_line() -> None:
    text = repr(perfmodel.plan_tables(FRAME, gpus=2, effort="quick"))
    assert re.fullmatch(r"<TablePlan of \d+ tables on 2 GPUs: .*s>", text) and len(text) < 90
    alone = perfmodel.plan_tables(FRAME[:1], gpus=1, effort="quick", kernels="torch")
    assert "1 table on 1 GPU:" in repr(alone)
    assert alone.time_s > perfmodel.plan_tables(FRAME[:1], gpus=1, effort="quick").time_s


def test_several_numbers_of_gpus() -> None:
    found = perfmodel.scale_tables("criteo-kaggle", [4, 2, 16], effort="quick")
    each = ", ".join(rf"{gpus} GPUs \S+ .?s" for gpus in (2, 4, 16))
    assert re.fullmatch(f"<TableScaling: {each}>", repr(found))
    assert found.table["gpus"].tolist() == [2, 4, 16]
    assert found.table["samples_per_s"].tolist() == pytest.approx(
        [1024 * n / t for n, t in zip([2, 4, 16], found.table["time_s"], strict=True)]
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"objective": "speed"}, "objective 'speed' is not known"),
        ({"gpus": 0}, "gpus 0 cannot be used"),
        ({"reserve": 1.0}, "reserve 1"),
        ({"max_hbm_bytes": 1e15}, "max_hbm_bytes"),
        ({"only": ["nobody=row-wise"]}, "table 'nobody' is not known"),
        ({"only": "nobody=row-wise"}, "^only nobody=row-wise: table 'nobody' is not known"),
        ({"max_hbm_bytes": 1e3}, r"\(gpus\) or GPUs with more memory \(max_hbm_bytes, reserve\)"),
        ({"machine": "h1000"}, "h1000"),
        ({"distribution": "zip"}, "distribution 'zip' is not known"),
        ({"time_limit_s": -1.0}, "time_limit_s -1 cannot be used"),
        ({"tables": FRAME.drop(columns="rows")}, "^frame 'tables': missing column rows"),
        ({"time_limit_s": float("nan")}, "time_limit_s nan cannot be used"),
        ({"time_limit_s": "5s"}, "time_limit_s '5s' cannot be used.*seconds above 0, such as 10"),
        ({"time_limit_s": True}, "time_limit_s True cannot be used"),
        ({"gpus": "8"}, "gpus '8' cannot be used.*a whole number from 1 on"),
        ({"gpus": True}, "gpus True cannot be used"),
        ({"gpus": 2.5}, "gpus 2.5 cannot be used"),
        ({"gpus": [8, 16]}, r"gpus \[8, 16\] cannot be used.*one number.*perfmodel.scale_tables"),
        ({"gpus": np.array([8, 16])}, "perfmodel.scale_tables"),
        ({"batch": "4k"}, "batch '4k' cannot be used"),
        ({"gpus_per_node": "8"}, "gpus_per_node '8' cannot be used"),
        ({"gpus_per_node": 16}, "gpus_per_node 16 cannot be used.*has 1 to 8 in a node"),
        ({"distribution": 1.05}, 'distribution 1.05 cannot be used.*"zipf:1.05"'),
        ({"payload": 16}, "payload 16 cannot be used"),
        ({"objective": 3}, "objective 3 cannot be used"),
        ({"overrides": "x=3"}, "overrides 'x=3' cannot be used.*a dict"),
        ({"only": [5]}, r"only \[5\] cannot be used.*row-wise"),
        ({"machine": None}, "machine None cannot be used.*the name of a shipped machine"),
        ({"objective": None}, "objective None cannot be used"),
        ({"for_torchrec": "no"}, "for_torchrec 'no' cannot be used.*True or False"),
        ({"reserve": "15%"}, "reserve '15%' cannot be used.*such as 0.15"),
        ({"max_hbm_bytes": "60GB"}, "max_hbm_bytes '60GB' cannot be used.*bytes above 0, such as 60e9"),
    ],
)
def test_what_cannot_be_asked(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInputError, match=f"(?s){words}"):
        perfmodel.plan_tables(**{"tables": FRAME, "gpus": 8, "effort": "quick", **change})


@pytest.mark.parametrize("gpus", [8, "8", ["8", 16], [8, 2.5]])
def test_several_numbers_of_gpus_are_a_list_of_whole_numbers(gpus: Any) -> None:
    words = "perfmodel.plan_tables plans on one" if gpus == 8 else "a list of whole numbers"
    with pytest.raises(BadInputError, match=f"(?s)gpus .*cannot be used.*{words}"):
        perfmodel.scale_tables(FRAME, gpus)


def test_numbers_of_numpy_are_numbers() -> None:
    asked = question_of(FRAME, np.int64(8), batch=np.int32(512), time_limit_s=np.float32(2))  # type: ignore[arg-type]
    assert (asked.gpus, asked.batch, asked.time_limit_s) == (8, 512, 2.0)
    assert {type(asked.gpus), type(asked.batch), type(asked.time_limit_s)} == {int, float}


@pytest.mark.parametrize(
    ("function", "gpus"), [(perfmodel.plan_tables, 8), (perfmodel.scale_tables, [8, 16])]
)
def test_an_unknown_argument_is_one_of_the_function_that_was_called(function: Any, gpus: Any) -> None:
    name = function.__name__
    with pytest.raises(TypeError) as caught:
        function(FRAME, gpus, time_limit=5)
    said = str(caught.value)
    assert said.startswith(f"{name}() got an unexpected keyword argument 'time_limit'"), said
    assert "did you mean time_limit_s?" in said and "question_of" not in said
    with pytest.raises(TypeError, match=rf"^{name}\(\) got .*'zzz'; known: .*max_hbm_bytes"):
        function(FRAME, gpus, zzz=5)


def test_the_time_of_changes_is_a_number() -> None:
    found = perfmodel.plan_tables(FRAME, gpus=2, effort="quick")
    with pytest.raises(BadInputError, match="time_limit_s '5s' cannot be used"):
        found.what_ifs("5s")  # type: ignore[arg-type]


def test_the_import_stays_light() -> None:
    heavy = "('numpy', 'pandas', 'scipy', 'pydantic', 'pyarrow', 'typer')"
    code = f"import sys, perfmodel; dir(perfmodel); assert not [m for m in {heavy} if m in sys.modules]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_records_are_tables_too_and_other_things_are_refused() -> None:
    records = [
        {"name": "a", "rows": 1_000_000, "dim": 64, "pooling": 1},
        {"name": "b", "rows": 2_000, "dim": 16},
    ]
    found = perfmodel.plan_tables(records, gpus=4, effort="quick")
    assert list(found.tables["table"]) == ["a", "b"]
    with pytest.raises(BadInputError, match="tables of type int cannot be used"):
        perfmodel.plan_tables(7, gpus=4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "training"), [("training", True), ("train", True), ("inference", False), ("forward", False)]
)
def test_a_pass_has_its_usual_names(words: str, training: bool) -> None:
    assert question_of("criteo-kaggle", 4, objective=words).training == training


def test_a_frame_is_no_file_and_limits_have_all_their_figures() -> None:
    """2^53 and 2^20, of a frame."""
    with pytest.raises(BadInputError) as caught:
        perfmodel.plan_tables([{"rows": 10**17, "dim": 2**20 + 1}, {"rows": 0, "dim": 4}], gpus=4)
    said = f"{caught.value.message} {caught.value.next_step}"
    assert "must be at most 9 007 199 254 740 992" in said and "must be at most 1 048 576" in said
    assert "must be at least 1" in said and "file" not in said and "columns rows and dim" in said


def test_help_lists_every_option_with_its_default() -> None:
    """As the signature of what takes them has them."""
    text = perfmodel.plan_tables.__doc__ or ""
    told = re.findall(r"^ +(\w+) = (\S+)  ", text, flags=re.M)
    takes = inspect.signature(question_of).parameters.values()
    default = {each.name: each.default for each in takes if each.kind is each.KEYWORD_ONLY}
    default["distribution"] = default["distribution"].name
    assert told == [(name, repr(value).replace("'", '"')) for name, value in default.items()]
    for function in (perfmodel.plan_tables, perfmodel.scale_tables):
        assert "question_of" not in (function.__doc__ or "")


def test_the_columns_of_frames_are_in_their_help() -> None:
    found, several = (
        perfmodel.plan_tables(FRAME, 2, effort="quick"),
        perfmodel.scale_tables(FRAME, [2, 4], effort="quick"),
    )
    for answer, names in ((found, ("tables", "steps", "gpus", "what_ifs")), (several, ("table",))):
        for name in names:
            told = re.findall(r"\w+", getattr(type(answer), name).__doc__.split("\n\n")[1])
            frame = getattr(answer, name)
            columns = list((frame(0.1) if callable(frame) else frame).columns)
            assert list(dict.fromkeys(word for word in told if word in columns)) == columns, name
