"""Times of the steps of a pass for given loads, with their bands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.collectives.library import Timing, nothing, select, untimed
from perfmodel.model import bounds
from perfmodel.model import embedding_bag as eb
from perfmodel.model.tiers import exposed_time
from perfmodel.passes.basis import Of, PassBasis
from perfmodel.passes.handover import Sent
from perfmodel.passes.steps import ACROSS, ALL, INSIDE, SPLITS, STEPS, WEIGHTS, Step, StepRow
from perfmodel.passes.tier_times import TierTimes

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
HBM_GATHER, LINK_GATHER = "HBM gather", "gather over the host link"
"""The two sides of a gather from two memories."""
AHEAD = ("cache_lookup", "fetch_rows", "ssd_lookup", "read_ssd", "write_ssd")
"""Steps that run beside the batch before if they are prefetched."""
LOOK_UPS = ("cache_lookup", "ssd_lookup")
"""Steps that look up rows in a cache."""


@dataclass(frozen=True)
class PassTimes:
    """Computes the times of the steps of passes, with the constants and libraries of ``basis``.

    gpus, domain  GPUs of the job, and of a scale-up domain;  id_bytes  size of an id [bytes]
    digits  8-bit digits of an id that the backward pass sorts (``LoadInputs.sort_digits``) Each of these four
            is one number for all passes, or an array [...] with a number per pass.
    groups  resource indices, one per group of tables that TorchRec looks up in its own launch: a group is in
            use if its resource has a load (``LookUpGroups``); empty: one launch for all tables
    In all methods, ``most`` has the load of the busiest rank on each of K resources [..., K], in bytes; times
    have shape [...], an entry for each pass.
    """

    basis: PassBasis
    gpus: Of
    domain: Of
    steps: tuple[Step, ...]
    groups: tuple[int, ...] = ()
    prefetch: bool = False  # whether caches are filled while the batch before runs
    id_bytes: Of = 8.0
    digits: Of = 8.0

    def __getstate__(self) -> dict[str, Any]:
        """The state to send to another process, without values that are computed on demand."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def tiers(self) -> TierTimes:
        """The object that computes the times of rows in host memory and on SSDs."""
        return TierTimes(self.basis)

    def exact(self, step: Step, most: Array) -> Timing:
        """Time of one step for the busiest rank's loads [..., K], with band, floor and evidence [...]."""
        x = [np.atleast_1d(most[..., resource]) for resource in step.resources]
        if step.collective:
            return self.collective(step, self.payload(step, most))
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
        if step.like:  # a kernel that nobody timed uses constants of another
            timing = untimed(timing)
        return (
            timing
            if step.always
            else timing.where((np.max(x, axis=0) > 0) & (step.alone | (np.asarray(self.gpus) > 1)))
        )

    def exact_all(self, steps: Iterable[Step], most: Array) -> Iterator[Timing]:
        """``exact`` of each step; successive collectives on the same ranks are evaluated together."""
        for _, run in groupby(steps, key=lambda step: (step.collective, step.ranks)):
            same = list(run)
            if not same[0].collective:
                yield from (self.exact(step, most) for step in same)
                continue
            timing = self.collective(same[0], np.stack([self.payload(step, most) for step in same]))
            yield from (timing.at(row) for row in range(len(same)))

    def launches(self, most: Array) -> Array:
        """Number of launches of a look-up [...]: one for each group of tables in use.

        Limits: no groups -> 1
        """
        if not self.groups:
            return np.ones(most.shape[:-1])
        return np.asarray(np.maximum((most[..., list(self.groups)] > 0).sum(axis=-1), 1.0))

    def beside(self, name: str, most: Array) -> tuple[str, float]:
        """(shorter side of a gather from HBM and host memory, its time [s]), hidden behind the longer side.

        name  step name of the longer side, which the answer shows
        Limits: a gather with one side -> "", 0
        """
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
        """Time of a step that uses host memory or SSDs. x  bytes of each of its resources"""
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
        """Whether rows are updated, so that rows that leave a cache are written back over the link."""
        return any(step.name == "update_rows" for step in self.steps)

    @property
    def both_ways(self) -> float:
        """Rate of one direction of the link while rows also cross the other way, over its rate alone [-]."""
        return self.basis.constant("link_both_ways_fraction")

    def overlapped(self, rows: list[StepRow]) -> list[StepRow]:
        """The steps of a pass; with prefetch, only the exposed time of steps that fill caches is counted."""
        if not self.prefetch:
            return rows
        ahead = sum(row.time_s for row in rows if row.name in AHEAD)
        other = sum(row.time_s for row in rows if row.name not in AHEAD)
        left = float(exposed_time(ahead, other)) / ahead if ahead else 1.0
        shown = [_part(row, left) if row.name in AHEAD else row for row in rows]
        return [row for row in shown if row.time_s > 0]

    def payload(self, step: Step, most: Array) -> Array:
        """Size at which a collective's curve is read [bytes]: the larger of sent and received, or the
        splits."""
        x = np.max([np.atleast_1d(most[..., resource]) for resource in step.resources], axis=0)
        return np.where(x > 0, self.splits_bytes, 0.0) if step.splits else np.asarray(x)

    @cached_property
    def splits_bytes(self) -> Of:
        """Size of a splits all-to-all [bytes]: one number per peer for each tensor that is exchanged."""
        constant = self.basis.constant
        numbers = constant("splits_per_peer") + (WEIGHTS in self.steps)
        return eb.splits_bytes(self.gpus, numbers, constant("split_bytes"))

    def all_splits(self, sets: int) -> float:
        """Time of one all-to-all that carries the splits of several sets of exchanges [s]."""
        step = STEPS[SPLITS]
        return float(self.collective(step, np.atleast_1d(sets * self.splits_bytes)).time_s[0])

    def group(self, step: Step) -> tuple[Array, int | None]:
        """(ranks of a collective [...], how many of them are in one node).

        Limits: ranks that do not fill domains -> 1 across domains (no scheme uses such a collective)
        """
        gpus, domain = (np.asarray(x, dtype=np.float64) for x in (self.gpus, self.domain))
        if step.ranks == ACROSS:
            return np.where(gpus % domain == 0, gpus // domain, 1.0), 1
        return {ALL: gpus, INSIDE: domain}[step.ranks], self.basis.gpus_per_node

    @cached_property
    def buffers(self) -> tuple[Ints, Ints, Array]:
        """The N collectives that need buffers: (resource sent [N], resource received [N], number of equal
        parts [N, 1] or [N, ...] for passes on different GPUs).

        A rank keeps one of these parts of what it received: after a reduce-scatter, its own. An all-reduce
        sums in place and needs no further buffer.
        """
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

    def collective(self, step: Step, payload: Array) -> Timing:
        """Time of a collective with band, floor and evidence. payload  its sizes [bytes]"""
        ranks, node = self.group(step)
        if (ranks == 1).all() or not payload.any():
            return nothing(payload.shape)
        return self.basis.setting.links.timing(step.collective, payload, _spread(ranks, payload), node)

    def light_time(self, step: Step, payload: Array) -> Array:
        """Least time of a collective at datasheet rates, without latency (``bounds``) [s]."""
        value, (ranks, node) = self.basis.setting.machine.value, self.group(step)
        domain = np.ones(()) if node == 1 else np.minimum(ranks, self.domain)
        exchanges = step.collective == "all_to_all"  # an all-gather is a reduce-scatter run backwards
        bound = bounds.all_to_all_floor_time if exchanges else bounds.reduce_scatter_floor_time
        inside = value("nvlink_bytes_per_s") or value("pcie_bytes_per_s")
        return bound(payload, ranks, domain, inside, value("nic_bytes_per_s"))

    def sent(self, step: Step, payload: Array, time: Array) -> Sent:
        ranks, _ = self.group(step)
        return Sent(step.alike, step.collective, payload, _spread(ranks, payload), time)


def _spread(value: ArrayLike, like: Array) -> Array:
    """The value repeated in the shape of ``like``."""
    return np.full(like.shape, value, dtype=np.float64)


def _part(row: StepRow, left: float) -> StepRow:
    """The step with all its times multiplied by ``left``, the part that is not hidden."""
    low, time, high, floor = (left * x for x in (row.low_s, row.time_s, row.high_s, row.floor_s))
    return replace(row, low_s=low, time_s=time, high_s=high, floor_s=floor)
