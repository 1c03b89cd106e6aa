"""The answers of commands: text that fits a page, one JSON document, one screen of error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import WIDTH, is_an_error

from perfmodel.answer import project_one
from perfmodel.cli import validate as cli_validate
from perfmodel.schema.calibration import load_calibration

# --- project, collective, explain, sweep ------------------------------------------------------------------


def test_project_answers_first_and_shows_how_it_came_about(cli: Any) -> None:
    outcome = cli("project", "--table-size", "10TB", "--sharding", "row-wise", "-v")
    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert "10 TB on 144 GPUs (18 nodes of h100-sxm-ib): 1.13 ms a batch, 181× one GPU (" in lines[0]
    assert "together 131 M samples/s, 0.795× that one GPU" in lines[1]
    assert "10 TB ÷ 72.2 GB = 138.5  →  144" in outcome.out and "memory   69.5 GB of 72.2 GB" in outcome.out
    assert "What would help" in outcome.out
    assert "perfmodel project --explain" in outcome.out
    assert max(len(line) for line in lines) <= WIDTH


def test_project_json_is_one_document_and_adds_up(cli: Any) -> None:
    answer = json.loads(cli("project", "--table-size", "10TB", "--json").out)
    assert (answer["schema_version"], answer["command"], answer["gpus"]) == (3, "project", 144)
    assert sum(step["time_s"] for step in answer["steps"]) == pytest.approx(answer["time_s"])
    assert answer["slowdown"] == pytest.approx(answer["time_s"] / answer["baseline_time_s"])
    assert answer["changes"] and answer["next_experiment"]["share"] > 0


def test_tables_that_fit_one_gpu_are_not_slower(cli: Any) -> None:
    outcome = cli("project", "--table-size", "10GB")
    assert outcome.out.startswith("10 GB on 1 GPU of h100-sxm-ib, so nothing is sharded: 6.23 µs a batch")


def test_what_ifs_change_the_numbers_and_show_as_assumed(cli: Any) -> None:
    plain_answer = json.loads(cli("project", "--table-size", "10TB", "--json").out)
    words = ("project", "--table-size", "10TB", "--set", "nic_bytes_per_s=200GB/s")
    faster = json.loads(cli(*words, "--json").out)
    assert faster["slowdown"] < plain_answer["slowdown"]
    assert faster["evidence"] == "assumed"
    assert "assumed: nic_bytes_per_s = 200 GB/s" in cli(*words).out


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--table-size", "10Tb"), ("terabits or terabytes?", "write 10TB (10·10¹² bytes)")),
        (("--table-size", "-1TB"), ("--table-size -1TB", "negative")),
        (("--table-size", "0"), ("zero",)),
        (("--table-size", "lots"), ("--table-size lots",)),
        (("--gpus", "0"), ("--gpus 0", "zero")),
        (("--gpus", "2.5"), ("whole number",)),
        (("--table-size", "1TB", "--machine", "h100"), ("h100-sxm-ib",)),
        (("--table-size", "1TB", "--backend", "oneccl"), ("oneccl", "nccl")),
        (("--table-size", "1TB", "--set", "clock=wall"), ("wall", "stream")),
        (("--table-size", "1TB", "--set", "dtype=fp12"), ("fp12", "fp16")),
        (("--table-size", "1TB", "--set", "id_dtype=int9"), ("int9", "int64")),
        (("--table-size", "1TB", "--set", "reserve=100%"), ("reserve 100% leaves",)),
        (("--table-size", "1TB", "--tables", "100001"), ("--tables 100001 is more", "at most 100000")),
        (("--table-size", "1TB", "--pooling", "-2"), ("--pooling -2 is negative", "for example 1 or 32.5")),
        (("--table-size", "1TB", "--pooling", "85%"), ("--pooling 85% is not a number",)),
        (("--table-size", "1TB", "--set", "nic=1"), ("nic",)),
        (("--table-size", "1TB", "--set", "nonsense"), ("key=value",)),
        (("--table-size", "1TB", "--set", "nic_bytes_per_s=400Gbps"), ("ambiguous",)),
        (("--table-size", "1TB", "--model", "criteo-1tb"), ("--model and --table-size",)),
        (("--table-size", "1KB", "--gpus", "128"), ("row",)),
        (("--table-size", "1TB", "--calibration", "missing.json"), ("missing.json",)),
        ((), ("which tables?", "--table-size 10TB")),
    ],
)
def test_bad_input_to_project_is_one_screen_and_exit_2(
    cli: Any, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    is_an_error(cli("project", *words), 2, *parts)


def test_collective_has_the_public_names(cli: Any) -> None:
    words = (
        "collective",
        "--op",
        "all_to_all",
        "--size",
        "1GiB",
        "--gpus",
        "128",
        "--machine",
        "h100-sxm-ib",
    )
    answer = json.loads(cli(*words, "--json").out)
    names = ("collective", "payload_bytes", "gpus", "gpus_per_node", "time_s", "low_s", "high_s",
             "algbw_bytes_per_s", "busbw_bytes_per_s", "evidence", "clock")  # fmt: skip
    assert [name for name in names if name not in answer] == []
    assert (answer["payload_bytes"], answer["gpus_per_node"]) == (2**30, 8)
    assert answer["low_s"] < answer["time_s"] < answer["high_s"]
    assert answer["algbw_bytes_per_s"] == pytest.approx(2**30 / answer["time_s"])
    assert answer["busbw_bytes_per_s"] == pytest.approx(answer["algbw_bytes_per_s"] * 127 / 128)
    assert answer["results"] == [{name: answer[name] for name in answer["results"][0]}]


def test_one_gpu_has_no_evidence(cli: Any) -> None:
    """Nothing is sent, so nothing was measured."""
    words = ("collective", "--op", "all_to_all", "--size", "1MiB", "--gpus", "1,8")
    one, eight = json.loads(cli(*words, "--json").out)["results"]
    assert (one["time_s"], one["evidence"], eight["evidence"]) == (0.0, None, "measured")
    assert [row.split()[-1] for row in cli(*words).out.splitlines()[1:3]] == ["-", "measured"]


def test_the_smallest_size_is_that_of_all_that_was_asked(cli: Any) -> None:
    refused = cli("collective", "--op", "all", "--size", "8,64", "--gpus", "8,16,64")
    assert refused.code == 2 and "the smallest size here is 1024 B" in refused.err
    assert cli("collective", "--op", "all", "--size", "1024", "--gpus", "8,16,64").code == 0


def test_a_collective_of_the_faster_library_is_a_step_of_project(cli: Any) -> None:
    """Each exchange of ``project --backend best``, asked by itself: the same library and time."""
    best = ("--machine", "h100-sxm-ib", "--backend", "best")
    typed = ("project", "--table-size", "10TB", "--sharding", "ub", *best, "--json")
    answer, libraries = json.loads(cli(*typed).out), set()
    for step in answer["steps"]:
        if not step["collective"]:
            continue
        words = ("--op", step["collective"], "--size", f"{step['payload_bytes']:.0f}", *best)
        alone = json.loads(cli("collective", *words, "--gpus", f"{answer['gpus']}", "--json").out)
        assert (alone["library"], alone["time_s"]) == (step["library"], pytest.approx(step["time_s"]))
        libraries.add(alone["library"])
    assert "nvshmem" in libraries  # which is not the default


@pytest.mark.parametrize("gpus", ["8", "128"])
def test_the_faster_library_is_named_in_each_row(cli: Any, gpus: str) -> None:
    """The opponents: each library alone. NVSHMEM has no broadcast here, and NCCL's counts."""
    words = ("collective", "--op", "all", "--size", "4KiB,64MiB", "--gpus", gpus, "--machine", "h200-sxm-ib")
    alone = {}
    for library in ("nccl", "nvshmem"):
        for row in json.loads(cli(*words, "--backend", library, "--json").out)["results"]:
            alone[row["collective"], row["payload_bytes"], library] = row["time_s"]
    rows = json.loads(cli(*words, "--backend", "best", "--json").out)["results"]
    assert len(rows) == 10
    for row in rows:
        cell = row["collective"], row["payload_bytes"]
        times = {each: alone[*cell, each] for each in ("nccl", "nvshmem") if (*cell, each) in alone}
        assert (row["library"], row["time_s"]) == min(times.items(), key=lambda pair: pair[1])
    screen = cli(*words, "--backend", "best").out
    assert max(len(line) for line in screen.splitlines()) <= WIDTH and " nccl\n" in screen


