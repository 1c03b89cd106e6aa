"""Compares timed collectives of a log with the 95 % band of a similar normal cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.derivation import Calibrated
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.link_laws import GRID_BYTES, scale_unknowns, step_constants
from perfmodel.collectives.time_tables import compute_least_times
from perfmodel.model.collectives import compute_bus_factor
from perfmodel.model.laws import LINK_LAWS, choose_candidates, compute_ring_tree_time
from perfmodel.model.unknowns import Group
from perfmodel.schema.evidence import COLLECTIVES, PER_PEER, Evidence
from perfmodel.schema.priors import load_priors

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Z95 = 1.96
LATENCY_SHARE = 0.5
"""Share of latency in an expected time above which a size says nothing about the rate of its links."""
_ROUNDING = 1e-3  # by which a time at the end of a band may leave it, as where the speed of light cuts it
_KEY = ["source_id", "collective", "variant", "gpus", "gpus_per_node", "datatype", "in_place"]


class Stretch(NamedTuple):
    """Consecutive sizes outside the band on one side; ``ratios`` are measured over expected times."""

    slow: bool
    from_bytes: float
    to_bytes: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median of the ratios."""
        return float(np.median(self.ratios))


@dataclass(frozen=True, kw_only=True)
class Series:
    """A collective on a group of ranks at several sizes, ascending, with the times that are expected.

    log       name of the log;  said  lines of NCCL in it;  model  gives the expected times
    time_s    measured medians;  expected_s, low_s, high_s  of a normal cluster, with its 95 % band
    latency   share of the expected time that no faster link shortens [-]
    evidence  for the expected time at the median size;  judged  sizes whose times can be compared
    datatype  as in the log;  in_place  whether send and receive buffer are one
    """

    log: str
    said: str
    collective: str
    gpus: int
    gpus_per_node: int
    datatype: str
    in_place: bool
    model: CollectiveModel
    payload_bytes: Floats
    time_s: Floats
    expected_s: Floats
    low_s: Floats
    high_s: Floats
    latency: Floats
    evidence: str
    judged: Bools

    @property
    def nodes(self) -> int:
        """Nodes of its ranks."""
        return self.gpus // self.gpus_per_node

    @property
    def group(self) -> Group:
        """How its ranks are distributed over scale-up domains."""
        return Group.of(self.gpus, self.model.machine.domain_gpus_of(self.gpus_per_node))

    def deviations(self, expected_s: Floats, least_log_sd: float = 0.0) -> Floats:
        """ln(measured / expected_s) of each size, in standard deviations of its band; above the band: > 0.

        least_log_sd  of a hypothesis, which a law predicts where nothing like it was measured
        """
        off = np.log(self.time_s / expected_s)
        widths = np.log(np.where(off > 0, self.high_s / self.expected_s, self.expected_s / self.low_s))
        return np.asarray(off / np.maximum((widths + _ROUNDING) / Z95, least_log_sd))

    @cached_property
    def side(self) -> npt.NDArray[np.int64]:
        """For each size 1 if it is above the band, -1 below, 0 inside or not judged."""
        z = self.deviations(self.expected_s)
        return np.where(self.judged & (np.abs(z) > Z95), np.sign(z), 0).astype(np.int64)

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """Ranges of sizes whose times are outside the band on one side, at two sizes at least.

        A single size inside the band does not end a range. A single size outside may be a first call or
        noise, so it is none; only the largest size is one by itself, if it is off by twice the band's width.
        """
        sizes, ratios, places = self.payload_bytes, self.time_s / self.expected_s, np.flatnonzero(self.side)
        far = abs(float(self.deviations(self.expected_s)[-1])) > 2 * Z95
        ends = np.flatnonzero((np.diff(self.side[places]) != 0) | (np.diff(places) > 2)) + 1
        return tuple(
            Stretch(bool(ratios[run[0]] > 1), sizes[run[0]], sizes[run[-1]], tuple(ratios[run].tolist()))
            for run in np.split(places, ends)
            if run.size > 1 or (run.size and sizes[run[0]] == sizes[-1] and far)
        )

    @property
    def outside(self) -> Bools:
        """Mask of the sizes that are outside the band within its stretches."""
        mask, sizes = np.zeros(self.side.size, bool), self.payload_bytes
        for stretch in self.stretches:
            mask |= (stretch.from_bytes <= sizes) & (sizes <= stretch.to_bytes)
        return np.asarray(mask & (self.side != 0))

    @cached_property
    def impossible(self) -> bool:
        """Whether sizes below the band are faster than the datasheet's rates of the links allow."""
        light_s = compute_least_times(self.model.machine, self.collective, self.group)
        least_s = self.payload_bytes / np.interp(self.payload_bytes, GRID_BYTES, GRID_BYTES / light_s)
        return bool(np.any((self.time_s < least_s)[self.outside]))

    @property
    def verdict(self) -> str:
        """The verdict in words: normal, slow, fast, slow and fast, impossible, or not judged."""
        sides = {stretch.slow for stretch in self.stretches}
        words = [word for word, slow in (("slow", True), ("fast", False)) if slow in sides]
        inside = "normal" if self.judged.any() else "not judged"
        return "impossible" if self.impossible else " and ".join(words) or inside

    @property
    def abnormal(self) -> bool:
        """Whether it is slow, or impossible: a cluster that is faster than its peers is not abnormal."""
        return self.impossible or any(stretch.slow for stretch in self.stretches)

    def compute_busbw(self, time_s: Floats) -> Floats:
        """Bus bandwidth, as nccl-tests prints it, if its sizes take these times [bytes/s]."""
        return np.asarray(self.payload_bytes / time_s * compute_bus_factor(self.collective, self.gpus))

    def compare_algorithms(self, allowed: str) -> Floats | None:
        """Times with the algorithms and protocols of a pattern, over times with all of them [-].

        Limits: a collective without such a choice, no name allowed, or all -> None
        """
        machine, law = self.model.machine, self.model.calibration.law(self.collective)
        if law is None or LINK_LAWS[law.law].time is not compute_ring_tree_time:
            return None
        logs = scale_unknowns(law, machine, Calibrated.of(machine, self.model.calibration).machine)
        unknowns = dict(zip(law.names, np.exp(logs).tolist(), strict=True))
        question = step_constants(machine, load_priors()), self.collective, self.group, self.payload_bytes
        choice = choose_candidates(unknowns, *question)
        names = [bool(re.search(allowed, candidate.name)) for candidate in choice.candidates]
        if all(names) or not any(names):
            return None
        times = np.array([time for time, use in zip(choice.times_s, names, strict=True) if use])
        return np.asarray(np.min(times, axis=0) / choice.time_s)


