"""The screen of ``perfmodel project``: the fastest sharding that TorchRec runs leads, others beside it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfmodel.answer import Answer, project_one
from perfmodel.answer.ranking import RUN, Ranking, answer_shardings, find_fastest, rank, rank_shardings
from perfmodel.engine.schemes import ROW_WISE, ROWS_ONCE, WAYS
from perfmodel.schema.workload import Table, TableSet
from perfmodel.units import format_time

QUESTIONS: list[dict[str, Any]] = [
    {"table_bytes": 10e12},
    {"table_bytes": 10e12, "machine": "gb200-nvl72"},
    {"table_bytes": 320e9},
    {"table_bytes": 10e12, "table_count": 300, "dim": 128, "pooling": 20},
    {"tables": "mlperf-dlrm-dcnv2", "gpus": 16},
    {"tables": "mlperf-dlrm-dcnv2", "gpus": 128, "machine": "h200-sxm-ib"},
    {"tables": "embark-t180", "gpus": 32, "batch": 4096},
]
MANY = ("--table-size", "10TB", "--tables", "300", "--dim", "128", "--pooling", "20", "--set", "reserve=20%")


@pytest.mark.parametrize("asked", QUESTIONS)
def test_no_way_that_torchrec_runs_is_faster(asked: dict[str, Any]) -> None:
    """The opponent: every way dealt to its GPUs, without the bounds that leave some out."""
    base = project_one(**asked)
    found, every = (rank_shardings(base), [each for each in answer_shardings(base, RUN) if each.fits])
    best = find_fastest(every)
    assert found.answer.sharding == best.sharding
    assert found.answer.time_s == pytest.approx(best.time_s)
    times = [each.time_s for each in every if isinstance(each, Answer)]
    second = min((time for time in times if time > found.answer.time_s * (1 + 1e-5)), default=0.0)
    if found.as_good:
        assert found.as_good[0].time_s >= second * (1 - 1e-5)


SMALL: dict[str, Any] = {"table_bytes": 20e9, "gpus": 8}
"""A copy on each GPU fits, and sends nothing."""


@pytest.mark.parametrize("asked", [*QUESTIONS, SMALL, {"table_bytes": 10e12, "pooling": 1}])
def test_the_fastest_of_what_somebody_else_runs_is_known(asked: dict[str, Any]) -> None:
    """The opponent: what --sharding all compares."""
    base = project_one(**asked)
    found = rank_shardings(base)
    times = {each.sharding: each.time_s for each in answer_shardings(base) if isinstance(each, Answer)}
    shown = [found.answer.time_s, *([times[ROWS_ONCE]] if found.beside.unique_rows else [])]
    rivals = {way: time for way, time in times.items() if WAYS[way].runs and time < min(shown) * (1 - 1e-5)}
    if not rivals:
        assert found.beside.left_out is None
        return
    assert found.beside.left_out is not None and found.beside.left_out.sharding == min(
        rivals, key=lambda way: rivals[way]
    )


@pytest.mark.parametrize(("words", "said"), [
    ("--table-size 20GB --gpus 8", "they fit every GPU uncut: 6.23 µs (data-parallel)"),
    ("--table-size 10TB", ""),
])  # fmt: skip
def test_the_screen_names_what_is_faster_than_all_it_shows(cli: Any, words: str, said: str) -> None:
    text = " ".join(cli("project", *words.split()).out.split())
    assert said in text and ("data-parallel" in text) == bool(said)
    record = json.loads(cli("project", *words.split(), "--json").out)
    assert record["leads_among"] == list(RUN)
    assert (record["left_out"] or {"sharding": ""})["sharding"] == ("data-parallel" if said else "")


@pytest.mark.parametrize(
    "words",
    [
        ("--table-size", "10TB"),
        ("--table-size", "10TB", "--sharding", "ub"),
        ("--table-size", "10TB", "--tables", "200"),
        ("--model", "mlperf-dlrm-dcnv2"),
        MANY,
    ],
)
def test_the_first_screen_has_few_lines(cli: Any, words: tuple[str, ...]) -> None:
    lines = cli("project", *words).out.splitlines()
    assert len(lines) <= 22 and max(map(len, lines)) <= 100
    assert "× one GPU (" in lines[0] and " a batch, " in lines[0]


def test_what_does_not_fit_is_no_headline(cli: Any) -> None:
    """300 tables row-wise need more than a GPU has; table-wise they fit, and lead."""
    first, _, third, *_ = cli("project", *MANY).out.splitlines()
    assert ": 6.8" in first and third.strip().startswith("table-wise, as TorchRec runs it")
    named = cli("project", *MANY, "--sharding", ROW_WISE).out
    assert "on 152 GPUs (19 nodes of h100-sxm-ib): does not fit, 89.9 GB of a GPU's 68.0 GB." in named
    large = ("--table-size", "2TB", "--gpus", "30", "--tables", "300", "--batch", "64000")
    for more in ((), ("--json",)):
        refused = cli("project", *large, *more)
        assert refused.code == 2 and "): no sharding that TorchRec runs fits. row-wise needs" in " ".join(
            (refused.out + refused.err).split()
        )


def test_a_plan_leads_a_set_of_tables_on_the_screen_and_in_its_json(cli: Any) -> None:
    """The best sharding for all is beside it, as ``--sharding`` gives it."""
    words = ("--model", "criteo-1tb", "--gpus", "16")
    text, record = cli("project", *words).out, json.loads(cli("project", *words, "--json").out)
    plan = json.loads(cli("plan", *words, "--effort", "quick", "--json").out)["time_s"]
    uniform = record["uniform"]
    named = json.loads(cli("project", *words, "--sharding", uniform["sharding"], "--json").out)
    assert (record["sharding"], uniform["time_s"]) == ("planned", named["time_s"])
    assert record["time_s"] == pytest.approx(plan, rel=0.05) and record["time_s"] < uniform["time_s"]
    assert sum(step["time_s"] for step in record["steps"]) == pytest.approx(record["time_s"])
    assert f"): {format_time(record['time_s'])} a batch, " in text.splitlines()[0]
    assert f"{uniform['sharding']} for all: {format_time(uniform['time_s'])}" in " ".join(text.split())
    assert "perfmodel plan --gpus 16 --model criteo-1tb" in cli("-v", "project", *words).out


@pytest.mark.parametrize(
    ("tables", "gpus", "is_searched"), [(1, 2, True), (2, 1, False), (2, 2, True), (3, 3, True)]
)
def test_a_plan_is_searched_for_every_set_on_several_gpus(tables: int, gpus: int, is_searched: bool) -> None:
    rankings: list[Ranking] = []
    of = TableSet("some", tuple(Table(f"t{n}", 1000 * (n + 1), 16, 2.0) for n in range(tables)))
    base = project_one(tables=of, gpus=gpus)
    rank(replace(base, question=replace(base.question, planner=rankings.append)))
    assert len(rankings) == is_searched


def test_tables_that_are_all_copied_are_said_and_costed_as_copies(cli: Any, tmp_path: Path) -> None:
    """Of two types of elements, in one launch as in ``--sharding data-parallel``."""
    file = tmp_path / "small.csv"
    file.write_text("name,rows,dim,pooling,dtype\na,40000,32,10,fp32\nb,500,64,5,fp16\n", encoding="utf-8")
    words = ("project", "--model", str(file), "--gpus", "8")
    record = json.loads(cli(*words, "--json").out)
    copies = json.loads(cli(*words, "--sharding", "data-parallel", "--json").out)
    assert (record["sharding"], record["time_s"]) == ("data-parallel", copies["time_s"])
    assert "a copy of each table on every GPU, as TorchRec runs it" in cli(*words).out


@pytest.mark.parametrize("words", [
    "--table-size 10TB",
    "--table-size 1TB --tables 30 --set global_batch=8192",
    "--model criteo-1tb --gpus 16",
])  # fmt: skip
def test_each_change_is_the_answer_to_its_option(cli: Any, words: str) -> None:
    """The opponent: the option typed beside the question's own, which it replaces."""
    changes = json.loads(cli("project", *words.split(), "--json").out)["changes"]
    assert {"settings", "a machine"} <= {change["group"] for change in changes}
    for change in changes:
        anew = json.loads(cli("project", *words.split(), *change["option"].split(), "--json").out)
        assert (anew["time_s"], anew["gpus"]) == (pytest.approx(change["after_s"]), change["gpus"]), change
        assert (anew["low_s"], anew["high_s"]) == pytest.approx((change["low_s"], change["high_s"]))


