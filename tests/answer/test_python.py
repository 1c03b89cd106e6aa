"""Python's functions give the numbers of the commands, as docs/python.md shows them."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import perfmodel
from perfmodel.errors import BadInputError
from perfmodel.explore.answers import compute_answer
from perfmodel.explore.texts import QuestionTexts
from perfmodel.question.groups import QuestionOptions
from perfmodel.question.spec import Opt

SET_BY_MAIN = ("OPENBLAS_NUM_THREADS", "PYDANTIC_DISABLE_PLUGINS")
PAGES = Path(__file__).parents[2] / "docs"
PAGE = (PAGES / "python.md").read_text(encoding="utf-8")
_TEN: dict[str, Any] = {"table_bytes": 10e12}
_DLRM: dict[str, Any] = {"tables": "criteo-1tb", "gpus": 16}
_ONE_TB: dict[str, Any] = {"table_bytes": 1e12, "table_count": 32, "dim": 64}
QUESTIONS: list[dict[str, Any]] = [
    _TEN, _DLRM, _ONE_TB, {"table_bytes": 20e9}, {"tables": "criteo-kaggle"},
    *({**_TEN, "batch": batch} for batch in (1, 64, 16384)),
    *({**_TEN, "sharding": name} for name in ("row-wise", "two-level", "sparse", "ub", "3d")),
    *({**_TEN, "machine": name} for name in ("h200-sxm-ib", "gb200-nvl72", "b200-sxm-roce", "mi355x-roce")),
    *({**_TEN, "distribution": ids} for ids in ("zipf:0.9", "zipf:1.1", "one-row")),
    *({**_TEN, "dtype": dtype} for dtype in ("fp16", "int8")),
    {**_TEN, "gpus": 200}, {**_TEN, "gpus": 1000}, {**_TEN, "pooling": 4, "dim": 128},
    {**_TEN, "reserve": 0.3}, {**_TEN, "payload": "fp16"},
    {**_TEN, "kernels": "torch"}, {**_TEN, "backend": "nvshmem"}, {**_TEN, "objective": "training"},
    {"table_bytes": 640e9, "batch": 4096, "machine": "h200-sxm-ib", "backend": "best"},
    *({**_ONE_TB, "gpus": gpus} for gpus in (16, 64)),
    {**_ONE_TB, "objective": "throughput", "optimizer": "adam"}, {**_ONE_TB, "sharding": "column-wise"},
    {**_ONE_TB, "clock": "stream", "machine": "h200-sxm-ib"},
    {**_ONE_TB, "pooling": 100, "distribution": "zipf:1.05"},
    {**_DLRM, "batch": 8192},
    {**_DLRM, "payload": "bf16", "objective": "training"}, {**_DLRM, "sharding": "table-wise"},
]  # fmt: skip


def typed(asked: dict[str, Any]) -> list[str]:
    """The question as options of ``perfmodel project``."""
    options = {option.words.keyword or option.name: option for option in QuestionOptions.declared()
               if isinstance(option.words, Opt)}  # fmt: skip
    words: list[str] = []
    for name, value in asked.items():
        text = f"{value / 1e9:g}GB" if name == "table_bytes" else str(value)
        words += options["model" if name == "tables" else name].to_words(text)
    return words


@pytest.mark.parametrize("asked", QUESTIONS, ids=str)
def test_a_question_has_one_answer_through_all_doors(cli: Any, asked: dict[str, Any]) -> None:
    """``project``, ``perfmodel.project`` and ``sweep``, and what the pages of report and explore show."""
    words = typed(asked)
    said = json.loads(cli("project", *words, "--json").out)
    (row,) = perfmodel.project(**asked).to_dict(orient="records")
    named = {"model" if name == "tables" else name: value for name, value in asked.items()}
    (swept,) = perfmodel.sweep(**named).to_dict(orient="records")
    assert [*row][:2] == ["configuration", "sharding"]
    assert row["sharding"] == swept["sharding"] == (said.get("sharding") or "row-wise")
    for name in ("gpus", "time_s", "low_s", "high_s", "slowdown", "baseline_time_s", "throughput_ratio"):
        assert row[name] == pytest.approx(said[name], rel=1e-12), name
        assert swept[name] == pytest.approx(said[name], rel=1e-12), name
    names = {option.keyword: option.name for option in QuestionOptions.declared()} | {"tables": "model"}
    texts = {names[name]: str(value) for name, value in asked.items()}
    page = compute_answer(QuestionTexts(tuple(texts.items()))).answer
    assert page.time_s == pytest.approx(said["time_s"], rel=1e-12)


def test_python_sweeps_and_checks_as_the_commands(cli: Any) -> None:
    words = ("--table-size", "1TB,2TB", "--batch", "128", "--set", "nic_bytes_per_s=100GB/s")
    said = json.loads(cli("sweep", *words, "--json").out)["rows"]
    frame = perfmodel.sweep(table_bytes=[1e12, 2e12], batch=128, settings={"nic_bytes_per_s": "100GB/s"})
    assert frame["time_s"].tolist() == [row["time_s"] for row in said]
    words = ("--op", "all_to_all", "--size", "1MiB", "--gpus", "8", "--set", "gpus_per_node=4")
    said = json.loads(cli("collective", *words, "--json").out)
    (row,) = perfmodel.collective(
        op="all_to_all", size="1MiB", gpus=8, settings={"gpus_per_node": 4}
    ).to_dict(orient="records")
    assert row["time_s"] == said["time_s"] and row["gpus_per_node"] == 4
    log = str(PAGES / "examples" / "half_the_cards.log")
    document = json.loads(cli("check", log, "--json").out)
    assert perfmodel.check(log) == document and document["outside"] == 1
    for wrong, message in (({"table_size": "10Tb"}, "^table_size 10Tb"), ({"tabel": 1}, "argument 'tabel'")):
        with pytest.raises(BadInputError, match=message):
            perfmodel.sweep(**wrong)
    with pytest.raises(BadInputError, match="leave id_bytes out"):
        perfmodel.project(table_bytes=10e12, id_bytes=4)
    with pytest.raises(BadInputError, match="gpus 9 fits, sharded table by table"):
        perfmodel.project(tables="torchrec-production", gpus=4)


def test_a_frame_of_tables_is_a_table_set(tmp_path: Path) -> None:
    """As its CSV file, in any case of letters, and with the names of TorchRec."""
    frame = pd.DataFrame({"rows": [2_000_000, 5_000], "dim": [64, 32], "pooling": [20, 3]})
    frame.to_csv(tmp_path / "tables.csv", index=False)
    (time_s,) = perfmodel.project(tables=tmp_path / "tables.csv", gpus=8)["time_s"]
    foreign = {"rows": "num_embeddings", "dim": "embedding_dim", "pooling": "pooling_factor"}
    frames = frame.rename(columns=str.upper), frame.rename(columns=foreign)
    for asked in ({"workload": frame}, *({"tables": other} for other in frames)):
        assert perfmodel.project(**asked, gpus=8)["time_s"].tolist() == [time_s], asked


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: perfmodel.collective(), "op is missing"),
        (lambda: perfmodel.check([]), "logs is missing"),
        (lambda: perfmodel.check([None]), "logs is of type NoneType"),
        (lambda: perfmodel.project("tables.csv"), "workload is of type str.*\ngive tables=FILE"),
        (lambda: perfmodel.project(table_size="10TB"), "did you mean table_bytes"),
        (lambda: perfmodel.check(Path("x.log"), gpus=16.5), "gpus 16.5 is not a whole number"),
        (lambda: perfmodel.sweep(table_size=1e12, by="cost", price=2.5), "price 2.5 is of no machine here"),
        (lambda: perfmodel.check("x.log", settings={"gpus_per_nod": 8}), "did you mean gpus_per_node="),
        (lambda: perfmodel.sweep(reserve=0.1, settings={"reserve": 0.2}), "reserve is given twice"),
    ],
)
def test_commands_for_programs_refuse_in_their_words(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        call()


def test_commands_for_programs_leave_the_environment_alone() -> None:
    code = (
        "import os; before = dict(os.environ); import perfmodel; perfmodel.sweep; assert os.environ == before"
    )
    bare = {name: value for name, value in os.environ.items() if name not in SET_BY_MAIN}
    subprocess.run([sys.executable, "-c", code], check=True, env=bare)


def test_forty_questions_are_asked() -> None:
    assert len({str(asked) for asked in QUESTIONS}) == len(QUESTIONS) == 40


def test_all_shardings_are_those_of_the_command(cli: Any) -> None:
    said = json.loads(cli("project", "--table-size", "10TB", "--sharding", "all", "--json").out)
    wanted = {each["sharding"]: each["time_s"] for each in said["shardings"] if each["time_s"]}
    frame = perfmodel.project(table_bytes=[10e12, 20e12], sharding="all")
    first = dict(frame.loc[frame["configuration"] == 0, ["sharding", "time_s"]].to_numpy())
    assert frame.index.is_unique and frame["evidence"].cat.ordered
    assert first == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"sharding": "diagonal"}, "'diagonal' is not known"),
        ({"total": 5}, "'total' is not known"),  # which only a command line divides
        *(({name: 5}, f"{name} is of type int") for name in ("machine", "sharding", "distribution")),
        ({"sharding": "table-wise"}, "allows sharding 'table-wise'"),
        ({"batch": range(1, 2002)}, "at most 2000"),
    ],
    ids=str,
)
def test_what_python_refuses(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        perfmodel.project(table_bytes=10e12, **asked)


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """What the page's lines of Python give: values by their text, and names that they bind."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    found: dict[str, Any] = {}
    for line in ast.parse(block).body:
        if isinstance(line, ast.Expr):
            found[ast.unparse(line).partition("(")[0]] = eval(ast.unparse(line), found)
        else:
            exec(ast.unparse(line), found)
    return found


