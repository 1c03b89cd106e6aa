"""Known curves, known noise, a simulated clock: intervals hold the truth as often as they say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from oracles.simulated_team import Recorder, SimulatedTeam, TrueCurve

from calibrate.planning.measurement_plan import Request
from calibrate.running.interfaces import RunOptions
from calibrate.running.session import calibrate
from perfmodel.fit.curves import fit_curve
from perfmodel.schema.run_files import read_run

TRUTH = {
    "all_to_all": TrueCurve(5e-6, 4e9, 0.8),
    "reduce_scatter": TrueCurve(8e-6, 2e9, 1.0),
    "all_gather": TrueCurve(3e-6, 6e9, 1.4),
    "all_reduce": TrueCurve(12e-6, 1e9, 2.0),
    "broadcast": TrueCurve(4e-6, 8e9, 1.2),
}
SIZES = tuple(2**k for k in range(8, 25))


def _held(folder: Path, seed: int, visit_noise: float) -> list[bool]:
    """For every floor, rate and knee of a run: whether its interval holds the truth."""
    team = SimulatedTeam(TRUTH, visit_noise=visit_noise, call_noise=0.05, seed=seed)
    request = Request("quick", only=[f"gloo:{name}" for name in TRUTH], sizes=SIZES)
    calibrate(
        RunOptions(request, "m", folder, stack={}, environment={}, seed=seed), team, Recorder(), team.clock
    )
    (run,) = folder.iterdir()
    samples = read_run(run).collective_samples()
    held = []
    for name, rows in samples.groupby("collective"):
        true = TRUTH[str(name)]
        fit = fit_curve(rows["payload_bytes"].to_numpy(float), rows["time_s"].to_numpy(float))
        found = (fit.alpha_interval, fit.beta_interval, fit.p_interval)
        wanted = (true.alpha_s, true.beta_bytes_per_s, true.p)
        held += [low <= value <= high for (low, high), value in zip(found, wanted, strict=True)]
    return held


def test_the_intervals_of_a_whole_calibration_hold_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """95 % intervals of a run hold floor, rate and knee in 90 to 99 % of the cases.

    The stop rule chooses the number of visits (4 a point here), so this is not the coverage of a fit alone.
    60 runs, 300 curves each, gave 93 to 96 % of each parameter.
    """
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    held = [known for seed in range(5, 10) for known in _held(tmp_path / str(seed), seed, visit_noise=0.02)]
    assert len(held) == 5 * 5 * 3
    assert 0.90 < sum(held) / len(held) < 0.99
