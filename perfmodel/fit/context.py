"""How a whole pass slows its steps: cold caches, ranks that arrive apart, host time between calls.

A step in a loop of its own runs with warm caches and ranks that a barrier has synchronized. The whole passes
of a run (without the held-out passes) show how much longer the same step takes in a pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.derivation import curve_time
from perfmodel.fit.law_fits import rounded
from perfmodel.model import exchanges
from perfmodel.schema.calibration import Calibration
from perfmodel.schema.fields import Interval
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import load_kernel_constants

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

OWN_PASS = "exchange"
"""The implementation whose steps are the steps of a projection."""

TIMED_AS = {
    "bucketize": "bucketize",
    "all_to_all_splits": "all_to_all_splits",
    "all_to_all_lengths": "all_to_all_lengths",
    "all_to_all_ids": "all_to_all_ids",
    "gather_pool": "gather_pool",
    "reduce_scatter_bags": "reduce_scatter",
}
"""Steps of a projection, with the names under which our own pass times them."""

_FEWEST = 3
_SHORTEST_S = 1e-9


def select_passes(composed: pd.DataFrame, backend: str, clock: str) -> pd.DataFrame:
    """The whole passes that a fit may use: our own, of one library and clock, neither held out nor slow.

    composed  all passes of a run, as ``Run.work_samples`` lists them
    """
    keep = (composed["implementation"] == OWN_PASS) & (composed["clock"] == clock)
    keep &= ~composed["held_out"].astype(bool) & (composed["flag"] != "throttled")
    return composed[keep & (composed["backend"] == backend)]


def read_times(passes: pd.DataFrame, step: str) -> Floats:
    """Times of a step of a projection, as measured in each pass [s]; NaN where it was not timed."""
    column = f"{TIMED_AS.get(step, step)}_time_s"
    if column not in passes.columns:
        return np.full(len(passes), np.nan)
    return passes[column].to_numpy(float)


def fit_handovers(calibration: Calibration, passes: pd.DataFrame, machine: Machine) -> dict[str, Interval]:
    """What each collective step takes more in a pass than alone, and the gap ``between_steps`` [s].

    passes  as of ``select_passes``;  calibration  has the curves of the collectives alone
    Medians over passes with their intervals, from 1 ns up. Medians not significantly above 0 count too:
    without them, every projection would be too short. Limits: fewer than 3 passes, a median of 0 or less, or
    no curve for the ranks -> the step is left out
    """
    value = {key: quantity.value for key, quantity in load_kernel_constants().items()}
    G = passes["gpus"].to_numpy(float)
    bags = (passes["batch"] * passes["tables"]).to_numpy(float)
    lookups = bags * passes["pooling"].to_numpy(float)
    elements = bags * passes["dim"].to_numpy(float)
    payloads = {
        "all_to_all_splits": exchanges.splits_bytes(G, value["splits_per_peer"], value["split_bytes"]),
        "all_to_all_lengths": exchanges.lengths_bytes(G, bags, value["length_bytes"]),
        "all_to_all_ids": exchanges.ids_bytes(lookups, passes["id_bytes"].to_numpy(float)),
        "reduce_scatter_bags": exchanges.bags_sent_bytes(G, elements, 1, value["pooled_element_bytes"]),
    }
    differences = {
        step: read_times(passes, step) - _time_alone(calibration, machine, passes, step, sizes)
        for step, sizes in payloads.items()
    }
    timed = [read_times(passes, step) for step in (*TIMED_AS, "permute")]
    named = [times for times in timed if not np.isnan(times).all()]
    together = np.sum(named, axis=0) if named else np.full(len(passes), np.nan)
    differences["between_steps"] = passes["time_s"].to_numpy(float) - together
    intervals = {step: find_median_interval(times[np.isfinite(times)]) for step, times in differences.items()}
    return {step: interval for step, interval in intervals.items() if interval}


def _time_alone(
    calibration: Calibration, machine: Machine, passes: pd.DataFrame, step: str, sizes: Floats
) -> Floats:
    """Time of a step's collective by its curve [s], for the payload of each pass; NaN without a curve."""
    times = np.full(len(passes), np.nan)
    collective = step.rsplit("_", 1)[0]  # all_to_all_ids -> all_to_all
    for i, (gpus, node) in enumerate(zip(passes["gpus"], passes["gpus_per_node"], strict=True)):
        curve = calibration.curve(collective, int(gpus), machine.domain_gpus_of(int(node)))
        if curve is not None:
            times[i] = curve_time(curve, sizes[i])
    return times


def find_median_interval(values: Floats) -> Interval | None:
    """The median, and the interval between two values that holds it in at least 95 of 100 cases, from 1 ns.

    Source: sign test. Limits: 3 to 5 values -> least and largest value (75 to 94 of 100);  fewer, or a median
    of 1 ns or less -> None
    """
    if values.size < _FEWEST or (centre := rounded(float(np.median(values)))) <= _SHORTEST_S:
        return None
    ordered = np.sort(values)
    from scipy.stats import binom  # takes a third of a second to import, and few calls need it

    outside = max(0, int(binom.ppf(0.025, values.size, 0.5)) - 1)
    low = max(min(rounded(float(ordered[outside]), 3), centre), _SHORTEST_S)
    high = max(rounded(float(ordered[values.size - 1 - outside]), 3), centre)
    return Interval(value=centre, low=low, high=high)