def test_more_gpus_are_proposed_up_to_the_least_gpu_time(cli: Any) -> None:
    """The opponent: every number of whole nodes up to twice as many. 20 tables are even on 160 GPUs."""
    words = ("project", "--table-size", "10TB", "--tables", "20", "--json")
    base = json.loads(cli(*words).out)
    more = [change for change in base["changes"] if change["group"] == "more GPUs"]
    (node,) = [change for change in more if "a node more" in change["label"]]
    assert node["gpus"] == base["gpus"] + 8
    (least,) = [change for change in more if change["label"].endswith("less GPU-time")]
    tried = [
        json.loads(cli(*words, "--gpus", str(gpus)).out) for gpus in range(base["gpus"], 2 * base["gpus"], 8)
    ]
    times = [answer["time_s"] for answer in tried if answer["fits"]]  # each GPU has its own samples
    assert least["after_s"] <= 1.03 * min(times)


@pytest.mark.parametrize("words", [
    "--table-size 10TB",
    "--table-size 10TB --set nic_bytes_per_s=25GB/s",
    "--table-size 5TB --objective training",
])  # fmt: skip
def test_the_changes_on_the_screen_are_the_best_of_each_group(cli: Any, words: str) -> None:
    """The opponent: all changes that were tried; a node more that is slower is in the line about memory."""
    tried = json.loads(cli("project", *words.split(), "--json").out)["changes"]
    tried = [each for each in tried if each["group"] != "more GPUs" or each["after_s"] < each["before_s"]]
    losing = [each["samples_ratio"] <= 0.98 for each in tried]
    assert losing == sorted(losing)  # fewer samples per second of all GPUs: last
    best = {group: min((each for each in tried if each["group"] == group),
                       key=lambda each: (each["samples_ratio"] <= 0.98, each["after_s"]))
            for group in dict.fromkeys(each["group"] for each in tried)}  # fmt: skip
    _, title, table = cli("project", *words.split()).out.partition("What would help")
    table = " ".join(table.partition("\n\n")[0].split())
    assert title and table.count(" --") in (2, 3)
    assert all(
        f"{format_time(each['after_s'])} " in table and each["option"] in table for each in best.values()
    )