class WrongResults(NamedTuple):
    """Sizes of a collective whose received data were wrong, or whose ``#wrong`` is no number (flag)."""

    flag: str
    log: str
    collective: str
    gpus: int
    payload_bytes: list[int]


def find_wrong_results(samples: pd.DataFrame) -> list[WrongResults]:
    """The wrong results of a log, by collective and number of ranks. Limits: none -> []"""
    rows = samples[samples["flag"].isin(["wrong", "unread-check"])]
    wrong = []
    for key, group in rows.groupby(["flag", "source_id", "collective", "gpus"], sort=False):
        flag, log, collective, gpus = map(str, key)
        sizes = sorted(set(group["payload_bytes"].astype(int).tolist()))
        wrong.append(WrongResults(flag, log, collective, int(gpus), sizes))
    return wrong


def build_series(samples: pd.DataFrame, model: CollectiveModel, said: str, same_clock: bool) -> list[Series]:
    """A series for every collective and group of ranks in the samples of a log.

    model  gives the expected times;  said  lines of NCCL in the log
    same_clock  whether the expected times were measured in the same way; if not, sizes whose time is mostly
                latency are not judged
    A sum of integers takes longer, because the switch (NVLS) does not add them.
    Limits: an operation that no law knows, wrong results, less than a byte for each peer -> left out
    """
    usable = samples["collective"].isin(COLLECTIVES) & (samples["flag"] == "ok")
    usable &= (samples["payload_bytes"] >= samples["gpus"]) | ~samples["collective"].isin(PER_PEER)
    curves = []
    for key, rows in samples[usable].groupby(_KEY, sort=False):
        log, collective, _, gpus, per_node, datatype, in_place = map(str, key)
        medians = rows.groupby("payload_bytes")["time_s"].median()
        sizes = medians.index.to_numpy(float)
        timing = model.estimate(collective, sizes, int(gpus), int(per_node))
        latency = timing.floor_s / timing.time_s
        series = Series(
            log=log,
            said=said,
            collective=collective,
            gpus=int(gpus),
            gpus_per_node=int(per_node),
            datatype=datatype,
            in_place=in_place == "True",
            model=model,
            payload_bytes=sizes,
            time_s=medians.to_numpy(float),
            expected_s=timing.time_s,
            low_s=timing.low_s,
            high_s=timing.high_s,
            latency=latency,
            evidence=str(Evidence.from_rank(int(np.median(timing.evidence)))),
            judged=(latency < LATENCY_SHARE) | same_clock,
        )
        slower = series.compare_algorithms("^(?!NVLS$)") if "int" in datatype else None
        if slower is not None:
            longer = np.maximum(slower, 1)
            series = replace(series, expected_s=series.expected_s * longer, high_s=series.high_s * longer)
        curves.append(series)
    return curves
