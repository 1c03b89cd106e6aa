"""The look-up of a GPU whose rows are in a tier below its HBM: its steps, with times, band and evidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.collectives.library import Timing
from perfmodel.model import kernels, set_caches, tiers
from perfmodel.model.look_ups import Gather, LookUps
from perfmodel.model.popularity import popularity_bins
from perfmodel.passes.basis import PassBasis
from perfmodel.passes.steps import STEPS
from perfmodel.passes.tier_times import PACKET, TierTimes
from perfmodel.projections.inputs import Configs
from perfmodel.projections.timed import TimedStep, sum_time
from perfmodel.schema.distributions import Distribution
from perfmodel.schema.tiers import LFU, SSD, UVM, Tier
from perfmodel.units import format_bytes, format_count, format_fraction

Array = NDArray[np.float64]

CACHE_LOOKUP, FETCH_ROWS, GATHER_HOST, READ_SSD = "cache_lookup", "fetch_rows", "gather_host", "read_ssd"


@dataclass(frozen=True)
class AskedRows:
    """What a batch asks of one GPU, all tables: rows, in bytes where they cross a link.

    distinct  rows of its shards;  missed  those that the cache has not;  missed_bytes  of those that it takes
    in, whole sectors
    blocks    reads of an SSD for them;  in_place_bytes  all reads of rows in place, those under way once
    """

    distinct: float
    missed: float
    missed_bytes: float
    blocks: float
    in_place_bytes: float
    wire_bytes: float  # of the rows that cross, headers counted


@dataclass(frozen=True)
class Tiered:
    """A look-up through one tier: ``steps`` replaces the gather of a pass whose rows are all in HBM."""

    basis: PassBasis
    tier: Tier
    ids: Distribution

    def steps(self, work: Configs, pool: TimedStep) -> list[TimedStep]:
        """Before and instead of the gather, in order. ``pool``  the gather as from HBM"""
        asked = list(self.all_asked(work))
        column = {name: np.array([getattr(one, name) for one in asked]) for name in AskedRows.__annotations__}
        sharers = self.times.sharers(work.gpus)
        in_place = self.times.in_place(column["in_place_bytes"], column["wire_bytes"], sharers, pool.timing)
        gather = TimedStep(STEPS[GATHER_HOST], column["in_place_bytes"], in_place)
        if self.tier.kind == UVM:
            return [gather]
        ids = column["distinct"] * work.id_bytes
        find = TimedStep(STEPS[CACHE_LOOKUP], ids, self.times.looked_up(column["distinct"]))
        if self.tier.policy == LFU:
            return [find, gather]
        timing = self._fetched(column, sharers)
        name = READ_SSD if self.tier.kind == SSD else FETCH_ROWS
        return [find, TimedStep(STEPS[name], column["missed_bytes"], timing), pool]

    def _fetched(self, column: dict[str, Array], sharers: Array) -> Timing:
        """Of the rows that the cache has not."""
        crossing = column["missed_bytes"], column["wire_bytes"], sharers
        if self.tier.kind != SSD:
            return self.times.fetched(*crossing)
        moved, wire, sharing = crossing
        return self.times.from_ssd(moved, wire, column["blocks"], sharing)

    def overlapped(self, steps: list[TimedStep]) -> list[TimedStep]:
        """The pass, with what brings rows into the cache beside everything else where it is prefetched."""
        if not self.tier.prefetch:
            return steps
        ahead = [step for step in steps if step.name in (CACHE_LOOKUP, FETCH_ROWS, READ_SSD)]
        whole, other = sum_time(ahead), sum_time([step for step in steps if step not in ahead])
        left = tiers.exposed_time(whole, other) / whole
        return [replace(s, timing=_part(s.timing, left)) if s in ahead else s for s in steps]

    @property
    def times(self) -> TierTimes:
        """Of the link, with the constants of the basis."""
        return TierTimes(self.basis)

    def _value(self, key: str) -> float:
        return self.basis.setting.machine.value(key)

    def _constant(self, key: str) -> float:
        return self.basis.constant(key)

    def asked(self, work: Configs, at: int) -> AskedRows:
        """What a GPU of one configuration is asked."""
        return next(self.all_asked(work.part(slice(at, at + 1))))

    def all_asked(self, work: Configs) -> Iterator[AskedRows]:
        """What a GPU of each configuration is asked."""
        shape = work.gpus.shape
        columns = [(g.count, g.rows, g.dim * g.element_bytes, g.pooling) for g in work.groups]
        tables = np.array([[np.broadcast_to(x, shape) for x in one] for one in zip(*columns, strict=True)])
        value = self._value
        sector = self._constant("link_sector_bytes")
        link = value("host_latency_s"), value("host_link_bytes_per_s"), sector
        request, header, least = map(self._constant, PACKET)
        packet = request, header, least
        block = value("ssd_block_bytes") if self.tier.kind == SSD else 1.0
        ways = self._constant("cache_ways")
        for at in range(len(work)):
            cached = 0.0 if work.cached is None else float(work.cached[at])
            each = tuple(zip(*tables[:, :, at].tolist(), strict=True))
            load = float(work.gpus[at]), float(work.batch[at]), cached
            yield _asked(self.ids, self.tier, each, *load, ways, link, packet, block)


@lru_cache(maxsize=4096)
def _asked(
    ids: Distribution,
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
    """Of a GPU; ``tables``  (count, rows, bytes of a row, pooling) of each kind."""
    latency, rate, sector = link
    count, rows, row, pooling = np.array(tables).T
    parts = np.where(rows >= gpus, gpus, 1.0)
    moved = kernels.sector_rounded(row, sector)
    sent = tiers.wire_bytes(moved, *packet)
    crossing = wire = 0.0
    held = tiers.rows_in_flight(latency, rate, moved)
    cache = np.where(held >= 1, parts * held, 0.0)
    if tier.kind == UVM:
        each = zip(rows.tolist(), pooling.tolist(), parts.tolist(), cache.tolist(), strict=True)
        missed = [float(LookUps(ids, E, L, batch, r).miss(Gather.SHARD, 0, X)) for E, L, r, X in each]
        reads = count * batch * pooling * np.array(missed)
        crossing, wire = float(reads @ moved), float(reads @ sent)
    p, same, bins = _bins_of(ids, tuple(rows.tolist()))
    a = set_caches.asked_rate(p, np.repeat(parts * batch * pooling, bins))
    many = np.repeat(count / parts, bins) * same
    moved_of, sent_of, reads_of = (np.repeat(each, bins) for each in (moved, sent, np.ceil(row / block)))
    distinct = float(set_caches.rows_asked(a, many, 1.0))
    if tier.kind == UVM:
        return AskedRows(distinct, 0.0, 0.0, 0.0, crossing, wire)
    sets = max(float(np.ceil(cached * float(np.sum(many)) / ways)), 1e-9)
    if tier.policy == LFU:
        absent = set_caches.lfu_absent(a, many, sets, ways)
        whole = np.split(absent * np.repeat(parts / count, bins), np.cumsum(bins)[:-1])
        of = zip(np.split(a, np.cumsum(bins)[:-1]), whole, parts * batch * pooling, cache, strict=True)
        reads = count / parts * np.array([set_caches.lfu_reads(*each) for each in of])
        rows_gone = float(absent @ -np.expm1(-a))
        return AskedRows(distinct, rows_gone, 0.0, 0.0, float(reads @ moved), float(reads @ sent))
    gone = set_caches.lru_batch_misses(a, many, sets, ways)
    missed_bytes, sent_bytes = float(gone @ moved_of), float(gone @ sent_of)
    return AskedRows(distinct, float(gone.sum()), missed_bytes, float(gone @ reads_of), 0.0, sent_bytes)


@lru_cache(maxsize=8)
def _bins_of(ids: Distribution, rows: tuple[float, ...]) -> tuple[Array, Array, NDArray[np.int64]]:
    """``popularity_bins`` of tables, one after the other, and how many bins each has."""
    each = [popularity_bins(ids, E) for E in rows]
    p, same = (np.concatenate(column) for column in zip(*each, strict=True))
    return p, same, np.array([found[0].size for found in each])


def _part(timing: Timing, left: Array) -> Timing:
    """That part of a step's time."""
    low, time, high, floor = (left * x for x in (timing.low_s, timing.time_s, timing.high_s, timing.floor_s))
    return replace(timing, low_s=low, time_s=time, high_s=high, floor_s=floor)


def tier_record(basis: PassBasis, tier: Tier, ids: Distribution, work: Configs) -> dict[str, Any]:
    """Of the first configuration, for JSON: TorchRec's compute kernel and ``CacheParams``, and what misses.

    ``cache_params`` is None where there is no cache: its fields are those of TorchRec's ``CacheParams``
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
    """What of the first configuration's look-ups crosses the link, for a person."""
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
