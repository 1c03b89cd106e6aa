"""The cost of every step of a row-wise forward pass, for many configurations at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.collectives.library import Timing, constant, nothing, untimed
from perfmodel.model import access, bounds, kernels
from perfmodel.model import embedding_bag as eb
from perfmodel.model import exchanges as ex
from perfmodel.model.look_ups import Gather, LookUps
from perfmodel.passes.basis import LocalMemory, PassBasis
from perfmodel.passes.handover import Sent
from perfmodel.passes.schemes import AUTO
from perfmodel.passes.schemes import REDUCTIONS as BY_NAME
from perfmodel.passes.settings import BEST
from perfmodel.passes.steps import EXCHANGE, HANDOVER, STEPS
from perfmodel.projections.inputs import Configs, TableGroup
from perfmodel.projections.tiered import Tiered
from perfmodel.projections.timed import TimedStep, Traffic, either, sum_time
from perfmodel.schema.distributions import UNIFORM, Distribution
from perfmodel.schema.evidence import Backend
from perfmodel.schema.tiers import Tier

Array = NDArray[np.float64]

REDUCTIONS = tuple(name.replace("-", "_") for name in BY_NAME)
REDUCE_SCATTER, ALL_TO_ALL, TWO_LEVEL, SPARSE = REDUCTIONS[1:]
"""How partial bags become bags. ``auto``: all-to-all and local sum for NVSHMEM (2.9 has no reduce-scatter),
the faster of the two for ``best``, reduce-scatter for every other library. ``sparse``: all-to-all of the
non-empty bags."""

CONVERT_OUT, CONVERT_IN = "convert_out", "convert_in"


@dataclass(frozen=True)
class Forward(PassBasis):
    """A row-wise forward pass on one setting; ``steps`` and ``baseline`` cost it for any configurations.

    reduction  one of ``REDUCTIONS``;  memory  that a rank gathers from, if not its own
    ids      popularity of the rows of every table;  tier  below the HBM, that has all rows; None: HBM has
    """

    reduction: str = AUTO
    memory: LocalMemory | None = None
    ids: Distribution = UNIFORM
    tier: Tier | None = None

    def traffic(self, work: Configs) -> Traffic:
        """Bytes and counts of all tables together."""
        sums: list[Array] = []
        for stack in work.stacked:
            shape = np.broadcast_shapes(np.shape(stack.rows), work.gpus.shape)
            found = [np.broadcast_to(column, shape) for column in self._group_traffic(work, stack)]
            found = [column.sum(axis=0) for column in found] if len(shape) > 1 else found
            sums = [a + b for a, b in zip(sums, found, strict=True)] if sums else found
        return Traffic(*sums)

    def _group_traffic(self, work: Configs, t: TableGroup) -> tuple[Array, ...]:
        """The same of equal tables, or of each of a stack: one with fewer rows than GPUs is on every GPU,
        without exchange."""
        sharded = t.rows >= work.gpus
        shards = np.where(sharded, work.gpus, 1.0)
        bags, lookups = work.batch * t.count, work.batch * t.count * t.pooling
        touched = self.touched(work, t, shards)
        written = bags * (touched if self.reduction == SPARSE else shards)
        pooled = t.dim * self.constant("pooled_element_bytes")
        index = self.constant("sparse_bag_index_bytes")
        sent = t.dim * self.sent_element_bytes + index
        here = self._gather_bytes(work, t, shards, lookups, written)
        local = self._gather_bytes(work, t, np.ones_like(shards), lookups, bags)
        return (
            lookups * sharded,
            bags * sharded,
            bags * t.dim * sharded,
            bags * touched * t.dim * sharded,
            bags * touched * sent * sharded,
            bags * (touched * (pooled + index) + pooled) * sharded,
            *here,
            *local[:2],
        )

    def _gather_bytes(
        self, work: Configs, t: TableGroup, shards: Array, lookups: Array, bags: Array
    ) -> tuple[Array, Array, Array]:
        """DRAM bytes, L2 bytes and DRAM bytes of bare rows of gathering from one shard."""
        value = self.setting.machine.value
        row = t.dim * t.element_bytes
        cache = value("l2_bytes") * self.constant("l2_usable_fraction") / work.table_count  # shared evenly
        bag = t.dim * self.constant("pooled_element_bytes") + self.constant("offset_bytes")
        bag = bag * value("bag_factor")
        miss = self._misses(work, t, shards, row, cache)
        least, sector = value("row_access_bytes"), value("sector_bytes")
        return kernels.traffic_of_misses(miss, lookups, row, least, sector, work.id_bytes, bags, bag)

    def touched(self, work: Configs, t: TableGroup, shards: Array) -> Array:
        """Shards that hold a row of a bag."""
        if self.ids.uniform:
            return access.shards_touched(shards, t.pooling)
        if np.all(shards == 1):  # whatever the ids
            return np.ones(np.broadcast_shapes(np.shape(shards), np.shape(t.rows), np.shape(t.pooling)))
        distinct = self._each(_distinct, t.rows, t.pooling)
        return shards * ex.filled_share(shards, distinct)

    def _misses(self, work: Configs, t: TableGroup, shards: Array, row: Array, cache: ArrayLike) -> Array:
        """Part of the look-ups of a shard, or of a copy where there is one, that misses the L2 cache."""
        if self.ids.uniform:
            return kernels.uniform_misses(t.rows / shards, work.batch * t.pooling, row, cache)
        held = shards * (np.asarray(cache) / row)
        return self._each(_missed, t.rows, t.pooling, work.batch, shards, held)

    def _each(self, what: Callable[..., float], *of: ArrayLike) -> Array:
        """Of every configuration what its skewed look-ups say; equal ones are asked once."""
        columns = np.broadcast_arrays(*of)
        asked = list(zip(*(column.ravel().tolist() for column in columns), strict=True))
        found = {each: what(self.ids, *each) for each in sorted(set(asked))}  # those of equal rows together
        return np.array([found[each] for each in asked], dtype=np.float64).reshape(columns[0].shape)

    def baseline(self, traffic: Traffic) -> Timing:
        """The gather of the same batch from local memory, nothing else."""
        return self.gather_timing(traffic.base_dram_bytes, traffic.base_l2_bytes, None)

    def steps(self, work: Configs, traffic: Traffic) -> list[TimedStep]:
        """All steps in the order in which they run."""
        several = work.gpus > 1
        gather = self.gather_timing(traffic.dram_bytes, traffic.l2_bytes, self.memory, traffic.bare_bytes)
        exchange = [step for step in self._permute(work, traffic, several) if step.payload_bytes.any()]
        pool = TimedStep(STEPS["gather_pool"], traffic.dram_bytes, gather)
        reduce = self._reduce(work, traffic, several)
        if self.tier is None:
            return list(self._with_handover(work, [*exchange, pool, *reduce]))
        below = Tiered(self, self.tier, self.ids)
        found = self._with_handover(work, [*exchange, *below.steps(work, traffic, pool), *reduce])
        return below.overlapped(list(found))

    def _with_handover(self, work: Configs, steps: list[TimedStep]) -> Iterator[TimedStep]:
        """The steps, and what the pass adds to its collectives, where that was measured."""
        yield from steps
        known = self.setting.handover
        if not known.known:
            return
        sent = [
            Sent(step.name, step.collective, step.payload_bytes, work.gpus, step.timing.time_s)
            for step in steps
            if step.collective
        ]
        *times, rank = known.times(sent)
        low, time, high = (np.asarray(np.broadcast_to(part, work.gpus.shape), float) for part in times)
        rank = np.broadcast_to(rank, work.gpus.shape)
        none = constant(0, time.shape)
        timing = Timing(time, low, high, time, rank, none, (HANDOVER,), none, (self.setting.backend,))
        yield TimedStep(STEPS[HANDOVER], np.zeros_like(time), timing)

    def _permute(self, work: Configs, traffic: Traffic, several: NDArray[np.bool_]) -> list[TimedStep]:
        length = self.constant("length_bytes")
        splits = eb.splits_bytes(work.gpus, self.constant("splits_per_peer"), self.constant("split_bytes"))
        several = several & (traffic.bags > 0)  # with every table on every GPU nothing is exchanged
        sent = {
            "splits": splits * (traffic.bags > 0),
            "lengths": eb.lengths_bytes(work.gpus, traffic.bags, length),
            "ids": eb.ids_bytes(traffic.lookups, work.id_bytes),
        }
        sorted_bytes = eb.bucketize_bytes(traffic.lookups, work.id_bytes, work.gpus, traffic.bags, length)
        bucketize = self.stream_timing(
            "bucketize", sorted_bytes, "bucketize_floor_s", "bucketize_bytes_per_s"
        )
        sizes = np.stack(np.broadcast_arrays(*sent.values()))
        timing = self.setting.links.timing("all_to_all", sizes, work.gpus, self.gpus_per_node)
        return [
            TimedStep(STEPS["bucketize"], sorted_bytes, bucketize.where(several)),
            *(
                TimedStep(STEPS[f"all_to_all_{name}"], size, timing.at(row))
                for row, (name, size) in enumerate(sent.items())
            ),
        ]

    def _reduce(self, work: Configs, traffic: Traffic, several: NDArray[np.bool_]) -> list[TimedStep]:
        """Partial bags to bags; where they travel in another precision, that before and after."""
        G, way, several = work.gpus, self.way, several & (traffic.bags > 0)
        dense = eb.partial_bags_bytes(G, traffic.elements, self.sent_element_bytes)
        sparse = way == SPARSE
        parts = traffic.sparse_elements if sparse else G * traffic.elements
        out = self._convert(CONVERT_OUT, parts, several)
        whole = self._convert(CONVERT_IN, traffic.elements, several)
        if way == TWO_LEVEL:
            return [*out, *self._two_level(dense, G), *whole]
        if way == REDUCE_SCATTER:
            return [*out, self._flat(dense, G), *whole]
        size = traffic.sparse_bytes if sparse else dense
        exchange = self._collective("all_to_all_bags", size, G)
        back = self._convert(CONVERT_IN, parts, several)
        summed = eb.local_sum_bytes(G, traffic.elements, self.constant("pooled_element_bytes"))
        moved = traffic.sparse_sum_bytes if sparse else summed
        adding = self.stream_timing("local_sum", moved, "launch_floor_s", "local_sum_bytes_per_s").where(
            several
        )
        local_sum = TimedStep(STEPS["local_sum"], moved, adding)
        if way != BEST:
            return [*out, exchange, *back, local_sum]
        flat = self._flat(dense, G)
        wins = sum_time([flat, *whole]) <= sum_time([exchange, *back, local_sum])
        nowhere = TimedStep(STEPS["local_sum"], np.zeros(G.shape), nothing(G.shape))
        bags = replace(flat, step=EXCHANGE)
        ways = [(bags, exchange), *zip(whole, back, strict=True), (nowhere, local_sum)]
        return [*out, *(either(wins, first, second) for first, second in ways)]

    def _flat(self, dense: Array, G: Array) -> TimedStep:
        return self._collective("reduce_scatter_bags", dense, G)

    def _convert(self, name: str, elements: Array, several: NDArray[np.bool_]) -> list[TimedStep]:
        """Bags of that many elements to another precision, or back; no step where they travel as pooled."""
        sent, pooled = self.sent_element_bytes, self.constant("pooled_element_bytes")
        if sent == pooled:
            return []
        moved = ex.convert_bytes(1, elements, sent, pooled)
        timing = self.stream_timing("local_sum", moved, "launch_floor_s", "local_sum_bytes_per_s")
        return [TimedStep(STEPS[name], moved, untimed(timing).where(several))]

    @property
    def way(self) -> str:
        """How partial bags become bags: one of ``REDUCTIONS``, or the better of two with ``best``."""
        if self.reduction != AUTO:
            return self.reduction
        ways = {BEST: BEST, str(Backend.NVSHMEM): ALL_TO_ALL}
        return ways.get(self.setting.backend, REDUCE_SCATTER)

    def _two_level(self, dense: Array, G: Array) -> list[TimedStep]:
        """Reduce-scatter inside each domain, then among the ranks of equal place; flat where G is uneven."""
        g = self.domain(G)
        even = np.mod(G, g) == 0
        inside, groups = np.where(even, g, G), np.where(even, G / g, 1)
        first = self._collective("reduce_scatter_inside", dense, inside)
        across = self._collective("reduce_scatter_across", dense / inside, groups, per_node=1)
        return [first, across]

    def _collective(self, name: str, payload: Array, gpus: Array, per_node: int | None = None) -> TimedStep:
        node, step = self.gpus_per_node if per_node is None else per_node, STEPS[name]
        timing = self.setting.links.timing(step.collective, payload, gpus, node)
        return TimedStep(step, payload, timing)

    def light_time(self, work: Configs, traffic: Traffic, steps: list[TimedStep], local: Array) -> Array:
        """Least time of the pass at datasheet rates, with no latency (``bounds.sharded_floor_time``) [s].

        local  time of the same batch in local memory [s]
        Where ``best`` chose between two exchanges of bags, the one that runs counts.
        Limits: one GPU -> local;  never above the sum of the steps
        """
        value = self.setting.machine.value
        hbm = max(value("hbm_bytes_per_s"), value("gather_bytes_per_s"))
        if self.memory is not None:
            hbm *= self.memory_rate(self.memory) / value("hbm_bytes_per_s")
        time = np.zeros(work.gpus.shape)
        links = np.zeros(work.gpus.shape)
        inside = value("nvlink_bytes_per_s") or value("pcie_bytes_per_s")
        nic = value("nic_bytes_per_s")
        g = self.domain(work.gpus)
        own = (step.timing.time_s > 0 for step in steps if step.name == "local_sum")
        summed = next(own, np.zeros(time.shape, dtype=bool))
        for step in steps:
            time = time + step.timing.time_s
            if not step.collective:
                continue
            if step.name == "reduce_scatter_across":  # counted with the level inside
                continue
            rates = step.payload_bytes, work.gpus, g, inside, nic
            sent = step.collective == "all_to_all" or (step.name == EXCHANGE.name) & summed
            scattered, exchanged = (
                bounds.reduce_scatter_floor_time(*rates),
                bounds.all_to_all_floor_time(*rates),
            )
            links = links + np.where(sent, exchanged, scattered)
        return bounds.sharded_floor_time(time, local, traffic.bare_bytes, hbm, links)


@lru_cache(maxsize=2**18)
def _missed(ids: Distribution, rows: float, pooling: float, batch: float, shards: float, X: float) -> float:
    """Part of the look-ups of a shard that misses caches of X rows: the same for every way to send."""
    return float(LookUps(ids, rows, pooling, batch, shards).miss(Gather.SHARD, 0, X))


def fullest_part(forward: Forward, work: Configs) -> float:
    """Look-ups of the row shard with the hottest row over those of the mean one, where that is most.

    Of one configuration; of sets of tables those with the most look-ups are asked.
    Limits: uniform ids -> 1;  one row for all, G GPUs -> G
    """
    gpus, batch = float(work.gpus[0]), float(work.batch[0])
    if forward.ids.uniform or gpus == 1:
        return 1.0
    asked = sorted(work.groups, key=lambda t: -float((t.count * t.pooling).flat[0]))[:_ASKED]
    cut = [(float(t.rows.flat[0]), float(t.pooling.flat[0])) for t in asked]
    parts = (LookUps(forward.ids, rows, L, batch, gpus).fullest(0, gpus) for rows, L in cut if rows >= gpus)
    return max(parts, default=1.0)


_ASKED = 20


@lru_cache(maxsize=2**18)
def _distinct(ids: Distribution, rows: float, pooling: float) -> float:
    """Distinct rows in a bag, which neither batch nor shards change."""
    return LookUps(ids, rows, pooling, 1, 1).distinct_in_bag(0)
