"""What would change an answer, and what to measure next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from oracles.alpha_beta import AlphaBeta, one

from perfmodel.answer import project_one
from perfmodel.answer.ranking import answer_question
from perfmodel.answer.what_would_help import MACHINES, MORE_GPUS, find_next_experiment, list_helping
from perfmodel.report.ranking_text import experiment_text, run_line
from perfmodel.schema.calibration import load_calibration, save_calibration
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.files import SAMPLES_NAME
from perfmodel.units import parse_bytes


def test_what_does_not_help_is_left_out() -> None:
    cards = one(AlphaBeta(alpha=0.0, beta=1e15), gpus=16)  # nothing to gain from links
    helping = [s for s in list_helping(cards.pinned, answer_question) if s.group != MACHINES]
    assert not helping
    p = project_one(gpus=8, batch=2**20)
    options = [s.option for s in list_helping(p.pinned, answer_question)]
    assert "--set payload=fp16" in options  # bytes rule
    assert not any(option.startswith("--batch") for option in options)


def test_more_gpus_of_a_node_in_use_are_no_node_more() -> None:
    for table_bytes, gpus, label in (
        (300e9, 5, "8 GPUs, the whole node"),
        (10e12, 144, "152 GPUs, a node more"),
    ):
        answer = project_one(table_bytes=table_bytes)
        more = [s.label for s in list_helping(answer.pinned, answer_question) if s.group == MORE_GPUS]
        assert answer.gpus == gpus and label in more


def test_more_samples_where_latency_rules() -> None:
    p = one(AlphaBeta(alpha=1e-3, beta=1e15), gpus=16, batch=256)
    more = next(s for s in list_helping(p.pinned, answer_question) if s.option == "--batch 1024")
    larger = one(AlphaBeta(alpha=1e-3, beta=1e15), gpus=16, batch=1024)
    assert more.after == pytest.approx(larger.slowdown, rel=1e-6)  # its tables are the same
    gain = 4 * p.time_s / larger.time_s
    assert gain == pytest.approx(4, rel=2e-3)
    assert more.label == "4× batch, 4.00× samples/s"


@pytest.mark.parametrize(
    ("options", "nodes", "where"),
    [
        ({"gpus": 128}, 2, "≥ 2 nodes"),
        ({"gpus": 8, "machine": "h100-paper"}, 1, "one node"),
        ({"gpus": 128, "machine": "h100-paper"}, 1, "128 GPUs of one NVLink domain"),
        ({"gpus": 72, "machine": "gb200-nvl72"}, 1, "72 GPUs of one NVLink domain"),
        ({"gpus": 144, "machine": "gb200-nvl72"}, 19, "≥ 2 NVLink domains"),
    ],
)
def test_where_to_measure_next(options: dict[str, Any], nodes: int, where: str) -> None:
    found = find_next_experiment(project_one(**options))
    assert found is not None
    assert found.nodes == nodes and found.where.startswith(where)


@pytest.mark.parametrize(
    ("gpus", "is_own", "nodes", "where"),
    [
        (12, True, 2, "≥ 2 nodes"),
        (16, True, 2, "these 16 GPUs, at sizes that were not measured"),
        (32, True, 3, "more than the 2 nodes that were measured, 4 if you can"),
        (128, True, 3, "more than the 2 nodes that were measured, 16 if you can"),
        (128, False, 2, "≥ 2 nodes"),
        (144, True, 19, "≥ 2 NVLink domains"),
    ],
)
def test_a_cluster_of_ones_own_is_measured_beyond_what_it_was(
    gpus: int, is_own: bool, nodes: int, where: str, tmp_path: Path
) -> None:
    """Two nodes of H200 were measured, to 8 GiB at most; of an NVL72 64 GPUs of one domain."""
    known = load_calibration(
        "gb200-nvl72/nccl-2.23-stream" if gpus == 144 else "h200-sxm-ib/nccl-2.30.4-eager"
    )
    save_calibration(known.model_copy(update={"this_cluster": is_own}), tmp_path / "own.json")
    asked: dict[str, Any] = {"table_bytes": 1e11, "gpus": gpus, "batch": 2**16, "machine": known.machine}
    found = find_next_experiment(project_one(**asked, calibration=str(tmp_path / "own.json")))
    assert found is not None and (found.nodes, found.where.partition(" (")[0]) == (nodes, where)
    command = experiment_text(found).split()
    assert ("--sizes" in command) == found.sizes_alone == (gpus == 16)
    if found.sizes_alone:
        low, _, high = command[-1].partition("..")
        sizes = parse_bytes(low), parse_bytes(high or low)
        assert found.least_bytes and found.most_bytes
        assert sizes[0] <= found.least_bytes < 2 * sizes[0] and sizes[1] / 2 < found.most_bytes <= sizes[1]


def test_kernels_are_measured_into_the_run_beside_a_calibration(tmp_path: Path) -> None:
    assert run_line(None) == run_line(str(tmp_path / "own.json")) == ""
    (tmp_path / SAMPLES_NAME).touch()
    assert run_line(str(tmp_path / "own.json")).startswith("perfmodel calibrate")


def test_next_experiment_names_what_carries_the_time() -> None:
    p = one(AlphaBeta(alpha=300e-6), gpus=128)
    nxt = find_next_experiment(p)
    assert nxt is not None
    assert nxt.only == ("nccl:all_to_all", "nccl:reduce_scatter")
    assert nxt.nodes == 2
    assert nxt.share == pytest.approx(1)
    known = find_next_experiment(one(AlphaBeta(evidence=Evidence.MEASURED), gpus=8))
    assert known is not None and known.only == ("kernel:bucketize", "kernel:gather_pool")
    assert known.nodes == 1


def test_sensitivities_of_the_main_question() -> None:
    p = project_one(table_bytes=10e12, reserve=0)
    found = {s.option: s for s in list_helping(p.pinned, answer_question)}
    assert {"--sharding sparse", "--sharding two-level", "--machine gb200-nvl72"} <= set(found)
    settings = [s for s in found.values() if s.group not in (MORE_GPUS, MACHINES)]
    assert all(s.after <= 0.98 * p.slowdown for s in settings)
    assert all(s.before == p.slowdown and s.low <= s.after <= s.high for s in found.values())
