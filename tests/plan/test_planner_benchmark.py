"""benchmarks/planner.py: its quick run, and its baselines by hand."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import planner
import pytest
from planner_baselines import PerByte, cut_costliest, plan_per_byte
from searches import tables_of

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Scheme
from perfmodel.engine.schemes import Exchange


def test_the_greedy_copies_what_saves_most_per_byte_and_deals_the_rest() -> None:
    """Of tables that are looked up alike the smallest ones are copied; the large ones get a rank each."""
    shapes = [(10**6, 64, 10.0)] * 16, [(rows, 64, 10.0) for rows in (40_000, 10_000, 20_000)]
    evaluator = Evaluator.on("h100-sxm-ib", tables_of(*shapes[0], *shapes[1]), 1024, 16)
    limit = 700e6
    greedy = PerByte(evaluator, limit)
    assert np.flatnonzero(greedy.choose_copies(8e6 / limit)).tolist() == [17, 18]  # 2.56 + 5.12 MB
    plan = plan_per_byte(evaluator, limit)
    assert plan is not None
    assert evaluator.cost(plan).memory.total_bytes.max() <= limit
    assert set(plan.kinds[:16]) == {Exchange.RB} and set(plan.kinds[16:]) == {Exchange.DP}
    held = np.bincount(np.concatenate([placement.ranks for placement in plan.placements]))
    assert np.ptp(held) == 0
    each = [evaluator.cost(plan).time_s for plan in greedy.list_plans()]
    assert len(set(each)) > 4 and evaluator.cost(plan).time_s == min(each)


def test_quick_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All planners in one line, also TorchRec's; no other plan is faster than ours by our model."""
    pytest.importorskip("torchrec")
    from planner_torchrec import find_plan

    from calibrate import torchrec_plan

    def ask(path: Path, seconds: float, training: bool) -> dict[str, Any]:
        return find_plan(torchrec_plan.load(path), seconds, training)

    monkeypatch.setattr(planner, "ask_torchrec", ask)  # in this process, which has imported it
    monkeypatch.setattr(sys, "argv", ["planner.py", "--quick"])
    planner.main()
    text = capsys.readouterr().out
    assert "Lost, as another plan is faster than ours soon: 0 of 1 cases." in text
    heads, cells = (re.split(r"\s{2,}", line.strip()) for line in text.splitlines()[:2])
    row = dict(zip(heads, cells, strict=True))
    assert row.pop("case") == "mlperf-dlrm-dcnv2 x 8 training"
    times = [float(row[name]) for name in ("TorchRec", "for TorchRec", "EMBark", "per byte", "random")]
    assert float(row["ours ms"]) <= float(row["soon ms"]) < min(times)
    assert times[1] <= times[0] and 0 < float(row["gap %"]) < 100
    assert float(row["lead"]) == pytest.approx(min(times[:1] + times[2:]) / float(row["soon ms"]), abs=0.01)


def test_embark_by_hand() -> None:
    """Two GPUs: R_bw = 3350 / 450, the costs of t0 and t1 are 64 (4 h + 7.44) with h = 8 and 1: 2524 and 732.

    Apart they cost 2524; t0 is cut in two columns of 32 (1262 each), t1 joins one of them: 1994. Then t0 is
    the costliest again: its columns are no wider than 32, and four parts have no four GPUs. So it stays.
    """
    tables = tables_of((1000, 64, 8.0), (1000, 64, 1.0))
    plan = cut_costliest(Evaluator.on("h100-sxm-ib", tables, 16, 2), 80e9, 0.0)
    assert plan is not None
    first, second = plan.placements
    assert first.scheme == Scheme(Exchange.RB, 1, 2) and sorted(first.ranks) == [0, 1]
    assert second.scheme == Scheme(Exchange.RB) and second.ranks.size == 1
