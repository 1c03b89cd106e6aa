"""``perfmodel explain``: it declares no options of its own, but takes the explained command's options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from typer.core import TyperCommand

from perfmodel.cli.lazy import loaded, placed
from perfmodel.errors import BadInputError
from perfmodel.question.spec import Arg, CommandOptions

HELP = """The equation of one number with your numbers in it, each with unit, source and evidence.

Takes the options of project (default: --table-size 10TB), those of plan with --plan FILE, those of
collective for a collective: perfmodel explain collective --help.
Without --sharding a step is of the sharding that project leads with.

\b
Examples
  perfmodel explain reduce-scatter
  perfmodel explain all-to-all-rows --sharding ub
  perfmodel explain slowdown --table-size 10TB
  perfmodel explain gather --table-size 10TB --dim 128
  perfmodel explain all-to-all-ids --gpus 16 --machine h200-sxm-ib --json
  perfmodel explain convert-out --payload fp16 --sharding grid
  perfmodel explain gather --remote-memory 10TB@3TB/s,shared:16,latency:3us
  perfmodel explain collective --op all_to_all --size 1GiB --gpus 128
  perfmodel explain gather --plan plan.json --batch 4096
"""
_STEP = (
    "A step of perfmodel project: reduce-scatter-bags, gather, bucketize … With --plan, a step of that plan. "
    "Or slowdown, for how the steps make it up; collective, for one collective."
)


@dataclass(frozen=True)
class Family:
    """Numbers that a command prints and ``perfmodel explain`` can explain.

    what    their name in messages;  typed  the command that explains them
    asks    ``module:class`` of the options of the command that prints them
    answer  ``module:function`` that prints the explanation
    without, only  options of that class that do not apply; if not empty, the only options that apply
    """

    what: str
    typed: str
    asks: str
    answer: str
    without: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def options(self) -> list[Any]:
        """The parameters of ``explain`` for these numbers, as the command that prints them declares them."""
        found = loaded("explain", self.asks).params
        return [
            one for one in found if (one.name in self.only if self.only else one.name not in self.without)
        ]


_PAGE = ("as_csv", "report", "force")
OF_PLAN = (
    *("plan_file", "model", "gpus", "batch", "objective", "optimizer", "payload", "distribution"),
    *("id_dtype", "machine", "backend", "clock", "kernels", "scenario", "settings"),
    *("calibration", "as_json"),
)
"""Options of ``plan`` that apply to a step of a plan in a file."""
_OF_STEP = Family(
    "a step of project",
    "perfmodel explain STEP",
    "passes:ProjectOptions",
    "explain_step:explain_the_step",
    _PAGE,
)
_STEP_OF_PLAN = Family(
    "a plan",
    "perfmodel explain STEP --plan FILE",
    "plans:PlanOptions",
    "explain_plan_file:explain_step_of_plan",
    only=OF_PLAN,
)
_NAMED = {
    "collective": Family(
        "a collective",
        "perfmodel explain collective",
        "passes:CollectiveOptions",
        "explain_collective:explain_one_collective",
        _PAGE,
    ),
}


def explaining(words: Sequence[str]) -> Explained:
    """The command for the words after ``perfmodel explain``, with the options that these words need."""
    named = next(iter(_families_named(words)), None)
    of_plan = any(word.partition("=")[0] == "--plan" for word in words)
    return Explained(named or (_STEP_OF_PLAN if of_plan else _OF_STEP))


def _families_named(words: Sequence[str]) -> Iterator[Family]:
    """The families that ``words`` name; words that are values of options do not count."""
    for before, word in zip(("", *words), words, strict=False):
        family = _NAMED.get(word.strip().lower())
        if family is None:
            continue
        options = [option for kind in (family, _OF_STEP, _STEP_OF_PLAN) for option in kind.options()]
        valued = {name for option in options if not getattr(option, "is_flag", False) for name in option.opts}
        if before not in valued:
            yield family


class Explained(TyperCommand):
    """The command ``perfmodel explain`` with the options of a family."""

    def __init__(self, family: Family) -> None:
        (step,) = loaded("explain", _Asked).params
        super().__init__("explain", params=[step, *family.options()], help=HELP, rich_markup_mode=None)
        self.family, self.typed = family, family.typed.partition(" STEP")[0]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line, as typer does.

        Limits: an option of another family -> BadInputError that names that family's command
        """
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            option = getattr(error, "option_name", None)
            if not hasattr(error, "possibilities"):  # not an error about an unknown option
                raise
            every = (_OF_STEP, _STEP_OF_PLAN, *_NAMED.values())
            others = [one.typed for one in every if any(option in each.opts for each in one.options())]
            if not others:
                raise
            message = f"{option} says nothing about {self.family.what}."
            raise BadInputError(
                message, f"leave it out: it is an option of {' and '.join(others)}."
            ) from None

    def invoke(self, ctx: Any) -> Any:
        """Print the explanation, by the function that the family names."""
        return placed(self.family.answer)(ctx)


@dataclass(frozen=True, kw_only=True)
class _Asked(CommandOptions):
    """The argument of ``perfmodel explain``."""

    step: Annotated[str, Arg(_STEP)]
