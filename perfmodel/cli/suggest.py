"""Lines to paste that have an answer: each question is asked here before it is printed."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.errors import PerfmodelError

if TYPE_CHECKING:
    from perfmodel.project import Projection
    from perfmodel.schema.machine import Machine

_OWN = ("backend", "clock", "calibration", "gpus_per_node")  # of the machine that was measured
_REDUCTIONS = ("auto", "all-to-all")


@dataclass(frozen=True)
class Typed:
    """Names as they were typed, for lines that are typed again."""

    machine: str = ""
    calibration: str = ""
    backend: str = ""

    @staticmethod
    def of(machine: str | None, calibration: str | None, backend: str | None) -> Typed:
        """Of options, None where one was not given."""
        return Typed(machine or "", calibration or "", (backend or "") if calibration else "")

    def line(self, words: Sequence[str], answer: Projection) -> str:
        """The command that asks for ``answer`` again."""
        options = answer.question.arguments(**vars(self)) if answer.question else []
        return shlex.join([*words, *options])


def answerable(
    words: Sequence[str],
    typed: Typed,
    workload: Mapping[str, Any],
    machine: Machine,
    options: Mapping[str, Any],
    check: Callable[[Projection], object] = bool,
) -> str:
    """What to ask instead of a question beyond a calibration of one's own; empty where nothing is known.

    words  the command;  check  raises PerfmodelError for an answer that is of no use
    """
    from perfmodel.units import format_bytes

    lines = []
    measured = within_measured(workload, machine, options, check)
    if measured is not None:
        room = format_bytes(measured.gpu_count.usable_bytes * measured.gpus, binary=False)
        lines += [f"{measured.gpus} ranks were measured together, and hold tables of up to {room}:"]
        lines += [f"  {typed.line(words, measured)}"]
    shipped = on_shipped(workload, options, check)
    if shipped is not None:
        lines += [f"a shipped machine ({shipped.setting.machine.name}) has an answer:"]
        lines += [f"  {Typed().line(words, shipped)}"]
    return "\n".join(lines)


def _calibration(options: Mapping[str, Any]) -> Any:
    from perfmodel.schema.calibration import load_calibration

    return load_calibration(options["calibration"])


def within_measured(
    workload: Mapping[str, Any],
    machine: Machine,
    options: Mapping[str, Any],
    check: Callable[[Projection], object] = bool,
) -> Projection | None:
    """The same question on ranks that were measured, the most first, with tables that fit them."""
    from perfmodel.schema.run_folders import measured_groups

    calibration = _calibration(options)
    asked = str(options.get("reduction", _REDUCTIONS[0])).replace("_", "-")
    for way in _REDUCTIONS if asked == _REDUCTIONS[0] else (asked,):
        needed = ("all_to_all",) if way == "all-to-all" else ()
        for gpus in reversed(measured_groups(calibration, needed)):
            fitting = _fitted(workload, machine, float(options.get("reserve") or 0.0), gpus)
            found = _asked(fitting, machine, {**options, "reduction": way}, check)
            if found is not None:
                return found
    return None


def _fitted(workload: Mapping[str, Any], machine: Machine, reserve: float, gpus: int) -> dict[str, Any]:
    """The workload on some GPUs, its tables cut to a short size that fits them."""
    fitting = {**workload, "gpus": gpus}
    room = machine.value("hbm_bytes") * (1 - reserve) * gpus
    if fitting.get("table_bytes", 0) > room:
        unit = 10.0 ** (math.floor(math.log10(room)) - 1)
        fitting["table_bytes"] = math.floor(room / unit) * unit
    return fitting


def on_shipped(
    workload: Mapping[str, Any],
    options: Mapping[str, Any],
    check: Callable[[Projection], object] = bool,
) -> Projection | None:
    """The same question on the shipped machine that is asked when nobody names one."""
    from perfmodel.project import DEFAULT_MACHINE
    from perfmodel.schema.machine import load_machine

    rest = {name: value for name, value in options.items() if name not in _OWN}
    return _asked(workload, load_machine(DEFAULT_MACHINE), rest, check)


def _asked(
    workload: Mapping[str, Any],
    machine: Machine,
    options: Mapping[str, Any],
    check: Callable[[Projection], object],
) -> Projection | None:
    from perfmodel.project import project_one

    try:
        answer = project_one(machine=machine, **workload, **options)
        check(answer)
    except PerfmodelError:
        return None
    return answer


def after_calibration(folder: str, where: str, table_bytes: float, spread: bool) -> str:
    """The projection to make of a run that has just ended; where none can be made, what to look at.

    folder  of the run;  where  ``latest`` or the folder: what a line says;  spread  as many GPUs as it takes
    """
    from perfmodel.cli.options import calibration_of, machine_of

    file = calibration_of(folder)
    machine, workload = machine_of(None, None, file), {"table_bytes": table_bytes}
    options = {"calibration": file, "backend": str(_calibration({"calibration": file}).backend)}
    answer = _asked(workload, machine, options, bool) if spread else None
    answer = answer or within_measured(workload, machine, options)
    if answer is None:
        return shlex.join(["perfmodel", "show", where])
    return Typed(calibration=where).line(["perfmodel", "project"], answer)
