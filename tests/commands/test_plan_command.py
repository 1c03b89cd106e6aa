"""``perfmodel plan``: what it prints, what it writes, a page of it, what it refuses."""

from __future__ import annotations

import json
import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from cli_calls import is_an_error
from cli_calls import planned as asked
from dealt_plan import uniform_plan

from perfmodel.engine.tables import PlanTables
from perfmodel.plan.plan_files import plan_record, read_plan
from perfmodel.plan.searching.search import Search
from perfmodel.schema.torchrec_plan import read_torchrec_plan
from perfmodel.units import format_time

TABLES = "rows,dim,pooling,name\n1000000,64,10,big\n1000,64,2,small\n1000000,64,5,other\n"


pytestmark = pytest.mark.usefixtures("once")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text(TABLES, encoding="utf-8")
    return "mine.csv"


def test_the_page_says_time_placements_and_limits(model: str) -> None:
    code, out, err = asked("--model", model, "--gpus", "16", "--set", "max_hbm=300MB")
    assert (code, err) == (0, "")
    assert max(len(line) for line in out.splitlines()) <= 100
    said = ("per forward pass of 1 024 samples", "as fast as row-wise", "Memory", "big", "small")
    assert [
        words for words in (*said, "gather + pool", "Limits", "--out plan.json") if words not in out
    ] == []
    alone = asked("--model", model, "--gpus", "2")[1]
    assert "for any plan of these shardings." in alone


