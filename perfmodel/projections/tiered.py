"""The look-up of a GPU with rows in a tier below its HBM: steps with times, bands and evidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.collectives.library import Timing
from perfmodel.model import kernels, tiers
from perfmodel.model.look_ups import Gather, LookUps
from perfmodel.passes.basis import PassBasis
from perfmodel.passes.cut import Part
from perfmodel.passes.step_resources import BELOW, Resource
from perfmodel.passes.tier_loads import law_of, pooled_misses
from perfmodel.passes.tier_times import PACKET
from perfmodel.passes.timing import AHEAD
from perfmodel.projections.inputs import Configs, columns_of
from perfmodel.projections.timed import TimedStep, sum_time
from perfmodel.schema.distributions import Distribution
from perfmodel.schema.tiers import LFU, SSD, UVM, Tier
from perfmodel.units import format_bytes, format_count, format_fraction

Array = NDArray[np.float64]

GATHER_HOST, READ_SSD = "gather_host", "read_ssd"


@dataclass(frozen=True)
class AskedRows:
    """Rows that a batch needs from one GPU's shards, all tables together.

    distinct  distinct rows;  missed  rows that miss the cache;  missed_bytes  their bytes in whole sectors,
              as far as the cache stores them
    blocks    SSD blocks read for the missed rows
    in_place_bytes  bytes of rows that are read in place, without second reads of rows in flight
    wire_bytes      bytes over the link, with packet headers
    """

    distinct: float
    missed: float
    missed_bytes: float
    blocks: float
    in_place_bytes: float
    wire_bytes: float  # of the rows that cross the link, with headers


@dataclass(frozen=True)
class Tiered:
    """Rows in one tier: adds the tier's loads to a pass that otherwise has all rows in HBM."""

    basis: PassBasis
    tier: Tier
    ids: Distribution

    def filled(self, work: Configs, most: Array) -> Array:
        """Loads [..., K] of a pass, with the tier's loads added. most  loads as if all rows were in HBM"""
        asked = list(self.all_asked(work))
        column = {name: np.array([getattr(one, name) for one in asked]) for name in AskedRows.__annotations__}
        whole = np.zeros((BELOW[1], len(work)))
        whole[: most.shape[-1]] = most.T
        on_ssd, ids = self.tier.kind == SSD, column["distinct"] * work.id_bytes
        crossing = column["missed_bytes"], column["wire_bytes"]
        if self.tier.kind == UVM or self.tier.policy == LFU:
            crossing = column["in_place_bytes"], column["wire_bytes"]
            moved, wire = Resource.IN_PLACE, Resource.IN_PLACE_WIRE
        elif on_ssd:
            moved, wire = Resource.SSD_FETCHED, Resource.SSD_FETCHED_WIRE
            whole[Resource.SSD_READ] = column["blocks"] * self._value("ssd_block_bytes")
        else:
            moved, wire = Resource.FETCHED, Resource.FETCHED_WIRE
        whole[moved], whole[wire] = crossing
        if self.tier.kind != UVM:
            whole[Resource.SSD_CACHE_IDS if on_ssd else Resource.CACHE_IDS] = ids
        return whole.T

    def overlapped(self, steps: list[TimedStep]) -> list[TimedStep]:
        """The steps of a pass; with prefetch, only the exposed time of steps that fill caches is counted."""
        if not self.tier.prefetch:
            return steps
        ahead = [step for step in steps if step.name in AHEAD]
        whole, other = sum_time(ahead), sum_time([step for step in steps if step not in ahead])
        left = tiers.exposed_time(whole, other) / whole
        return [replace(s, timing=_part(s.timing, left)) if s in ahead else s for s in steps]

    def _value(self, key: str) -> float:
        return self.basis.setting.machine.value(key)

    def _constant(self, key: str) -> float:
        return self.basis.constant(key)

    def asked(self, work: Configs, at: int) -> AskedRows:
        """``AskedRows`` of the configuration at position ``at``."""
        return next(self.all_asked(work.part(slice(at, at + 1))))

    def all_asked(self, work: Configs) -> Iterator[AskedRows]:
        """``AskedRows`` of each configuration."""
        shape = work.gpus.shape
        tables = np.array([[np.broadcast_to(x, shape) for x in columns_of(group)] for group in work.groups])
        ids = tuple(law or self.ids for group in work.groups for law in group.ids)
        value = self._value
        sector = self._constant("link_sector_bytes")
        link = value("host_latency_s"), value("host_link_bytes_per_s"), sector
        request, header, least = map(self._constant, PACKET)
        packet = request, header, least
        block = value("ssd_block_bytes") if self.tier.kind == SSD else 1.0
        ways = self._constant("cache_ways")
        for at in range(len(work)):
            cached = 0.0 if work.cached is None else float(work.cached[at])
            each = tuple(map(tuple, tables[:, :, at].tolist()))
            load = float(work.gpus[at]), float(work.batch[at]), cached
            yield _asked(ids, self.tier, each, *load, ways, link, packet, block)


