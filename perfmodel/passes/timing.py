"""Times of the steps of a pass at any loads: exact with their bands, or many at once for a search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import groupby
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.collectives.library import Timing, nothing, select, untimed
from perfmodel.model import bounds
from perfmodel.model import embedding_bag as eb
from perfmodel.model.tiers import exposed_time
from perfmodel.passes.basis import PassBasis
from perfmodel.passes.cut import Of
from perfmodel.passes.fast_curve import FastCurve
from perfmodel.passes.handover import BETWEEN, Sent
from perfmodel.passes.step_resources import Resource
from perfmodel.passes.steps import ACROSS, ALL, INSIDE, SPLITS, STEPS, WEIGHTS, Step, StepRow
from perfmodel.passes.tier_times import CACHE, TierTimes

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
LAUNCHES = "launches_of_group_"
"""Of the launches of a group of tables, the start of their name among ``PassTimes.parts``."""
HBM_GATHER, LINK_GATHER = "HBM gather", "gather over the host link"
"""Sides of a gather from two memories."""
TimeOf = Callable[[Array], Array]
AHEAD = ("cache_lookup", "fetch_rows", "ssd_lookup", "read_ssd", "write_ssd")
"""Steps that run beside the batch before where they are prefetched."""
LOOK_UPS = ("cache_lookup", "ssd_lookup")
"""Steps that find rows in a cache."""


@dataclass(frozen=True)
class PassTimes:
    """Steps on G ranks in NVLink domains of g, with the constants and libraries of ``basis``.

    gpus, domain, id_bytes  of all passes, or of each [...]: then only ``exact`` times them
    groups  resources, each of which is above 0 where a plan uses a group of tables that TorchRec looks up by
            itself (``LookUpGroups``); none: one launch looks up all tables
    digits  that the sort of the backward needs (``LoadInputs.sort_digits``)
    ``most`` is everywhere the busiest rank's loads [..., K] in bytes; times have shape [...].
    """

    basis: PassBasis
    gpus: Of
    domain: Of
    steps: tuple[Step, ...]
    groups: tuple[int, ...] = ()
    prefetch: bool = False  # whether caches are filled while the batch before runs
    id_bytes: Of = 8.0
    digits: float = 8.0

    def __getstate__(self) -> dict[str, Any]:
        """To another process without what is made here when it is asked for."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def tiers(self) -> TierTimes:
        """Of the link to host memory."""
        return TierTimes(self.basis)

    def exact(self, step: Step, most: Array) -> Timing:
        """One step at the busiest rank's loads [..., K], with band, floor and evidence; arrays [...]."""
        x = [np.atleast_1d(most[..., resource]) for resource in step.resources]
        if step.collective:
            return self._collective(step, self.payload(step, most))
        launches = self.launches(most) if step.grouped else 1.0
        if step.below_hbm:
            return self._below(step, x, launches)
        if step.gathers:
            timing = self.basis.gather_timing(x[0], x[1], None, launches=launches)
        elif step.sorts:
            timing = self.basis.sort_timing(x[0], self.digits, launches, alone=step.sorts_alone)
        elif step.name == "bucketize":
            names = ("bucketize_floor_s", "bucketize_bytes_per_s")
            timing = self.basis.stream_timing("bucketize", x[0], *names)
        else:
            timing = self.basis.stream_timing("local_sum", x[0], "launch_floor_s", "local_sum_bytes_per_s")
        if step.like:  # a kernel that nobody timed: the constants are another's
            timing = untimed(timing)
        return (
            timing
            if step.always
            else timing.where((np.max(x, axis=0) > 0) & (step.alone | (np.asarray(self.gpus) > 1)))
        )

    def exact_all(self, steps: Iterable[Step], most: Array) -> Iterator[Timing]:
        """``exact`` of each; collectives of the same ranks that follow each other are timed together."""
        for _, run in groupby(steps, key=lambda step: (step.collective, step.ranks)):
            same = list(run)
            if not same[0].collective:
                yield from (self.exact(step, most) for step in same)
                continue
            timing = self._collective(same[0], np.stack([self.payload(step, most) for step in same]))
            yield from (timing.at(row) for row in range(len(same)))

    def launches(self, most: Array) -> Array:
        """Launches of a look-up [...]: of each group that a plan uses. Limits: no groups -> 1"""
        if not self.groups:
            return np.ones(most.shape[:-1])
        return np.asarray(np.maximum((most[..., list(self.groups)] > 0).sum(axis=-1), 1.0))

    @cached_property
    def apart(self) -> tuple[Step, ...]:
        """The launches of each group, as steps that ``fast`` adds by themselves."""
        places = (cast("Resource", resource) for resource in self.groups)
        return tuple(Step(f"{LAUNCHES}{at}", (resource,)) for at, resource in enumerate(places))

    def beside(self, name: str, most: Array) -> tuple[str, float]:
        """The side of the gather that the one of this name hides, and its time [s]. Limits: none -> "", 0"""
        step = next((each for each in self.steps if each.name == "gather_host"), None)
        if step is None or name not in ("gather_host", "gather_pool"):
            return "", 0.0
        dram, l2, moved, wire = (np.atleast_1d(most[..., resource]) for resource in step.resources)
        launches = self.launches(most)
        if name == "gather_host":
            hidden = self.basis.gather_timing(dram, l2, None, launches=launches)
            return (HBM_GATHER, float(hidden.time_s[0])) if dram[0] > 0 else ("", 0.0)
        sharers = self.tiers.sharers(_spread(self.gpus, moved))
        link = self.tiers.over_link(moved, wire, sharers, launches)
        return (LINK_GATHER, float(link.time_s[0])) if moved[0] > 0 else ("", 0.0)

    def _below(self, step: Step, x: list[Array], launches: Array | float) -> Timing:
        """A step of rows in host memory or on SSDs, which waits for x."""
        sharers = self.tiers.sharers(_spread(self.gpus, x[0]))
        if step.name == "gather_host":
            pool = self.basis.gather_timing(x[0], x[1], None, launches=launches)
            if not x[2].any():
                return pool
            over_link = self.tiers.in_place(x[2], x[3], sharers, pool, launches)
            return select(x[2] > 0, over_link, pool)
        if step.name in LOOK_UPS:
            return self.tiers.looked_up(x[0] / self.id_bytes).where(x[0] > 0)
        if step.name == "write_ssd":
            return self.tiers.to_ssd(x[0], sharers)
        if step.name == "read_ssd":
            blocks = x[2] / self.basis.setting.machine.value("ssd_block_bytes")
            return self.tiers.from_ssd(x[0], x[1], blocks, sharers, self.both_ways if self.training else 1.0)
        both = self.both_ways if step.name == "update_host" or self.training else 1.0
        return self.tiers.fetched(x[0], x[1], sharers, both)

    @property
    def training(self) -> bool:
        """Whether rows that a cache evicts were updated, and go back over the link."""
        return any(step.name == "update_rows" for step in self.steps)

    @property
    def both_ways(self) -> float:
        """Rate of one way while rows cross the other way, over that of one way alone [-]."""
        return self.basis.constant("link_both_ways_fraction")

    def overlapped(self, rows: list[StepRow]) -> list[StepRow]:
        """The pass, with what fills the caches beside everything else where it is prefetched."""
        if not self.prefetch:
            return rows
        ahead = sum(row.time_s for row in rows if row.name in AHEAD)
        other = sum(row.time_s for row in rows if row.name not in AHEAD)
        left = float(exposed_time(ahead, other)) / ahead if ahead else 1.0
        shown = [_part(row, left) if row.name in AHEAD else row for row in rows]
        return [row for row in shown if row.time_s > 0]

    def payload(self, step: Step, most: Array) -> Array:
        """Bytes at which a collective takes its curve: the larger of sent and received, or of splits."""
        x = np.max([np.atleast_1d(most[..., resource]) for resource in step.resources], axis=0)
        return np.where(x > 0, self.splits_bytes, 0.0) if step.splits else np.asarray(x)

    @cached_property
    def splits_bytes(self) -> Of:
        """Size of a splits all-to-all [bytes]; each tensor that is exchanged has a number for each peer."""
        constant = self.basis.constant
        numbers = constant("splits_per_peer") + (WEIGHTS in self.steps)
        return eb.splits_bytes(self.gpus, numbers, constant("split_bytes"))

    def all_splits(self, sets: int) -> float:
        """Time of one all-to-all with the splits of several sets of exchanges [s]."""
        step = STEPS[SPLITS]
        return float(self._collective(step, np.atleast_1d(sets * self.splits_bytes)).time_s[0])

    def group(self, step: Step) -> tuple[Array, int | None]:
        """Ranks of a collective [...], and how many of them are in a node.

        Limits: ranks that do not fill domains -> 1 across domains: no scheme exchanges so
        """
        gpus, domain = (np.asarray(x, dtype=np.float64) for x in (self.gpus, self.domain))
        if step.ranks == ACROSS:
            return np.where(gpus % domain == 0, gpus // domain, 1.0), 1
        return {ALL: gpus, INSIDE: domain}[step.ranks], self.basis.gpus_per_node

    @cached_property
    def buffers(self) -> tuple[Ints, Ints, Array]:
        """Of each of N collectives that need buffers: resources [N] sent and received, and of how many equal
        parts [N, 1], or [N, ...] of passes on different GPUs, a rank keeps one of the latter: a
        reduce-scatter leaves it its part, and an all-reduce nothing beside what it was given, which it sums
        in place."""
        held = [step for step in self.steps if step.collective and not (step.splits or step.in_place)]
        sent = np.array([step.resources[0] for step in held], dtype=np.int64)
        received = np.array([step.resources[-1] for step in held], dtype=np.int64)
        whole = {"all_reduce": np.inf}
        parts = [
            np.atleast_1d(
                whole.get(step.collective, self.group(step)[0]) if len(step.resources) == 1 else 1.0
            )
            for step in held
        ]
        return sent, received, np.array(np.broadcast_arrays(*parts)).reshape(len(held), -1)

    def _collective(self, step: Step, payload: Array) -> Timing:
        ranks, node = self.group(step)
        if (ranks == 1).all() or not payload.any():
            return nothing(payload.shape)
        return self.basis.setting.links.timing(step.collective, payload, _spread(ranks, payload), node)

    def light_time(self, step: Step, payload: Array) -> Array:
        """Least time of a collective at datasheet rates, without latency (``bounds``) [s]."""
        value, (ranks, node) = self.basis.setting.machine.value, self.group(step)
        domain = np.ones(()) if node == 1 else np.minimum(ranks, self.domain)
        scatters = step.collective == "reduce_scatter"
        bound = bounds.reduce_scatter_floor_time if scatters else bounds.all_to_all_floor_time
        inside = value("nvlink_bytes_per_s") or value("pcie_bytes_per_s")
        return bound(payload, ranks, domain, inside, value("nic_bytes_per_s"))

    def sent(self, step: Step, payload: Array, time: Array) -> Sent:
        ranks, _ = self.group(step)
        return Sent(step.alike, step.collective, payload, _spread(ranks, payload), time)

    def fast(self, most: Array) -> Array:
        """Times [...] of many passes from the busiest ranks' loads [..., K]: for a search, without bands.

        Within 0.1 % of the sum of ``exact``; 100 000 passes in tens of milliseconds.
        """
        total = np.zeros(most.shape[:-1])
        for name, time in self._fast.items():
            if not (self.prefetch and name in AHEAD):
                total += time(most)
        return np.maximum(total, self.ahead(most)) if self.prefetch else total

    def ahead(self, most: Array) -> Array:
        """Of those, times [...] of what fills the caches; it never falls as loads rise."""
        total = np.zeros(most.shape[:-1])
        for name in AHEAD:
            if name in self._fast:
                total += self._fast[name](most)
        return total

    def parts(self, most: Array) -> dict[str, Array]:
        """The same for every step by its name, each rising with its loads; "handover" is in its steps,
        and what a pass adds between its steps, if anything, is "between_steps". What is prefetched takes no
        time here, for it may run beside all the rest."""
        hidden = AHEAD if self.prefetch else ()
        return {name: time(most) * (name not in hidden) for name, time in self._fast.items()}

    @cached_property
    def _fast(self) -> dict[str, TimeOf]:
        """Of every step its time as a function of the loads."""
        fast: dict[str, TimeOf] = {}
        for step in self.steps:
            if step.collective and self.group(step)[0] > 1:
                fast[step.name] = self._fast_collective(step)
            elif not step.collective and (step.always or step.alone or self.gpus > 1):
                fast[step.name] = self._fast_kernel(step)
        for step in self.apart:
            fast[step.name] = self._fast_launches(step.resources[0])
        between = self.basis.setting.handover.constants.get(BETWEEN)
        if between is not None and self.gpus > 1:
            needs = [step.resources[0] for step in self.steps if step.collective]
            fast[BETWEEN] = lambda most: between.value * (most[..., needs].max(axis=-1) > 0)
        return fast

    def _fast_collective(self, step: Step) -> TimeOf:
        def exact(size: Array) -> Array:
            time = self._collective(step, size).time_s
            known = self.basis.setting.handover
            if not known.known:
                return time
            between = known.constants.get(BETWEEN)
            return time + known.times([self.sent(step, size, time)])[1] - (between.value if between else 0)

        sizes = step.resources
        if step.splits:
            fixed = float(exact(np.array([self.splits_bytes]))[0])
            return lambda most: np.asarray(fixed * (most[..., sizes[0]] > 0))
        curve = FastCurve(exact)
        if len(sizes) == 1:
            return lambda most: curve(most[..., sizes[0]])
        return lambda most: curve(np.maximum(most[..., sizes[0]], most[..., sizes[1]]))

    def _fast_launches(self, resource: int) -> TimeOf:
        launches_s = sum(self._floor(step) for step in self.steps if step.grouped)
        return lambda most: np.asarray(launches_s * (most[..., resource] > 0), dtype=np.float64)

    def _floor(self, step: Step) -> float:
        """Launch of a kernel [s]."""
        if step.sorts:
            return self.basis.sort_middle(self.digits, alone=step.sorts_alone)[0]
        by_owner = step.name == "bucketize"
        return self.basis.setting.machine.value("bucketize_floor_s" if by_owner else "launch_floor_s")

    def _fast_kernel(self, step: Step) -> TimeOf:
        value = self.basis.setting.machine.value
        sizes = step.resources
        floor = 0.0 if step.grouped and self.groups else self._floor(step)
        if step.below_hbm:
            return self._fast_below(step)
        if step.gathers:
            t0, dram, l2 = floor, value("gather_bytes_per_s"), value("l2_bytes_per_s")

            def gather(most: Array) -> Array:
                moved = np.maximum(most[..., sizes[0]] / dram, most[..., sizes[1]] / l2)
                return t0 + moved if step.always else np.where(moved > 0, t0 + moved, 0)

            return gather
        if step.sorts:
            rate = self.basis.sort_middle(self.digits, alone=step.sorts_alone)[1]
        else:
            by_owner = step.name == "bucketize"
            rate = value("bucketize_bytes_per_s" if by_owner else "local_sum_bytes_per_s")

        def stream(most: Array) -> Array:
            moved = most[..., sizes[0]]
            return np.asarray(floor * (moved > 0) + moved / rate)

        return stream

    def _fast_below(self, step: Step) -> TimeOf:
        value, sizes = self.basis.setting.machine.value, step.resources
        if step.name in LOOK_UPS:
            t0, each = (self.basis.constant(key) for key in CACHE)
            return lambda most: t0 * (most[..., sizes[0]] > 0) + most[..., sizes[0]] / self.id_bytes * each
        if step.name == "write_ssd":
            rate = float(self.tiers.write_rate(self._sharers))
            return lambda most: np.asarray(most[..., sizes[0]] / rate)
        memory, link = self.link_rates(step)
        latency = value("host_latency_s")
        over = sizes[:2] if step.name == "read_ssd" else sizes[-2:]

        def crossing(most: Array) -> Array:
            moved, wire = most[..., over[0]], most[..., over[1]]
            return np.asarray(latency * (moved > 0) + np.maximum(moved / memory, wire / link))

        if step.name == "read_ssd":
            return self._fast_ssd(sizes[2], crossing)
        if step.name != "gather_host":
            return crossing
        t0 = 0.0 if self.groups else self._floor(step)
        dram, l2 = value("gather_bytes_per_s"), value("l2_bytes_per_s")

        def gather(most: Array) -> Array:
            local = np.maximum(most[..., sizes[0]] / dram, most[..., sizes[1]] / l2)
            return t0 + np.maximum(local, crossing(most))

        return gather

    def _fast_ssd(self, resource: int, crossing: TimeOf) -> TimeOf:
        latency, rate = self.basis.setting.machine.value("ssd_latency_s"), self.ssd_rate

        def read(most: Array) -> Array:
            size = most[..., resource]
            return np.maximum(crossing(most), latency * (size > 0) + size / rate)

        return read

    @property
    def ssd_rate(self) -> float:
        """Of blocks that one GPU reads from SSDs [bytes/s]."""
        block = self.basis.setting.machine.value("ssd_block_bytes")
        return block * float(self.tiers.reads_per_s(self._sharers))

    @property
    def _sharers(self) -> float:
        """GPUs that share the host memory and the SSDs of a node."""
        return float(self.tiers.sharers(float(self.gpus)))

    def link_rates(self, step: Step) -> tuple[float, float]:
        """Rates of the memory behind the link, for rows, and of the link, for rows with headers [bytes/s]."""
        both = self.both_ways if step.name == "update_host" or self.training else 1.0
        both = 1.0 if step.name == "gather_host" else both
        value = self.basis.setting.machine.value
        sharers = self._sharers
        link = value("host_link_bytes_per_s") * self.basis.constant("link_packet_fraction")
        return both * value("host_bytes_per_s") / sharers, both * link


def _spread(value: ArrayLike, like: Array) -> Array:
    """The same of all passes, or that of each."""
    return np.full(like.shape, value, dtype=np.float64)


def _part(row: StepRow, left: float) -> StepRow:
    """That part of a step's time."""
    low, time, high, floor = (left * x for x in (row.low_s, row.time_s, row.high_s, row.floor_s))
    return replace(row, low_s=low, time_s=time, high_s=high, floor_s=floor)
