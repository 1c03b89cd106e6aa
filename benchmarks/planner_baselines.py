"""Other planners for benchmarks/planner.py: EMBark's greedy, the greedy that people write, random search.

Each decides how tables are cut; ``deal`` then places the shards. Nothing of the search's code is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from time import process_time

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import COPY, Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.plan.choices.listing import list_possible_schemes

Array = NDArray[np.float64]
Schemes = dict[int, Scheme]

_WORK_RATIO = 4.0  # R_work of EMBark
_ROUNDS = 20
_EMBARK_NARROWEST = 32  # columns are split while a part is wider
_COPY_BYTES = (0.0, 1e5, 1e6, 1e7, 1e8)
"""Tables up to so many bytes are data-parallel: a threshold that EMBark's user types. All are tried."""

_COPIES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 0.97)
"""Shares of a rank's memory that copies may take."""
_TARGETS = (np.inf, 2.0, 1.0, 0.5, 0.25)
"""Work of a shard over that of a rank in balance: columns are halved while a shard has more."""
_NARROWEST = 4
_ROUND = 1.0001


def deal(
    evaluator: Evaluator, schemes: Schemes, work: Mapping[int, float], needs: Mapping[int, float], room: float
) -> tuple[Plan | None, Array, int | None]:
    """Shards placed, those of most work first, each on the rank of least work that has room.

    schemes  of the tables that are cut; all others are copied
    work, needs  of one shard of each of these tables [-, bytes];  room  of a rank for shards [bytes]
    Returns (the plan, work of every rank, None), or (None, work so far, the table that found no room).
    """
    gpus, domain = evaluator.gpus, evaluator.domain
    total, held = np.zeros(gpus), np.zeros(gpus)
    placements = [Placement.of(COPY)] * len(evaluator.tables)
    for table in sorted(schemes, key=lambda table: -work[table]):
        open_ = np.where(held + needs[table] <= room, total, np.inf)
        ranks = choose_ranks(schemes[table], open_, domain)
        if ranks is None:
            return None, total, table
        total[ranks] += work[table]
        held[ranks] += needs[table]
        placements[table] = Placement.of(schemes[table], ranks)
    return Plan(evaluator.tables, tuple(placements), gpus, domain), total, None


def choose_ranks(scheme: Scheme, work: Array, domain: int) -> NDArray[np.int64] | None:
    """Ranks of least work for the shards of a table; of two-level exchange whole domains for a column part.

    work  of each rank [-], inf where it has no room. Limits: too few have room -> None
    """
    if scheme.kind != Exchange.TWO_LEVEL:
        ranks = np.argsort(work, kind="stable")[: scheme.parts]
        return None if np.isinf(work[ranks]).any() else ranks
    by_domain, count = work.reshape(-1, domain).sum(axis=1), scheme.row_parts // domain
    chosen = np.argsort(by_domain, kind="stable")[: count * scheme.col_parts]
    if np.isinf(by_domain[chosen]).any():
        return None
    ranks = chosen.reshape(scheme.col_parts, count)[:, :, np.newaxis] * domain + np.arange(domain)
    return ranks.reshape(scheme.col_parts, -1).T.reshape(-1)


def find_fastest(evaluator: Evaluator, plans: Iterable[Plan]) -> Plan | None:
    """The fastest by our model; None where there is none."""
    return min(plans, key=lambda plan: evaluator.cost(plan).time_s, default=None)


def plan_embark(evaluator: Evaluator, limit_bytes: float) -> Plan | None:
    """EMBark's greedy with the threshold of copies that our model likes best; None where nothing fits."""
    plans = (cut_costliest(evaluator, limit_bytes, copies) for copies in _COPY_BYTES)
    return find_fastest(evaluator, (plan for plan in plans if plan))