def test_the_pages_collective_is_that_of_the_command(cli: Any, shown: dict[str, Any]) -> None:
    words = ("--op", "all_to_all", "--size", "1GiB", "--gpus", "128")
    said = json.loads(cli("collective", *words, "--json").out)
    assert perfmodel.collective(op="all_to_all", size=2**30, gpus=128)["time_s"].item() == said["time_s"]
    (row,) = shown["perfmodel.predict_collectives"].to_dict(orient="records")
    assert [row[name] for name in ("time_s", "low_s", "high_s")] == pytest.approx(
        [said[name] for name in ("time_s", "low_s", "high_s")]
    )


def test_the_pages_projections_are_those_of_the_command(cli: Any, shown: dict[str, Any]) -> None:
    words = ("--table-size", "10TB", "--batch", "1024,4096", "--tables", "8")
    said = pd.DataFrame(json.loads(cli("sweep", *words, "--json").out)["rows"])
    frame = shown["perfmodel.project"]
    assert frame["sharding"].tolist() == said["sharding"].tolist()
    assert frame["time_s"].tolist() == pytest.approx(said["time_s"].tolist())


def test_the_pages_plan_is_that_of_the_command(cli: Any, shown: dict[str, Any], tmp_path: Path) -> None:
    file, plan = tmp_path / "tables.csv", shown["plan"]
    shown["tables"].to_csv(file, index=False)
    words = ("--gpus", "16", "--machine", "h200-sxm-ib", "--objective", "throughput", "--effort", "quick")
    said = json.loads(cli("plan", "--model", str(file), *words, "--json").out)
    assert plan.time_s == pytest.approx(said["time_s"])
