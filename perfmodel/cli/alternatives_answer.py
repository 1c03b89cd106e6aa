"""The answer of ``perfmodel alternatives``, from what was typed: also of ``explain alternatives``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.cli.question import question_of
from perfmodel.cli.workload import local_memory_of, remote_memory_of
from perfmodel.effort import DEFAULT_EFFORT, EFFORTS
from perfmodel.errors import BadInputError
from perfmodel.schema.distributions import UNIFORM
from perfmodel.units import counted

if TYPE_CHECKING:
    from perfmodel.cli.question import Question
    from perfmodel.plan.other_ways.one_alternative import Alternative
    from perfmodel.plan.other_ways.winner_map import Crossing, MapCell
    from perfmodel.projections import Projection
    from perfmodel.schema.prices import Prices

_PROGRESS_AFTER_S = 2.0


@dataclass(frozen=True, eq=False)
class AlternativesAnswer:
    """All alternatives and the map, with the options that were asked for. prices  None: nobody gave any"""

    options: Mapping[str, Any]
    found: list[Alternative]
    cells: list[MapCell]
    crossed: list[Crossing]
    prices: Prices | None

    @property
    def currency(self) -> str:
        """Of the prices."""
        return self.prices.currency if self.prices else ""


def answered(typed: Mapping[str, Any]) -> AlternativesAnswer:
    """Of the parameters of a command by name, as they were typed.

    Limits: no tables, values that cannot be used -> BadInputError
    """
    if typed["table_size"] is None and typed["model"] is None:
        raise BadInputError("which tables?", "give --table-size or --model, e.g. --table-size 10TB")
    from perfmodel.cli.plan_progress import PlanProgress
    from perfmodel.plan.other_ways.alternatives import alternatives as find
    from perfmodel.plan.other_ways.alternatives import read_once
    from perfmodel.plan.other_ways.winner_map import winner_map
    from perfmodel.schema.prices import read_prices

    memories = local_memory_of(typed["local_memory"]), remote_memory_of(typed["remote_memory"])
    question = question_of({**typed, "scenario": "cluster", "local_memory": None, "remote_memory": None})
    question.check_gpus()
    known = None if typed["prices"] is None else read_prices(typed["prices"], question.machine.name)
    options = read_once(question.keywords())
    progress = PlanProgress(_PROGRESS_AFTER_S, "comparing the alternatives")
    try:
        with question.advised():
            planner = _planner(question) if typed["model"] is not None else None
            found = find(options, known, planner, *memories, equal_batch=typed["equal_batch"])
            progress.tell("comparing them over skew, batch and table size (--no-map leaves this out)")
            of_map = winner_map(options, typed["equal_batch"]) if typed["with_map"] else None
            cells, crossed = (of_map.cells, of_map.crossings()) if of_map else ([], [])
    finally:
        progress.clear()
    return AlternativesAnswer(options, found, cells, crossed, known)


def _planner(question: Question) -> Any:
    """The planner's search for a set of tables, as an answer of a projection's kind."""

    def plan(base: Projection, tiers: tuple[str, ...], part: float) -> tuple[str, Projection]:
        from perfmodel.plan.as_projection import planned_projection
        from perfmodel.plan.pricing.tables import PlanTables
        from perfmodel.plan.searched import searched_plan
        from perfmodel.schema.tiers import HBM

        tables = PlanTables.load(str(question.tables), question.distribution or UNIFORM)
        found = searched_plan(base, tables, EFFORTS[DEFAULT_EFFORT] * part, tiers)
        away = sum(each.scheme.tier.kind != HBM for each in found.plan.placements)
        words = f"planned, {counted(away, 'table')} of {len(tables)} in host memory" if tiers else "planned"
        return words, planned_projection(base, found.plan, found.cost, found.memory)

    return plan
