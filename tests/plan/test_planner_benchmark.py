"""benchmarks/planner.py: its quick run."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import planner
import pytest


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