def cut_costliest(evaluator: Evaluator, limit_bytes: float, copy_bytes: float) -> Plan | None:
    """EMBark's greedy (RecSys 2024): the plan of least cost by its own measure.

        cost of a bucket = sum over its shards of  R_work h ev / r + R_bw ev                         [-]

    ev  columns of a shard;  h  pooling factor;  r  row parts;  R_bw  bandwidth of memory over that of the
    network (of NVLink where all GPUs are in one domain);  copy_bytes  smaller tables are data-parallel
    Shards go in decreasing order of cost into the cheapest bucket with room. Then the costliest table is
    split in two, by columns while they are wider than 32, else by rows, in at most 20 rounds. A table without
    room is split by rows until it has some; that is no round. Partial bags are exchanged and added.
    """
    tables, machine = evaluator.tables, evaluator.setting.machine
    network = "nic_bytes_per_s" if evaluator.gpus > evaluator.domain else "nvlink_bytes_per_s"
    network_ratio = machine.value("hbm_bytes_per_s") / (machine.value(network) or 1e9)
    copied = tables.rows * tables.dim * tables.element_bytes <= copy_bytes
    room = limit_bytes - float(np.sum(evaluator.memories.count_shard(np.flatnonzero(copied), 1, 1)))
    schemes = {int(table): Scheme(Exchange.RB) for table in np.flatnonzero(~copied)}
    best, best_cost, rounds = None, np.inf, 0
    while rounds <= _ROUNDS:
        cost, needs = dict[int, float](), dict[int, float]()
        for t, scheme in schemes.items():
            r, c = scheme.row_parts, scheme.col_parts
            cost[t] = float(tables.dim[t] / c * (_WORK_RATIO * tables.pooling[t] / r + network_ratio))
            needs[t] = float(np.sum(evaluator.memories.count_shard(t, r, c)))
        plan, buckets, full = deal(evaluator, schemes, cost, needs, room)
        if plan is not None:
            rounds += 1
            if buckets.max() < best_cost:
                best, best_cost = plan, float(buckets.max())
        split = max(cost, key=cost.__getitem__, default=None) if full is None else full
        halves = None if split is None else halve(evaluator, split, schemes[split], full is not None)
        if split is None or halves is None:
            break
        schemes[split] = halves
    return best


def halve(evaluator: Evaluator, table: int, scheme: Scheme, for_room: bool) -> Scheme | None:
    """A table in twice as many parts, as EMBark splits it; None where it cannot be."""
    tables, r, c = evaluator.tables, scheme.row_parts, scheme.col_parts
    if 2 * r * c > evaluator.gpus:
        return None
    if tables.dim[table] / c > _EMBARK_NARROWEST and not for_room:
        return Scheme(Exchange.RB, r, 2 * c)
    return Scheme(Exchange.RB, 2 * r, c) if 2 * r <= tables.rows[table] else None


def plan_per_byte(evaluator: Evaluator, limit_bytes: float) -> Plan | None:
    """The fastest plan of the greedy per byte by our model; None where none of them fits."""
    return find_fastest(evaluator, PerByte(evaluator, limit_bytes).list_plans())


