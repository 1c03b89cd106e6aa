"""Compares timed collectives of a log with the 95 % band of a similar normal cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.calibrated import Calibrated
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.grid import GRID_BYTES
from perfmodel.collectives.rates import scaled_unknowns
from perfmodel.collectives.stored import step_constants
from perfmodel.collectives.time_tables import speed_of_light
from perfmodel.model.collectives import bus_factor
from perfmodel.model.laws import LINK_LAWS, ring_tree_choice, ring_tree_time
from perfmodel.model.unknowns import Group
from perfmodel.schema.evidence import COLLECTIVES, PER_PEER, Evidence
from perfmodel.schema.priors import load_priors
from perfmodel.validate.reason_table import LikelyReason

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Z95 = 1.96
FAR = 2 * Z95
"""A single size counts as outside only beyond this many standard deviations of the band.

If sizes err independently, of 30 sizes on a normal cluster one is outside in most logs, two neighbours on
one side in 4 of 100 logs, one beyond ``FAR`` in 3 of 1000."""
LATENCY_SHARE = 0.5
"""Share of latency in an expected time above which a size says nothing about the rate of its links."""
_LATENCIES = ("_base_ratio", "_inside_ratio", "_network_ratio", "_overhead_ratio")  # over NCCL's table
_NARROWEST = 1e-3  # half of a band that the speed of light cuts: 0.1 %
_KEY = ["source_id", "collective", "variant", "gpus", "gpus_per_node", "datatype", "in_place"]


@dataclass(frozen=True)
class Stretch:
    """Consecutive sizes that are outside the band on the same side.

    first, last  index of the sizes;  slow  whether they are above;  ratios  measured over expected time [-]
    """

    first: int
    last: int
    slow: bool
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return float(np.median(self.ratios))


@dataclass(frozen=True)
class Series:
    """A collective on a group of ranks at several sizes, ascending, with the times that are expected.

    log       name of the log;  model  gives the expected times
    time_s    measured medians;  expected_s, low_s, high_s  of a normal cluster, with its 95 % band
    latency   share of the expected time that no faster link shortens [-]
    evidence  for the expected time at the median size;  judged  sizes whose times can be compared
    said      lines of NCCL in its log;  reasons  why it is outside, the likeliest first
    datatype  as in the log;  in_place  whether send and receive buffer are one
    """

    log: str
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
    said: str = ""
    reasons: tuple[LikelyReason, ...] = field(default=(), compare=False)

    @property
    def nodes(self) -> int:
        """Nodes of its ranks."""
        return self.gpus // self.gpus_per_node

    @property
    def group(self) -> Group:
        """How its ranks are distributed over scale-up domains."""
        return Group.of(self.gpus, self.model.machine.domain_gpus_of(self.gpus_per_node))

    def deviations(self, expected_s: Floats, least_log_sd: float = _NARROWEST) -> Floats:
        """ln(measured / expected_s) of each size, in standard deviations of its band; above the band: > 0.

        least_log_sd  of a hypothesis, which a law predicts where nothing like it was measured
        """
        off = np.log(self.time_s / expected_s)
        widths = np.log(np.where(off > 0, self.high_s / self.expected_s, self.expected_s / self.low_s))
        return np.asarray(off / np.maximum(widths / Z95, least_log_sd))

    @cached_property
    def side(self) -> npt.NDArray[np.int64]:
        """For each size 1 if it is above the band, -1 below, 0 inside or not judged."""
        z = self.deviations(self.expected_s)
        return np.where(self.judged & (np.abs(z) > Z95), np.sign(z), 0).astype(np.int64)

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """Ranges of sizes where it is outside the band by more than chance.

        Limits: a single size outside, by less than ``FAR`` standard deviations -> not listed
        """
        far = np.abs(self.deviations(self.expected_s)) > FAR
        ratios = self.time_s / self.expected_s
        return tuple(
            Stretch(run[0], run[-1], bool(self.side[run[0]] > 0), tuple(ratios[run].tolist()))
            for run in _runs(self.side)
            if len(run) > 1 or far[run[0]]
        )

    @property
    def outside(self) -> Bools:
        """Mask of the sizes that are outside the band within its stretches."""
        found = np.zeros(self.side.size, bool)
        for each in self.stretches:
            found[each.first : each.last + 1] = self.side[each.first : each.last + 1] != 0
        return found

    @property
    def verdict(self) -> str:
        """The verdict in words: normal, slow, fast, slow and fast, or not judged."""
        sides = {each.slow for each in self.stretches}
        found = [word for word, slow in (("slow", True), ("fast", False)) if slow in sides]
        return " and ".join(found) or ("normal" if self.judged.any() else "not judged")

    @cached_property
    def light_s(self) -> Floats:
        """Least possible time of each size, with links at their datasheet rates [s]."""
        least = speed_of_light(self.model.machine, self.collective, self.group)
        return np.asarray(self.payload_bytes / np.interp(self.payload_bytes, GRID_BYTES, GRID_BYTES / least))

    def busbw(self, time_s: Floats) -> Floats:
        """Bus bandwidth, as nccl-tests prints it, if its sizes take these times [bytes/s]."""
        return np.asarray(self.payload_bytes / time_s * bus_factor(self.collective, self.gpus))


def _runs(side: npt.NDArray[np.int64]) -> Iterator[list[int]]:
    """Groups of indices that are outside on the same side; a single index inside does not end a group."""
    places = np.flatnonzero(side).tolist()
    run = places[:1]
    for before, place in pairwise(places):
        if side[before] != side[place] or place - before > 2:
            yield run
            run = []
        run.append(place)
    if run:
        yield run


class WrongResults(NamedTuple):
    """Sizes of a collective in a log whose received data were wrong (``#wrong`` of nccl-tests).

    flag  ``wrong``, or ``unread-check`` where the log's count of wrong results is no number
    """

    flag: str
    log: str
    collective: str
    gpus: int
    payload_bytes: list[int]


def wrong_results(samples: pd.DataFrame) -> list[WrongResults]:
    """The wrong results of a log, by collective and number of ranks. Limits: none -> []"""
    rows = samples[samples["flag"].isin(["wrong", "unread-check"])]
    found = []
    for key, some in rows.groupby(["flag", "source_id", "collective", "gpus"], sort=False):
        flag, log, collective, gpus = map(str, key)
        sizes = sorted(set(some["payload_bytes"].astype(int).tolist()))
        found.append(WrongResults(flag, log, collective, int(gpus), sizes))
    return found


def compare_algorithms(
    model: CollectiveModel,
    collective: str,
    group: Group,
    payload_bytes: Floats,
    allowed: Callable[[str], bool],
) -> Iterator[Floats]:
    """Yields times with the algorithms and protocols whose name is allowed, over times with all of them.

    First with fitted latencies, then with those of NCCL's table: it never chose these in measurements, so
    their fitted latency may be far off.
    Limits: a collective without such a choice, no name allowed, or all -> nothing
    """
    law = model.calibration.law(collective)
    if law is None or LINK_LAWS[law.law].time is not ring_tree_time:
        return
    measured_on = Calibrated.of(model.machine, model.calibration).machine
    logs = scaled_unknowns(np.log(np.array(law.values)), law, model.machine, measured_on)
    unknowns = dict(zip(law.names, np.exp(logs).tolist(), strict=True))
    table = {name: 1.0 for name in law.names if name.endswith(_LATENCIES)}
    question = step_constants(model.machine, load_priors()), collective, group, payload_bytes
    fitted_s = np.asarray(ring_tree_choice(unknowns, *question).time_s, float)
    for values in (unknowns, unknowns | table):
        choice = ring_tree_choice(values, *question)
        named = zip(choice.candidates, choice.times_s, strict=True)
        times = [np.asarray(time, float) for candidate, time in named if allowed(candidate.name)]
        if times and len(times) < len(choice.candidates):
            yield np.min(times, axis=0) / fitted_s


def _integer_ratios(model: CollectiveModel, collective: str, group: Group, payload_bytes: Floats) -> Floats:
    """How much longer a sum of integers takes, which the switch (NVLS) does not add."""
    ratios = compare_algorithms(model, collective, group, payload_bytes, lambda name: name != "NVLS")
    return np.maximum(next(ratios, np.ones(payload_bytes.size)), 1.0)


def series_of(samples: pd.DataFrame, model: CollectiveModel, said: str, same_clock: bool) -> list[Series]:
    """A series for every collective and group of ranks in the samples of a log.

    model  gives the expected times;  said  lines of NCCL in the log
    same_clock  whether the expected times were measured in the same way; if not, sizes whose time is mostly
                latency are not judged
    Limits: an operation that no law knows, wrong results, less than a byte for each peer -> left out
    """
    usable = samples["collective"].isin(COLLECTIVES) & (samples["flag"] == "ok")
    usable &= (samples["payload_bytes"] >= samples["gpus"]) | ~samples["collective"].isin(PER_PEER)
    found = []
    for key, rows in samples[usable].groupby(_KEY, sort=False):
        log, collective, _, gpus, per_node, datatype, in_place = map(str, key)
        medians = rows.groupby("payload_bytes")["time_s"].median()
        sizes = medians.index.to_numpy(float)
        guess = model.estimate(collective, sizes, int(gpus), int(per_node))
        latency = guess.floor_s / guess.time_s
        group = Group.of(int(gpus), model.machine.domain_gpus_of(int(per_node)))
        slower = _integer_ratios(model, collective, group, sizes) if "int" in datatype else 1.0
        expected, high = guess.time_s * slower, guess.high_s * slower
        found.append(
            Series(
                log, collective, int(gpus), int(per_node), datatype, in_place == "True", model,
                sizes, medians.to_numpy(float), expected, guess.low_s, high, latency,
                str(Evidence.from_rank(int(np.median(guess.evidence)))),
                (latency < LATENCY_SHARE) | same_clock, said,
            )
        )  # fmt: skip
    return found
