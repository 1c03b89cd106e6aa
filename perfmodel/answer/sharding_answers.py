"""Plans in which all tables have one sharding option, as projections like row-wise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.answer.projection import Projection
from perfmodel.collectives.library import Timing
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.cut import TableCut
from perfmodel.engine.explained import ExplainedPass
from perfmodel.engine.grid import slowdown_band
from perfmodel.engine.loads import even_loads
from perfmodel.engine.row_wise import Configs, Forward
from perfmodel.engine.schemes import DATA_PARALLEL, ROW_WISE, SHARDINGS, WAYS
from perfmodel.engine.steps import STEPS, Step, StepRow, by_cause
from perfmodel.engine.tables import PlanTables, laws_of
from perfmodel.engine.uniform_plans import Impossible, UniformPlan, UniformPlans
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.model import bounds
from perfmodel.model.differences import shared_difference_band
from perfmodel.schema.distributions import UNIFORM, Distribution
from perfmodel.units import format_bytes

MOST_TABLES = 10_000
"""Tables that can be compared: a comparison deals each table to its GPUs."""


@dataclass(frozen=True, eq=False)
class ShardingAnswer:
    """One sharding option (a name of ``WAYS``): its answer, or why there is no answer.

    plan  the uniform plan; None: none;  answer  the plan as a projection; for row-wise, the projection itself
    memory_bytes  of the fullest GPU: rows and exchange buffers
    fits  whether these fit the usable memory; an option that does not fit has no answer, except row-wise
    """

    way: str
    plan: UniformPlan | None
    answer: Projection | None
    memory_bytes: float
    why: str = ""
    fits: bool = True

    @property
    def exchange(self) -> str | None:
        """Its exchange by the name in plan files; None without an answer."""
        return self.plan.scheme.kind.key if self.plan else None

    @property
    def limiting(self) -> StepRow | None:
        """The longest step; None without an answer."""
        return max(self.answer.steps, key=lambda step: step.time_s) if self.answer else None


def evaluator_of(base: Projection) -> Evaluator:
    """An evaluator of plans for the tables of a projection, on its machine, batch and GPUs.

    Limits: more than ``MOST_TABLES`` tables, or one memory for all -> BadInputError
    """
    if base.forward.memory is not None:
        raise BadInputError("one local memory shards nothing.", "leave out --local-memory or --sharding.")
    model = (base.question.model if base.question else None) or "the tables"
    return evaluator_for(base.forward, base.work, 0, tables_of(base.work, model, base.forward.ids))


def evaluator_for(forward: Forward, work: Configs, at: int, tables: PlanTables) -> Evaluator:
    """An evaluator of plans for these tables, at the batch and GPUs of configuration ``at`` in ``work``."""
    id_dtype = {4: "int32", 8: "int64"}[int(work.id_bytes[at])]
    return Evaluator(forward, tables, int(work.batch[at]), int(work.gpus[at]), id_dtype=id_dtype)


def tables_of(work: Configs, model: str, ids: Distribution = UNIFORM) -> PlanTables:
    """The tables of one configuration, named after ``model``. Limits: too many -> BadInputError"""
    counts = [int(group.count.flat[0]) for group in work.groups]
    if sum(counts) > MOST_TABLES:
        raise BadInputError(
            f"shardings of {sum(counts)} tables cannot be compared.", f"give at most {MOST_TABLES} --tables."
        )
    rows, dim, dtype, pooling, weights = (
        np.repeat([float(getattr(group, name).flat[0]) for group in work.groups], counts)
        for name in ("rows", "dim", "dtype", "pooling", "weight_bytes")
    )
    laws, law = laws_of([group.ids[0] or ids for group in work.groups])
    names = tuple(f"table_{at}" for at in range(sum(counts)))
    return PlanTables(rows, dim, dtype, pooling, weights, laws, np.repeat(law, counts), model, names)


def uniform_plans_of(base: Projection) -> UniformPlans:
    """The uniform plans for the tables of a projection, on its machine, batch and GPUs.

    Limits: as ``evaluator_of``
    """
    return UniformPlans(evaluator_of(base), base.gpu_count.usable_bytes)


def answer_shardings(base: Projection, ways: Iterable[str] = WAYS) -> Iterator[ShardingAnswer]:
    """Compares shardings for the tables of ``base``, a row-wise projection.

    ``base`` must have the default reduction, and is the answer of row-wise. The other answers are plans of
    the same tables on the same GPUs.
    """
    plans, shardings = uniform_plans_of(base), list(ways)
    with suppress(NoCalibrationError):  # an exchange was not measured: priced one by one
        plans.price(shardings)
    for sharding in shardings:
        yield answer_sharding(base, plans, sharding)


def answer_sharding(base: Projection, plans: UniformPlans, sharding: str) -> ShardingAnswer:
    """One sharding, with the answer of its best plan."""
    best = plans.best(sharding)
    if sharding == ROW_WISE:
        plan = best if isinstance(best, UniformPlan) else None
        return ShardingAnswer(sharding, plan, base, base.gpu_count.memory_bytes, fits=base.gpu_count.fits)
    if isinstance(best, Impossible):
        return ShardingAnswer(sharding, None, None, float("nan"), best.why)
    answer = projection_of(base, plans.evaluator, best)
    return ShardingAnswer(sharding, best, answer, float(best.memory.total_bytes.max()))


def build_explained_pass(answer: Projection) -> ExplainedPass:
    """The pass of a projection, to explain its steps; if it is not row-wise, its plan is made again."""
    if answer.sharding == ROW_WISE:
        return _build_row_wise_pass(answer)
    plans = uniform_plans_of(answer)
    best = plans.best(answer.sharding)
    assert isinstance(best, UniformPlan)  # the answer is of this sharding
    return ExplainedPass.of_plan(plans.evaluator, best.plan, answer.steps)


def _build_row_wise_pass(answer: Projection) -> ExplainedPass:
    """The pass of a row-wise projection, in which all ranks have the same loads."""
    forward, work = answer.forward, answer.work
    kind, loads = forward.kinds(work), answer.loads

    def cut(table: int) -> TableCut:
        return forward.cut(work, work.groups[table], kind)[0]

    def timing(step: Step) -> Timing:
        return next(timed.timing for timed in forward.cost(work, loads).steps if timed.name == step.name)

    cuts = [forward.cut(work, group, kind) for group in work.groups]
    counts = np.array([float(count.flat[0]) for _, count in cuts])
    names = [f"table_{begin:.0f}" for begin in np.cumsum(counts) - counts]
    by_table = np.concatenate([even_loads(table, count) for table, count in cuts])
    tables = names, counts, cut, lambda _: (np.ones(counts.size), by_table)
    return ExplainedPass(forward.times(work), answer.steps, timing, *tables)


def winner(found: Iterable[ShardingAnswer]) -> ShardingAnswer:
    """The fastest sharding option that fits, or the fastest of all if none fits.

    Equally fast options: the simpler (earlier in ``WAYS``)."""
    best: ShardingAnswer | None = None
    known = list(found)
    for each in [each for each in known if each.fits and each.answer] or known:
        if each.answer is None:
            continue
        if best is None or best.answer is None or each.answer.time_s < best.answer.time_s * (1 - _SAME):
            best = each
    if best is None:
        raise BadInputError("no sharding of these tables fits.", "use more GPUs.")
    return best


def undecided(found: Iterable[ShardingAnswer]) -> tuple[ShardingAnswer, ...]:
    """Options that fit and are slower than the winner by less than the uncertainty, fastest first.

    Source: ``differences.shared_difference_band``
    Limits: one GPU -> none;  an option with the same plan as the winner -> left out
    """
    known = list(found)
    best = winner(known)
    slower = [
        (each.answer.time_s, each)
        for each in known
        if each.answer and best.answer and each.fits and each.answer.time_s > best.answer.time_s * (1 + _SAME)
    ]
    slower.sort(key=lambda pair: pair[0])
    return tuple(
        each for _, each in slower if each.answer and best.answer and not is_slower(each.answer, best.answer)
    )


def is_slower(slower: Projection, best: Projection) -> bool:
    """Whether a time exceeds another on the same machine by more than the uncertainty of their difference.

    Source: ``differences.shared_difference_band``
    """
    causes, of_best = by_cause(slower.steps, _curve), by_cause(best.steps, _curve)
    return bool(shared_difference_band(causes, of_best)[0] > 0)


def _curve(row: StepRow) -> str:
    """Cause of error of a step's time: the curve of its collective, or the cause of its kernel."""
    return row.cause if row.is_kernel else f"{row.collective} {STEPS[row.name].ranks}"