class PerByte:
    """The greedy that people write: copies by saving per byte, then the largest shard to the emptiest rank.

    Three numbers decide: the share of the memory for copies, how large a shard may be, and how bags of tables
    travel that must be cut by rows. All combinations of a few values are tried.
    work  [T] time that a rank needs to look a whole table up and to send its bags to all others
    saving  [T] time that a copy on every rank saves;  size  [T] bytes of a table
    """

    def __init__(self, evaluator: Evaluator, limit_bytes: float) -> None:
        self.evaluator, self.limit_bytes = evaluator, limit_bytes
        t = np.arange(len(evaluator.tables))
        self.size = np.sum(evaluator.memories.count_shard(t, 1, 1), axis=0)
        sharded = evaluator.count_shards(t, Exchange.RB, 1, 1)
        copy = evaluator.count_shards(t, Exchange.DP, 1, 1)
        mean = (sharded.on_holder / evaluator.gpus + sharded.everywhere).sum(axis=0)
        loads = np.maximum(mean, copy.everywhere.sum(axis=0))
        step = np.maximum(loads * 0.1, 1.0)
        times_after = evaluator.estimate_times(loads + np.diag(step))
        price = (times_after - evaluator.estimate_times(loads)) / step  # seconds a byte near these loads
        self.work = sharded.on_holder @ price
        self.saving = sharded.everywhere @ price + self.work / evaluator.gpus - copy.everywhere @ price

    def list_plans(self) -> Iterator[Plan]:
        """One for each combination, where all of it fits."""
        for share, target in product(_COPIES, _TARGETS):
            copied = self.choose_copies(share)
            for kind in (Exchange.RB, Exchange.SPARSE, Exchange.TWO_LEVEL):
                schemes, plan = self._plan(copied, target, kind)
                if plan is None:
                    continue
                yield plan
                if not any(scheme.row_parts > 1 for scheme in schemes.values()):
                    break  # the kind did not matter

    def choose_copies(self, share: float) -> NDArray[np.bool_]:
        """Tables that save most per byte, as many as fit into this share of the memory."""
        order = np.argsort(-self.saving / self.size, kind="stable")
        order = order[self.saving[order] > 0]
        chosen = np.zeros(self.saving.size, dtype=bool)
        chosen[order[np.cumsum(self.size[order]) <= share * self.limit_bytes]] = True
        return chosen

    def _plan(self, copied: NDArray[np.bool_], target: float, kind: Exchange) -> tuple[Schemes, Plan | None]:
        evaluator, cut = self.evaluator, np.flatnonzero(~copied)
        room = self.limit_bytes - float(self.size[copied].sum())
        most = target * float(self.work[cut].sum()) / evaluator.gpus
        schemes = {int(t): self._cut(int(t), most, room, kind) for t in cut}
        by_rows = any(scheme.row_parts > 1 for scheme in schemes.values())
        if by_rows and kind == Exchange.TWO_LEVEL and evaluator.gpus % evaluator.domain:
            return schemes, None
        work = {t: float(self.work[t] / scheme.parts) for t, scheme in schemes.items()}
        needs = {t: float(self.size[t] / scheme.parts) for t, scheme in schemes.items()}
        plan, _, _ = deal(evaluator, schemes, work, needs, room)
        if plan is None:
            return schemes, None
        fits = float(evaluator.cost(plan).memory.total_bytes.max()) <= self.limit_bytes * _ROUND
        return schemes, plan if fits else None

    def _cut(self, t: int, most: float, room: float, kind: Exchange) -> Scheme:
        """Columns halved while a shard has more work than ``most``, then rows where it has no room."""
        evaluator, r, c = self.evaluator, 1, 1
        dim, gpus = int(evaluator.tables.dim[t]), evaluator.gpus
        while (
            self.work[t] / c > most and dim % (2 * c) == 0 and dim // (2 * c) >= _NARROWEST and 2 * c <= gpus
        ):
            c *= 2
        rows = evaluator.tables.rows[t]
        while self.size[t] / (r * c) > room / 2 and 2 * r * c <= gpus and 2 * r <= rows:
            r *= 2
        if r > 1 and kind == Exchange.TWO_LEVEL:
            r = -(-r // evaluator.domain) * evaluator.domain
            c = min(c, gpus // r)
        return Scheme(Exchange.RB if r == 1 else kind, r, c)


def search_at_random(evaluator: Evaluator, limit_bytes: float, seconds: float, seed: int = 0) -> Plan | None:
    """The best plan that random schemes gave in this time of the CPU, at least one try; None: none fits.

    Every try uses data-parallel and one to three other kinds of exchange, for all of them at once never win.
    """
    random, until = np.random.default_rng(seed), process_time() + seconds
    tables, gpus, domain = evaluator.tables, evaluator.gpus, evaluator.domain
    shapes = list(zip(tables.rows.astype(int), tables.dim.astype(int), strict=True))
    listed = {shape: list(list_possible_schemes(*shape, gpus, domain)) for shape in set(shapes)}
    best, best_s = None, np.inf
    while True:
        kinds = {Exchange.DP, *random.choice(np.array(Exchange), size=random.integers(1, 4)).tolist()}
        usable = {shape: [s for s in schemes if s.kind in kinds] for shape, schemes in listed.items()}
        drawn = [usable[shape][random.integers(len(usable[shape]))] for shape in shapes]
        schemes = {t: scheme for t, scheme in enumerate(drawn) if not scheme.copied}
        work = {t: float(tables.pooling[t] * tables.dim[t] / s.parts) for t, s in schemes.items()}
        plan, _, _ = deal(evaluator, schemes, work, dict.fromkeys(schemes, 0.0), np.inf)
        assert plan is not None
        loads = evaluator.loads(plan)
        time_s = float(evaluator.estimate_times(loads.max(axis=1)))
        if time_s < best_s and evaluator.cost(plan).memory.total_bytes.max() <= limit_bytes:
            best, best_s = plan, time_s
        if process_time() >= until:
            return best
