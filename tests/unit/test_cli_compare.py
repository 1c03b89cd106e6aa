"""``perfmodel compare`` on recorded traces of TorchRec over gloo: all is found, and the slow rank named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import called, is_an_error

HERE = Path(__file__).parent / "traces"
MODEL = "name,rows,dim,pooling\nt0,20000,32,8\nt1,20000,32,8\n"
ROW_WISE = """module: bags

param | sharding type | compute kernel |  ranks
----- | ------------- | -------------- | -------
t0    | row_wise      | fused          | [0, 1]
t1    | row_wise      | fused          | [0, 1]

param | shard offsets | shard sizes  |   placement
----- | ------------- | ------------ | -----------
t0    | [0, 0]        | [10000, 32]  | rank:0/cpu
t0    | [10000, 0]    | [10000, 32]  | rank:1/cpu
t1    | [0, 0]        | [10000, 32]  | rank:0/cpu
t1    | [10000, 0]    | [10000, 32]  | rank:1/cpu
"""
"""As TorchRec 1.8 prints a plan."""


def two_level() -> dict[str, Any]:
    """As its ``_serialize()`` says one: a table in each node of two ranks."""
    tables = {}
    for at in (0, 1):
        shards = [
            {
                "shard_offsets": [10000 * i, 0],
                "shard_sizes": [10000, 32],
                "placement": f"rank:{2 * at + i}/cpu",
            }
            for i in (0, 1)
        ]
        ranks = [2 * at, 2 * at + 1]
        tables[f"t{at}"] = {
            "sharding_type": "table_row_wise", "compute_kernel": "fused", "ranks": ranks, "shards": shards,
        }  # fmt: skip
    return {"plan": {"": tables}}


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    """The row-wise traces of two ranks with their model and plan."""
    (tmp_path / "tables.csv").write_text(MODEL)
    (tmp_path / "plan.txt").write_text(ROW_WISE)
    traces = [str(path) for path in sorted(HERE.glob("row_wise_2_rank*"))]
    return [
        "compare", *traces, "--model", str(tmp_path / "tables.csv"), "--batch", "256",
        "--torchrec-plan", str(tmp_path / "plan.txt"),
    ]  # fmt: skip


def test_all_exchanges_are_found_and_the_slow_rank_is_named(asked: list[str], tmp_path: Path) -> None:
    done = called(*asked)
    assert done.code == 6
    assert "the traces are of gloo, and the prediction is for nccl" in " ".join(done.err.split())
    assert "outside its band" in done.out and "rank 1 comes late" in done.out
    assert "Not in the plan: all-reduce of 8.25 KiB over 2 ranks (1 in a step" in done.out
    assert "no step of the plan is an all-reduce" in " ".join(done.out.split())
    assert done.err.splitlines()[-1].strip().startswith("rank 1 comes late")
    record = json.loads(called(*asked, "--json").out)
    assert record["training"] and not record["missing"] and record["iterations"] == 2
    bytes_of = {step["name"]: (step["planned_bytes"], step["seen_bytes"]) for step in record["steps"]}
    assert bytes_of.pop("all_to_all_ids_row_wise") == (32768, pytest.approx(32768, rel=0.03))
    links = {name: sizes for name, sizes in bytes_of.items() if sizes != (0, 0)}
    assert set(links) == {
        "all_to_all_splits_row_wise", "all_to_all_lengths_row_wise", "reduce_scatter_bags",
        "all_gather_gradients",
    }  # fmt: skip
    assert all(planned == seen for planned, seen in links.values())
    assert record["reasons"][0]["cause"] == "straggler" and record["wait_s"] > 5e-3


def test_exchanges_inside_nodes_and_across_them(asked: list[str], tmp_path: Path) -> None:
    """Four ranks in nodes of two: reduce-scatter inside, all-to-all across, and both back."""
    (tmp_path / "plan.json").write_text(json.dumps(two_level()))
    words = [str(path) for path in sorted(HERE.glob("table_row_wise_4_rank*"))]
    words += ["--model", str(tmp_path / "tables.csv"), "--batch", "256", "--gpus-per-node", "2"]
    done = called("compare", *words, "--torchrec-plan", str(tmp_path / "plan.json"), "--json")
    record = json.loads(done.out)
    assert done.code == 6 and not record["missing"]
    assert [what["why"] for what in record["not_of_the_plan"]] == ["no step of the plan is an all-reduce"]
    sizes = {step["name"]: step["seen_bytes"] for step in record["steps"]}
    assert sizes["reduce_scatter_inside"] == sizes["all_gather_inside"] == 131072
    assert sizes["all_to_all_across"] == sizes["all_to_all_gradients_across"] == 65536
    assert record["reasons"][0]["words"].startswith("rank 2 comes late")


def test_the_steps_alone_can_be_judged_and_a_pass_without_training(asked: list[str]) -> None:
    record = json.loads(called(*asked, "--judge", "steps", "--json").out)
    assert record["judged"] == "steps"
    assert all(each["cause"] not in ("straggler", "uneven arrival") for each in record["reasons"])
    forward = json.loads(called(*asked, "--objective", "latency", "--json").out)
    assert not forward["training"]
    assert "all_gather" in {what["collective"] for what in forward["not_of_the_plan"]}


def test_the_page_has_a_timeline_above_the_predicted_one(asked: list[str], tmp_path: Path) -> None:
    page = tmp_path / "compare.html"
    done = called(*asked, "--report", str(page))
    assert done.code == 6 and f"wrote {page}" in done.err
    text = page.read_text()
    assert "measured: exchanges" in text and "predicted: exchanges" in text
    assert "rank 1 comes late" in text.lower() or "Rank 1 comes late" in text
    assert called(*asked, "--report", str(page)).code == 2
    assert called(*asked, "--report", str(page), "--force").code == 6


def test_a_plan_file_of_ours_is_taken_with_its_batch(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    words = ("--model", str(tmp_path / "tables.csv"), "--gpus", "2", "--batch", "256", "--effort", "quick")
    rows, whole = ("--only", "t0=row-wise,reduced"), ("--only", "t1=row-wise,reduced")
    plan = tmp_path / "own.json"
    assert called("plan", *words, *rows, *whole, "--out", str(plan)).code == 0
    traces = asked[1:3]
    done = called("compare", *traces, *words[:2], "--plan", str(plan), "--json")
    assert "as TorchRec runs it" in " ".join(done.err.split())
    *lines, verdict = done.err.replace(str(plan), "plan.json").splitlines()
    assert max(map(len, lines)) <= 60 and json.loads(verdict)["error"]["exit"] == 6
    record = json.loads(done.out)
    assert {step["name"] for step in record["steps"]} >= {"reduce_scatter_bags", "all_gather_gradients"}
    assert not record["missing"] and len(record["not_of_the_plan"]) == 1


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (("--judge", "all"), ("--judge",)),
        (("--skip", "2"), ("--skip 2 leaves no step of the 2",)),
        (("--plan", "x.json"), ("--plan and --torchrec-plan cannot be combined",)),
        (("--batch", "0"), ("--batch",)),
    ],
)
def test_bad_options_are_refused(asked: list[str], change: tuple[str, ...], parts: tuple[str, ...]) -> None:
    is_an_error(called(*asked, *change), 2, *parts)


def test_what_must_be_given(asked: list[str], tmp_path: Path) -> None:
    trace, model = asked[1:3], str(tmp_path / "tables.csv")
    is_an_error(called("compare", *trace), 2, "which tables?")
    is_an_error(called("compare", *trace, "--model", model), 2, "which plan ran?")
    no_batch = [word for word in asked if word not in ("--batch", "256")]
    is_an_error(called(*no_batch), 2, "how many samples has a rank?")
    is_an_error(called("compare", str(tmp_path / "none.json"), *asked[3:]), 2, "does not exist")


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("row_wise      | fused          | [0, 1]\n\n", "diagonal | fused | [0, 1]\n\n", "'diagonal'"),
        ("row_wise      | fused          | [0, 1]\n\n", "row_wise | fused_uvm | [0, 1]\n\n", "'fused_uvm'"),
        ("[10000, 32]  | rank:1/cpu\nt1", "[9000, 32]  | rank:1/cpu\nt1", "shards of 608000 elements"),
        ("rank:1/cpu\nt1", "rank:7/cpu\nt1", "on rank 7, in a job of 2"),
        ("rank:1/cpu\nt1", "cpu\nt1", "names no rank"),
        ("[10000, 0]", "10000", "is not a list of numbers"),
        ("t1    | row_wise", "t2    | row_wise", "does not place table 't1'"),
        (ROW_WISE, "nothing\n", "has no table"),
        (ROW_WISE, "{}", "has no plan in it"),
        (ROW_WISE, '{"plan": ', "is not valid JSON"),
        (ROW_WISE, '{"plan": {"": {"t0": 3}}}', "what is said of table 't0' is not read"),
    ],
)
def test_other_plans_are_refused(
    asked: list[str], tmp_path: Path, before: str, after: str, says: str
) -> None:
    text = ROW_WISE.replace(before, after)
    (tmp_path / "plan.txt").write_text(text)
    assert text != ROW_WISE
    is_an_error(called(*asked), 2, says)


def test_traces_of_another_job_are_refused(asked: list[str], tmp_path: Path) -> None:
    four = [str(path) for path in sorted(HERE.glob("table_row_wise_4_rank*"))]
    is_an_error(called("compare", *four, *asked[3:]), 2, "table 't0'")


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The traces of four ranks in nodes of two, two steps of the profiler, with their model and plan."""
    folder = tmp_path_factory.mktemp("four")
    (folder / "tables.csv").write_text(MODEL)
    (folder / "plan.json").write_text(json.dumps(two_level()))
    traces = [str(path) for path in sorted(HERE.glob("table_row_wise_4_rank*"))]
    return [
        "compare", *traces, "--model", str(folder / "tables.csv"), "--batch", "256", "--gpus-per-node", "2",
        "--torchrec-plan", str(folder / "plan.json"),
    ]  # fmt: skip


