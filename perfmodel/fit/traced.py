"""A calibration from samples of traces: few sizes, and bands as wide as the waits that the times include."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.fit.build import Identity, fit_calibration
from perfmodel.fit.implementations import fit_each
from perfmodel.schema.calibration import Calibration
from perfmodel.schema.machine import Machine

if TYPE_CHECKING:
    import pandas as pd

MOST_SIZES = 48
"""Most sizes of one collective on one number of ranks: in production every batch may have its own size."""

_BINS_PER_OCTAVE = 8
_ROUNDED = 1e-5  # anchors have six digits


def fit_traced(
    samples: pd.DataFrame,
    machine: Machine,
    identity: Identity,
    like: Calibration | None,
    widened: Mapping[tuple[str, int], float],
    kernels: pd.DataFrame | None = None,
) -> Calibration:
    """``fit_calibration`` for samples from traces.

    kernels  look-ups and bucketizations, in the columns of ``Run.kernel_samples``
    widened  by (collective, ranks): standard deviation of ln t that waits in the samples add to the band
    Limits: nothing widened and few sizes -> ``fit_calibration``
    """
    found = fit_calibration(fewer_sizes(samples), machine, identity, like=like)
    curves = [
        curve.model_copy(
            update={"anchor_log_sd": math.hypot(curve.anchor_log_sd, widened[curve.collective, curve.gpus])}
        )
        if (curve.collective, curve.gpus) in widened
        else curve
        for curve in found.curves
    ]
    laws = []
    for law in found.laws:
        more = max((sd for (name, _), sd in widened.items() if name in law.collectives), default=0.0)
        laws.append(law.model_copy(update={"residual_log_sd": math.hypot(law.residual_log_sd, more)}))
    found = found.model_copy(update={"curves": curves, "laws": laws})
    if kernels is None or kernels.empty:
        return found
    told = fit_each(kernels, machine, identity.clock)
    return found.model_copy(update={"kernels": told[0], "more_kernels": told[1:]}) if told else found


def is_fitted_to(calibration: Calibration, samples: pd.DataFrame) -> bool:
    """Whether a calibration was fitted to these samples: its curves have most of their median times.

    File names do not count: a copy of a trace is the same trace.
    Limits: no sample, or a calibration of another clock -> False
    """
    rows = samples[samples["clock"] == str(calibration.clock)]
    medians = fewer_sizes(rows).groupby(["collective", "gpus", "payload_bytes"])["time_s"].median()
    known = {
        (curve.collective, curve.gpus, round(size)): time
        for curve in calibration.curves
        for size, time in zip(curve.anchor_bytes, curve.anchor_times_s, strict=True)
    }
    same = [
        math.isclose(known.get((str(name), int(gpus), int(size)), 0.0), time, rel_tol=_ROUNDED)
        for name, gpus, size, time in medians.reset_index().itertuples(index=False)
    ]
    return 2 * sum(same) > len(same)


def fewer_sizes(samples: pd.DataFrame) -> pd.DataFrame:
    """Samples where sizes within an eighth of an octave are replaced by their median, if there are many.

    Limits: at most ``MOST_SIZES`` sizes per collective, ranks and nodes -> unchanged
    """
    cells = ["collective", "gpus", "gpus_per_node"]
    many = samples.groupby(cells)["payload_bytes"].transform("nunique") > MOST_SIZES
    if not many.any():
        return samples
    samples = samples.copy()
    place = np.round(np.log2(samples["payload_bytes"].astype(float)) * _BINS_PER_OCTAVE)
    by_bin = samples.assign(place=place).groupby([*cells, "place"])["payload_bytes"]
    middle = by_bin.transform("median").round().astype(np.int64)
    samples["payload_bytes"] = np.where(many, middle, samples["payload_bytes"])
    return samples
