"""Our search on TorchRec's own score, for benchmarks/planner.py.

TorchRec's planner adds, on every rank, what its EmbeddingPerfEstimator says of the rank's shards; the score
of a plan is the busiest rank's sum. What a shard costs depends on how its table is cut, not on other tables
nor on the rank. So the estimator is asked once for one shard of every option (``shards``), and the search
minimises the busiest rank's sum of those. Memory of a rank is what EmbeddingStorageEstimator says of its
shards, added up, as TorchRec's planner counts it.

Limits: the first row part counts for all: where rows do not divide, the last ones are smaller
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.effort import Budget
from perfmodel.errors import BadInputError
from perfmodel.passes.steps import Step
from perfmodel.plan import Evaluator, Placement, Plan
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.plan.for_torchrec import runnable as torchrec
from perfmodel.plan.pricing import work_units
from perfmodel.plan.pricing.loads import Loads, Resource
from perfmodel.plan.searching.improve import improve, put_back, shake
from perfmodel.plan.searching.packing import Packing
from perfmodel.plan.searching.search import Found, Search, Watch

Array = NDArray[np.float64]

_PER_MS, _PER_S = 1e9, 1e12  # a search's loads are large numbers: here picoseconds
_ROUNDING = 1 + 1e-9
_SEARCHED = 0.4  # of the effort, before known plans are improved
_DEAR, _DEARER = 3.0, 3.0  # what twice the limit takes longer at first, of a usual step's time; and then
_PATIENCE = 300  # attempts in a row that do not help
_PLACED_ANEW = 8


def runnable_options(evaluator: Evaluator, limit_bytes: float) -> Options:
    """What TorchRec can run."""
    found = options_of(evaluator, limit_bytes)
    return found.kept(torchrec.runnable(found, evaluator))


def shards(evaluator: Evaluator, options: Options) -> list[tuple[str, str, str, list[int]]]:
    """One shard of every option as TorchRec knows it: table, sharding type, kernel, [rows, columns]."""
    tables = evaluator.tables
    _, sample = np.unique(options.kind_of, return_index=True)
    listed = []
    for at, kind in enumerate(options.group):
        t, scheme = int(sample[kind]), options.scheme(at)
        named = torchrec.sharding_type(
            Placement(scheme, np.arange(scheme.parts)), evaluator.gpus, evaluator.domain
        )
        size = [-(-int(tables.rows[t]) // scheme.row_parts), int(tables.dim[t]) // scheme.col_parts]
        kernel = "fused" if scheme.parts else "dense"
        listed.append((tables.names[t], named, kernel, size))
    return listed


@dataclass(frozen=True, eq=False)
class Costs:
    """TorchRec's estimates of one shard of every option: ms, bytes [O]."""

    options: Options
    ms: Array
    bytes: Array

    def scored(self, limit_bytes: float) -> Options:
        """The options with TorchRec's estimates as their only load [ps] and as their memory [bytes].

        Limits: a table that fits in none of them -> BadInputError
        """
        return self._held(*self._loads((self.ms * _PER_MS)[:, np.newaxis]), limit_bytes)

    def beside(self, limit_bytes: float) -> Options:
        """The options with TorchRec's estimate of time [ps] after our loads, and its memory [bytes]."""
        o, score = self.options, self._loads((self.ms * _PER_MS)[:, np.newaxis])
        ours = o.own, o.everywhere, o.average
        return self._held(*(np.hstack(both) for both in zip(ours, score, strict=True)), limit_bytes)

    def _held(self, own: Array, everywhere: Array, average: Array, limit_bytes: float) -> Options:
        """The options that fit, with these loads and with the memory that TorchRec counts."""
        held, copied, mean = (x[:, 0] for x in self._loads(self.bytes[:, np.newaxis]))
        loads = {"own": own, "everywhere": everywhere, "average": average}
        memory = {"own_memory": held, "everywhere_memory": copied, "average_memory": mean}
        found = replace(self.options, **loads, **memory)
        fits = found.memory <= limit_bytes
        if (np.bincount(found.group[fits], minlength=found.count.size) == 0).any():
            raise BadInputError("a table fits in no sharding as TorchRec counts memory.", "use more GPUs.")
        return found.kept(fits)

    def _loads(self, shard: Array) -> tuple[Array, Array, Array]:
        """Of what one shard has [O, n]: a shard's own, what every rank has, and the mean of the ranks."""
        parts = self.options.parts[:, np.newaxis]
        own, everywhere = np.where(parts == 0, 0, shard), np.where(parts == 0, shard, 0)
        return own, everywhere, everywhere + own * parts / self.options.gpus

    def ranks(self, plan: Plan) -> tuple[Array, Array]:
        """TorchRec's score [ms] and memory [bytes] of every rank of a plan, [2][G]."""
        both = np.zeros((2, plan.gpus))
        for t, placement in enumerate(plan.placements):
            at = self.options.find(t, placement.scheme)
            ranks = placement.ranks if placement.ranks.size else np.arange(plan.gpus)
            both[:, ranks] += np.array([self.ms[at], self.bytes[at]])[:, np.newaxis]
        return both[0], both[1]


