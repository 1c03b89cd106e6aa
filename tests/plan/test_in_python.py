"""``perfmodel.plan_tables``: what the command prints, as frames, and still a light import."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import perfmodel
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan.frames import build_question
from perfmodel.plan.plan_files import read_plan
from perfmodel.plan.searching.search import Search

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
VARIES = ("changes", "dense_step", "calibration_file", "schema_version", "command", "plan")


def told(answer: Any) -> dict[str, Any]:
    """A document without what differs between the doors."""
    return {name: value for name, value in json.loads(json.dumps(answer)).items() if name not in VARIES}


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_a_frame_and_a_file_of_it_have_one_answer(cli: Any, tmp_path: Path, objective: str) -> None:
    path, file = tmp_path / "tables.csv", tmp_path / "plan.json"
    FRAME.to_csv(path, index=False)
    limits = {"max_hbm_bytes": 200e6, "effort": "quick", "only": ["geo=table-wise"], "payload": "fp16"}
    plan = perfmodel.plan_tables(FRAME, 8, "h200-sxm-ib", objective, batch=512, **limits)
    words = ["plan", "--model", str(path), "--gpus", "8", "--batch", "512", "--machine", "h200-sxm-ib"]
    words += ["--set", "max_hbm=200MB", "--effort", "quick", "--only", "geo=table-wise"]
    words += ["--set", "payload=fp16", "--objective", objective]
    document = json.loads(cli(*words, "--json").out)
    assert told(plan.to_dict()) == told(document)
    assert plan.to_dict()["plan"]["placements"] == document["plan"]["placements"]
    assert set(plan.to_dict()) == set(document) - {"schema_version", "command"}
    plan.write(file)
    again = json.loads(cli("plan", "--model", str(path), "--plan", str(file), "--json").out)
    assert again["time_s"] == pytest.approx(plan.time_s, rel=1e-6) and again["machine"] == "h200-sxm-ib"


def test_the_frames_add_up() -> None:
    plan = perfmodel.plan_tables("criteo-kaggle", 4, "h200-sxm-ib", max_hbm_bytes=1e9, effort="quick")
    assert plan.steps["time_s"].sum() == pytest.approx(plan.time_s)
    assert plan.bound_s <= plan.time_s
    parts = plan.gpus[["rows_bytes", "optimizer_bytes", "buffer_bytes"]].sum(axis=1)
    assert parts.to_list() == pytest.approx(plan.gpus["memory_bytes"].to_list())
    assert plan.gpus["memory_bytes"].max() <= 1e9 and len(plan.gpus) == 4
    held = pd.Series(0.0, index=range(4))
    for _, row in plan.tables.iterrows():
        held[row["ranks"] or list(range(4))] += row["shard_bytes"]
    assert held.to_list() == pytest.approx(plan.gpus["rows_bytes"].to_list(), rel=1e-6)
    assert plan.tables["table"].tolist() == list(PlanTables.load("criteo-kaggle").names)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"objective": "speed"}, "objective 'speed' is not known"),
        ({"gpus": 0}, "gpus 0 cannot be used"),
        ({"gpus": [8, 16]}, "^gpus has 2 values, and one is wanted"),
        ({"reserve": 1.0}, "reserve 1"),
        ({"max_hbm_bytes": 1e15}, "max_hbm_bytes"),
        ({"only": "nobody=row-wise"}, "^only nobody=row-wise: table 'nobody' is not known"),
        ({"max_hbm_bytes": 1e3}, r"\(gpus\) or more memory of each \(max_hbm_bytes=…, reserve=…\)"),
        ({"machine": "h1000"}, "h1000"),
        ({"distribution": "zip"}, "distribution 'zip' is not known"),
        ({"tables": FRAME.drop(columns="rows")}, "^frame 'tables': missing column rows"),
        ({"tables": 7}, "tables of type int cannot be used"),
        ({"tables": [{"rows": 10**17, "dim": 64}]}, "must be less than or equal to 9007199254740992"),
        ({"tables": FRAME.assign(rows=2**32), "id_bytes": 4}, "ids of int32 reach 2 147 483 648 rows"),
        ({"batch": "4k"}, "batch '4k' is not a number"),
        ({"gpus_per_node": 16}, "gpus_per_node 16 cannot be used.*has 1 to 8 in a node"),
        ({"reserve": "15%"}, "reserve '15%' cannot be used"),
        ({"reserve": False}, "reserve False cannot be used"),
        ({"time_limit": 5}, "argument 'time_limit' is not known.*known: .*effort.*max_hbm_bytes"),
        ({"dim": 5}, "argument 'dim' is not known"),
    ],
)
def test_what_cannot_be_asked(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInputError, match=f"(?s){words}"):
        perfmodel.plan_tables(**{"tables": FRAME, "gpus": 8, "effort": "quick", **change})


def test_the_import_stays_light() -> None:
    heavy = "('numpy', 'pandas', 'scipy', 'pydantic', 'pyarrow', 'typer')"
    code = f"import sys, perfmodel; dir(perfmodel); assert not [m for m in {heavy} if m in sys.modules]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    "changes",
    [
        {"distribution": "zipf:1.2", "id_bytes": 4, "reserve": 0.3, "gpus_per_node": 4},
        {"max_hbm_bytes": 20e9, "overrides": {"nic_bytes_per_s": 40e9}},
    ],
)
def test_a_file_repeats_every_option_of_its_question(
    changes: dict[str, Any], cli: Any, tmp_path: Path
) -> None:
    plan, path = perfmodel.plan_tables("criteo-kaggle", 8, effort="quick", **changes), tmp_path / "plan.json"
    plan.write(path)
    assert json.loads(cli("plan", "--plan", str(path), "--json").out)["time_s"] == plan.time_s
    again = read_plan(path, PlanTables.load("criteo-kaggle"))
    assert [p.ranks.tolist() for p in again.placements] == [p.ranks.tolist() for p in plan.plan.placements]
    assert re.fullmatch(r"<TablePlan of 26 tables on 8 GPUs: .*s>", repr(plan))


def test_help_lists_every_option_with_its_default() -> None:
    """As the signature of what takes them has them."""
    text = perfmodel.plan_tables.__doc__ or ""
    told = re.findall(r"^ +(\w+) = (\S+)  ", text, flags=re.M)
    takes = inspect.signature(build_question).parameters.values()
    default = {each.name: each.default for each in takes if each.kind is each.KEYWORD_ONLY}
    assert told == [(name, repr(value).replace("'", '"')) for name, value in default.items()]


def test_the_columns_of_frames_are_in_their_help() -> None:
    plan = perfmodel.plan_tables(FRAME, 2, effort="quick")
    for name in ("tables", "steps", "gpus"):
        words = re.findall(r"\w+", getattr(type(plan), name).__doc__.split("\n\n")[1])
        columns = list(getattr(plan, name).columns)
        assert list(dict.fromkeys(word for word in words if word in columns)) == columns, name


def test_a_stopped_plan_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "_anneal", interrupt)
    said = "stopped by Ctrl-C: the best plan so far takes .* on 8 GPUs"
    with pytest.warns(UserWarning, match=said) as warned:
        plan = perfmodel.plan_tables(FRAME, 8, max_hbm_bytes=150e6, effort="quick")
    assert plan.stopped and repr(plan).endswith(", stopped by Ctrl-C>") and warned[0].filename == __file__
    monkeypatch.setattr(Search, "_start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        perfmodel.plan_tables(FRAME, 8)