@pytest.mark.parametrize("gpus", [64, 128, 148])
def test_a_number_of_gpus_that_is_advised_fits(cli: Any, gpus: int) -> None:
    """64 do not hold the rows; 128 and 148 hold them without the reserve, and with no exchange."""
    found = cli("project", *MANY, "--gpus", str(gpus))
    assert found.code == 2
    said = " ".join((found.out + found.err).split())
    advised = int(re.findall(r"--gpus (\d+) fits, sharded table-wise", said)[0])
    assert cli("project", *MANY, "--gpus", str(advised)).out.startswith(f"10 TB on {advised} GPUs (")
    node = cli("project", *MANY, "--gpus", str(advised - 8))
    assert node.code == 2 and "no sharding that TorchRec runs fits" in " ".join(node.err.split())
    assert not re.search(r"with \d+ GPUs or more", said) and "80 GB of a GPU." not in said


MANY_ROWS = "31250000,64,5,225\n1000000,64,10,100\n"
LONG_BAGS = "1040000000,128,2,1\n1010000000,128,2,1\n960000000,128,2,1\n5000,1024,2,4\n"


@pytest.mark.parametrize(
    ("rows", "batch", "gpus", "advised", "nodes"),
    [(MANY_ROWS, 1024, 25, 26, 32), (MANY_ROWS, 1024, 24, 32, 32), (LONG_BAGS, 524288, 9, 24, 24)],
)
def test_a_plan_may_fit_fewer_gpus(
    cli: Any, tmp_path: Path, rows: str, batch: int, gpus: int, advised: int, nodes: int
) -> None:
    """26 GPUs hold 1.84 TB of rows by a plan alone; of whole nodes 4 are needed. Bags of 1024 columns need 32
    GPUs in any one sharding, and 24 where these tables are copied."""
    tables = tmp_path / "tables.csv"
    tables.write_text(f"rows,dim,pooling,count\n{rows}")
    words = ("project", "--model", str(tables), "--batch", str(batch))
    said = " ".join(cli(*words, "--gpus", str(gpus)).err.split())
    assert f"--gpus {advised} fits, sharded table by table" in said
    assert json.loads(cli(*words, "--gpus", str(advised), "--json").out)["sharding"] == "planned"
    assert json.loads(cli(*words, "--json").out)["gpus"] == nodes
    named = json.loads(cli(*words, "--sharding", "column-wise", "--json").out)["gpu_count"]["text"]
    assert "→  32 (" in named  # whole nodes


def test_equal_tables_lead_as_those_that_differ(cli: Any, tmp_path: Path) -> None:
    """Copies need no exchange; a row more in one of the tables makes no other answer."""
    leading = []
    tables = tmp_path / "tables.csv"
    for rows in ("100000,64,10\n" * 2, "100000,64,10\n100001,64,10\n", "100000,64,10\n"):
        tables.write_text(f"rows,dim,pooling\n{rows}")
        leading.append(json.loads(cli("project", "--model", str(tables), "--gpus", "8", "--json").out))
    assert {answer["sharding"] for answer in leading} == {"data-parallel"}
    assert leading[0]["time_s"] == pytest.approx(leading[1]["time_s"], rel=1e-3)


def test_what_fits_no_number_of_gpus_says_what_it_holds(cli: Any) -> None:
    """Bags of 640 000 samples: 300 tables x 128 x 4 bytes of each are more than a GPU has."""
    words = ("--table-size", "2TB", "--tables", "300", "--dim", "128", "--batch", "640000")
    found = cli("project", *words, "--gpus", "8")
    said = " ".join(found.err.split())
    assert found.code == 2 and "no sharding that TorchRec runs fits" in said and "--gpus" not in said
    assert re.search(r"[\d.]+ TB of a GPU's 72.2 GB \(rows [\d.]+ GB, exchange buffers [\d.]+ TB\)", said)


def test_a_way_without_times_is_left_out_and_named(cli: Any) -> None:
    """Nobody measured a reduce-scatter of NVSHMEM: ways that need one are not compared, if they fit."""
    words = ("--gpus", "16", "--backend", "nvshmem", "--set", "clock=device")
    text = " ".join(cli("project", "--table-size", "400GB", *words).out.split())
    assert "no calibration has times for table-row-wise, grid" in text
    assert "no calibration" not in cli("project", "--table-size", "10TB", *words[2:]).out
    found = rank_shardings(project_one(table_bytes=4e11, gpus=16, backend="nvshmem", clock="device"))
    assert found.unknown and not {each.sharding for each in found.best} & set(found.unknown)