def test_comparisons_stay_in_what_both_measured(cli: Any) -> None:
    pair = ("h200-sxm-ib/nccl-2.30.4-eager", "h200-sxm-ib/nccl-2.29.2-stream")
    for row in json.loads(cli("show", pair[0], "--compare", pair[1], "--json").out)["curves"]:
        mine = [load_calibration(name).curve(row["collective"], row["gpus"], 8) for name in pair]
        for size in (8 * 2**10, 2**20, 2**28):
            there = [c is not None and c.anchor_bytes[0] <= size <= c.anchor_bytes[-1] for c in mine]
            assert [time is not None for time in row[f"time_{size}_bytes_s"]] == there
            assert (row[f"ratio_{size}_bytes"] is not None) == all(there)
    assert " - " in cli("show", pair[0], "--compare", pair[1]).out


def test_collective_takes_lists_and_ranges(cli: Any) -> None:
    words = ("collective", "--op", "all", "--size", "1MiB..4MiB", "--gpus", "4,8")
    answer = json.loads(cli(*words, "--json").out)
    assert len(answer["results"]) == 5 * 3 * 2
    assert "time_s" not in answer
    assert max(len(line) for line in cli(*words).out.splitlines()) <= WIDTH


def test_explain_works_in_a_measured_cell_and_with_the_other_library(cli: Any) -> None:
    row_wise = ("project", "--gpus", "16", "--sharding", "row-wise", "--explain")
    measured = cli(*row_wise, "reduce-scatter", "--gpus", "8").out
    assert "measured" in measured and "t_i" in measured
    best = cli(*row_wise, "all-to-all-ids", "--machine", "h200-sxm-ib", "--backend", "best")
    assert best.code == 0, best.err
    is_an_error(cli(*row_wise, "teleport"), 2, "teleport", "gather-pool")


