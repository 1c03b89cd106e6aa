"""Delay of a collective by its slowest rank, beyond its measured mean time: random for every batch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from scipy.optimize import nnls

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.library import CollectiveTimes, Faster, Links
from perfmodel.model import queueing
from perfmodel.passes.one_domain import OneDomain
from perfmodel.passes.settings import Setting
from perfmodel.schema.constants import load_service_constants
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.home import SAMPLES_NAME
from perfmodel.schema.run_files import Run, read_run
from perfmodel.schema.run_folders import run_folder
from perfmodel.schema.runs import PointKind

if TYPE_CHECKING:
    from perfmodel.service.served import ServedPass

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
_SAME = 1e-6  # of the logarithm of a size
_FEWEST = 8  # calls of a visit, from which its spread is computed
DRAWS = 2**14
"""Batches for which delays are drawn; in longer runs they repeat."""


@dataclass(frozen=True)
class RankDelay:
    """Mean s of the delay of one rank in a collective that takes time t; delays are exponential.

        s = a + r t                                                           [s]

    floor_s, floor_low_s, floor_high_s  a, with its 95 % interval [s]: launches, interrupts
    share, share_low, share_high        r, with its interval [-]: differences between links and clocks
    """

    floor_s: float
    floor_low_s: float
    floor_high_s: float
    share: float
    share_low: float
    share_high: float
    evidence: Evidence
    source: str

    def end(self, high: bool) -> RankDelay:
        """The delay with both parameters at one end of their intervals."""
        a, r = (self.floor_high_s, self.share_high) if high else (self.floor_low_s, self.share_low)
        return replace(self, floor_s=a, share=r)


NONE = RankDelay(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, Evidence.ASSUMED, "no rank is slower than another, as asked")


@dataclass(frozen=True, eq=False)
class Lateness:
    """Delays of collectives, (a + r t) times a random draw for each batch and step, as in ``RankDelay``.

    floor_s, share  a and r;  draws  [batches, S] for S steps
    more, at  [S, n], [n]: additions to the draws of S steps, at n numbers of samples per GPU, linear in
              between; empty: nothing is added
    """

    floor_s: float
    share: float
    draws: Array
    more: Array = field(default_factory=lambda: np.zeros((0, 0)))
    at: Array = field(default_factory=lambda: np.zeros(0))

    @cached_property
    def rows(self) -> list[list[float]]:
        """``draws`` as lists, for loops: all simulations of a search share them."""
        rows: list[list[float]] = self.draws.tolist()
        return rows

    def more_of(self, samples: Array) -> Array:
        """Additions to the draws of passes with so many samples per GPU [m, S]; [0, 0]: nothing."""
        if not self.more.any():
            return np.zeros((0, 0))
        return np.transpose([np.interp(samples, self.at, row) for row in self.more])

    def delays(self, times: Array, samples: float) -> Array:
        """Delay of each batch and step [batches, S] [s]. times  of the steps [S];  samples  per GPU"""
        more = self.more_of(np.array([samples]))
        late = (self.floor_s + self.share * times) * (self.draws + (more[0] if more.size else 0.0))
        return np.where(times > 0, late, 0.0)


def lateness(
    spread: RankDelay, measured: npt.ArrayLike, gpus: int, seed: int = 0, at: Array | None = None
) -> Lateness | None:
    """Random delays d of collectives on G ranks, beyond a mean time that was measured on fewer ranks g.

        d = s (-ln(1 - U^(1/G)) - H_g),   U uniform on 0 .. 1                 [s]

    spread    gives s, the mean delay of a rank;  gpus  G;  H_g  the sum of 1/k for k = 1 .. g
    measured  g of each step [S], or at each number of samples per GPU in ``at`` [S, n]: ranks on which its
              mean time was measured, with the delay of the slowest of them; 0 for a step that waits for no
              rank
    Source: ``queueing.slowest_quantile`` at a random q, less ``queueing.slowest_delay`` of g ranks
    Limits: G = g -> mean 0;  g < G -> mean s (H_G - H_g);  no spread -> None
    """
    if not spread.floor_s and not spread.share:
        return None
    ranks = np.asarray(measured, dtype=np.float64)
    ranks = ranks.reshape(ranks.shape[0], -1)
    most = ranks.max(axis=1)
    random = np.random.default_rng([seed, gpus])
    places = random.permuted(np.tile(np.arange(DRAWS)[:, np.newaxis], most.size), axis=0)
    uniform = (places + random.random(places.shape)) / DRAWS  # one in each of DRAWS equal parts of 0 .. 1
    draws = queueing.slowest_quantile(1.0, gpus, uniform) - queueing.slowest_delay(1.0, most)
    less = queueing.slowest_delay(1.0, most)[:, np.newaxis] - queueing.slowest_delay(1.0, ranks)
    found = Lateness(spread.floor_s, spread.share, np.where(most > 0, draws, 0.0))
    return found if at is None else replace(found, more=np.where(ranks > 0, less, 0.0), at=at)


def ranks_behind(setting: Setting, served: ServedPass) -> Whole:
    """By step and samples per GPU, the ranks on which the mean time was measured; 0: a kernel."""
    none = np.zeros(served.batches.size, dtype=np.int64)
    return np.array(
        [
            measured_ranks(setting, step.collective, sizes, served.gpus) if step.collective else none
            for step, sizes in zip(served.steps, served.payload_bytes, strict=True)
        ]
    )


def measured_ranks(setting: Setting, collective: str, payload_bytes: npt.ArrayLike, gpus: int) -> Whole:
    """Ranks on which a collective was measured at each size: the largest number up to ``gpus``.

    A measurement on some ranks counts for its range of sizes; outside all ranges, the nearest range does.
    Limits: none -> 1
    """
    sizes = np.log(np.maximum(np.atleast_1d(np.asarray(payload_bytes, dtype=np.float64)), 1.0))
    known = [curve for times in _models(setting.links) for curve in times.calibration.curves]
    cells = [curve for curve in known if curve.collective == collective and curve.gpus <= gpus]
    if not cells:
        return np.ones(sizes.size, dtype=np.int64)
    ends = np.log([[cell.anchor_bytes[0], cell.anchor_bytes[-1]] for cell in cells])
    off = np.maximum(ends[:, :1] - sizes, sizes - ends[:, 1:]).clip(min=0.0)
    ranks = np.array([cell.gpus for cell in cells])[:, np.newaxis]
    found: Whole = np.where(off <= off.min(axis=0) + _SAME, ranks, 0).max(axis=0)
    return found


def _models(links: Links) -> list[CollectiveModel]:
    libraries = (links.first, links.second) if isinstance(links, Faster) else (links,)
    found: list[CollectiveTimes] = [library.times for library in libraries]
    inner = [times.measured if isinstance(times, OneDomain) else times for times in found]
    return [times for times in inner if isinstance(times, CollectiveModel)]


def spread_of(calibration: str | None) -> RankDelay:
    """Mean delays of a rank, from the run of a calibration if it timed single calls; else published."""
    folder = run_folder(calibration) if calibration else None
    if calibration and folder is None:
        folder = run_folder(str(calibration).rpartition("/")[0] or ".")
    if folder is not None and (folder / SAMPLES_NAME).is_file():
        found = spread_of_run(read_run(folder))
        if found is not None:
            return found
    constants = load_service_constants()
    floor, share = constants.quantity("rank_delay_floor_s"), constants.quantity("rank_delay_share")
    quantile = constants.value("normal_quantile_95")
    ends = [float(np.exp(quantile * (each.log_sd or 0.0))) for each in (floor, share)]
    return RankDelay(
        floor.value,
        floor.value / ends[0],
        floor.value * ends[0],
        share.value,
        share.value / ends[1],
        share.value * ends[1],
        floor.evidence,
        floor.source,
    )


def spread_of_run(run: Run) -> RankDelay | None:
    """The mean delay of a rank, from the spread of the times of single calls of a run's collectives.

    A visit is a series of calls of a collective on G ranks. Its standard deviation, over the standard
    deviation of the largest of G exponentials of mean 1, is a delay s. Parameters a and r are fitted to all s
    by non-negative least squares of relative errors. Their interval is the interval of the visits' ratios to
    the fit.
    Limits: no visit with 8 calls that were timed one by one -> None
    """
    rows = [
        (float(np.median(visit.times_s)), float(np.std(visit.times_s, ddof=1)), point.gpus)
        for point, visits, _ in run.usable(PointKind.COLLECTIVE)
        for visit in visits
        if visit.calls_each == 1 and len(visit.times_s) >= _FEWEST
    ]
    rows = [row for row in rows if row[1] > 0]
    if not rows:
        return None
    time, sd, ranks = np.array(rows).T
    s = queueing.delay_scale(sd, ranks)
    (a, r), _ = nnls(np.column_stack([1 / s, time / s]), np.ones_like(s))
    low, high = np.quantile(s / np.maximum(a + r * time, np.finfo(float).tiny), [0.025, 0.975])
    where = f"run {run.run_id}: {len(rows)} visits of calls that were timed one by one"
    floor, share = (tuple(float(value * end) for end in (1, low, high)) for value in (a, r))
    return RankDelay(floor[0], floor[1], floor[2], share[0], share[1], share[2], Evidence.MEASURED, where)
