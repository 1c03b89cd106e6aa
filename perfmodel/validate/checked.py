"""Compares timed collectives of a log with the 95 % band of a similar normal cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from perfmodel import resources
from perfmodel.collectives.derivation import Calibrated
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.link_laws import GRID_BYTES, scale_unknowns, step_constants
from perfmodel.collectives.time_tables import compute_light_time
from perfmodel.model.collectives import bus_factor
from perfmodel.model.laws import LINK_LAWS, ring_tree_choice, ring_tree_time
from perfmodel.model.unknowns import Group
from perfmodel.schema.evidence import COLLECTIVES, PER_PEER, Evidence
from perfmodel.schema.fields import Strict, read_as
from perfmodel.schema.priors import load_priors

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
_ROUNDING = 1e-3  # by which a time at the end of a band may leave it, as where the speed of light cuts it
_NOTHING = r"\A(?!)"  # that no log says
_KEY = ["source_id", "collective", "variant", "gpus", "gpus_per_node", "datatype", "in_place"]


class ReasonRule(Strict):
    """A reason why collectives may be slow, as ``data/validation/reasons.toml`` states it.

    test      hypothesis: a lower ``rate`` of links, a ``choice`` of fewer algorithms, a least time of a
              ``launch``, a ``wait`` in each call, times that are ``impossible`` or ``faster``; of lone sizes
              the ``first`` or ``spikes``
    key, rate, unit  machine value that is lower, and the range of what is left: a share of itself, of one
              card's part of a node ("card"), of PCIe's rate ("pcie"), or bytes/s of a node ("node")
    later     whether messages may also take longer;  allowed  pattern of the names of algorithms
    links     "inside" a domain or "across" several, "" both;  collective  the only collective, "" all
    words     the reason in a sentence;  look  where to look for it;  source  of the reason
    free      number of fitted parameters;  general  whether it says little, so that other reasons come first
    network   excluded if other collectives on the same ranks are normal;  alone  excluded if any is slow
    stated, hint, denied   patterns for lines in NCCL's log that prove, suggest or exclude it
    """

    name: str
    test: Literal["rate", "choice", "launch", "wait", "impossible", "faster", "first", "spikes"]
    key: str = ""
    rate: tuple[float, float] = (1.0, 1.0)
    unit: Literal["", "card", "pcie", "node"] = ""
    later: bool = False
    allowed: str = ""
    links: Literal["", "inside", "across"] = ""
    collective: str = ""
    words: str
    look: str
    source: str
    free: int = 0
    network: bool = False
    alone: bool = False
    general: bool = False
    stated: str = _NOTHING
    hint: str = _NOTHING
    denied: str = _NOTHING


class Reasons(Strict):
    """The contents of the table. setting  what a variable of NCCL costs that a log says was set"""

    setting: Mapping[str, str]
    reason: tuple[ReasonRule, ...]


@lru_cache(maxsize=1)
def load_reasons() -> Reasons:
    """The rules by which ``perfmodel check`` explains a slow log, from the shipped file."""
    return read_as(Reasons, resources.data_path("validation", "reasons.toml"), "reasons")


@dataclass(frozen=True)
class LikelyReason:
    """A reason that agrees with the measured times.

    rule      the reason;  words  in a sentence, with its fitted number
    explains  number of sizes outside the band that would be inside with it;  of  number of sizes outside
    ratios    times by this reason over expected times, at the sizes outside [-]
    stated    whether the log itself says so;  cannot_tell  whether other reasons explain as many sizes
    """

    rule: ReasonRule
    words: str
    explains: int
    ratios: tuple[float, ...]
    of: int
    stated: bool = False
    cannot_tell: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The public schema."""
        own = {name: value for name, value in vars(self).items() if name != "rule"}
        return {"name": self.rule.name, **own, "look": self.rule.look, "source": self.rule.source}


