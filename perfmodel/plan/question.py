"""A question to the planner: what ``project`` is asked, with rules for its plan; and its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from perfmodel.answer.answer import Answer, answer_plan, answer_row_wise
from perfmodel.answer.inputs import DEFAULTS, TooFewGpusError, share_equally, write
from perfmodel.answer.question import Question, check_ids
from perfmodel.answer.ranking import Ranking, answer_shardings, name_gpus
from perfmodel.answer.uniform_plans import UniformPlan
from perfmodel.answer.what_would_help import MACHINES, SETTINGS, Sensitivity, list_helping
from perfmodel.effort import DEFAULT_EFFORT, EFFORTS
from perfmodel.engine.basis import PassBasis
from perfmodel.engine.cost import CostedPlan, Evaluator
from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.placement import Plan, Scheme
from perfmodel.engine.schemes import DATA_PARALLEL, PLANNED
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.model import capacity
from perfmodel.plan.choices.constraints import Constraints, TableRule, parse_rules
from perfmodel.plan.choices.scheme_options import Options, list_options
from perfmodel.plan.outcome import Planned, build_outcome, price_plan, release_types
from perfmodel.plan.plan_files import MadeFor, convert_torchrec_plan
from perfmodel.plan.searching.search import Search, Watch
from perfmodel.plan.torchrec import build_torchrec_plan, restrict_to_torchrec
from perfmodel.question.groups import choose_optimizer
from perfmodel.schema.files import unknown_name
from perfmodel.schema.gate import MOST_PLANNED_GPUS
from perfmodel.schema.workload import ID_DTYPE_BYTES, UNIFORM
from perfmodel.units import format_count

_ID_DTYPES = {size: name for name, size in ID_DTYPE_BYTES.items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanQuestion:
    """A question to the planner.

    question      tables, machine, GPUs, batch and pass, as ``project`` has them
    most_bytes    usable memory of each GPU [bytes]; None: all but the reserve
    rules         constraints on tables;  for_torchrec  whether TorchRec must be able to run the plan
    sets          sharding types of a given TorchRec file; None: no such file
    effort_s      counted work of a search [s]
    made_for      the options of the question as typed, for the plan's file
    """

    question: Question
    most_bytes: float | None = None
    rules: tuple[TableRule, ...] = ()
    for_torchrec: bool = False
    sets: ExchangeSets | None = None
    effort_s: float = EFFORTS[DEFAULT_EFFORT]
    made_for: MadeFor = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the number of GPUs. Limits: more than a plan can list one by one -> BadInputError"""
        if self.gpus > MOST_PLANNED_GPUS:
            raise BadInputError(
                f"a plan for {format_count(self.gpus)} GPUs is more than this model covers.",
                f"at most {format_count(MOST_PLANNED_GPUS)}.",
            )

    @staticmethod
    def build(
        question: Question,
        *,
        only: Iterable[str] = (),
        effort: str = DEFAULT_EFFORT,
        most_bytes: float | None = None,
        **fields: Any,
    ) -> PlanQuestion:
        """A question from texts. only, effort  as ``--only``, ``--effort``;  fields  by name, as they are

        Limits: an unknown effort or rule, or more memory than a GPU has -> BadInputError
        """
        if effort not in EFFORTS:
            raise unknown_name("--effort", effort, EFFORTS)
        room_bytes = question.machine.value("hbm_bytes")
        if most_bytes is not None and most_bytes > room_bytes:
            most, size = map(write, (most_bytes, room_bytes))
            raise BadInputError(
                f"--set max_hbm={most} is more than the {size} of {question.machine.name}.",
                f"give less, or change the machine: --set hbm_bytes={most.replace(' ', '')}",
            )
        return PlanQuestion(
            question=replace(question, planner=None),
            rules=parse_rules(only),
            effort_s=EFFORTS[effort],
            most_bytes=most_bytes,
            **fields,
        )

    @property
    def gpus(self) -> int:
        """GPUs that the tables are spread over."""
        return int(self.question.gpus or 0)

    @property
    def batch(self) -> int:
        """Samples of each GPU."""
        return int(self.question.batch or DEFAULTS["batch"])

    def use_gpus(self, gpus: int, copies: int = 1) -> PlanQuestion:
        """The same question on another number of GPUs. copies  that share a total of samples"""
        total = self.question.total
        batch = self.question.batch if total is None else share_equally(total, gpus * copies)
        return replace(self, question=replace(self.question, gpus=gpus, batch=batch))

    @property
    def limit_bytes(self) -> float:
        """Memory of each GPU that tables may use [bytes]."""
        hbm_bytes = self.question.machine.value("hbm_bytes")
        left = float(capacity.usable_bytes(hbm_bytes, self.question.reserve))
        return left if self.most_bytes is None else min(self.most_bytes, left)

    @cached_property
    def tables(self) -> PlanTables:
        """The tables, with their distributions of ids."""
        table_set = self.question.table_set
        if table_set is None:
            raise BadInputError("a plan is for a set of tables.", "give --model.")
        check_ids(max(table.rows for table in table_set.tables), self.question.id_bytes)
        return PlanTables.of(table_set, self.question.distribution or UNIFORM)

    @cached_property
    def basis(self) -> PassBasis:
        """The machine with its libraries, and the pass. Limits: no calibration -> NoCalibrationError"""
        question = self.question
        optimizer = question.optimizer or choose_optimizer(training=question.training)
        return PassBasis(
            question.load_setting(), question.gpus_per_node, question.payload, question.training, optimizer
        )

    @cached_property
    def constraints(self) -> Constraints | None:
        """The rules for these tables on these GPUs; None without rules."""
        if not self.rules:
            return None
        domain = int(self.basis.domain(np.asarray(float(self.gpus))))
        return Constraints.build(self.rules, self.tables, self.gpus, domain)

    @cached_property
    def evaluator(self) -> Evaluator:
        """An evaluator for the tables. Limits: as ``Evaluator``"""
        tables = self.constraints.tables if self.constraints else self.tables
        sets = self.sets or (ExchangeSets() if self.for_torchrec else None)
        id_dtype = _ID_DTYPES[int(self.question.id_bytes or DEFAULTS["id_bytes"])]
        return Evaluator(self.basis, tables, self.batch, self.gpus, id_dtype=id_dtype, sets=sets)

    def list_options(self, *, more: Sequence[set[Scheme]] = ()) -> Options:
        """Options of the tables: the schemes that fit, and that the rules and TorchRec allow.

        more  for each kind of equal tables, further schemes, which are listed where they are allowed
        Sharding types of a TorchRec file are ignored.
        Limits: tables that do not fit, or have no allowed option -> BadInputError
        """
        evaluator = release_types(self.evaluator)
        options = list_options(evaluator, self.limit_bytes, more)
        if self.constraints is not None:
            options = self.constraints.restrict(options, self.limit_bytes)
        return restrict_to_torchrec(options, evaluator) if self.for_torchrec else options

    def search(self) -> Search:
        """A search that is not yet started. Limits: as ``list_options``"""
        return Search(
            self.evaluator,
            self.limit_bytes,
            effort_s=self.effort_s,
            options=self.list_options,
            ruled=self.constraints is not None or self.for_torchrec,
        )

    def plan(self, watch: Watch = lambda best_s: None, copies: int = 1) -> Planned:
        """The best plan of a search. watch  is called with the best time [s]

        copies  of these GPUs and tables, which the advice counts
        Limits: none fits -> BadInputError with the fewest GPUs that do
        """
        try:
            search = self.search()
            return replace(build_outcome(search, search.run(watch)), made_for=self.made_for)
        except TooFewGpusError as error:
            if self.rules:  # which no other search keeps
                raise
            reserve = 1 - self.limit_bytes / self.question.machine.value("hbm_bytes")
            raise name_gpus(
                replace(self.question, reserve=reserve, planner=plan_quickly), error, copies
            ) from None

    def price(self, plan: Plan) -> Planned:
        """The cost and the bound of a given plan. For TorchRec a plan is costed as TorchRec would run it.

        Limits: a plan for other tables or GPUs, too large, or against the rules -> BadInputError
        """
        if self.evaluator.model.sets is not None:
            plan = convert_torchrec_plan(build_torchrec_plan(self.evaluator, plan), self.tables)
        outcome = price_plan(self.evaluator, plan, self.limit_bytes, self.constraints)
        return replace(outcome, made_for=self.made_for)

    def build_answer(self, costed: CostedPlan, base: Answer | None = None) -> Answer:
        """The answer of a plan, as ``project`` has answers. base  row-wise; None: not yet computed"""
        base = base or answer_row_wise(replace(self.question, batch=self.batch))
        return answer_plan(base, UniformPlan(PLANNED, None, costed))

    def list_changes(self, planned: Planned, price_with: Callable[[str], str]) -> tuple[Sensitivity, ...]:
        """What would make the pass faster, as ``project`` lists it.

        Settings, and machines with equal scale-up domains, are answered with this very plan; other numbers of
        GPUs and other domains with the plan of a whole search: the option that is printed gives that answer.
        price_with  the options that price this plan with the option of a change
        Limits: Ctrl-C -> KeyboardInterrupt
        """
        priced: set[str] = set()

        def ask(changed: Question) -> Answer:
            """The answer of a changed question: by this plan, if it can be priced there, or by a search."""
            if changed.rows:
                raise BadInputError("plans have rows in GPU memory.", "")
            question = replace(self, question=changed)
            if (costed := question.price_again(planned.plan)) is not None:
                priced.add(changed.machine.name)
                return question.build_answer(costed)
            result = question.search().run()
            if result.stopped == "interrupt":
                raise KeyboardInterrupt
            return question.build_answer(result.costed)

        # What this very plan answers is repeated by pricing it, the others by a search.
        return tuple(
            replace(effect, option=price_with(effect.option))
            if effect.group == SETTINGS or (effect.group == MACHINES and effect.option.split()[-1] in priced)
            else effect
            for effect in list_helping(self.build_answer(planned.costed), ask)
        )

    def price_again(self, plan: Plan) -> CostedPlan | None:
        """A plan with its cost and memory on this question's machine.

        Limits: it does not fit, or is for another number or other domains of GPUs -> None
        """
        evaluator = self.evaluator
        if (plan.gpus, plan.domain) != (evaluator.gpus, evaluator.domain):
            return None
        costed = evaluator.cost(plan)
        return costed if costed.fullest_bytes <= self.limit_bytes else None


def plan_quickly(ranking: Ranking) -> Answer | None:
    """The answer of a quick search, in which each of several tables may have its own sharding.

    The plan is one that TorchRec can run: ``perfmodel plan --format torchrec`` searches longer for it.
    Limits: no plan is faster than the best of the ranking, nothing fits, rows in host memory or unpooled
    rows, which plans do not have -> None;  all tables are replicated -> the answer of that sharding;
    Ctrl-C -> KeyboardInterrupt
    """
    base = ranking.base
    if base.basis.rows or base.basis.unpooled or base.question.table_set is None:
        return None
    simple = replace(base.question, gpus=base.gpus, batch=int(base.work.batch[0]))
    question = PlanQuestion.build(simple, effort="quick", for_torchrec=True)
    try:
        result = question.search().run()
    except BadInputError:
        return None
    if result.stopped == "interrupt":
        raise KeyboardInterrupt  # the search returns its best plan, but the user wants to stop
    if ranking.best and result.costed.time_s >= ranking.answer.time_s:
        return None
    if all(placement.scheme.copied for placement in result.costed.plan.placements):
        (copies,) = answer_shardings(base, [DATA_PARALLEL])
        if isinstance(copies, Answer):
            return copies
    return question.build_answer(result.costed, base)