@pytest.mark.parametrize(("grid", "points"), [("paper-1", 192), ("paper-2", 168)])
def test_the_papers_grids(cli: Any, grid: str, points: int, tmp_path: Path) -> None:
    import pandas as pd

    out = tmp_path / "grid.csv"
    outcome = cli("sweep", "--grid", grid, "--sharding", "row-wise", "--out", str(out))
    assert (outcome.code, outcome.out) == (0, "")
    frame = pd.read_csv(out)
    assert len(frame) == points
    assert (frame.loc[frame["gpus"] == 1, "slowdown"] == 1).all()
    is_an_error(cli("sweep", "--grid", grid, "--out", str(out)), 2, "exists already", "is free")
    assert list(tmp_path.iterdir()) == [out]


def test_sweep_writes_parquet_and_prints_a_summary(cli: Any, tmp_path: Path) -> None:
    import pandas as pd

    out = tmp_path / "s.parquet"
    words = ("sweep", "--table-size", "1TB..4TB", "--batch", "128,1024", "--pooling", "4..16", "--dim", "32")
    assert cli(*words, "--out", str(out)).code == 0
    assert len(pd.read_parquet(out)) == 3 * 2 * 3
    text = cli(*words).out
    first = "18 configurations, each with the fastest sharding of TorchRec's that fits: slowdown "
    assert text.startswith(first)
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    rows = json.loads(cli(*words, "--json").out)["rows"]
    assert len(rows) == 18 and rows[0]["evidence"]


def test_a_sweep_over_sets_of_tables_is_that_of_projections(cli: Any) -> None:
    words = ("sweep", "--model", "mlperf-dlrm-dcnv2,criteo-kaggle", "--gpus", "1..16", "--batch", "64,256")
    words += ("--sharding", "row-wise")
    found = cli(*words, "--json")
    rows = json.loads(found.out)["rows"]
    assert "2 of 20 configurations left out" in found.err  # 105 GB fit no single GPU
    assert len(rows) == 18 and {row["model"] for row in rows} == {"mlperf-dlrm-dcnv2", "criteo-kaggle"}
    for row in rows[::5]:
        one = project_one(tables=row["model"], gpus=row["gpus"], batch=row["batch"])
        assert row["time_s"] == pytest.approx(one.time_s) and row["slowdown"] == pytest.approx(one.slowdown)
    (alone,) = json.loads(cli("sweep", "--model", "criteo-kaggle", "--json").out)["rows"]
    assert (alone["gpus"], alone["batch"]) == (project_one(tables="criteo-kaggle").gpus, 1024)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--grid", "paper-3"), ("paper-3", "paper-1")),
        (("--grid", "paper-1", "--out", "x.xlsx"), (".csv or .parquet",)),
        (("--grid", "paper-1", "--out", "nowhere/x.csv"), ("not a folder",)),
        (("--batch", "128"), ("which tables?",)),
        (
            ("--model", "criteo-kaggle", "--table-size", "1TB"),
            ("--model and --table-size cannot be combined",),
        ),
        (("--model", "criteo-kaggle", "--grid", "paper-1"), ("--model and --grid cannot be combined",)),
        (("--model", "criteo-kagle", "--gpus", "8"), ("did you mean criteo-kaggle",)),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "1"), ("none of 1 configuration is possible",)),
        (("--table-size", "1TB,,2TB"), ("empty",)),
        (("--gpus", "1..1000000000000"), ("gpus",)),
    ],
)
def test_bad_sweeps(cli: Any, words: tuple[str, ...], parts: tuple[str, ...]) -> None:
    is_an_error(cli("sweep", *words), 2, *parts)


# --- validate ---------------------------------------------------------------------------------------------