class Score:
    """An evaluator for ``Search`` whose step is TorchRec's score: one resource, one step."""

    steps = (Step("score", (Resource(0),)),)
    times = SimpleNamespace(steps=(), apart=(), buffers=(np.zeros(0, dtype=int),) * 3)
    """Without buffers: TorchRec's memory has them."""
    model = SimpleNamespace(below=None)  # all in HBM

    def __init__(self, evaluator: Evaluator, costs: Costs) -> None:
        self.tables, self.setting, self.costs = evaluator.tables, evaluator.setting, costs
        self.work = evaluator.work

    def step_times(self, most: Array) -> Array:
        """Seconds [...] of the busiest rank's loads [..., 1]."""
        self.work.add(work_units.SCORING)
        return np.asarray(most[..., 0] / _PER_S)

    def parts(self, most: Array) -> dict[str, Array]:
        """The same by the name of the step."""
        return {"score": self.step_times(most)}

    def loads(self, plan: Plan) -> Loads:
        """Picoseconds of every rank, [1, G]."""
        return Loads(self.costs.ranks(plan)[0][np.newaxis] * _PER_MS)

    def step(self, loads: Loads) -> Any:
        """Only its time."""
        return SimpleNamespace(time_s=float(self.step_times(loads.most)))

    def memory(self, plan: Plan, loads: Loads) -> Any:
        """TorchRec's, [G]."""
        return SimpleNamespace(total_bytes=self.costs.ranks(plan)[1])


def search_by_score(
    evaluator: Evaluator,
    costs: Costs,
    limit_bytes: float,
    effort_s: float,
    watch: Watch = lambda best_s, bound_s: None,
) -> Found:
    """The plan that TorchRec's estimators rate best, within the memory that they count."""
    score, options = Score(evaluator, costs), costs.scored(limit_bytes)
    return Search(score, limit_bytes, effort_s=effort_s, options=options, watch=watch).run()


class Within:
    """An evaluator whose step is ours, dear where TorchRec's score is over a limit; memory is TorchRec's."""

    times, model = Score.times, Score.model

    def __init__(self, evaluator: Evaluator, most_ms: float, dear_s: float) -> None:
        self.base, self.most_ps, self.dear_s = evaluator, most_ms * _PER_MS, dear_s
        self.tables, self.setting, self.steps = evaluator.tables, evaluator.setting, evaluator.steps
        self.parts, self.loads = evaluator.parts, evaluator.loads
        self.step, self.memory, self.work = evaluator.step, evaluator.memory, evaluator.work

    def step_times(self, most: Array) -> Array:
        """Seconds [...] of loads [..., K + 1]: ours, and TorchRec's picoseconds."""
        over = np.maximum(most[..., -1] / self.most_ps - 1, 0)
        return np.asarray(self.base.step_times(most[..., :-1]) + self.dear_s * over)

    def keeps(self, state: Packing) -> bool:
        """Whether a plan is within the limit."""
        return bool(state.most[-1] <= self.most_ps * _ROUNDING)


def search_within(
    evaluator: Evaluator,
    costs: Costs,
    known: Sequence[Plan],
    limit_bytes: float,
    most_ms: float,
    effort_s: float,
) -> Plan | None:
    """The best plan by our model of those that TorchRec rates ``most_ms`` or better, in the memory it counts.

    A search first; then its plan and the ``known`` ones are improved, first until they keep to ``most_ms``.
    None where no such plan is found
    """
    budget, options = Budget(evaluator.work, effort_s), costs.beside(limit_bytes)
    dear_s = _DEAR * min(evaluator.cost(plan).time_s for plan in known)
    within = Within(evaluator, most_ms, dear_s)
    search = Search(within, limit_bytes, effort_s=_SEARCHED * effort_s, options=options)
    search.run()
    starts = [search.best, *(_state(plan, within, options, limit_bytes) for plan in known)]
    best: Packing | None = None
    for left, start in zip(range(len(starts), 0, -1), starts, strict=True):
        within.dear_s, part = dear_s, Budget(evaluator.work, budget.left_s / left)
        for state in _improved(start, part.over) if start else ():
            if within.keeps(state) and (best is None or state.time_s < best.time_s):
                best = state.copy()
    return None if best is None else best.plan()


def _state(plan: Plan, within: Within, options: Options, limit_bytes: float) -> Packing | None:
    """A plan as a state that may be changed; None where it does not fit."""
    state = Packing(within, options, limit_bytes)
    for t, placement in enumerate(plan.placements):
        option = options.find(t, placement.scheme)
        if option is None:
            return None
        put_back(state, t, option, placement.ranks)
    return state if state.fits else None


def _improved(state: Packing, until: Callable[[], bool]) -> Iterator[Packing]:
    """States on the way to better ones; what is over the limit gets dearer until the state keeps it."""
    mask, random = np.ones(state.options.group.size, dtype=bool), np.random.default_rng(0)
    yield state
    state = improve(state, mask, until)
    while not state.evaluator.keeps(state) and not until():
        state.evaluator.dear_s *= _DEARER
        state = improve(state, mask, until)
    yield state
    idle = 0
    while idle < _PATIENCE and not until():
        idle += 1
        if shake(state, mask, random, int(random.integers(2, _PLACED_ANEW))):
            idle = 0
            yield state
    yield improve(state, mask, until)
