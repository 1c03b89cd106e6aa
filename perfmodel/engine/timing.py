"""Times of the steps of a pass for given loads: with bands, or without for a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.collectives.timings import Array, Timing, untimed
from perfmodel.engine.basis import Of, PassBasis
from perfmodel.engine.settings import BETWEEN
from perfmodel.engine.steps import ACROSS, INSIDE, SORT_ALONE, SPLITS, STEPS, WEIGHTS, Step
from perfmodel.model import capacity
from perfmodel.model import exchanges as ex


@dataclass(frozen=True, eq=False)
class PassTimes:
    """Computes the times of the steps of passes, with the constants and libraries of ``basis``.

    gpus, domain  GPUs of the job, and of a scale-up domain
    digits  8-bit digits of an id that the backward pass sorts (``LoadInputs.sort_digits``). Each of these
            three is one number for all passes, or an array [...] with a number per pass.
    groups  resource indices, one per group of tables with a launch of its own: a group is in use if its
            resource has a load (``LookUpGroups``)
    In all methods, ``most`` has the load of the busiest rank on each of K resources [..., K], in bytes; times
    have shape [...], an entry for each pass.
    """

    basis: PassBasis
    gpus: Of
    domain: Of
    steps: tuple[Step, ...]
    groups: range
    digits: Of = 8.0

    def time_step(self, step: Step, most: Array) -> Timing:
        """Time of one step for the busiest rank's loads [..., K], with band, floor and evidence [...]."""
        if step.collective:
            return self.time_collective(step, self.find_payload(step, most))
        basis = self.basis
        x = [np.atleast_1d(most[..., resource]) for resource in step.resources]
        launches: Array | float = 1.0
        if step.grouped:
            launches = np.maximum(np.count_nonzero(most[..., list(self.groups)], axis=-1), 1.0)
        if step.hosted:
            timing = basis.time_link(x[0], x[1], self.gpus) if x[1:] else basis.time_cache(x[0])
        elif step.gathers:
            timing = basis.time_kernel("gather_pool", x[0], x[1], launches)
        elif step.sorts:
            timing = basis.time_sort(x[0], self.digits, launches, alone=step.name == SORT_ALONE)
        else:
            timing = basis.time_kernel("bucketize" if step.name == "bucketize" else "local_sum", x[0])
        if step.like:  # a kernel that nobody timed uses constants of another
            timing = untimed(timing)
        if step.always:
            return timing
        return timing.where(np.any(x, axis=0) & (step.alone | (np.asarray(self.gpus) > 1)))

    def find_payload(self, step: Step, most: Array) -> Array:
        """Size of a collective, to time it [bytes]: the larger of sent and received; fixed for splits."""
        x = np.max([np.atleast_1d(most[..., resource]) for resource in step.resources], axis=0)
        return np.where(x, self.splits_bytes, 0.0) if step.splits else np.asarray(x)

    @cached_property
    def splits_bytes(self) -> Of:
        """Size of the all-to-all that tells how much will come: a number per peer and tensor [bytes]."""
        constants = self.basis.numbers
        numbers = constants["splits_per_peer"] + (WEIGHTS in self.steps)
        return ex.splits_bytes(self.gpus, numbers, constants["split_bytes"])

    def time_splits(self, sets: int) -> float:
        """Time of one all-to-all that carries the splits of several sets of exchanges [s]."""
        step = STEPS[SPLITS]
        return float(self.time_collective(step, np.atleast_1d(sets * self.splits_bytes)).time_s[0])

    def group(self, step: Step) -> tuple[Array, int | None]:
        """(ranks of a collective [...], how many of them are in one node).

        Limits: ranks that do not fill domains -> 1 across domains (no scheme uses such a collective)
        """
        gpus = np.asarray(self.gpus, np.float64)
        domain = np.asarray(self.domain, np.float64)
        if step.ranks == ACROSS:
            return np.where(gpus % domain == 0, gpus // domain, 1.0), 1
        return domain if step.ranks == INSIDE else gpus, self.basis.gpus_per_node

    def count_buffers(self, values: Array) -> Array:
        """Send and receive buffer of the largest collective on every rank [G], in bytes that rows could have.

        values  loads [K, G];  a byte of a buffer in HBM counts ``PassBasis.buffer_weight``
        A rank keeps one part of what it received: after a reduce-scatter, its own. An all-reduce sums in
        place and needs no further buffer.
        Limits: one GPU -> 0
        """
        largest = np.zeros(values.shape[-1:])
        for step in self.steps:
            if not step.collective or step.splits or step.in_place:
                continue
            sent = values[step.resources[0]]
            received = values[step.resources[-1]]
            # What a reduction receives is a part of what was sent, or replaces it.
            if len(step.resources) == 1:
                received = 0.0 if step.collective == "all_reduce" else received / self.group(step)[0]
            largest = np.maximum(largest, capacity.count_buffer_bytes((sent, received)))
        return np.where(np.asarray(self.gpus) > 1, self.basis.buffer_weight * largest, 0.0)

    def time_collective(self, step: Step, payload: Array) -> Timing:
        """Time of a collective with band, floor and evidence. payload  its sizes [bytes]"""
        ranks, node = self.group(step)
        return self.basis.setting.links.timing(step.collective, payload, ranks, node)


TimeOf = Callable[[Array], Array]
LAUNCHES = "launches_of_group_"
"""Prefix of the launches of each group of tables among the names in ``FastTimes.parts``."""
# Loads at which a kernel is timed to derive its floor and its slopes [bytes]. Powers of two, so that these
# come out without rounding; beside the large load the others are so small that the largest of all is surely
# this one, and not 0, which would switch the kernel off.
_LEAST = 2.0**-60
_BIG = 2.0**50
_BESIDE = 2.0**20


class FastTimes(PassTimes):
    """``PassTimes`` on one number of GPUs, for many passes at once.

    ``most`` is the busiest rank's loads [..., K] in bytes; times have shape [...].
    Each step approximates ``time_step``: a collective by lines between 256 sizes per octave, a kernel by its
    floor and the largest of its loads times their slopes.
    """

    def estimate(self, most: Array) -> Array:
        """Times of whole passes [s].

        Within 0.1 % of the sum of ``time_step``; 100 000 passes in tens of milliseconds.
        """
        total = np.zeros(most.shape[:-1])
        for time in self._fast.values():
            total += time(most)
        return total

    def estimate_steps(self, most: Array) -> dict[str, Array]:
        """Times of every step by name, each rising with its loads.

        A collective's time includes its hand-over; hand-over between steps, if any, is "between_steps".
        """
        return {name: time(most) for name, time in self._fast.items()}

    @cached_property
    def apart(self) -> tuple[Step, ...]:
        """For each group of tables a step for its launches, which ``estimate`` adds apart from the bytes."""
        return tuple(Step(f"{LAUNCHES}{n}", (cast("Any", r),)) for n, r in enumerate(self.groups))

    def find_slopes(self, step: Step) -> tuple[float, ...]:
        """Time per byte of each resource of a kernel [s/byte], in the order of ``step.resources``."""
        return self._fit_line(step)[1]

    def _fit_line(self, step: Step) -> tuple[float, tuple[float, ...]]:
        """(launch floor [s], slope of each resource [s/byte]) of a kernel, whose time from its loads x is

            t = floor + max_k(slope_k x_k), 0 if all x_k are 0        [s]

        The floor is that of ``time_step`` at small loads, each slope that of one large load.
        """
        resources = list(step.resources)
        loads = np.zeros((len(resources) + 1, self.groups.stop))
        loads[0, resources] = _LEAST
        loads[1:, resources] = np.where(np.eye(len(resources)), _BIG, _BESIDE)
        floor, *times = self.time_step(step, loads).time_s.tolist()
        return floor, tuple((time - floor) / (_BIG - _LEAST) for time in times)

    @cached_property
    def _fast(self) -> dict[str, TimeOf]:
        """By name of a step that may take time, the function from loads [..., K] to its time [...]."""
        fast: dict[str, TimeOf] = {}
        launches_s = 0.0
        for step in self.steps:
            if not step.collective:
                floor, slopes = self._fit_line(step)
                launch = floor if step.grouped else 0.0  # counted with the groups
                launches_s += launch
                fast[step.name] = _build_line(step, floor - launch, slopes)
            elif self.group(step)[0] > 1:
                fast[step.name] = self._build_curve(step)
        for step in self.apart:
            fast[step.name] = _build_launches(step.resources[0], launches_s)
        if between := self.basis.setting.handover.constants.get(BETWEEN):
            needs = [step.resources[0] for step in self.steps if step.collective and step.name in fast]
            fast[BETWEEN] = lambda most: np.asarray(between.value * most[..., needs].any(axis=-1))
        return fast

    def _build_curve(self, step: Step) -> TimeOf:
        """The time of a collective, with its hand-over, as a function of the loads [..., K]."""

        def time_size(size: Array) -> Array:
            time = self.time_collective(step, size).time_s
            constant = self.basis.setting.handover.find_constant(step)
            return time + constant.value * time.astype(bool) if constant else time

        sizes = step.resources
        if step.splits:
            fixed = float(time_size(np.array([self.splits_bytes]))[0])
            return lambda most: np.asarray(fixed * most[..., sizes[0]].astype(bool))
        curve = FastCurve(time_size)
        return lambda most: curve(reduce(np.maximum, (most[..., size] for size in sizes)))


def _build_launches(resource: int, launches_s: float) -> TimeOf:
    """``launches_s``, the launch floors of all grouped kernels, where a group's resource has a load."""
    return lambda most: np.asarray(launches_s * most[..., resource].astype(bool))


def _build_line(step: Step, floor: float, slopes: Sequence[float]) -> TimeOf:
    """The time of a kernel as a function of the loads [..., K]. floor, slopes  as of ``_fit_line``"""

    def time(most: Array) -> Array:
        pairs = zip(step.resources, slopes, strict=True)
        longest = reduce(np.maximum, (most[..., resource] * slope for resource, slope in pairs))
        return np.asarray(longest + floor if step.always else longest + floor * longest.astype(bool))

    return time


_SMALLEST_LOG2, _LARGEST_LOG2 = -20, 48
_CELL_BITS = 8
_MANTISSA_BITS, _BIAS = 52, 1023


class FastCurve:
    """A curve t(S) as straight pieces, 256 per octave, indexed by the bits of S.

    S   bytes, any shape; 0 (or less than 2^-20) gives 0 s, less than 1 byte the time of 1 byte
    Source: an octave of IEEE numbers is 2^52 equal steps: the exponent and the first 8 bits give the piece
    Limits: at piece boundaries exact; elsewhere within 0.1 % of any curve whose exponent d ln t / d ln S
            changes by less than 1 within a piece;  above 2^48 -> the last piece is extended
    """

    def __init__(self, time: Callable[[Array], Array]) -> None:
        """Tabulate the pieces, each as slope S + base. time  of sizes [bytes] in seconds"""
        octaves = _LARGEST_LOG2 - _SMALLEST_LOG2
        cells = 1 << _CELL_BITS
        steps = np.tile(1 + np.arange(cells) / cells, octaves)
        exponents = np.repeat(np.arange(octaves), cells) + _SMALLEST_LOG2
        edges = np.append(np.ldexp(steps, exponents), 2.0**_LARGEST_LOG2)
        values = np.asarray(time(edges), dtype=np.float64)
        slope = np.diff(values) / np.diff(edges)
        # Before the first piece stands one of 0 s, for no bytes.
        self._slope = np.concatenate([[0.0], slope])
        self._base = np.concatenate([[0.0], values[:-1] - slope * edges[:-1]])
        self._first = ((_SMALLEST_LOG2 + _BIAS) << _CELL_BITS) - 1
        self._shift = _MANTISSA_BITS - _CELL_BITS

    def __call__(self, size: ArrayLike) -> Array:
        """Times [s] of sizes [bytes]."""
        S = np.asarray(size, dtype=np.float64)
        # The bits of a float are its exponent, then its fraction: shifted, they number pieces from 0 on.
        piece = (S.view(np.int64) >> self._shift) - self._first
        return np.asarray(self._base.take(piece, mode="clip") + self._slope.take(piece, mode="clip") * S)


_DROPPED_BITS = 20  # of 52 that are dropped: about 10 decimal digits stay
_HALF = np.int64(1 << (_DROPPED_BITS - 1))
_KEPT = np.int64(-(1 << _DROPPED_BITS))


def round_off(values: Array) -> Array:
    """Values rounded to 33 significant bits, ties away from 0, for a search to compare.

    The last bits of a sum depend on the CPU. Values that differ by rounding alone become equal, except the
    few in a million at an edge.
    Limits: 0, infinities -> unchanged;  relative change -> at most 2^-33
    """
    bits = np.asarray(values, dtype=np.float64).view(np.int64)
    return np.asarray(((bits + _HALF) & _KEPT).view(np.float64))