_SAME = 1e-6


def projection_of(base: Projection, evaluator: Evaluator, found: UniformPlan) -> Projection:
    """The plan of ``found`` as a projection: slowdown and band against the local look-up of ``base``."""
    cost, totals = found.cost, base.totals
    held = int(np.argmax(found.memory.total_bytes))
    low, high = slowdown_band(by_cause(cost.rows), base.local)
    local_s = totals["baseline_time_s"]
    floor = sum(row.floor_s for row in cost.rows)
    light = _light_time(evaluator, cost.rows, cost.time_s, local_s)
    own = {
        "time_s": cost.time_s,
        "low_s": cost.low_s,
        "high_s": cost.high_s,
        "floor_time_s": floor,
        "light_time_s": light,
        "slowdown": cost.time_s / local_s,
        "slowdown_low": float(low),
        "slowdown_high": float(high),
        "slowdown_floor_part": floor / local_s,
        "slowdown_bytes_part": (cost.time_s - floor) / local_s,
        "slowdown_light": light / local_s,
        "throughput_ratio": base.gpus * local_s / cost.time_s,
        "memory_bytes": float(found.memory.total_bytes[held]),
        "buffer_bytes": float(found.memory.buffer_bytes[held]) / base.forward.buffer_weight,
        "fits": 1.0,
        "gpus_needed": float(min(base.gpu_count.needed, base.gpus)),
    }
    parts = found.memory.rows_bytes, found.memory.optimizer_bytes, found.memory.buffer_bytes
    rows, state, buffers = (float(part[held]) for part in parts)
    count = replace(
        base.gpu_count,
        needed=min(base.gpu_count.needed, base.gpus),
        rows_bytes=rows,
        optimizer_bytes=state,
        buffer_bytes=buffers / base.forward.buffer_weight,
        fits=True,
    )
    return replace(
        base,
        gpu_count=count,
        steps=cost.rows,
        totals={name: value for name, value in totals.items() if not name.endswith("_time_s")}
        | {"baseline_time_s": local_s}
        | own,
        evidence=cost.evidence,
        clocks=tuple(dict.fromkeys(step.clock for step in cost.rows)),
        notes=(*base.setting.notes, *_notes(found)),
        crossovers=(),
        question=replace(base.question, sharding=found.sharding) if base.question else None,
        shards=f"{found.sharding}: {shards_text(found)}" if base.gpus > 1 else "",
        fullest_part=_fullest_part(evaluator, found),
    )


