"""Plan files: a plan comes back as it was, costs what was printed, or is refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dealt_plan import uniform_plan
from searches import tables_of

from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan.plan_files import plan_record, read_made_for, read_plan, write_plan
from perfmodel.resources import data_path

TABLES = tables_of((1000, 32, 4.0), (2000, 64, 1.0))
THREE = "name,rows,dim,pooling,dtype\nbig,4000000,64,8,fp32\nhalf,2000000,128,4,fp16\nsmall,5000,32,2,fp32\n"
BOX = "h200-sxm-ib"
ASKED = {
    "best": ("--backend", "best"),
    "kernels": ("--set", "kernels=torch"),
    "calibration": ("--calibration", "h200-sxm-ib/nccl-2.30.4-graph"),
    "gpus": ("--set", "gpus_per_node=4"),
    "set": ("--set", "nvlink_bytes_per_s=701.3GB/s", "--set", "nic_bytes_per_s=33GB/s"),
    "doubted": ("--set", "nic_bytes_per_s=1GB/s", "--set", "accepted=nic_bytes_per_s"),
    "both": ("--set", "max_hbm=21GiB", "--set", "reserve=1%"),
    "optimizer": ("--set", "optimizer=adam"),
    "dense": ("--dense", "3ms±10%"),
    "objective": ("--objective", "throughput"),
    "many": (
        *("--machine", BOX, "--batch", "4096", "--distribution", "zipf:1.05", "--set", "payload=fp16"),
        *("--set", "id_dtype=int32", "--set", "clock=graph", "--set", "reserve=30%"),
    ),
}
TRAINED = ("optimizer", "dense", "many")
"""Options that are asked of a training step too."""


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    plan = uniform_plan(TABLES, "grid", 32, 8, col_parts=2)
    write_plan(plan, tmp_path / "plan.json")
    back = read_plan(tmp_path / "plan.json", TABLES)
    assert (back.gpus, back.domain) == (32, 8)
    for a, b in zip(plan.placements, back.placements, strict=True):
        assert a.scheme == b.scheme and np.array_equal(a.ranks, b.ranks)


PLACED: dict[str, Any] = plan_record(uniform_plan(TABLES, "table-wise", 2, 2))
FIRST, SECOND = PLACED["placements"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"made_for": {"bach": "1024"}}, "bach"),
        ({"made_for": {"settings": "hbm_bytes=70GB"}}, "not a list"),
        ({"made_for": {"batch": ["1", "2"]}}, "not text"),
        ({"gpus": 10**30}, "gpus"),
        ({"colour": "red"}, "colour"),
        ({"tables_fingerprint": "0"}, "is for other tables"),
        ({"placements": []}, "places table 't0' nowhere"),
        ({"placements": [FIRST, FIRST, SECOND]}, "places table 't0' 2 times"),
        ({"placements": [FIRST, SECOND, FIRST | {"table": "t9"}]}, "places table 't9' 1 times"),
        ({"placements": [FIRST | {"exchange": "rbb"}, SECOND]}, "placements.0.exchange"),
        ({"placements": [FIRST | {"ranks": [-1]}, SECOND]}, "placements.0.ranks.0"),
        ({"placements": [FIRST | {"row_parts": 2}, SECOND]}, "1 rank for 2 shards"),
    ],
)
def test_a_damaged_plan_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLACED | change), encoding="utf-8")
    with pytest.raises(BadInputError) as caught:
        read_plan(path, TABLES)
    assert words in caught.value.message
    assert str(path) in caught.value.message or "shards" in words  # of the plan, as one from Python is


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "") for text in ("{", "[" * 100_000, "", "3", "[]")),
        ('{"calibration_id": "h100/nccl", "curves": []}', "p.json is a calibration, not a plan"),
        ('{"some": 1}', "p.json is not a plan"),
    ],
)
def test_another_file_is_called_by_its_name(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "p.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadInputError) as caught:
        read_plan(tmp_path / "p.json", TABLES)
    assert words in caught.value.message
    assert not words or "perfmodel plan --out" in caught.value.next_step


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "three.csv"
    path.write_text(THREE, encoding="utf-8")
    return str(path)


def answer_of(cli: Any, *words: str) -> tuple[dict[str, Any], str]:
    outcome = cli("plan", *words, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out), " ".join(outcome.err.split())


def by_hand(model: str, path: Path, domain: int = 8) -> Path:
    """A plan that no search made, and that does not say what it was made for."""
    tables = PlanTables.load(model)
    rows, whole = Placement.of(Scheme(Exchange.RB, 8), range(8)), Placement.of(Scheme(Exchange.RB), [3])
    parts = Placement.of(Scheme(Exchange.RB, 2), [1, 2])
    write_plan(Plan(tables, (rows, parts, whole), 8, domain), path)
    return path


@pytest.mark.parametrize(
    ("name", "training"), [*((name, False) for name in ASKED), *((name, True) for name in TRAINED)]
)
def test_a_plan_is_read_back_with_the_options_it_was_made_with(
    cli: Any, model: str, tmp_path: Path, name: str, training: bool
) -> None:
    asked = (*ASKED[name], *(ASKED["objective"] if training else ()))
    hand, file = by_hand(model, tmp_path / "hand.json", 4 if "gpus" in name else 8), tmp_path / "p.json"
    made, _ = answer_of(cli, "--model", model, "--plan", str(hand), *asked, "--out", str(file))
    found, said = answer_of(cli, "--model", model, "--plan", str(file))
    assert {**found, "plan": None} == {**made, "plan": None}
    assert f"taken from {file}: " in said
    for option in (word for word in asked if word.startswith("--")):
        assert option in said
    if training:
        return
    again, said = answer_of(cli, "--model", model, "--plan", str(file), *asked)
    assert again["time_s"] == made["time_s"]
    assert "p.json" not in said


def test_what_is_given_wins(cli: Any, model: str, tmp_path: Path) -> None:
    file, hand = tmp_path / "p.json", str(by_hand(model, tmp_path / "h.json"))
    answer_of(cli, "--model", model, "--plan", hand, *ASKED["many"], "--out", str(file))
    options = ("--model", model, "--plan", str(file))
    other = ("--batch", "64", "--set", "kernels=torch", "--distribution", "zipf:1.05")
    found, said = answer_of(cli, *options, *other)
    assert found["batch"] == 64
    taken = f"--machine {BOX} --set payload=fp16 --set id_dtype=int32 --set clock=graph --set reserve=30%"
    assert said == f"taken from {file}: {taken}"
    assert answer_of(cli, *options, *ASKED["many"])[1] == ""


def test_files_of_machines_and_calibrations_are_found_again(cli: Any, model: str, tmp_path: Path) -> None:
    box, measured = tmp_path / "box.toml", tmp_path / "mine.json"
    box.write_text(data_path("machines", f"{BOX}.toml").read_text(encoding="utf-8").replace(BOX, "my-box"))
    shipped = data_path("calibrations", "h200-sxm-ib/nccl-2.29.2-stream.json").read_text(encoding="utf-8")
    measured.write_text(shipped, encoding="utf-8")
    hand = str(by_hand(model, tmp_path / "h.json"))
    for option, path in (("--machine", box), ("--calibration", measured)):
        file = tmp_path / f"p{option}.json"
        asked = (option, str(path), *(("--calibration", str(measured)) if path == box else ()))
        made, _ = answer_of(cli, "--model", model, "--plan", hand, *asked, "--out", str(file))
        found, said = answer_of(cli, "--model", model, "--plan", str(file))
        assert found["time_s"] == made["time_s"] and found["machine"] == made["machine"], said


def test_explain_has_the_numbers_of_the_plan(cli: Any, model: str, tmp_path: Path) -> None:
    hand, file = by_hand(model, tmp_path / "h.json"), str(tmp_path / "p.json")
    made, _ = answer_of(cli, "--model", model, "--plan", str(hand), *ASKED["many"], "--out", file)
    for step in made["steps"]:
        told, said = answer_of(cli, "--explain", step["name"], "--plan", file, "--model", model)
        assert told["step"]["time_s"] == step["time_s"] and "--set payload=fp16" in said


def test_the_tables_are_those_of_the_file(cli: Any, model: str, tmp_path: Path) -> None:
    """A file of tables is found again, also beside the plan; other tables, and tables that are gone, are
    refused.
    """
    file = tmp_path / "p.json"
    made, _ = answer_of(
        cli, "--model", model, "--gpus", "8", "--batch", "64", "--effort", "quick", "--out", str(file)
    )
    again, said = answer_of(cli, "--plan", str(file))
    assert again["time_s"] == made["time_s"] and f"taken from {file}: --model {model} --batch 64" in said
    other = cli("plan", "--plan", str(file), "--model", "criteo-kaggle")
    assert other.code == 2 and "for 'three' as it was, not for criteo-kaggle" in " ".join(other.err.split())
    beside = tmp_path / "moved"
    beside.mkdir()
    document = {**json.loads(file.read_text(encoding="utf-8"))}
    document["made_for"]["model"] = "three.csv"
    (beside / "p.json").write_text(json.dumps(document), encoding="utf-8")
    Path(model).rename(beside / "three.csv")
    assert answer_of(cli, "--plan", str(beside / "p.json"))[0]["time_s"] == made["time_s"]
    gone = cli("plan", "--plan", str(file))
    assert (gone.code, gone.out) == (2, "") and model in "".join(gone.err.split())


def test_files_that_do_not_say_and_files_that_say_nonsense(model: str, tmp_path: Path) -> None:
    tables, file = PlanTables.load(model), by_hand(model, tmp_path / "p.json")
    assert read_made_for(file) == {"model": "three"}
    write_plan(read_plan(file, tables), file, {"machine": BOX, "batch": "64"})
    assert read_made_for(file) == {"model": "three", "machine": BOX, "batch": "64"}
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"exchange": "rb"', '"exchange": "mail"', 1), encoding="utf-8")
    with pytest.raises(BadInputError, match=r"of table 'big' is none of bags, .*two-level, .*data-parallel"):
        read_plan(file, tables)
    nameless, zero = '{"placements": []}', text.replace('"batch": "64"', '"batch": 0')
    for wrong, words in ((zero, r"made_for.*batch"), (nameless, "does not say of which tables")):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(BadInputError, match=words):
            read_made_for(file)
