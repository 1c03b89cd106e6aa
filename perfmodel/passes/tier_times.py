"""Times of rows in host memory or on SSDs over a GPU's link, with bands; for projections and plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.collectives.library import Timing, constant, slower
from perfmodel.model import tiers
from perfmodel.model.recording import Number
from perfmodel.passes.basis import KERNEL_LIBRARY, PassBasis
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.tiers import LFU

Array = NDArray[np.float64]

LINK = ("link_packet_fraction", "host_link_bytes_per_s", "host_bytes_per_s")
PACKET = ("link_request_bytes", "link_header_bytes", "link_row_bytes")
"""Constants of ``tiers.wire_bytes``."""

SHARED = ("shared_uplink_fraction", "random_row_fraction")
CACHE = ("cache_floor_s", "cache_row_s")
SSDS = ("ssd_reads_per_s", "ssd_bytes_per_s", "ssd_queue_depth")
SSD_WRITES = ("ssd_write_bytes_per_s",)


def cache_state_bytes(
    constant: Callable[[str], float], policy: str, prefetch: bool, *, ssd: bool = False
) -> tuple[float, float]:
    """Bookkeeping of FBGEMM's cache: (bytes per slot, bytes per row of the cached tables).

        8 + 8 + 4 prefetch  and  4,  with LFU 8 + 4 prefetch  and  4 + 8                [bytes]

    constant  returns a constant of the kernels by its key
    ssd       whether rows are on SSDs, where FBGEMM keeps no map from rows to tables
    Source: as ``capacity.cache_bytes``
    """
    if ssd:
        slot, _ = cache_state_bytes(constant, policy, prefetch)
        return slot, 0.0
    slot = constant("cache_slot_row_bytes") + prefetch * constant("cache_lock_bytes")
    row, use = constant("cache_table_bytes"), constant("cache_use_bytes")
    return (slot, row + use) if policy == LFU else (slot + use, row)


_ROUNDING = 1e-9
_LONGEST_HEADERS = 1.6
"""Largest ratio of the bytes of a short read with its packet header to its bytes without."""


@dataclass(frozen=True)
class TierTimes:
    """Times of steps that read or write host memory or SSDs, with the constants of ``basis``.

    Arguments of its methods are arrays that broadcast; ``sharers`` are the GPUs of a node that read at once.
    """

    basis: PassBasis

    def sharers(self, gpus: ArrayLike) -> Array:
        """GPUs that share the host memory of a node, when ``gpus`` GPUs run in all."""
        node = self.basis.gpus_per_node or self.basis.setting.machine.gpus_per_node
        return np.minimum(gpus, float(node))

    def look_up_s(self, distinct: ArrayLike) -> Array:
        """Time to look up so many distinct rows in the cache [s]."""
        floor, each = (self.basis.constant(key) for key in CACHE)
        return np.asarray(tiers.cache_lookup_time(np.asarray(distinct), floor, each))

    def looked_up(self, distinct: Array) -> Timing:
        """Time of the cache look-up (``look_up_s``) with its band and evidence."""
        time = self.look_up_s(distinct)
        return self.timing(time, np.broadcast_to(self.basis.constant(CACHE[0]), time.shape), CACHE)

    def rate(self, moved: ArrayLike, wire: ArrayLike, sharers: ArrayLike, *, least: bool = False) -> Array:
        """Rate at which one GPU reads rows over its link [bytes/s].

        moved  bytes of the rows;  wire  bytes of the same rows with packet headers
        least  return the lowest plausible rate: neighbours share an uplink (of PCIe, not of C2C), short rows
               wait for address translation, and reads of random rows slow the host memory (assumed)
        Limits: nothing moved -> the rate of 1 byte;  one GPU -> ``least`` has no effect
        """
        some = np.asarray(moved) > 0
        rows, sent = np.where(some, moved, 1.0), np.where(some, wire, 1.0)
        link, packets = self._value(LINK[1]), self.basis.constant(LINK[0])
        several = least & (np.asarray(sharers) > 1)
        uplink, random = (np.where(several, self.basis.constant(key), 1.0) for key in SHARED)
        part: Number = packets
        if link <= self._value("pcie_bytes_per_s"):
            part = packets * uplink
        memory = self._value(LINK[2]) * random
        return np.asarray(tiers.row_rate(link, part, rows, sent, memory, np.asarray(sharers)))

    def _crossing_s(
        self, moved: ArrayLike, wire: ArrayLike, sharers: ArrayLike, part: float = 1.0
    ) -> tuple[Array, Array]:
        """(expected time, upper limit of the time) of rows that cross a GPU's link [s].

        part  factor on the rate, below 1 while evicted rows cross the link the other way in training [-]
        """
        latency, x = self._value("host_latency_s"), np.asarray(moved)
        time, most = (
            np.asarray(tiers.link_time(x, latency, part * self.rate(moved, wire, sharers, least=least)))
            for least in (False, True)
        )
        return time, most

    def in_place(
        self,
        moved: ArrayLike,
        wire: ArrayLike,
        sharers: ArrayLike,
        pool: Timing,
        launches: ArrayLike = 1.0,
    ) -> Timing:
        """Time of a gather that reads some rows over the link and others from HBM: the slower of both.

        pool  time of the part that reads HBM;  launches  number of kernels [-]
        """
        return slower(self.over_link(moved, wire, sharers, launches), pool)

    def over_link(
        self, moved: ArrayLike, wire: ArrayLike, sharers: ArrayLike, launches: ArrayLike = 1.0
    ) -> Timing:
        """The side of ``in_place`` that crosses the link, with the launches of the kernels."""
        launch = np.asarray(launches, dtype=np.float64) * self._value("launch_floor_s")
        time, most = (launch + part for part in self._crossing_s(moved, wire, sharers))
        floor = np.broadcast_to(launch + self._value("host_latency_s"), time.shape)
        return self.timing(time, floor, self._link_keys(sharers), most, self._row_sd(moved, wire))

    def fetched(self, moved: Array, wire: Array, sharers: ArrayLike, part: float = 1.0) -> Timing:
        """Time to fetch the rows that a cache misses.

        part  factor on the link's rate, as in ``_crossing_s``
        """
        time, most = self._crossing_s(moved, wire, sharers, part)
        floor = np.where(moved > 0, self._value("host_latency_s"), 0.0)
        return self.timing(time, floor, self._link_keys(sharers), most, self._row_sd(moved, wire))

    def _row_sd(self, moved: ArrayLike, wire: ArrayLike) -> Array:
        """Standard deviation of ln t for short rows, whose time is set by address translation."""
        sd = self.basis.setting.constants.quantity(PACKET[-1]).log_sd or 0.0
        return np.where(np.asarray(wire) > _LONGEST_HEADERS * np.asarray(moved), sd, 0.0)

    def reads_per_s(self, sharers: ArrayLike) -> Array:
        """Random reads per second that one GPU gets when ``sharers`` GPUs share the node's SSDs [1/s]."""
        queue = self._value("ssd_queue_depth"), self._value("ssd_latency_s")
        block = self._value("ssd_block_bytes")
        whole = tiers.ssd_reads_per_s(
            self._value("ssd_reads_per_s"), *queue, self._value("ssd_bytes_per_s"), block
        )
        return np.asarray(whole / np.asarray(sharers, dtype=np.float64))

    def from_ssd(
        self, moved: Array, wire: Array, blocks: Array, sharers: ArrayLike, part: float = 1.0
    ) -> Timing:
        """Time to fetch missed rows from SSDs: the slower of the reads and the link.

        blocks  bytes of the whole SSD blocks that are read;  part  factor on the link's rate, as in
                ``fetched``
        """
        latency = self._value("ssd_latency_s")
        time = tiers.ssd_time(blocks, self.reads_per_s(sharers), latency)
        read = self.timing(time, np.where(blocks > 0, latency, 0.0), SSDS)
        return slower(self.fetched(moved, wire, sharers, part), read)

    def to_ssd(self, written: Array, sharers: ArrayLike) -> Timing:
        """Time to write back updated rows that a cache evicts, to SSDs that ``sharers`` GPUs share."""
        time = tiers.ssd_write_time(written, self.write_rate(sharers))
        return self.timing(time, np.zeros(time.shape), SSD_WRITES)

    def write_rate(self, sharers: ArrayLike) -> Array:
        """Write rate that one GPU gets when ``sharers`` GPUs share the node's SSDs [bytes/s]."""
        return np.asarray(self._value("ssd_write_bytes_per_s") / np.asarray(sharers, dtype=np.float64))

    def _link_keys(self, sharers: ArrayLike) -> tuple[str, ...]:
        """Keys of the constants that set the rate: of the link, and of host memory if that is slower."""
        link = self._value(LINK[1]) * self.basis.constant(LINK[0])
        memory = self._value(LINK[2]) / float(np.max(sharers, initial=1.0))
        return LINK if memory < link else LINK[:2]

    def timing(
        self,
        time: Array,
        floor: Array,
        keys: tuple[str, ...],
        most: Array | None = None,
        also_sd: Array | float = 0.0,
    ) -> Timing:
        """The time with a band, from the spread of its constants, and with their weakest evidence.

        keys     constants that the time depends on
        most     time if GPUs wait for each other [s]; the upper end combines it with the spread in quadrature
        also_sd  a further standard deviation of ln t [-], added to the spread of the constants
        """
        machine, constants = self.basis.setting.machine, self.basis.setting.constants
        known = [machine.quantity(k) if k in machine.values else constants.quantity(k) for k in keys]
        z = self.basis.constant("normal_quantile_95")
        k = np.exp(z * np.hypot(float(np.hypot.reduce([q.log_sd or 0.0 for q in known])), also_sd))
        rank = constant(max(q.evidence.rank for q in known), time.shape)
        weakest = max(known, key=lambda q: q.evidence.rank)
        code, limit = constant(0, time.shape), constant(known.index(weakest), time.shape)
        high, least = time * k, np.minimum(floor, time)
        if most is not None and (most > time).any():
            some = np.maximum(time, np.finfo(np.float64).tiny)
            high = time * np.exp(np.hypot(np.log(k), np.log(np.maximum(most / some, 1.0))))
            waits = most > time * (1 + _ROUNDING)
            rank = np.where(waits, np.int8(Evidence.ASSUMED.rank), rank)
            limit, keys = (
                np.where(waits, np.int8(len(keys)), limit),
                (*keys, SHARED[0]),
            )
        return Timing(time, time / k, high, least, rank, limit, keys, code, (KERNEL_LIBRARY,))

    def _value(self, key: str) -> float:
        return self.basis.setting.machine.value(key)