def _fullest_part(evaluator: Evaluator, found: UniformPlan) -> float:
    """``Evaluator.fullest_part`` of the table whose row parts have the most unequal look-ups."""
    schemes = zip(evaluator.tables.kinds[1].tolist(), found.plan.placements, strict=True)
    tables = {(kind, each.scheme): table for table, (kind, each) in enumerate(schemes)}
    return max(evaluator.fullest_part(table, scheme) for (_, scheme), table in tables.items())


def _light_time(evaluator: Evaluator, rows: Iterable[StepRow], time_s: float, local_s: float) -> float:
    """Least time at datasheet rates without latency (``bounds``): the local look-up and the links [s]."""
    steps, light = {step.name: step for step in evaluator.steps}, evaluator.times.light_time
    sent = [row for row in rows if row.collective]
    links = sum(float(light(steps[row.name], np.asarray(row.payload_bytes))) for row in sent)
    return float(bounds.sharded_floor_time(time_s, local_s, 0.0, 1.0, links))


def shards_text(found: UniformPlan) -> str:
    """How a table is cut, in words: ``8 row parts``."""
    scheme = found.scheme
    if scheme.copied:
        return SHARDINGS[DATA_PARALLEL].label
    r, c = scheme.row_parts, scheme.col_parts
    words = [f"{n} {name} parts" for n, name in ((r, "row"), (c, "column")) if n > 1]
    most = format_bytes(float(found.memory.rows_bytes.max()), binary=False)
    return f"{' × '.join(words) or 'whole tables'}, at most {most} per GPU"


def _notes(found: UniformPlan) -> Iterator[str]:
    if found.replicated_count:
        which = "1 table has" if found.replicated_count == 1 else f"{found.replicated_count} tables have"
        verb = "is" if found.replicated_count == 1 else "are"
        yield f"{which} fewer rows than {found.scheme.row_parts} row parts and {verb} whole on every GPU"


SIZES = (80e9, 160e9, 320e9, 640e9, 1.28e12, 2.5e12, 5e12, 10e12, 20e12, 50e12, 100e12)
"""Table sizes from one GPU of 80 GB to 100 TB [bytes]."""


@dataclass(frozen=True, eq=False)
class Size:
    """The comparison of sharding options for one total size of the tables.

    base  the row-wise projection;  found  every option, with its time
    """

    table_bytes: float
    base: Projection
    found: tuple[ShardingAnswer, ...]

    @property
    def best(self) -> ShardingAnswer:
        """The fastest sharding option, with its plan and time."""
        return winner(self.found)

    @property
    def undecided(self) -> tuple[ShardingAnswer, ...]:
        """Options whose time exceeds the best by less than the difference's 95 % uncertainty."""
        return undecided(self.found)


def by_size(ask: Callable[[float], Projection], sizes: tuple[float, ...] = SIZES) -> Iterator[Size]:
    """Compares sharding options at every total size of the tables.

    ask  returns the row-wise projection for a total size;  sizes  the total sizes [bytes]
    """
    for table_bytes in sizes:
        base = ask(table_bytes)
        yield Size(table_bytes, base, tuple(answer_shardings(base)))