def test_the_document_holds_the_plan_that_the_file_holds(model: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    code, out, err = asked(
        "--model", model, "--gpus", "16", "--set", "max_hbm=300MB", "--json", "--out", str(file)
    )
    document = json.loads(out)
    assert code == 0
    assert f"wrote {file}" in err
    assert (document["schema_version"], document["command"]) == (4, "plan")
    assert document["plan"] == json.loads(file.read_text(encoding="utf-8"))
    assert document["bound_s"] <= document["time_s"]
    assert document["time_s"] == pytest.approx(sum(step["time_s"] for step in document["steps"]))
    assert document["low_s"] <= document["time_s"] <= document["high_s"]
    assert max(document["memory_bytes"]) <= 300e6
    assert {name for group in document["groups"] for name in group["tables"]} == {"big", "small", "other"}
    plan = read_plan(file, PlanTables.load(model))
    assert [p["table"] for p in document["plan"]["placements"]] == list(plan.tables.names)


def document_of(*words: str) -> dict[str, Any]:
    """What ``--json`` prints."""
    code, out, err = asked(*words, "--json")
    assert code == 0, err
    return dict(json.loads(out))


def test_a_name_that_no_torch_module_may_have_is_refused_before_the_search(tmp_path: Path) -> None:
    """TorchRec's tables are modules of a ``ModuleDict``: a point in a name separates modules."""
    (tmp_path / "t.csv").write_text("name,rows,dim,pooling\nusers.old,100,16,1\n")
    asked_for = ("--model", str(tmp_path / "t.csv"), "--gpus", "8", "--out", str(tmp_path / "p.json"))
    code, _, err = asked(*asked_for, "--format", "torchrec")
    assert code == 2 and "'users.old' has a point in its name" in err and "'users_old'" in err
    assert asked(*asked_for)[0] == 0


def test_torchrec_gets_a_plan_of_its_shardings(model: str, tmp_path: Path) -> None:
    """Of skewed ids the best plan sends only bags that are not empty, which TorchRec does not have."""
    file, words = tmp_path / "torchrec.json", ("--model", model, "--gpus", "32", "--set", "max_hbm=300MB")
    words = (*words, "--distribution", "zipf:1.1", "--backend", "nccl")
    free = document_of(*words)
    assert {group["exchange"] for group in free["groups"]} & {"sparse", "ub"}
    code, _, err = asked(*words, "--format", "torchrec", "--out", str(file))
    assert code == 0 and f"wrote {file}" in err
    written = read_torchrec_plan(file)
    assert {entry.table for entry in written.tables} == {"big", "small", "other"}
    assert written.topology.hbm_bytes == 300_000_000
    assert "are neither a file here nor shipped" in " ".join(asked("--plan", str(file))[2].split())
    file.unlink()
    with_limits = document_of(*words, "--format", "torchrec", "--out", str(file))
    assert with_limits["time_s"] > free["time_s"]
    change = next(item for item in with_limits["changes"] if "--plan" in item["option"])
    assert change["option"].endswith("--backend best"), change["option"]  # typed once, or it is refused
    assert document_of(*shlex.split(change["option"]))["time_s"] == pytest.approx(change["after_s"])


@pytest.mark.parametrize(
    ("big", "words", "message"),
    [
        ({"exchange": "rb"}, ("--gpus", "16"), "the plan is for 128 GPUs"),
        (
            {"exchange": "dp", "ranks": []},
            ("--set", "max_hbm=200MB"),
            "the plan needs 512 MB on rank 0, 312 MB more",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_refused(
    big: dict[str, Any], words: tuple[str, ...], message: str, model: str, tmp_path: Path
) -> None:
    """A plan file for 128 GPUs: ``big`` so, the others copied."""
    tables, file = PlanTables.load(model), tmp_path / "given.json"
    record = plan_record(uniform_plan(tables, "data-parallel", 128, 8))
    record["placements"][0].update({"ranks": [0], "sharding": "", **big})
    file.write_text(json.dumps(record), encoding="utf-8")
    code, out, err = asked("--model", model, "--plan", str(file), *words)
    assert (code, out) == (2, "") and message in " ".join(err.split())


MANY = "name,rows,dim,pooling\n" + "".join(f"user_{at},{1000 + at},16,1\n" for at in range(80))
TWICE = "name,rows,dim,pooling\na,1000,32,4\na,2000,32,4\n"


@pytest.mark.parametrize(
    ("text", "words", "parts"),
    [
        (TWICE, ("project",), ("two tables of the name 'a'",)),
        (TWICE, ("plan",), ("two tables of the name 'a'",)),
        (
            MANY,
            ("plan", "--only", "user42=row-wise"),
            ("'user42' is not known", "user_42? known: user_0, user_1, user_10, and 77 more."),
        ),
    ],
)
def test_messages_about_files_name_what_is_wrong(
    cli: Any, tmp_path: Path, text: str, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    (tmp_path / "t.csv").write_text(text)
    done = cli(*words, "--model", str(tmp_path / "t.csv"), "--gpus", "4")
    is_an_error(done, 2, *parts)
    assert "user_7," not in done.err


FITS = ("--gpus", "16", "--set", "max_hbm=300MB", "--effort", "quick")


def test_the_page_has_the_numbers_of_the_document(model: str) -> None:
    code, out, err = asked("--model", model, *FITS, "--out", "plan.html", "--json")
    told, page = json.loads(out), Path("plan.html").read_text("utf-8")
    assert (code, err) == (0, "wrote plan.html\n")
    assert format_time(told["time_s"]) in page


def test_a_given_plan_has_a_page_without_a_search(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked("--model", model, *FITS, "--out", "plan.json")[0] == 0

    monkeypatch.setattr(Search, "run", None)
    words = ("--model", model, "--plan", "plan.json", "--set", "max_hbm=300MB", "--dense", "dlrm-dcnv2")
    code, out, _ = asked(*words, "--out", "given.html")
    assert code == 0 and "per forward pass" in out and Path("given.html").is_file()


def test_the_command_of_the_page_makes_it_again(model: str) -> None:
    assert asked("--model", model, *FITS, "--out", "plan.json")[0] == 0
    words = ("--model", model, "--plan", "plan.json", "--set", "max_hbm=300MB", "--json")
    assert asked(*words, "--out", "given.html")[0] == 0
    first = Path("given.html").read_text("utf-8")
    line = shlex.split(unescape(re.findall(r"<pre><code>(.*?)</code></pre>", first, re.S)[-1]))
    assert line[:2] == ["perfmodel", "plan"] and "--json" not in line
    Path("given.html").unlink()
    assert asked(*line[2:])[0] == 0
    assert Path("given.html").read_text("utf-8") == first


def test_a_file_is_not_overwritten_and_nothing_is_searched(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Search, "run", None)
    Path("plan.html").write_text("mine", encoding="utf-8")
    code, out, err = asked("--model", model, *FITS, "--out", "plan.html")
    assert (code, out) == (2, "") and "exists already" in err
    assert Path("plan.html").read_text("utf-8") == "mine"


def test_ctrl_c_writes_the_page_of_the_best_so_far(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(search: Search, *_: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "_anneal", stop)
    code, out, _ = asked("--model", model, *FITS[:-1], "thorough", "--out", "plan.html")
    assert code == 130 and "stopped by Ctrl-C after" in " ".join(out.split())
    assert "Ctrl-C ended this search" in Path("plan.html").read_text()