class Stretch(NamedTuple):
    """Consecutive sizes that are outside the band on the same side.

    first, last  index of the sizes;  slow  whether they are above;  ratios  measured over expected time [-]
    """

    first: int
    last: int
    slow: bool
    ratios: tuple[float, ...]


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
        """Ranges of sizes where it is outside the band by more than chance; one size inside does not end one.

        Limits: a single size outside, by less than ``FAR`` standard deviations -> not listed
        """
        far, ratios = np.abs(self.deviations(self.expected_s)) > FAR, self.time_s / self.expected_s
        places = np.flatnonzero(self.side)
        ends = np.flatnonzero((np.diff(self.side[places]) != 0) | (np.diff(places) > 2)) + 1
        runs = [run for run in np.split(places, ends) if len(run) > 1 or (run.size and far[run[0]])]
        slow = [bool(self.side[run[0]] > 0) for run in runs]
        return tuple(
            Stretch(int(run[0]), int(run[-1]), above, tuple(ratios[run].tolist()))
            for run, above in zip(runs, slow, strict=True)
        )

    @property
    def outside(self) -> Bools:
        """Mask of the sizes that are outside the band within its stretches."""
        mask = np.zeros(self.side.size, bool)
        for stretch in self.stretches:
            mask[stretch.first : stretch.last + 1] = True
        return np.asarray(mask & (self.side != 0))

    @property
    def verdict(self) -> str:
        """The verdict in words: normal, slow, fast, slow and fast, or not judged."""
        sides = {stretch.slow for stretch in self.stretches}
        words = [word for word, slow in (("slow", True), ("fast", False)) if slow in sides]
        return " and ".join(words) or ("normal" if self.judged.any() else "not judged")

    @cached_property
    def light_s(self) -> Floats:
        """Least possible time of each size, with links at their datasheet rates [s]."""
        least = compute_light_time(self.model.machine, self.collective, self.group)
        return np.asarray(self.payload_bytes / np.interp(self.payload_bytes, GRID_BYTES, GRID_BYTES / least))

    def busbw(self, time_s: Floats) -> Floats:
        """Bus bandwidth, as nccl-tests prints it, if its sizes take these times [bytes/s]."""
        return np.asarray(self.payload_bytes / time_s * bus_factor(self.collective, self.gpus))


class WrongResults(NamedTuple):
    """Sizes of a collective in a log whose received data were wrong (``#wrong`` of nccl-tests).

    flag  ``wrong``, or ``unread-check`` where the log's count of wrong results is no number
    """

    flag: str
    log: str
    collective: str
    gpus: int
    payload_bytes: list[int]


def find_wrong_results(samples: pd.DataFrame) -> list[WrongResults]:
    """The wrong results of a log, by collective and number of ranks. Limits: none -> []"""
    rows = samples[samples["flag"].isin(["wrong", "unread-check"])]
    wrong = []
    for key, some in rows.groupby(["flag", "source_id", "collective", "gpus"], sort=False):
        flag, log, collective, gpus = map(str, key)
        sizes = sorted(set(some["payload_bytes"].astype(int).tolist()))
        wrong.append(WrongResults(flag, log, collective, int(gpus), sizes))
    return wrong


def compare_algorithms(
    model: CollectiveModel, collective: str, group: Group, payload_bytes: Floats, allowed: str
) -> Iterator[Floats]:
    """Yields times with the algorithms and protocols of a pattern, over times with all of them.

    First with fitted latencies, then with those of NCCL's table: it never chose these in measurements, so
    their fitted latency may be far off.
    Limits: a collective without such a choice, no name allowed, or all -> nothing
    """
    law = model.calibration.law(collective)
    if law is None or LINK_LAWS[law.law].time is not ring_tree_time:
        return
    measured_on = Calibrated.of(model.machine, model.calibration).machine
    logs = scale_unknowns(law, model.machine, measured_on)
    unknowns = dict(zip(law.names, np.exp(logs).tolist(), strict=True))
    table = {name: 1.0 for name in law.names if name.endswith(_LATENCIES)}
    question = step_constants(model.machine, load_priors()), collective, group, payload_bytes
    all_s = np.asarray(ring_tree_choice(unknowns, *question).time_s, float)
    for values in (unknowns, unknowns | table):
        choice = ring_tree_choice(values, *question)
        named = zip(choice.candidates, choice.times_s, strict=True)
        times = [np.asarray(t, float) for candidate, t in named if re.search(allowed, candidate.name)]
        if times and len(times) < len(choice.candidates):
            yield np.min(times, axis=0) / all_s


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
    series = []
    for key, rows in samples[usable].groupby(_KEY, sort=False):
        log, collective, _, gpus, per_node, datatype, in_place = map(str, key)
        medians = rows.groupby("payload_bytes")["time_s"].median()
        sizes = medians.index.to_numpy(float)
        timing = model.estimate(collective, sizes, int(gpus), int(per_node))
        latency = timing.floor_s / timing.time_s
        group, slower = Group.of(int(gpus), model.machine.domain_gpus_of(int(per_node))), np.ones(sizes.size)
        for ratios in compare_algorithms(model, collective, group, sizes, "^(?!NVLS$)"):
            slower = np.maximum(ratios, 1.0) if "int" in datatype else slower
            break
        series.append(
            Series(
                log=log,
                collective=collective,
                gpus=int(gpus),
                gpus_per_node=int(per_node),
                datatype=datatype,
                in_place=in_place == "True",
                model=model,
                payload_bytes=sizes,
                time_s=medians.to_numpy(float),
                expected_s=timing.time_s * slower,
                low_s=timing.low_s,
                high_s=timing.high_s * slower,
                latency=latency,
                evidence=str(Evidence.from_rank(int(np.median(timing.evidence)))),
                judged=(latency < LATENCY_SHARE) | same_clock,
                said=said,
            )
        )
    return series
