"""Logs as people print them: what a reader recognises changes the answer, or is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_calls import called
from oracles.made_logs import line, new_log, write

from calibrate.importers import import_logs

LOGS = Path(__file__).parent / "foreign_logs"
ROWS = [line(2**k, 10.0 + 2**k / 350e3) for k in range(10, 27)]


def test_a_label_inside_a_row_hides_no_wrong_results() -> None:
    result = called("check", str(LOGS / "label_wrong.log"), "--op", "all_reduce")
    assert result.code == 6 and "wrong results" in result.out


@pytest.mark.parametrize("cell", ["12x", "0?", "-", "[0]"])
def test_a_check_that_cannot_be_read_is_no_unchecked_result(tmp_path: Path, cell: str) -> None:
    log = write(tmp_path, "x.log", new_log([*ROWS, line(2**27, 400.0, wrong=cell)]))
    frame = import_logs([log]).samples
    assert list(frame.flag[frame.payload_bytes == 2**27]) == ["unread-check", "ok"]
    result = called("check", str(log), "--machine", "h200-sxm-ib", "--json")
    assert result.code == 6
    assert [curve["wrong_bytes"] for curve in json.loads(result.out)["curves"]] == [[2**27]]
    assert "#wrong at 128 MiB" in called("check", str(log), "--machine", "h200-sxm-ib").out


def test_one_process_for_all_gpus_is_flagged_and_in_no_fit() -> None:
    log = str(LOGS / "one_process_alltoall.log")
    assert set(import_logs([log]).samples.flag) == {"single-process"}
    refused = called("import", log, "--machine", "h100-sxm-ib")
    assert refused.code == 2
    assert "42 rows marked 'single-process'" in refused.err


def test_the_line_above_the_head_names_the_halves() -> None:
    frame = import_logs([LOGS / "in_place_only_all_reduce.log"]).samples
    assert len(frame) == 21 and frame.in_place.all()


def test_a_blank_first_half_is_no_cut_row(tmp_path: Path) -> None:
    """MSCCL++: in place first, and nothing there."""
    half = "     time   algbw   busbw  #wrong"
    lines = [f"# {'in-place':>42} {'out-of-place':>31}", f"#       size         count{half}{half}"]
    for size in (2**k for k in range(12, 22)):
        time_us = round(8 + size / 1e5, 2)
        rates = f"{size / time_us / 1e3:8.2f}{size / time_us / 1e3 * 7 / 8:8.2f}"
        lines.append(f"{size:>12}{size // 4:>14}{' ' * len(half)}{time_us:9.2f}{rates}      0")
    log = write(tmp_path, "x.log", "\n".join(lines))
    result = import_logs([log], op="all_to_all", gpus=8, gpus_per_node=8)
    assert not result.unread and len(result.samples) == 10 and not result.samples.in_place.any()


def test_the_parts_of_a_broken_row_are_named(tmp_path: Path) -> None:
    whole = line(8_000_000, 80.0)
    start = whole.index("-1") + 2
    broken = [whole[:start] + "node-0:1:2 [0] NCCL WARN NET/IB : port error", whole[start:]]
    result = import_logs([write(tmp_path, "x.log", new_log([*ROWS, *broken]))])
    assert len(result.samples) == 2 * len(ROWS)
    assert [unread.reason for unread in result.unread] == ["part of a row that other output broke"] * 2


@pytest.mark.parametrize(
    "label",
    [
        "launcher-1  | ",
        "[pod/nccl-test-launcher-abcde/launcher] ",
        "2025-03-14T10:00:00.123456789Z ",
        "[1,0][node-1:4711]<stdout>: ",
        "[0]<stdout>: ",
        "Mar 14 10:00:00 node-1 srun[4711]: ",
        "INFO:root:",
        "(RayTrainWorker pid=4711, ip=10.0.0.1) ",
    ],
)
def test_what_stands_before_the_head_of_a_table_is_a_label(tmp_path: Path, label: str) -> None:
    text = new_log(ROWS).splitlines()
    text.insert(-6, "node-0:100:200 [0] NCCL WARN NET/IB : Got async event : port error")
    labels = [
        label.replace("4711", str(4711 + place)).replace("00.1", f"{place % 60:02d}.1") for place in range(99)
    ]
    lines = [before + row if "WARN" not in row else row for before, row in zip(labels, text, strict=False)]
    result = import_logs([write(tmp_path, "x.log", "\n".join(lines))])
    assert len(result.samples) == 2 * len(ROWS)
    assert (result.stack.gpu, result.stack.library_version) == ("H200", "2.29.7")
    assert (result.cut, result.unread) == ([], [])


def test_settings_that_a_log_states_are_repeated_with_what_they_cost(tmp_path: Path) -> None:
    result = called("check", str(LOGS / "settings_alltoall.log"), "--json")
    stated = json.loads(result.out)["stated"]
    assert [fact["name"] for fact in stated] == ["NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"]
    text = " ".join(called("check", str(LOGS / "settings_alltoall.log")).out.split())
    for fact in stated:
        assert f"says {fact['name']}: {fact['words']}" in text
    healthy = "\n".join(
        f"a:1:1 [0] NCCL INFO {name} set by environment to {value}"
        for name, value in (("NCCL_ALGO", "Ring"), ("NCCL_IB_DISABLE", "0"), ("NCCL_PROTO", "^LL128"))
    )
    log = write(tmp_path, "x.log", healthy + "\n" + new_log(ROWS))
    stated = json.loads(called("check", str(log), "--machine", "h200-sxm-ib", "--json").out)["stated"]
    assert {fact["name"] for fact in stated} >= {"NCCL_ALGO=Ring", "NCCL_PROTO=^LL128"}


def test_a_cut_list_of_ranks_is_no_obstacle_where_options_say_what_it_lacks() -> None:
    log = str(LOGS / "cut_ranks_all_reduce.log")
    frame = import_logs([log], gpus=72, gpus_per_node=4).samples
    assert set(frame.gpus) == {72} and set(frame.gpus_per_node) == {4}
    refused = called("check", log)
    assert refused.code == 2 and "give --gpus" in refused.err
    wrong = called("check", log, "--gpus", "36", "--set", "gpus_per_node=4")
    assert wrong.code == 2 and "wrong number of GPUs" in wrong.err
