"""One question of the report: of every option the value that was typed first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.cli.choices import own_sizes
from perfmodel.cli.ids import ids_of
from perfmodel.cli.options import calibration_of, check_gpus, library_of, machine_of
from perfmodel.cli.workload import reserve_of, workload_values

if TYPE_CHECKING:
    from perfmodel.report.page.parts import Selector
    from perfmodel.schema.machine import Machine

_DEFAULTS = {"table_size": "10TB", "batch": "1024", "pooling": "32", "dim": "32"}
_OF_THE_WORKLOAD = ("table_count", "dtype", "id_bytes")


@dataclass(frozen=True, eq=False)
class Question:
    """What a figure is made for."""

    sizes: Selector  # one
    selectors: tuple[Selector, ...]  # batch, pooling and dim, of one value each
    machine: Machine
    options: Mapping[str, Any]  # of ``perfmodel.project``, without the selected ones


def question_of(typed: Mapping[str, Any]) -> Question:
    """Parameters of ``figure`` or ``report`` by name, as they were typed.

    Limits: values that cannot be used -> BadInputError, as in ``perfmodel project``
    """
    texts = {name: _first(typed[name]) or default for name, default in _DEFAULTS.items()}
    names = ("machine", "backend", "clock", "reduction")
    machine, backend, clock, reduction = (_first(typed[name]) for name in names)
    kept = reserve_of(typed["reserve"])
    calibration = calibration_of(typed["calibration"], backend, clock)
    chosen = machine_of(machine, typed["settings"], calibration)
    if not typed["table_size"] and calibration is not None:
        own = own_sizes(calibration, chosen, kept)
        texts["table_size"] = own.texts[own.start] if own else texts["table_size"]
    workload = workload_values(
        model=None, tables=typed["tables"], dtype=typed["dtype"], id_dtype=typed["id_dtype"], **texts
    )
    check_gpus(workload["table_bytes"], chosen, kept)
    options = {
        **{name: workload.get(name) for name in _OF_THE_WORKLOAD},
        "backend": library_of(chosen, backend, calibration),
        "clock": clock,
        "reserve": kept,
        "gpus_per_node": typed["gpus_per_node"],
        "scenario": typed["scenario"],
        "reduction": reduction,
        "payload": typed["payload"],
        "distribution": ids_of(typed["alpha"], typed["distribution"]),
        "calibration": calibration,
    }
    known = {name: value for name, value in options.items() if value is not None}
    return Question(*_selectors(workload), chosen, known)


def _first(typed: str | list[str] | None) -> str | None:
    """``1024`` of ``1024,256`` and of ``1024..4096``; a file keeps the commas of its name."""
    if not typed:
        return None
    text = typed if isinstance(typed, str) else typed[0]
    return text if isinstance(typed, str) or Path(text).is_file() else text.split(",")[0].split("..")[0]


def _selectors(workload: Mapping[str, Any]) -> tuple[Selector, tuple[Selector, ...]]:
    """What a page of one question says that it shows."""
    from perfmodel.report.page.parts import Selector
    from perfmodel.units import format_bytes, format_count

    size = workload["table_bytes"]
    words = {
        "batch": format_count(workload["batch"]),
        "pooling": f"{workload['pooling']:g}",
        "dim": format_count(workload["dim"]),
    }
    return Selector("table_bytes", "table size", (size,), (format_bytes(size, binary=False),)), tuple(
        Selector(name, name, (workload[name],), (text,)) for name, text in words.items()
    )
