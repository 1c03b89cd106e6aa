"""Times of the steps of a pass for given loads, with their bands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.collectives.library import Timing, nothing, untimed
from perfmodel.engine.basis import Of, PassBasis
from perfmodel.engine.handover import Sent
from perfmodel.engine.steps import ACROSS, ALL, INSIDE, SPLITS, STEPS, WEIGHTS, Step
from perfmodel.model import bounds
from perfmodel.model import embedding_bag as eb

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PassTimes:
    """Computes the times of the steps of passes, with the constants and libraries of ``basis``.

    gpus, domain  GPUs of the job, and of a scale-up domain
    digits  8-bit digits of an id that the backward pass sorts (``LoadInputs.sort_digits``). Each of these
            three is one number for all passes, or an array [...] with a number per pass.
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
    digits: Of = 8.0

    def __getstate__(self) -> dict[str, Any]:
        """The state to send to another process, without values that are computed on demand."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def exact(self, step: Step, most: Array) -> Timing:
        """Time of one step for the busiest rank's loads [..., K], with band, floor and evidence [...]."""
        x = [np.atleast_1d(most[..., resource]) for resource in step.resources]
        if step.collective:
            return self.collective(step, self.payload(step, most))
        launches = self.launches(most) if step.grouped else 1.0
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
