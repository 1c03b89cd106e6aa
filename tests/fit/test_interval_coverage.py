"""Intervals of fitted curves hold the truth as often as they say: 2160 simulated cells take seconds."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.fit.curves import fit_curve
from perfmodel.model.curves import hockney_time


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.1])
@pytest.mark.parametrize("sizes", [6, 10, 26])
def test_intervals_hold_the_truth(noise: float, sizes: int) -> None:
    """95 % intervals hold floor, rate and knee in 90 to 99 % of 240 simulated cells.

    600 cells of each of 60 kinds gave 91.7 to 96.7 %, mean 94.8 %; 240 cells add 1.4 % of chance.
    """
    rng = np.random.default_rng(sizes)
    payload = np.round(2.0 ** np.linspace(7, 27, sizes))
    held = np.zeros(3)
    for p in (0.7, 1.0, 1.5, 2.5):
        for _ in range(60):
            seen = hockney_time(payload, 10e-6, 5e9, p) * np.exp(rng.normal(0, noise, sizes))
            fit = fit_curve(payload, seen)
            for i, (found, truth) in enumerate(
                ((fit.alpha_interval, 10e-6), (fit.beta_interval, 5e9), (fit.p_interval, p))
            ):
                held[i] += found[0] <= truth <= found[1]
    assert ((held / 240 > 0.9) & (held / 240 < 0.99)).all(), held / 240