def verdicts(*, regression: bool) -> Any:
    from perfmodel.validate import Outcome, Verdict

    said = Outcome.FAILS if regression else Outcome.HOLDS

    def judge(paper: bool = False, held_out: bool = False) -> list[Verdict]:
        return [Verdict("size", "a claim", "2", "3", "1 to 2", said, "because", regression)]

    return judge


def test_validate_prints_verdicts_and_exits_6_outside_a_band(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(cli_validate, "judge", verdicts(regression=False))
    good = cli("validate")
    assert (good.code, good.err) == (0, "")
    assert "size: holds" in good.out and "1 band: 1 holds, 0 fail," in good.out
    monkeypatch.setattr(cli_validate, "judge", verdicts(regression=True))
    bad = cli("validate", "--json")
    assert bad.code == 6
    assert json.loads(bad.out)["outside"] == ["size"]
    assert json.loads(bad.err)["error"]["what"] == "1 band is left: size."
    assert "! size: fails" in cli("validate").out


def test_the_papers_claims_are_judged(cli: Any) -> None:
    outcome = cli("validate", "--paper")
    assert outcome.code == 0, outcome.err
    assert "claims of papers" in outcome.out
    assert max(len(line) for line in outcome.out.splitlines()) <= WIDTH


# --- calibrations -----------------------------------------------------------------------------------------

SHIPPED = "h100-sxm-ib/nccl-2.29.2-stream"


def test_calibrations_and_show(cli: Any) -> None:
    assert SHIPPED in cli("show", "calibrations").out
    listed = json.loads(cli("show", "calibrations", "h200-sxm-ib", "--json").out)["calibrations"]
    assert {item["machine"] for item in listed} == {"h200-sxm-ib"}
    for words in (
        ("show", "calibrations"),
        ("show", SHIPPED),
        ("show", SHIPPED, "--samples"),
    ):
        outcome = cli(*words)
        assert outcome.code == 0, outcome.err
        assert max(len(line) for line in outcome.out.splitlines()) <= WIDTH, words
    assert "t = ((" in cli("show", SHIPPED).out
    both = cli("show", "h100-sxm-ib/nccl-2.27.3-stream", "--compare", SHIPPED)
    assert "B/A" in both.out
    assert max(len(line) for line in both.out.splitlines()) <= WIDTH


def test_show_refuses_what_is_no_calibration(cli: Any, tmp_path: Path) -> None:
    from perfmodel.resources import data_path

    good = data_path("calibrations", SHIPPED + ".json").read_text(encoding="utf-8")
    path = tmp_path / "c.json"
    for text, part in (
        (good[: len(good) // 2], "not valid JSON"),
        (good.replace('"schema_version": 2', '"schema_version": 99'), "schema_version 99"),
        ("{}", "schema_version"),
        ('{"schema_version": 2}', "is missing"),
    ):
        path.write_text(text, encoding="utf-8")
        is_an_error(cli("show", str(path)), 2, part)
    is_an_error(cli("show", "no-such/thing"), 2, "no-such/thing", "known:")
    is_an_error(cli("show"), 2, "nothing is named", "machines, models, chips")


def nccl_log(gpus: int = 8, op: str = "all_gather") -> str:
    rows = []
    for size in (2**k for k in range(10, 31)):
        time_us = 10.0 + size / 400e3
        algbw = size / time_us / 1e3
        bus = algbw * (gpus - 1) / gpus
        half = f"{time_us:.2f} {algbw:.2f} {bus:.2f}"
        rows.append(f"{size} {size // 4} float none -1 {half} 0 {half} 0")
    ranks = [
        f"#  Rank {r} Group 0 Pid {r} on host device {r} [0000:{r:02x}:00] NVIDIA H200" for r in range(gpus)
    ]
    return "\n".join(
        [
            "# nccl-tests version 2.18.3 nccl-headers=22907 nccl-library=22907",
            f"# Collective test starting: {op}_perf",
            "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) graph: 0",
            *ranks,
            "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
            *rows,
        ]
    )


def test_import_refuses_and_writes_nothing(cli: Any, tmp_path: Path) -> None:
    log, out = tmp_path / "ag.log", tmp_path / "mine.json"
    log.write_text("this is no log\n")
    is_an_error(cli("import", str(log), "--out", str(out)), 2, "no sample")
    log.write_text(nccl_log())
    other = tmp_path / "old.log"
    other.write_text(nccl_log().replace("22907", "22703"))
    is_an_error(
        cli("import", str(log), str(other), "--out", str(out)), 2, "nccl 2.29.7", "nccl 2.27.3", "one by one"
    )
    is_an_error(cli("import", str(log), "--out", "mine.txt"), 2, ".json")
    is_an_error(cli("import"), 2, "logs")
    assert not out.exists()