@lru_cache(maxsize=4096)
def _asked(
    ids: tuple[Distribution, ...],
    tier: Tier,
    tables: tuple[tuple[float, ...], ...],
    gpus: float,
    batch: float,
    cached: float,
    ways: float,
    link: tuple[float, float, float],
    packet: tuple[float, float, float],
    block: float,
) -> AskedRows:
    """``AskedRows`` of one configuration.

    tables  numbers of each kind of equal tables (columns of ``TableGroup``);  ids  distribution of each kind
    cached  share of the rows in the cache;  ways  rows of a set of the cache
    link    (latency, rate, sector) of the link;  packet  constants of its packets
    block  bytes of an SSD block
    """
    latency, rate, sector = link
    count, rows, dim, pooling, width, _ = np.array(tables).T
    row = dim * width
    parts = np.where(rows >= gpus, gpus, 1.0)
    moved = kernels.sector_rounded(row, sector)
    sent = tiers.wire_bytes(moved, *packet)
    held = tiers.rows_in_flight(latency, rate, moved)
    cache = np.where(held >= 1, parts * held, 0.0)
    each = list(zip(rows.tolist(), pooling.tolist(), parts.tolist(), strict=True))
    laws = {at: law_of(ids[at], E, r * batch * L) for at, (E, L, r) in enumerate(each)}
    distinct = float(
        sum(n * laws[at].distinct / r for at, (n, r) in enumerate(zip(count, parts, strict=True)))
    )
    if tier.kind == UVM:
        alone = zip(ids, each, cache.tolist(), strict=True)
        missed = [float(LookUps(q, E, L, batch, r).miss(Gather.SHARD, 0, X)) for q, (E, L, r), X in alone]
        reads = count * batch * pooling * np.array(missed)
        return AskedRows(distinct, 0.0, 0.0, 0.0, float(reads @ moved), float(reads @ sent))
    by_width = dim * (tier.prefetch or tier.kind == SSD)  # FBGEMM's caches: ``tier_loads.cache_keys``
    caches = defaultdict[tuple[float, float], list[tuple[Part, int]]](list)
    for at, key in enumerate(zip(width.tolist(), by_width.tolist(), strict=True)):
        part = (at, float(parts[at]), cached, 0.0, float(cache[at]))
        caches[key].append((part, int(count[at])))
    found: dict[Part, tuple[float, float]] = {}
    for shards in caches.values():
        found |= pooled_misses(tuple(shards), laws, tier.policy, ways)
    gone, reads = (
        count * np.array(column) for column in zip(*(found[p] for p in sorted(found)), strict=True)
    )
    if tier.policy == LFU:
        return AskedRows(distinct, float(gone.sum()), 0.0, 0.0, float(reads @ moved), float(reads @ sent))
    blocks = float(gone @ np.ceil(row / block))
    return AskedRows(distinct, float(gone.sum()), float(gone @ moved), blocks, 0.0, float(gone @ sent))


def _part(timing: Timing, left: Array) -> Timing:
    """The timing multiplied by ``left``, the part of a step that is not hidden."""
    low, time, high, floor = (left * x for x in (timing.low_s, timing.time_s, timing.high_s, timing.floor_s))
    return replace(timing, low_s=low, time_s=time, high_s=high, floor_s=floor)


def tier_record(basis: PassBasis, tier: Tier, ids: Distribution, work: Configs) -> dict[str, Any]:
    """The tier of the first configuration, for JSON: TorchRec's compute kernel, its cache, and the misses.

    ``cache_params`` has the fields of TorchRec's ``CacheParams``; it is None without a cache
    """
    asked = Tiered(basis, tier, ids).asked(work, 0)
    share = 0.0 if work.cached is None else float(work.cached[0])
    cache = {"algorithm": tier.policy.upper(), "load_factor": share, "prefetch_pipeline": tier.prefetch}
    return {
        "compute_kernel": tier.kernel,
        "cache_params": None if tier.kind == UVM else cache,
        "distinct_rows": asked.distinct,
        "missed_rows": None if tier.kind == UVM else asked.missed,
        "link_bytes": asked.in_place_bytes + asked.missed_bytes,
    }


def misses_words(basis: PassBasis, tier: Tier, ids: Distribution, work: Configs) -> Iterator[str]:
    """Share of the first configuration's look-ups that crosses the link, in words."""
    asked = Tiered(basis, tier, ids).asked(work, 0)
    lookups = sum(float(np.max(g.count * g.pooling)) for g in work.groups) * float(work.batch[0])
    if tier.kind == UVM:
        size = format_bytes(asked.in_place_bytes)
        yield f"{size} of rows cross the link; rows that are on their way are read once"
        return
    missed, part = asked.missed, asked.missed / asked.distinct if asked.distinct else 0.0
    where = ", and each look-up of one reads host memory" if tier.policy == LFU else ""
    yield (
        f"{format_count(lookups)} look-ups per GPU read {format_count(asked.distinct)} distinct rows; "
        f"{format_count(missed)} ({format_fraction(part)}) are not in the cache{where}"
    )
    if tier.kind == SSD:
        yield "reads of SSDs are at datasheet rates: what RocksDB or a driver adds comes on top"
