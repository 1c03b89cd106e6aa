"""``perfmodel plan``: what it prints, what it writes, what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli_calls import planned as asked

from perfmodel.plan import PlanTables, plan_record, read_plan, uniform_plan
from perfmodel.plan.searching.search import Search
from perfmodel.schema.torchrec_plan import read_torchrec_plan

TABLES = "rows,dim,pooling,name\n1000000,64,10,big\n1000,64,2,small\n1000000,64,5,other\n"


pytestmark = pytest.mark.usefixtures("once")


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "mine.csv"
    path.write_text(TABLES, encoding="utf-8")
    return str(path)


def test_the_page_says_time_placements_and_limits(model: str) -> None:
    code, out, err = asked("--model", model, "--gpus", "16", "--set", "max_hbm=300MB")
    assert (code, err) == (0, "")
    assert max(len(line) for line in out.splitlines()) <= 100
    for words in (
        *(
            "per forward pass of 1 024 samples",
            "as fast as row-wise",
            "Memory",
            "big",
        ),
        *("small", "gather + pool", "Limits", "--out plan.json"),
    ):
        assert words in out, words
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
    assert (document["schema_version"], document["command"]) == (3, "plan")
    assert document["plan"] == json.loads(file.read_text(encoding="utf-8"))
    assert (
        document["bound_s"]
        <= document["time_s"]
        == pytest.approx(sum(s["time_s"] for s in document["steps"]))
    )
    assert document["low_s"] <= document["time_s"] <= document["high_s"]
    assert max(document["memory_bytes"]) <= 300e6
    assert {name for group in document["groups"] for name in group["tables"]} == {"big", "small", "other"}
    plan = read_plan(file, PlanTables.load(model))
    assert [p["table"] for p in document["plan"]["placements"]] == list(plan.tables.names)


def test_ctrl_c_prints_the_best_so_far(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(search: Search, *_: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "_anneal", stop)
    code, out, err = asked("--model", model, "--gpus", "16", "--set", "max_hbm=300MB", "--effort", "thorough")
    assert code == 130
    assert "stopped by Ctrl-C after" in " ".join(out.split())
    assert "stopped." in err


def test_without_gpus_the_error_says_how_to_find_the_fewest(cli: Any) -> None:
    """The line runs, and says a number of GPUs."""
    refused = cli("plan", "--model", "criteo-1tb")
    assert refused.code == 2
    (line,) = re.findall(r"^ +perfmodel (project .*)$", refused.err, flags=re.M)
    done = cli(*line.split(), "--json")
    assert done.code == 0 and json.loads(done.out)["gpus"] >= 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gpus", "8"), "which tables?"),
        (("--model", "mlperf-dlrm-dcnv2"), "the number of GPUs is missing; the tables have 105 GB"),
        (("--model", "mlperf", "--gpus", "8"), "table set 'mlperf' is not known"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "0"), "--gpus"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--batch", "-1"), "--batch"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--objective", "cost"), "--objective 'cost'"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--set", "optimizer=lion"), "optimizer 'lion'"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--set", "payload=fp12"), "payload 'fp12'"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--set", "max_hbm=90GB"), "more than the 84.9 GB"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--distribution", "zipf:-1"), "exponent of zipf -1"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--out", "plan.csv"), "a plan is a .json file"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--format", "torchrec"), "needs a file"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--format", "xml"), "--format 'xml'"),
        (
            ("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--set", "reserve=1"),
            "--set reserve 1 leaves no memory",
        ),
        (("--model", "mlperf-dlrm-dcnv2", "--plan", "missing.json"), "missing.json"),
        (
            ("--model", "embark-t7", "--gpus", "8", "--set", "reserve=0"),
            "need 1.78 TB, 1.10 TB more than the 680 GB of 8 GPUs",
        ),
    ],
)
def test_bad_input_is_refused_in_words(words: tuple[str, ...], message: str) -> None:
    code, out, err = asked(*words)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


def document_of(*words: str) -> dict[str, Any]:
    """What ``--json`` prints."""
    code, out, err = asked(*words, "--json")
    assert code == 0, err
    return dict(json.loads(out))


def test_15_percent_are_kept_unless_something_else_is_said(model: str) -> None:
    """CUDA reports 84.94 GB of an H100."""
    words = ("--model", model, "--gpus", "8")
    assert document_of(*words)["memory_limit_bytes"] == pytest.approx(0.85 * 84.94e9)
    assert "12.7 GB of each GPU kept free" in " ".join(asked(*words)[1].split())
    capped = " ".join(asked(*words, "--set", "max_hbm=75GB")[1].split())
    assert "9.94 GB of each GPU kept free" in capped
    assert "nothing of each GPU kept free" in " ".join(asked(*words, "--set", "reserve=0")[1].split())


def test_reserve_and_max_hbm_together_are_the_smaller(model: str) -> None:
    """CUDA reports 84.94 GB of an H100: 25 % kept free leaves 63.7 GB."""
    words = ("--model", model, "--gpus", "8", "--set", "reserve=25%")
    assert document_of(*words)["memory_limit_bytes"] == 0.75 * 84.94e9
    assert "21.2 GB of each GPU kept free" in " ".join(asked(*words, "--set", "max_hbm=70GB")[1].split())
    assert "60.9 GB of each GPU kept free" in " ".join(asked(*words, "--set", "max_hbm=24GB")[1].split())


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
    words = (*words, "--distribution", "zipf:1.1")
    free = document_of(*words)
    assert not free["restricted"]
    assert {group["exchange"] for group in free["groups"]} & {"sparse", "ub"}
    code, _, err = asked(*words, "--format", "torchrec", "--out", str(file))
    assert code == 0 and f"wrote {file}" in err
    written = read_torchrec_plan(file)
    assert {entry.table for entry in written.tables} == {"big", "small", "other"}
    assert written.topology.hbm_bytes == 300_000_000
    file.unlink()
    with_limits = document_of(*words, "--format", "torchrec", "--out", str(file))
    assert with_limits["restricted"]
    assert with_limits["time_s"] > free["time_s"]


def test_a_plan_that_was_found_costs_the_same_when_it_is_given(model: str, tmp_path: Path) -> None:
    file, words = tmp_path / "plan.json", ("--model", model, "--set", "max_hbm=300MB")
    found = document_of(*words, "--gpus", "16", "--out", str(file))
    given = document_of(*words, "--plan", str(file))
    for name in ("time_s", "low_s", "high_s", "memory_bytes", "steps", "baselines", "plan", "gpus"):
        assert given[name] == found[name], name
    assert (given["stopped"], given["bound_s"], given["gap"]) == ("given", None, None)
    code, out, err = asked(*words, "--plan", str(file))
    assert (code, err) == (0, "")
    assert "--out plan.json" not in out


def test_a_plan_of_any_parts_is_costed(model: str, tmp_path: Path) -> None:
    """Three row parts of 7 column parts are nothing that is searched; copies are better, and it says so."""
    file = given(tmp_path, model, row_parts=3, col_parts=7, ranks=list(range(21)))
    answer = document_of("--model", model, "--plan", file)
    big = next(group for group in answer["groups"] if group["tables"] == ["big"])
    assert (big["sharding"], big["row_parts"], big["col_parts"]) == ("3d", 3, 7)
    assert big["next_best"]["more_s"] < 0


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        ({"col_parts": 65, "ranks": list(range(65))}, (), "65 column parts of 64 columns"),
        ({}, ("--gpus", "16"), "the plan is for 128 GPUs"),
        (
            {"sharding": "grid"},
            (),
            "'big' is called grid, but its exchange, parts and ranks are table-wise",
        ),
        ({"table": "small"}, (), "does not place table 'big'"),
        ({"exchange": "dp"}, ("--set", "max_hbm=200MB"), "the plan needs 512 MB on rank 0, 312 MB more"),
        (
            {},
            ("--model", "criteo-kaggle"),
            "for 'mine' as it was, not for criteo-kaggle",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_refused(
    change: dict[str, Any], words: tuple[str, ...], message: str, model: str, tmp_path: Path
) -> None:
    file = given(tmp_path, model, **{"exchange": "rb", "ranks": [0], **change})
    code, out, err = asked("--model", model, "--plan", file, *words)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


def test_a_file_for_torchrec_costs_what_it_was_written_at(model: str, tmp_path: Path) -> None:
    """And a plan of two kinds of exchange costs more in TorchRec than where they share their exchanges."""
    file, own, again = (tmp_path / name for name in ("torchrec.json", "own.json", "again.json"))
    about = ("--model", model, "--gpus", "8")
    searched = [*about, "--format", "torchrec", "--out", str(file), "--json"]
    code, out, _ = asked(*searched)
    assert code == 0
    code, read, _ = asked("--model", model, "--plan", str(file), "--json")
    assert code == 0
    wrote, found = json.loads(out), json.loads(read)
    assert found["time_s"] == pytest.approx(wrote["time_s"], rel=1e-9)
    plan = found["plan"]
    kinds = (("rb", 1, 1, [3]), ("rs", 8, 1, list(range(8))))
    for at, entry in enumerate(plan["placements"]):
        kind, r, c, ranks = kinds[at % 2]
        entry |= {"sharding": "", "exchange": kind, "row_parts": r, "col_parts": c, "ranks": ranks}
    own.write_text(json.dumps(plan))
    times = []
    for more in ((), ("--format", "torchrec", "--out", str(again))):
        code, out, _ = asked("--model", model, "--plan", str(own), *more, "--json")
        assert code == 0
        times.append(json.loads(out)["time_s"])
    assert times[1] > times[0] * 1.01
    code, out, _ = asked("--model", model, "--plan", str(again), "--json")
    assert json.loads(out)["time_s"] == pytest.approx(times[1], rel=1e-9)


@pytest.mark.parametrize(("option", "most"), [("--batch", 2**30), ("--gpus", 2**18)])
def test_what_is_more_than_the_model_describes_is_refused(option: str, most: int, model: str) -> None:
    code, out, err = asked("--model", model, "--gpus", "8", option, str(most + 1))
    assert (code, out) == (2, "")
    assert f"{option} {most + 1} is more than this model covers. at most {most}." in " ".join(err.split())


def test_gpus_need_not_fill_the_last_domain(model: str) -> None:
    """12 GPUs are a node and a half: planned as they are projected, without reductions inside domains."""
    answer = document_of("--model", model, "--gpus", "12", "--set", "max_hbm=200MB")
    assert answer["gpus"] == 12
    assert {group["exchange"] for group in answer["groups"]} - {"dp"}
    assert "two_level" not in {group["exchange"] for group in answer["groups"]}
    assert answer["bound_s"] <= answer["time_s"] < min(each["time_s"] or 1 for each in answer["baselines"])


def given(folder: Path, model: str, **big: Any) -> str:
    """A plan file for 128 GPUs: ``big`` so, the others copied."""
    tables, file = PlanTables.load(model), folder / "given.json"
    record = plan_record(uniform_plan(tables, "data-parallel", 128, 8))
    record["placements"][0].update({"exchange": "rb", "sharding": "", **big})
    if big.get("exchange") == "dp":
        record["placements"][0]["ranks"] = []
    file.write_text(json.dumps(record), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(
    ("out", "name"),
    [("plan.csv", "plan.csv.json"), (".", "plan.json"), ("/dev/null", "plan.json"), ("-", "plan.json")],
)
def test_a_name_that_is_no_json_file_has_one_that_is(model: str, out: str, name: str) -> None:
    code, _, err = asked("--model", model, "--gpus", "4", "--out", out)
    assert code == 2 and err.split("\n")[1].strip() == f"--out {name}", err
