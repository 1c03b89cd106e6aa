"""benchmarks/planner.py: its quick run, its baselines by hand, and plans to TorchRec and back."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from searches import tables_of

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Plan, Scheme, uniform_plan
from perfmodel.engine.schemes import Exchange
from perfmodel.plan import torchrec


def test_the_greedy_copies_what_saves_most_per_byte_and_deals_the_rest() -> None:
    """Of tables that are looked up alike the smallest ones are copied; the large ones get a rank each."""
    from planner_greedy import PerByte, per_byte

    shapes = [(10**6, 64, 10.0)] * 16, [(rows, 64, 10.0) for rows in (40_000, 10_000, 20_000)]
    evaluator = Evaluator.on("h100-sxm-ib", tables_of(*shapes[0], *shapes[1]), 1024, 16)
    limit = 700e6
    greedy = PerByte(evaluator, limit)
    assert np.flatnonzero(greedy._copies(8e6 / limit)).tolist() == [17, 18]  # 2.56 + 5.12 MB
    plan = per_byte(evaluator, limit)
    assert plan is not None
    assert evaluator.memory(plan).total_bytes.max() <= limit
    assert set(plan.kinds[:16]) == {Exchange.RB} and set(plan.kinds[16:]) == {Exchange.DP}
    held = np.bincount(np.concatenate([placement.ranks for placement in plan.placements]))
    assert np.ptp(held) == 0
    each = [evaluator.cost(plan).time_s for plan in greedy.plans()]
    assert len(set(each)) > 4 and evaluator.cost(plan).time_s == min(each)


def test_quick_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything on one screen: nine planners, both scores; ours is best by our model."""
    pytest.importorskip("torchrec")
    import planner
    from planner_torchrec import Rating

    class Worker:
        """TorchRec's side in this process, which has imported it."""

        def __init__(self, evaluator: Evaluator, base: Plan, limit: float, training: bool) -> None:
            self.evaluator, self.rating = (
                evaluator,
                Rating(torchrec.build_torchrec_plan(evaluator, base), training),
            )
            self.planned = self.rating.planned

        def __enter__(self) -> Worker:
            return self

        def __exit__(self, *error: object) -> None: ...

        def score(self, plan: Plan) -> dict[str, float]:
            return self.rating.score(torchrec.build_torchrec_plan(self.evaluator, plan))

    monkeypatch.setattr(planner, "Worker", Worker)
    monkeypatch.setattr(sys, "argv", ["planner.py", "--quick"])
    assert planner.main() == 0
    first, second, last = capsys.readouterr().out.split("\n\n")
    assert first.startswith("mlperf-dlrm-dcnv2 x 8 training, on h100-sxm-ib")
    assert "Lost, as another plan is faster than ours soon: 0 of 1 cases." in last
    rows = [re.split(r"\s{2,}", line.strip())[0] for line in first.splitlines()[2:]]
    ours = ["ours", "ours soon", "ours for TorchRec"]
    names = [*ours, "TorchRec", "EMBark's greedy", "per-byte greedy", "random"]
    assert rows == [*names, "row-wise", "table-wise", "table-row-wise"]
    ratios = [float(re.findall(r"\d+\.\d\d", line.split(" ms")[-1])[0]) for line in second.splitlines()[1:11]]
    assert ratios[0] == 1 and min(ratios[2:]) >= 1, second
    assert ratios[1] > 0.95, second  # what is drawn in the longer search may be unlucky
    assert "no plan in" not in first  # TorchRec's planner answers within its time
    theirs = r"TorchRec's own score of ours for TorchRec: \d\.\d\d x .* more than 1 % worse in \d of 1\."
    assert re.search(theirs, second)
    slower = r"By our model TorchRec's plan takes \d\.\d\d x, mean .* as long as ours for TorchRec\."
    assert re.search(slower, second)
    assert re.search(r"Gap of ours to the bound of the listed schemes: \d+\.\d %", second)


def test_embark_by_hand() -> None:
    """Two GPUs: R_bw = 3350 / 450, the costs of t0 and t1 are 64 (4 h + 7.44) with h = 8 and 1: 2524 and 732.

    Apart they cost 2524; t0 is cut in two columns of 32 (1262 each), t1 joins one of them: 1994. Then t0 is
    the costliest again: its columns are no wider than 32, and four parts have no four GPUs. So it stays.
    """
    from planner_baselines import Embark

    tables = tables_of((1000, 64, 8.0), (1000, 64, 1.0))
    greedy = Embark(Evaluator.on("h100-sxm-ib", tables, 16, 2), 80e9, 0.0)
    assert greedy._cost(0) == pytest.approx(64 * (32 + 3350 / 450))
    plan = greedy.plan()
    assert plan is not None
    first, second = plan.placements
    assert first.scheme == Scheme(Exchange.RB, 1, 2) and sorted(first.ranks) == [0, 1]
    assert second.scheme == Scheme(Exchange.RB) and second.ranks.size == 1


def test_embark_splits_what_does_not_fit_by_rows() -> None:
    """100 GB on GPUs of 60 GB: two row parts, even though columns are wide; a small table is copied."""
    from planner_baselines import Embark

    tables = tables_of((200_000_000, 125, 1.0), (10, 125, 1.0))
    plan = Embark(Evaluator.on("h100-sxm-ib", tables, 16, 2), 60e9, 1e5).plan()
    assert plan is not None
    assert [p.scheme for p in plan.placements] == [Scheme(Exchange.RB, 2), Scheme(Exchange.DP)]
    assert Embark(Evaluator.on("h100-sxm-ib", tables, 16, 2), 40e9, 1e5).plan() is None


def test_random_search_is_valid_and_repeatable() -> None:
    from planner_baselines import random_search

    tables = tables_of((1000, 64, 8.0), (100_000, 64, 1.0), (10, 8, 1.0))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 16, 8, gpus_per_node=4)
    plans = [random_search(evaluator, 80e9, 0.0, seed) for seed in (1, 1, 2)]
    times = [evaluator.cost(plan).time_s for plan in plans if plan]
    assert len(times) == 3 and times[0] == times[1]
    longer = random_search(evaluator, 80e9, 0.3, 1)
    assert longer is not None and evaluator.cost(longer).time_s <= times[0]
    assert random_search(evaluator, 1e3, 0.0) is None


@pytest.mark.parametrize("training", [False, True])
def test_torchrecs_score_of_its_own_plan(training: bool) -> None:
    """TorchRec rates its plan as we have it rated after it went through our placements and our file."""
    pytest.importorskip("torchrec")
    from planner import placement_of
    from planner_torchrec import Rating

    tables = tables_of((100_000, 256, 20.0), (50_000_000, 64, 3.0), (1000, 16, 1.0), (2_000_000, 128, 50.0))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 512, 4, gpus_per_node=2, training=training)
    file = torchrec.build_torchrec_plan(evaluator, uniform_plan(tables, "row-wise", 4, 2))
    rating = Rating(file, training)
    found = rating.planned(10.0)
    placements = tuple(placement_of(found["tables"][name], 4, 2) for name in tables.names)
    theirs = rating.score(torchrec.build_torchrec_plan(evaluator, Plan(tables, placements, 4, 2)))
    assert theirs["ms"] == pytest.approx(found["ms"], rel=1e-9)
    assert theirs["bytes"] == pytest.approx(found["bytes"], rel=1e-9)
    assert found["ms"] < rating.score(file)["ms"]  # better than row-wise
