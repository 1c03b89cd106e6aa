"""``perfmodel plan --gpus 8,16,64`` and ``--replicas 1,2``: plans side by side, as text, JSON or CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perfmodel.cli.codes import STOPPED
from perfmodel.cli.output import SaidError, emit, emit_json, warn, warn_stopped
from perfmodel.cli.signals import ctrl_c
from perfmodel.effort import tell
from perfmodel.plan.replicas import find_fastest, plan_replicas
from perfmodel.plan.scaling import scale
from perfmodel.units import counted, format_time

if TYPE_CHECKING:
    from perfmodel.cli.typed_line import TypedLine
    from perfmodel.plan.question import PlanQuestion


class PlanProgress:
    """Tells the line of a command how far a search is: it is called with the time of the best plan.

    best_s  the last of these times [s]; infinite: none yet
    """

    best_s = math.inf

    def __call__(self, best_s: float, what: str = "") -> None:
        self.best_s = best_s
        if math.isfinite(best_s):
            tell(f"{what}best {format_time(best_s)}")

    def of_gpus(self, gpus: int, best_s: float) -> None:
        """Tell the best time on this number of GPUs, if plans for several are searched."""
        self(best_s, f"{counted(gpus, 'GPU')}: ")


def print_scaling(
    question: PlanQuestion,
    gpus: Sequence[int],
    typed: TypedLine,
    calibration_file: str | None,
    *,
    as_json: bool,
) -> None:
    """Search plans for several numbers of GPUs, and print how they scale.

    gpus  the numbers
    Limits: Ctrl-C -> the plans so far, and the exit code of a stopped command
    """
    from perfmodel.report.scaling_text import scaling_text

    with ctrl_c() as stopped:
        found = scale(question, gpus, PlanProgress().of_gpus)
    if stopped():
        found = replace(found, stopped=True)
    if as_json:
        emit_json("plan", **found.to_dict(), calibration_file=calibration_file)
    else:

        def one(gpus: int) -> str:
            return typed.text(without=["gpus"], more=["--gpus", str(gpus)])

        emit(scaling_text(found, one))
        answer = found.planned[-1].answer
        for line in answer.evaluator.setting.notes if answer else ():
            warn(line)
    if found.stopped:
        warn_stopped()
        raise SaidError(STOPPED)


def print_replicas(question: PlanQuestion, counts: Sequence[int], typed: TypedLine, *, as_json: bool) -> None:
    """Search a plan for each number of copies of the sharded tables, and print them beside each other."""
    from perfmodel.report.scaling_text import replicas_text

    plans = plan_replicas(question, counts, PlanProgress().of_gpus)
    records = [plan.to_dict() for plan in plans]
    best = find_fastest(plans)
    if as_json:
        emit_json("plan", gpus=question.gpus, replicas=records, fastest_replicas=best.replicas)
    else:
        line = typed.text(without=["gpus", "replicas"], more=["--gpus", str(question.gpus // best.replicas)])
        emit(replicas_text(plans, question.gpus, line))
    if any(plan.answer is not None and plan.answer.found.stopped == "interrupt" for plan in plans):
        warn_stopped()
        raise SaidError(STOPPED)
