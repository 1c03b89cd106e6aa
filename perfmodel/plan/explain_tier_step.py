"""A step of a plan that waits for host memory or SSDs, explained: its equation, and every number in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfmodel.passes.allowed_tiers import CACHED, IN_PLACE, ON_SSD
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.explanation import Explanation
from perfmodel.passes.placement import Plan
from perfmodel.passes.step_resources import Resource
from perfmodel.passes.steps import StepRow
from perfmodel.projections.tier_explanation import UPDATE_HOST, WRITE_SSD, Reader, explain_asked
from perfmodel.projections.tiered import GATHER_HOST, READ_SSD, AskedRows
from perfmodel.schema.tiers import LFU, SSD, UVM, UVM_CACHING, Tier
from perfmodel.units import counted, format_bytes, format_time

_OF = {
    GATHER_HOST: (Resource.IN_PLACE, Resource.IN_PLACE_WIRE),
    UPDATE_HOST: (Resource.UPDATED_BELOW, Resource.UPDATED_BELOW_WIRE),
    "cache_lookup": (Resource.CACHE_IDS, Resource.CACHE_IDS),
    "ssd_lookup": (Resource.SSD_CACHE_IDS, Resource.SSD_CACHE_IDS),
    READ_SSD: (Resource.SSD_FETCHED, Resource.SSD_FETCHED_WIRE),
    WRITE_SSD: (Resource.SSD_WRITTEN, Resource.SSD_WRITTEN),
}
_OF_SSDS = ("ssd_lookup", READ_SSD, WRITE_SSD)
_SHARED = ("cache_lookup", "fetch_rows", *_OF_SSDS)


def explain_tier_step(evaluator: Evaluator, plan: Plan, step: StepRow) -> Explanation:
    """Of one of ``steps.BELOW_HBM`` that the evaluator has, on the GPU that waits longest."""
    below, times = evaluator.model.below, evaluator.times
    assert below is not None
    values = evaluator.loads(plan).values[:, step.rank]
    moved, wire = _OF.get(step.name, (Resource.FETCHED, Resource.FETCHED_WIRE))
    on_ssd = step.name in _OF_SSDS
    ids = Resource.SSD_CACHE_IDS if on_ssd else Resource.CACHE_IDS
    distinct = float(values[ids]) / evaluator.model.id_bytes
    size = float(values[moved])
    in_place = step.name == GATHER_HOST
    blocks = 0.0
    if on_ssd:
        blocks = float(values[Resource.SSD_READ]) / evaluator.setting.machine.value("ssd_block_bytes")
    asked = AskedRows(distinct, 0.0, 0.0 if in_place else size, blocks, size * in_place, float(values[wire]))
    kind = SSD if on_ssd else UVM_CACHING
    read_in_place = in_place and not (below.policy == LFU and below.shares)
    tier = Tier(UVM, 0.0) if read_in_place else Tier(kind, None, below.policy, below.prefetch)
    one_way = in_place or not times.training
    both = 1.0 if one_way else times.both_ways
    sharers = float(times.tiers.sharers(float(evaluator.gpus)))
    found = explain_asked(Reader(evaluator.basis, evaluator.gpus, sharers, tier, both), step, asked)
    words = tuple(_which(evaluator, plan, step, moved))
    return with_beside(replace(found, time=replace(found.time, working=(*found.time.working, *words))))


def with_beside(found: Explanation) -> Explanation:
    """With the side of a gather from two memories that this one hides."""
    row = found.step
    if not row.beside:
        return found
    words = (
        f"{row.beside} takes {format_time(row.beside_s)} beside it: the step is the maximum of both, "
        "the ends of its band are those of both bands"
    )
    return replace(found, time=replace(found.time, working=(*found.time.working, words)))


def _which(evaluator: Evaluator, plan: Plan, step: StepRow, moved: Resource) -> list[str]:
    """Whose rows they are, and what they share."""
    held = np.zeros(len(plan.tables), dtype=bool)
    tables, ranks = plan.shards
    held[tables[ranks == step.rank]] = True
    kinds = [IN_PLACE] if step.name == GATHER_HOST else [ON_SSD if step.name in _OF_SSDS else CACHED]
    below = evaluator.model.below
    lfu = below is not None and below.policy == LFU  # which takes in no row
    kinds = [IN_PLACE, CACHED] if step.name == UPDATE_HOST or (lfu and IN_PLACE in kinds) else kinds
    some = np.flatnonzero(held & np.isin(plan.tier_codes, kinds))
    size = format_bytes(float(evaluator.loads(plan).values[moved, step.rank]))
    names = ", ".join(plan.tables.names[t] for t in some[:_NAMED]) + (" ..." if some.size > _NAMED else "")
    words = [f"S = {size} on rank {step.rank}: {counted(some.size, 'table')} there, {names}"]
    if step.name in _SHARED:
        shares = sorted({100 * float(plan.cached_shares[t]) for t in some})
        listed = ", ".join(f"{share:g}" for share in shares)
        words.append(f"they share one cache, of the mean of their shares of rows: {listed} %")
    return words


_NAMED = 5
