"""Compares a user's samples with a shipped calibration, and their largest groups with a fit without them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.errors import NoCalibrationError
from perfmodel.fit.build import Identity, fit_calibration, usable_samples
from perfmodel.schema.calibration import Calibration
from perfmodel.schema.evidence import LAW_BACKENDS
from perfmodel.schema.machine import Machine
from perfmodel.validate import measured

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SamplesTold:
    """Accuracy of a calibration on samples. A point is the median of one size on one group of ranks.

    points  their number;  error  median of |predicted / measured - 1| [-]
    inside  number of points inside their 95 % band
    """

    points: int
    error: float
    inside: int


@dataclass(frozen=True)
class LargestLeftOut:
    """The largest groups of samples, predicted by a fit to the smaller groups.

    by        what is largest: "nodes", or "gpus" if all groups have equally many nodes
    left_out  this number in the groups left out;  seen  the largest number in the fit;  told  the accuracy
    """

    by: str
    left_out: int
    seen: int
    told: SamplesTold


def told_by(calibration: Calibration, samples: pd.DataFrame, machine: Machine) -> SamplesTold | None:
    """A calibration's accuracy on samples. Limits: it has no prediction for any of them -> None"""
    rows = usable_samples(samples)
    if rows.empty:
        return None
    try:
        points = measured.predicted(measured.medians(rows, machine), CollectiveModel(machine, calibration))
    except NoCalibrationError:
        return None
    return SamplesTold(len(points), float(points["error"].abs().median()), int(points["inside"].sum()))


def largest_left_out(
    samples: pd.DataFrame, machine: Machine, own: Calibration, like: Calibration | None
) -> LargestLeftOut | None:
    """Fits the samples again without the groups with most nodes (else most GPUs), and predicts these.

    own   the calibration fitted to all samples;  like  the calibration from which its laws started
    Limits: all groups have equally many nodes and GPUs, or a library without a law -> None
    """
    if own.backend not in LAW_BACKENDS:
        return None
    rows = usable_samples(samples)
    by = next((name for name in ("nodes", "gpus") if rows[name].nunique() > 1), None)
    if by is None:
        return None
    most = int(rows[by].max())
    seen = rows[rows[by] < most]
    held = rows[(rows[by] == most) & rows["collective"].isin(set(seen["collective"]))]
    identity = Identity(own.machine, own.backend, own.library_version, own.clock)
    told = told_by(fit_calibration(seen, machine, identity, like=like), held, machine)
    return None if told is None else LargestLeftOut(by, most, int(seen[by].max()), told)
