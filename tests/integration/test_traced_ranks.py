"""Traces that this PyTorch and this TorchRec write, on two gloo ranks."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import forked_ranks
import traces as benchmark

from calibrate.importers.traces import check_alignment, read_traces
from perfmodel.schema.trace_alignment import align, rank_skews

CASE = {"ranks": 2, "rows": 4000, "tables": 2, "batch": 64, "pooling": 4, "dim": 16, "steps": 3, "slow": 1,
        "host_ranks": 0, "slow_s": 0.05, "sharding": "row_wise"}  # fmt: skip


def test_a_training_step_traced_here_is_read_whole(tmp_path: Path) -> None:
    forked_ranks.said_by(benchmark.TRACED, benchmark.case_of(Namespace(folder=tmp_path, **CASE)))
    traces = read_traces([tmp_path])
    aligned = align(traces)
    assert check_alignment(traces, aligned) == []
    assert [one.parsed_share for one in traces] == [1.0, 1.0]
    assert len(aligned.collectives) == 3 * 6 and all(one.complete for one in aligned.collectives)
    assert {one.rank for one in rank_skews(aligned.collectives)} == {0, 1}
