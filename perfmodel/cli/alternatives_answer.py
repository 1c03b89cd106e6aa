"""Computes the answer of ``perfmodel alternatives``; ``perfmodel explain alternatives`` uses it too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.cli.plan_options import is_training
from perfmodel.cli.question import on_machines, question_of
from perfmodel.cli.workload import local_memory_of, remote_memory_of
from perfmodel.effort import DEFAULT_EFFORT, EFFORTS, tell
from perfmodel.errors import BadInputError
from perfmodel.passes.schemes import AUTO
from perfmodel.question.passes import GLOBAL
from perfmodel.schema.distributions import UNIFORM
from perfmodel.units import counted

if TYPE_CHECKING:
    from perfmodel.cli.question import Question
    from perfmodel.plan.other_ways.alternatives import Planner
    from perfmodel.plan.other_ways.criteria import Criterion
    from perfmodel.plan.other_ways.map_cells import Crossing, MapCell
    from perfmodel.plan.other_ways.one_alternative import Alternative
    from perfmodel.projections import Projection
    from perfmodel.schema.prices import Prices


@dataclass(frozen=True, eq=False)
class AlternativesAnswer:
    """The result of ``perfmodel alternatives``.

    options  of ``perfmodel.project`` for the question; with several machines, for the first machine
    found    the alternatives;  by  the criterion that ranks them
    cells    the points of the map of winners;  crossed  the batches at which the winner changes
    prices   None: no price file was given
    """

    options: Mapping[str, Any]
    found: list[Alternative]
    by: Criterion
    cells: list[MapCell]
    crossed: list[Crossing]
    prices: Prices | None

    @property
    def currency(self) -> str:
        """The currency of the prices; "" without prices."""
        return self.prices.currency if self.prices else ""


def answered(typed: Mapping[str, Any]) -> AlternativesAnswer:
    """Compare the alternatives for typed options. typed  their values by name

    Limits: no tables, values that cannot be used -> BadInputError
    """
    if typed["table_size"] is None and typed["model"] is None:
        raise BadInputError("which tables?", "give --table-size or --model, e.g. --table-size 10TB")
    from perfmodel.plan.other_ways.alternatives import read_once
    from perfmodel.schema.prices import read_prices

    shared = {**typed, "scenario": "cluster", "local_memory": None, "remote_memory": None}
    question = question_of({**shared, "objective": None}, copied=True)
    if typed["global_batch"] is not None and typed["equal_batch"] != GLOBAL:
        raise BadInputError("--global-batch is of all GPUs together.", "leave out --equal-batch.")
    questions = on_machines(question, typed)
    _refuse(typed, several=len(questions) > 1)
    for each in questions:
        each.check_gpus()
    names = [each.machine.name for each in questions]
    known = None if typed["prices"] is None else read_prices(typed["prices"], *names)
    by = _criterion(typed["by"], known, several=len(questions) > 1)
    options = read_once(question.keywords())
    with question.advised():
        if len(questions) > 1:
            found = _of_machines(questions, options, known, typed)
            return AlternativesAnswer(options, by.order(found), by, [], [], known)
        found, cells, crossed = _of_one(question, options, known, typed)
    return AlternativesAnswer(options, by.order(found) if typed["by"] else found, by, cells, crossed, known)


def _refuse(typed: Mapping[str, Any], *, several: bool) -> None:
    """Refuse options that the comparison does not support.

    several  whether several machines were typed, which supports other options
    Limits: such an option was typed -> BadInputError
    """
    if not several:
        if is_training(typed["objective"]):
            raise BadInputError(
                f"--objective {typed['objective']}: rows below the HBM have a forward pass alone.",
                "name several machines, --machine h100-sxm-ib,h200-sxm-ib; or ask perfmodel plan.",
            )
        return
    for name in ("local_memory", "remote_memory", "calibration"):
        if typed[name] is not None:
            option = f"--{name.replace('_', '-')}"
            raise BadInputError(f"{option} and several machines cannot be combined.", f"leave out {option}.")
    if typed["reduction"] != AUTO:
        raise BadInputError(
            "--reduction and several machines cannot be combined.", "the planner chooses the exchanges."
        )


def _criterion(name: str | None, prices: Prices | None, *, several: bool) -> Criterion:
    from perfmodel.plan.other_ways.criteria import COST, GPU_HOURS, TIME, criterion

    by = criterion(name) if name else GPU_HOURS if not several else COST if prices else TIME
    if by is COST and prices is None:
        raise BadInputError("--by cost: at what prices?", "give --prices FILE as well.")
    return by


def _of_machines(
    questions: list[Question], options: Mapping[str, Any], prices: Prices | None, typed: Mapping[str, Any]
) -> list[Alternative]:
    """For each machine that was typed, the fastest plan there, as an alternative.

    questions  the same question on each;  options  of the first, for ``perfmodel.project``
    """
    from perfmodel.plan.other_ways.machines import on_machines as find

    training = is_training(typed["objective"])
    asked = [
        ({**options, **each.keywords("tables")}, _planner(each, "quick", training=training))
        for each in questions
    ]
    return find(asked, prices, typed["equal_batch"], training=training)


def _of_one(
    question: Question,
    options: Mapping[str, Any],
    prices: Prices | None,
    typed: Mapping[str, Any],
) -> tuple[list[Alternative], list[MapCell], list[Crossing]]:
    """The alternatives on a single machine, the points of the map of winners, and its crossings.

    options  of ``perfmodel.project``;  typed  all options by name
    """
    from perfmodel.plan.other_ways.alternatives import alternatives as find
    from perfmodel.plan.other_ways.winner_map import winner_map

    memories = local_memory_of(typed["local_memory"]), remote_memory_of(typed["remote_memory"])
    planner = _planner(question) if typed["model"] is not None else None
    found = find(options, prices, planner, *memories, equal_batch=typed["equal_batch"])
    tell("comparing them over skew, batch and table size (--no-map leaves this out)")
    of_map = winner_map(options, typed["equal_batch"]) if typed["with_map"] else None
    return (found, of_map.cells, of_map.crossings()) if of_map else (found, [], [])


def _planner(question: Question, effort: str = DEFAULT_EFFORT, *, training: bool = False) -> Planner:
    """A function that searches a plan for the question's tables, and returns a label and its projection."""

    def plan(base: Projection, tiers: tuple[str, ...], part: float) -> tuple[str, Projection]:
        from perfmodel.passes.tables import PlanTables
        from perfmodel.plan.as_projection import planned_projection, tables_of
        from perfmodel.plan.searched import searched_plan
        from perfmodel.schema.tiers import HBM

        if question.tables is None:
            tables = tables_of(base.work, "the tables", base.forward.ids)
        else:
            tables = PlanTables.load(question.tables, question.distribution or UNIFORM)
        found = searched_plan(base, tables, EFFORTS[effort] * part, tiers, training=training)
        away = sum(each.scheme.tier.kind != HBM for each in found.plan.placements)
        words = f"planned, {counted(away, 'table')} of {len(tables)} in host memory" if tiers else "planned"
        return words, planned_projection(base, found)

    return plan