@pytest.mark.parametrize("judged", ["whole", "steps"])
def test_reasons_come_by_what_each_accounts_for(four: list[str], judged: str) -> None:
    done = called(*four, "--judge", judged)
    record = json.loads(called(*four, "--judge", judged, "--json").out)
    reasons, excess = record["reasons"], record[f"{judged}_s"] - record["predicted_s"]
    seconds = [abs(each["explains_s"]) for each in reasons]
    assert seconds == sorted(seconds, reverse=True) and max(seconds) > excess / 3
    assert sum(seconds) <= excess * 1.01
    last = " ".join(done.err.split("of the prediction.")[1].split())
    assert last == " ".join(reasons[0]["words"].split())


def test_a_late_rank_accounts_for_the_waits_that_it_causes(four: list[str]) -> None:
    record = json.loads(called(*four, "--json").out)
    late = record["reasons"][0]
    assert 0.6 * record["wait_s"] < late["explains_s"] < 0.9 * record["wait_s"]  # others are late too
    assert "72.9 % of its waiting" in late["words"]


def test_the_parts_of_the_pass_add_up(four: list[str]) -> None:
    record = json.loads(called(*four, "--json").out)
    parts = ("own_s", "wait_s", "idle_s", "other_kernels_s")
    assert sum(record[name] for name in parts) == pytest.approx(record["whole_s"])
    text = " ".join(called(*four).out.split())
    assert "in the steps of the mean rank" in text
    assert "not in the plan and run between its steps" in text


def test_the_help_gives_the_defaults_that_are_taken(four: list[str]) -> None:
    text = " ".join(called("compare", "--help").out.split())
    assert "(default: 1 of three or more, else 0)" in text and "(default 1024)" not in text
    assert "(default: those of --plan; required with --torchrec-plan)" in text
    for skip, left_out in (((), 0), (("--skip", "1"), 1)):  # of two steps
        record = json.loads(called(*four, *skip, "--json").out)
        assert (record["iterations_left_out"], record["iterations"]) == (left_out, 2 - left_out)


def test_the_steps_of_a_narrow_table_break_between_words(
    four: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = called(*four).out
    assert max(map(len, text.splitlines())) <= 60
    for whole in ("all-to-all", "bucketize", "(gradients", "reduce-", "lookups", "Left out at 60 columns"):
        assert f" {whole}" in text
