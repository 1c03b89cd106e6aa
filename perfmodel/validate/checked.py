"""Compares timed collectives of a log with the 95 % band of a similar normal cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.derivation import Calibrated
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.link_laws import GRID_BYTES, compute_law_time, compute_least_times
from perfmodel.collectives.timings import Timing
from perfmodel.engine.tables import Array, Ints
from perfmodel.fit.build import select_usable
from perfmodel.model.unknowns import Group
from perfmodel.schema.evidence import PER_PEER, Evidence
from perfmodel.schema.machine import Machine

if TYPE_CHECKING:
    import pandas as pd

Bools = npt.NDArray[np.bool_]

Z95 = 1.96
LATENCY_SHARE = 0.5
"""Share of latency in an expected time above which a size says nothing about the rate of its links."""
_WRONG = ("wrong", "unread-check")  # flags of rows whose #wrong is not 0, or no number
_ALONE = "single-process"  # flag of rows of a process that launched all ranks
_NO_NVLS = "^(?!NVLS$)"
_ROUNDING = 1e-3  # by which a time at the end of a band may leave it, as where the speed of light cuts it
_KEY = ["source_id", "collective", "variant", "gpus", "gpus_per_node", "datatype"]


@dataclass(frozen=True)
class Series:
    """A collective on a group of ranks at several sizes, ascending, with the times that are expected.

    log, said  name of the log, lines of NCCL in it;  datatype  as in the log;  time_s  measured medians
    model      gives the times of a normal cluster (``normal``);  judged  sizes whose times can be compared
    wrong_bytes  sizes at which received data were wrong, or nobody can say [bytes]
    """

    log: str
    collective: str
    gpus: int
    gpus_per_node: int
    datatype: str
    said: str
    payload_bytes: Array
    time_s: Array
    model: CollectiveModel
    normal: Timing
    judged: Bools
    wrong_bytes: Array

    @property
    def nodes(self) -> int:
        """Nodes of its ranks."""
        return self.gpus // self.gpus_per_node

    @property
    def group(self) -> Group:
        """How its ranks are distributed over scale-up domains."""
        return Group.of(self.gpus, self.model.machine.domain_gpus_of(self.gpus_per_node))

    @property
    def evidence(self) -> str:
        """Evidence for the expected time at the median size."""
        return str(Evidence.from_rank(int(np.median(self.normal.evidence))))

    @property
    def ratios(self) -> Array:
        """Measured over expected time of each size [-]."""
        return np.asarray(self.time_s / self.normal.time_s)

    def deviations(self, expected_s: Array, least_log_sd: float = 0.0) -> Array:
        """ln(measured / expected_s) of each size, in standard deviations of its band; above the band: > 0.

        least_log_sd  least width of the band (sd of ln time): a law's times, never measured, are less sure
        """
        off = np.log(self.time_s / expected_s)
        normal = self.normal
        below = np.signbit(off)
        widths = np.log(np.where(below, normal.time_s / normal.low_s, normal.high_s / normal.time_s))
        return np.asarray(off / np.maximum((widths + _ROUNDING) / Z95, least_log_sd))

    @cached_property
    def side(self) -> Ints:
        """For each size 1 if it is above the band, -1 below, 0 inside or not judged."""
        z = self.deviations(self.normal.time_s)
        return np.where(self.judged & (np.abs(z) > Z95), np.sign(z), 0).astype(np.int64)

    @cached_property
    def stretches(self) -> list[Ints]:
        """Places of consecutive sizes outside the band on one side: two sizes at least.

        A single size inside the band does not end a stretch. A single size outside may be a first call or
        noise, so it is none; only the largest size is one by itself, if it is off by twice the band's width.
        """
        places = np.flatnonzero(self.side)
        far = np.flatnonzero(np.abs(self.deviations(self.normal.time_s)) > 2 * Z95)
        alone = {self.side.size - 1}.intersection(far)
        ends = np.flatnonzero((np.diff(self.side[places]) != 0) | (np.diff(places) > 2)) + 1
        return [run for run in np.split(places, ends) if run[1:].size or alone.intersection(run)]

    def find_outside(self, side: int) -> Bools:
        """Mask of the sizes in its stretches above (1) or below the band (-1)."""
        places = [place for stretch in self.stretches for place in stretch]
        return np.asarray(np.isin(np.arange(self.side.size), places) & (self.side == side))

    @property
    def slow(self) -> bool:
        """Whether a stretch of its sizes is above the band."""
        return bool(self.find_outside(1).any())

    @cached_property
    def impossible(self) -> bool:
        """Whether a size outside the band is faster than the datasheet's rates of the links allow."""
        light_s = compute_least_times(self.model.machine, self.collective, self.group)
        # rates, unlike times, are smooth between the sizes of the grid
        least_s = self.payload_bytes / np.interp(self.payload_bytes, GRID_BYTES, GRID_BYTES / light_s)
        return bool(np.any((self.time_s < least_s)[self.find_outside(-1)]))

    @property
    def verdict(self) -> str:
        """In words: wrong results, impossible, slow, fast, slow and fast, normal, or not judged."""
        if self.wrong_bytes.size:
            return "wrong results"
        words = [word for word, side in (("slow", 1), ("fast", -1)) if self.find_outside(side).any()]
        inside = "normal" if self.judged.any() else "not judged"
        return "impossible" if self.impossible else " and ".join(words) or inside

    @property
    def abnormal(self) -> bool:
        """Whether it is slow, impossible or wrong: faster than its peers is not abnormal."""
        return self.verdict not in ("normal", "fast", "not judged")

    def predict_ratio(self, machine: Machine, algorithm: str = "") -> Array | None:
        """The law's times on another machine over those here, one for each size [-].

        algorithm  what NCCL may choose there, as in NCCL_ALGO (``Ring``); "": anything
        Limits: no law, an ``algorithm`` of a law without a choice, or that changes no time -> None
        """
        law = self.model.calibration.law(self.collective)
        here = self.model.machine
        if law is None or (algorithm and law.law != "ring_tree"):
            return None
        measured_on = Calibrated.of(here, self.model.calibration).machine
        question = measured_on, self.collective, self.group, self.payload_bytes
        ratio = compute_law_time(law, machine, *question, algorithm) / compute_law_time(law, here, *question)
        return None if algorithm and (ratio == 1).all() else np.asarray(ratio)


