"""Slowdown, time and samples per second over numbers of GPUs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from perfmodel.answer import Answer, project_one, project_row_wise
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.line_traces import SlowdownLine
from perfmodel.report.figures.over_gpus import over_gpus

MODEL = "mlperf-dlrm-dcnv2"
NUMBERS = np.array([2.0, 8.0, 16.0, 64.0])


@cache
def answer(gpus: int) -> Answer:
    return project_one(tables=MODEL, gpus=gpus)


@cache
def line(label: str = "row-wise", reduction: str = "auto") -> SlowdownLine:
    return SlowdownLine(label, project_row_wise({"gpus": NUMBERS}, tables=MODEL, reduction=reduction))


def drawn(block: Block | Missing) -> Block:
    assert isinstance(block, Block)
    return block


def test_the_sentence_follows_the_data() -> None:
    asked = answer(64)
    title = drawn(over_gpus([line(), line("sparse", "sparse")], asked)).title
    assert (
        title.startswith(
            f"On 64 GPUs a batch takes {asked.time_s * 1e3:.2f} ms, {asked.slowdown:.1f}× slower"
        )
        and "; sparse would make it" in title
    )
    changed = replace(answer(64), totals={**answer(64).totals, "slowdown": 7.0, "time_s": 0.1})
    assert drawn(over_gpus([line()], changed)).title.startswith(
        "On 64 GPUs a batch takes 100 ms, 7.00× slower"
    )
    even = replace(changed, totals={**changed.totals, "slowdown": 1.0004})
    assert drawn(over_gpus([line()], even)).title.startswith(
        "On 64 GPUs a batch takes 100 ms, as on one GPU that holds"
    )
    slow = SlowdownLine("two-level", line().frame.assign(slowdown=1e6))
    assert "and no other way drawn here is faster." in drawn(over_gpus([line(), slow], answer(64))).title
    most = "Most samples per second: {} on {} GPUs."
    rates = 1024 * NUMBERS / line().frame["time_s"].to_numpy()
    at = int(rates.argmax())
    assert title.endswith(most.format(f"{rates[at] / 1e6:.1f} M,", f"{NUMBERS[at]:.0f}"))
    quick = SlowdownLine("row-wise", line().frame.assign(time_s=[1.0, 1.0, 1.0, 1.0]))
    assert drawn(over_gpus([quick], answer(64))).title.endswith(most.format("65.5 k,", "64"))


def test_each_switch_draws_its_own_column() -> None:
    frame = line().frame.assign(main_evidence="transferred")  # so that the line is one trace
    block = drawn(over_gpus([SlowdownLine("row-wise", frame)], answer(8)))
    rates = 1024 * NUMBERS / frame["time_s"].to_numpy()
    wanted = {"slowdown": frame["slowdown"], "time": frame["time_s"], "samples/s": rates}
    assert [switch.label for switch in block.switches] == list(wanted)
    for switch in block.switches:
        ribbon, values, _, ideal = switch.traces["y"]
        assert values == pytest.approx(wanted[switch.label], rel=1e-5)
        assert len(ribbon) == 2 * len(NUMBERS) and len(ideal) == len(NUMBERS)
        assert all(
            low <= value <= high for low, value, high in zip(ribbon[:3:-1], values, ribbon[:4], strict=True)
        )
    local = frame["baseline_time_s"].to_numpy()
    ideals = [switch.traces["y"][-1] for switch in block.switches]
    assert ideals[0] == [1.0] * 4 and ideals[1] == pytest.approx(local, rel=1e-5)
    assert ideals[2] == pytest.approx(1024 * NUMBERS / local, rel=1e-5)
    assert [list(trace.y) for trace in block.figure.data] == block.switches[0].traces["y"]
    assert block.data[0]["samples_per_s"] == pytest.approx(rates[0], rel=1e-5)


def test_one_gpu_is_left_out() -> None:
    alone = SlowdownLine("row-wise", project_row_wise({"gpus": np.array([1.0])}, tables="criteo-kaggle"))
    found = over_gpus([alone], project_one(tables="criteo-kaggle", gpus=1))
    assert isinstance(found, Missing) and "--gpus" in found.why
