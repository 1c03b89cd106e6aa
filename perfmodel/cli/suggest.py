"""Commands to suggest for a question without an answer; before they are printed, they are tried here."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.cli.chosen import calibration_of, machine_of
from perfmodel.cli.question import Question, short_below
from perfmodel.errors import PerfmodelError
from perfmodel.projections import Projection
from perfmodel.question.groups import DEFAULT_MACHINE
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.machine import Machine, list_machines, load_machine
from perfmodel.schema.run_folders import measured_groups
from perfmodel.units import format_bytes

_REDUCTIONS = ("auto", "all-to-all")


@dataclass(frozen=True)
class Typed:
    """Names for suggested commands, as the user typed them; "": not typed."""

    machine: str = ""
    calibration: str = ""
    backend: str = ""

    @staticmethod
    def of(machine: str | None, calibration: str | None, backend: str | None) -> Typed:
        """The names from a command's options; None: not typed."""
        return Typed(machine or "", calibration or "", (backend or "") if calibration else "")

    def line(self, words: Sequence[str], answer: Projection) -> str:
        """The command that asks for ``answer`` again. words  that it begins with"""
        options = answer.question.arguments(**vars(self)) if answer.question else []
        return shlex.join([*words, *options])


def answerable(
    words: Sequence[str], typed: Typed, question: Question, check: Callable[[Projection], object] = bool
) -> str:
    """Lines with commands that have an answer, if the user's calibration has none for the question.

    words  that the commands begin with
    check  raises PerfmodelError for an answer that is of no use
    Limits: no calibration was named, or no command has an answer -> ""
    """
    if question.calibration is None:
        return ""
    lines = []
    measured = within_measured(question, check)
    if measured is not None:
        room = format_bytes(measured.gpu_count.usable_bytes * measured.gpus, binary=False)
        lines += [f"{measured.gpus} ranks were measured together, and hold tables of up to {room}:"]
        lines += [f"  {typed.line(words, measured)}"]
    shipped = on_shipped(question, check)
    if shipped is not None:
        name = shipped.setting.machine.name
        own = name == question.machine.name
        which = f"what is shipped for {name}" if own else f"another machine ({name})"
        lines += [f"{which} has an answer:"]
        lines += [f"  {Typed().line(words, shipped)}"]
    return "\n".join(lines)


def within_measured(question: Question, check: Callable[[Projection], object] = bool) -> Projection | None:
    """The answer on ranks that the user's calibration has measured together, as many as possible.

    Its tables are reduced to fit. check  as in ``answerable``.  Limits: no such answer -> None
    """
    calibration = load_calibration(str(question.calibration))
    asked = (question.reduction or _REDUCTIONS[0]).replace("_", "-")
    for way in _REDUCTIONS if asked == _REDUCTIONS[0] else (asked,):
        needed = ("all_to_all",) if way == "all-to-all" else ()
        for gpus in reversed(measured_groups(calibration, needed)):
            found = _answer(replace(_fitted(question, gpus), reduction=way), check)
            if found is not None:
                return found
    return None


def _fitted(question: Question, gpus: int) -> Question:
    """The question on ``gpus`` GPUs, its tables reduced to fit there beside the buffers of exchanges."""
    room = question.machine.value("hbm_bytes") * (1 - question.reserve) * gpus
    size = question.table_bytes
    if size is None or size <= room:
        return replace(question, gpus=gpus)
    cut = replace(question, gpus=gpus, table_bytes=short_below(room))
    found = _answer(cut, bool)
    over = 0.0 if found is None else max(found.gpu_count.memory_bytes * gpus - room, 0.0)
    return replace(cut, table_bytes=short_below(room - over))


def on_shipped(question: Question, check: Callable[[Projection], object] = bool) -> Projection | None:
    """The answer by a shipped calibration: for the question's machine, else for the default machine.

    check  as in ``answerable``.  Limits: no such answer -> None
    """
    asked = question.machine.name
    for name in dict.fromkeys([asked, DEFAULT_MACHINE] if asked in list_machines() else [DEFAULT_MACHINE]):
        machine = load_machine(name)
        own: dict[str, Any] = {"machine": machine, "backend": machine.default_backend}
        own |= dict.fromkeys(("clock", "calibration", "gpus_per_node"))
        found = _answer(replace(question, **own), check)
        if found is not None:
            return found
    return None


def _answer(question: Question, check: Callable[[Projection], object]) -> Projection | None:
    try:
        answer = question.answer()
        check(answer)
    except PerfmodelError:
        return None
    return answer


def after_calibration(folder: str, where: str, table_bytes: float, spread: bool) -> str:
    """The ``project`` command that uses a run that has just ended; if it has no answer, ``show``.

    folder  of the run;  where  its name in the command
    spread  True: on the GPUs that the tables need; False: on the measured ranks
    """
    file = calibration_of(folder)
    question = Question(
        machine=machine_of(None, None, file),
        table_bytes=table_bytes,
        backend=str(load_calibration(str(file)).backend),
        calibration=file,
    )
    return _projection_of(question, Typed(calibration=where), spread)


def after_import(machine: Machine, typed: str, file: str, table_bytes: float) -> str:
    """The ``project`` command that uses a calibration just imported; if it has no answer, ``show``.

    machine  of the calibration;  typed  its name or file, as typed;  file  the calibration
    """
    question = Question(
        machine=machine,
        table_bytes=table_bytes,
        backend=str(load_calibration(file).backend),
        calibration=file,
    )
    return _projection_of(question, Typed(machine=typed, calibration=file), spread=True)


def _projection_of(question: Question, typed: Typed, spread: bool) -> str:
    """The ``project`` command for the question; if it has no answer, ``show``.

    spread  True: on the GPUs that the tables need; False: on the measured ranks
    """
    answer = (_answer(question, bool) if spread else None) or within_measured(question)
    if answer is None:
        return shlex.join(["perfmodel", "show", typed.calibration])
    return typed.line(["perfmodel", "project"], answer)