def build_series(samples: pd.DataFrame, model: CollectiveModel, said: str, same_clock: bool) -> list[Series]:
    """A series for every collective and group of ranks in the samples of a log.

    model  gives the expected times;  said  lines of NCCL in the log
    same_clock  whether the expected times were measured in the same way; if not, sizes whose time is mostly
                latency are not judged
    A sum of integers takes longer, because the switch (NVLS) does not add them.
    Limits: samples that no fit would use (``select_usable``), less than a byte for each peer -> left out
    """
    bad = samples[samples["flag"].isin(_WRONG)].groupby(["source_id", "collective", "gpus"])
    wrong = {key: np.unique(rows["payload_bytes"]) for key, rows in bad}
    usable = select_usable(samples.replace({"flag": dict.fromkeys([*_WRONG, _ALONE], "ok")}))
    usable = usable[(usable["payload_bytes"] >= usable["gpus"]) | ~usable["collective"].isin(PER_PEER)]
    curves = []
    for key, rows in usable.groupby(_KEY, sort=False):
        log, collective, _, gpus, per_node, datatype = map(str, key)
        medians = rows.groupby("payload_bytes")["time_s"].median()
        sizes = medians.index.to_numpy(float)
        normal = model.estimate(collective, sizes, int(gpus), int(per_node))
        judged = (normal.floor_s / normal.time_s < LATENCY_SHARE) | same_clock
        whose = log, collective, int(gpus), int(per_node), datatype, said
        damaged = wrong.get((log, collective, int(gpus)), np.empty(0))
        series = Series(*whose, sizes, medians.to_numpy(float), model, normal, judged, damaged)
        slower = series.predict_ratio(model.machine, _NO_NVLS) if "int" in datatype else None
        if slower is not None:
            longer = {name: getattr(normal, name) * np.maximum(slower, 1) for name in ("time_s", "high_s")}
            series = replace(series, normal=replace(normal, **longer))
        curves.append(series)
    return curves
