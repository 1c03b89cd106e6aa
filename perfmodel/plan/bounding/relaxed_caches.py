"""Cached tables in the bound: the fewest misses possible, however the caches of a rank are shared.

Before a batch, a cache of X rows holds row i with chance x_i, sum x_i <= X; the batch asks for row i with
chance q_i, independent of the cache. So the expected number of missed rows is

    sum over i of q_i (1 - x_i)  >=  sum over its tables of m_t(z_t),   sum z_t <= X       [rows]

z_t is the sum of x_i over the rows of table t, and m_t(z) the misses if the z rows with the largest q are in
the cache. m_t is convex and decreasing. A linear program may mix several cached shares of a table, and the
misses of a mix must not exceed m_t. So its options are the corners of a polygon whose sides touch m_t from
below.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.model import capacity
from perfmodel.passes.allowed_tiers import ON_SSD, WITH_CACHE
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.step_resources import Resource
from perfmodel.passes.tier_loads import ROUNDING_BYTES, AskedLaw, law_of_kind
from perfmodel.plan.bounding.problem import Relaxation
from perfmodel.plan.choices.options import Options

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_TOUCHED = np.geomspace(1e-4, 1, 9)
"""Shares of the rows at which the sides of a polygon touch the curve, besides 0."""
_ALL = 1 - 1e-9  # of the rows


def least_missed(law: AskedLaw, held: Array) -> tuple[Array, Array]:
    """(m(z) [rows], its slope [-]): the fewest rows that a batch misses with z rows in the cache.

        m(z) = sum of q over all rows but the z of the largest q,   q = 1 - exp(-a)     [rows]

    law  gives a, the mean look-ups of each row in a batch;  held  [n] values of z, the most popular rows
    Source: derived above: no cache of z rows has fewer misses; Belady's argument for independent batches
    Limits: z = 0 -> all rows that a batch asks for;  z = all rows -> 0;  uniform ids -> a straight line
    """
    order = np.argsort(-law.rate, kind="stable")
    q, rows = -np.expm1(-law.rate[order]), law.rows[order]
    ends = np.cumsum(rows)
    hits = np.concatenate([[0.0], np.cumsum(q * rows)])
    got = np.interp(held, np.concatenate([[0.0], ends]), hits)
    at = np.minimum(np.searchsorted(ends, held, side="right"), q.size - 1)
    never = (held >= ends[-1]) & (ends[-1] < law.all_rows * _ALL)  # no row beyond them is asked for
    return np.maximum(hits[-1] - got, 0.0), np.where(never, 0.0, -q[at])


def corners(law: AskedLaw) -> tuple[Array, Array]:
    """Corners (z, m) of a polygon that is nowhere above m(z) of ``least_missed``,
    from z = 0 to all rows [rows].
    """
    touched = np.concatenate([[0.0], _TOUCHED * law.all_rows])
    missed, slope = least_missed(law, touched)
    keep = np.concatenate([[True], np.diff(slope) > 0])
    z, m, s = touched[keep], missed[keep], slope[keep]
    level = m - s * z  # value of each side at z = 0
    between = (level[1:] - level[:-1]) / (s[:-1] - s[1:])
    ends = np.append(between, law.all_rows)
    at = np.append(level[1:] + s[1:] * between, max(level[-1] + s[-1] * law.all_rows, 0.0))
    return np.append(0.0, ends), np.append(level[0], np.maximum(at, 0.0))


def relaxed_caches(options: Options, evaluator: Evaluator) -> tuple[Options, Ints | None]:
    """(options for the bound, index of the nearest original option for each of them).

    In place of its cached shares, each cached table has the corners of the polygon. The bound limits neither
    the misses of a single shard nor its cached rows.
    Limits: no caches -> the same options, None
    """
    o = options
    if o.tier is None or o.cached is None or not np.isin(o.tier, WITH_CACHE).any():
        return o, None
    cached = np.flatnonzero(np.isin(o.tier, WITH_CACHE))
    cuts = np.stack([o.group, o.exchange, o.r, o.c, o.tier])[:, cached]
    _, first, of = np.unique(cuts, axis=1, return_index=True, return_inverse=True)
    sample, model = evaluator.tables.kinds[0], evaluator.model
    found = {
        int(q): corners(law_of_kind(model, int(model.look_ups.of[sample[q]]))) for q in np.unique(cuts[0])
    }
    base = cached[first]
    counts = [found[int(q)][0].size for q in o.group[base]]
    at = np.concatenate([np.flatnonzero(~np.isin(o.tier, WITH_CACHE)), np.repeat(base, counts)])
    plain = at.size - sum(counts)
    shares = (
        np.concatenate([found[int(q)][0] for q in o.group[base]])
        / evaluator.tables.rows[sample[o.group[at[plain:]]]]
    )
    missed = np.concatenate([found[int(q)][1] for q in o.group[base]])
    nearest = at.copy()
    for place, cut in enumerate(np.repeat(np.arange(first.size), counts)):
        same = cached[of.reshape(-1) == cut]
        nearest[plain + place] = same[np.argmin(np.abs(o.cached[same] - shares[place]))]
    relaxed = _with_corners(o, evaluator, at, plain, shares, missed)
    order = np.argsort(relaxed.group, kind="stable")
    return _ordered(relaxed, order), nearest[order]


def _with_corners(
    o: Options, evaluator: Evaluator, at: Ints, plain: int, shares: Array, missed: Array
) -> Options:
    """Options with the corners of polygons as cached shares of tables.

    at      indices of the options to copy; the copies from position ``plain`` on become corners
    shares, missed  cached share [-] and missed rows of the whole table [rows], of each corner
    """
    tables, sample = evaluator.tables, evaluator.tables.kinds[0]
    own, average = o.own[at], o.average[at]
    own_memory, average_memory = o.own_memory[at], o.average_memory[at]
    new, t = at[plain:], sample[o.group[at[plain:]]]
    tiers = evaluator.model.tiers
    assert tiers is not None and o.cached is not None and o.tier is not None
    row = tables.dim[t] * tables.element_bytes[t]
    for code in WITH_CACHE:
        some = np.flatnonzero(o.tier[new] == code)
        sizes = tiers.of_a_miss(code, (row / o.c[new])[some]) if some.size else ()
        for resource, each in zip(tiers.fetches(code), sizes, strict=bool(sizes)):
            rest = np.zeros(some.size)
            if resource == Resource.UPDATED_BELOW or resource == Resource.UPDATED_BELOW_WIRE:
                rest = own[plain + some, resource] - _listed_misses(o, evaluator, new[some]) * each
                rest = np.where(rest < ROUNDING_BYTES, 0.0, rest)
            own[plain + some, resource] = rest
            shard = rest + (missed / o.r[new])[some] * each
            average[plain + some, resource] = shard * (o.parts[new] / o.gpus)[some]
    own_memory[plain:] = 0.0
    per_slot, per_row = evaluator.memories.cache_state
    rows = tables.rows[t] / o.gpus
    mapped = o.c[new] * rows * (o.tier[new] != ON_SSD)
    held = capacity.cache_bytes(shares * rows, row, o.c[new] * per_slot, mapped, per_row)
    state = evaluator.memories.state_of(t, o.r[new], o.c[new], o.tier[new]) * o.parts[new] / o.gpus
    average_memory[plain:] = o.everywhere_memory[new] + held + state
    cached = o.cached[at]
    cached[plain:] = shares
    return replace(
        o,
        group=o.group[at],
        exchange=o.exchange[at],
        r=o.r[at],
        c=o.c[at],
        hot=o.hot[at],
        parts=o.parts[at],
        own=own,
        everywhere=o.everywhere[at],
        own_memory=own_memory,
        everywhere_memory=o.everywhere_memory[at],
        average=average,
        average_memory=average_memory,
        tier=o.tier[at],
        cached=cached,
        inside=None if o.inside is None else o.inside[at],
    )


def _listed_misses(o: Options, evaluator: Evaluator, at: Ints) -> Array:
    """Rows that a shard misses in a cache of its own [rows], for the listed cached options ``at``."""
    assert o.cached is not None
    ways, policy = evaluator.memories.ways, evaluator.memories.below
    assert policy is not None
    t = evaluator.tables.kinds[0][o.group[at]]
    kinds = evaluator.model.look_ups.of[t].tolist()
    laws = [law_of_kind(evaluator.model, int(kind)) for kind in kinds]
    each = zip(laws, o.cached[at].tolist(), strict=True)
    return np.array([law.missed(share, policy.policy, ways) for law, share in each]) / o.r[at]


def _ordered(o: Options, order: Ints) -> Options:
    """The options in the order of the indices ``order``, so that they are sorted by kind of table."""
    names = (
        *("exchange", "r", "c", "hot", "parts", "own", "everywhere", "own_memory"),
        *("everywhere_memory", "average", "average_memory", "tier", "cached"),
        *(() if o.inside is None else ("inside",)),
    )
    ordered = {name: getattr(o, name)[order] for name in names}
    group = o.group[order]
    return replace(o, group=group, first=np.searchsorted(group, np.arange(o.count.size + 1)), **ordered)


def as_listed(relaxed: Relaxation, nearest: Ints) -> Relaxation:
    """The relaxation with each option replaced by the original option in ``nearest``."""
    used = relaxed.share > 0
    at, place = np.unique(nearest[relaxed.chosen[used]], return_inverse=True)
    share = np.bincount(place, relaxed.share[used]).astype(np.float64)
    return replace(relaxed, chosen=at, share=share, columns=nearest[relaxed.columns])
