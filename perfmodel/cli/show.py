"""``perfmodel show``: what is shipped, and what is in a file of the same kind."""

from __future__ import annotations

from dataclasses import replace

import typer

from perfmodel.cli.chosen import calibration_of
from perfmodel.cli.output import emit, emit_cited, emit_json, warn
from perfmodel.errors import BadInputError
from perfmodel.question.measured import LISTS, ShowOptions
from perfmodel.schema.calibration import Curve, list_calibrations, load_calibration, shipped_calibration

_OWN_NAME = "# A start for your own: write a name of its own below, and where you read each number.\n"
_OF_TABLES = ".csv", ".yaml", ".yml"
"""Suffixes of table sets that no calibration has."""
_TAKES = {"machines": ("toml",), "models": (), "chips": ("toml",), "calibrations": ()}
"""Options beside ``--json`` of each list; a calibration takes the others."""


def show(context: typer.Context, options: ShowOptions) -> None:
    """Print a list of what is shipped, one of it in full, or a calibration."""
    lists, what = ", ".join(LISTS), options.what
    if what is None:
        raise BadInputError("nothing is named.", f"give {lists}, or a calibration: its file, id, or latest.")
    if options.name is None and what.lower().endswith(_OF_TABLES):
        options, what = replace(options, name=what), "models"
    if what not in LISTS and options.name is not None:
        raise BadInputError(f"{what} is no list.", f"give {lists}; --compare: two calibrations.")
    given = {"toml": options.as_toml, "samples": options.samples, "compare": options.compare}
    for name in (name for name, value in given.items() if value):
        if name not in _TAKES.get(what, ("samples", "compare")):
            raise BadInputError(f"--{name} is not of {what}.", "perfmodel show --help")
    if options.as_toml:
        _show_file(what, options)
    elif what == "machines":
        _show_machines(options)
    elif what == "models":
        _show_models(options)
    elif what == "chips":
        _show_chips(options)
    elif what == "calibrations":
        _show_calibrations(options)
    else:
        _show_calibration(options, what)


def _show_file(what: str, options: ShowOptions) -> None:
    """Print the file of a machine or a chip."""
    from perfmodel.schema.machine import chip_file, machine_file

    if options.name is None or options.as_json:
        name = {"machines": "h100-sxm-ib", "chips": "ascend-910"}[what]
        raise BadInputError("--toml prints the file of one.", f"perfmodel show {what} {name} --toml")
    chip = what == "chips"
    emit(chip_file(options.name) if chip else _OWN_NAME + machine_file(options.name).rstrip())


def _show_machines(options: ShowOptions) -> None:
    from perfmodel.report import catalogue_text
    from perfmodel.schema.machine import list_machines, load_machine

    chosen = [load_machine(name) for name in ([options.name] if options.name else list_machines())]
    if options.as_json:
        emit_json("show", machines=[machine.model_dump(mode="json") for machine in chosen])
    else:
        one = options.name is not None
        emit_cited(catalogue_text.machine_text(chosen[0]) if one else catalogue_text.machines_text(chosen))


def _show_models(options: ShowOptions) -> None:
    from perfmodel.report import catalogue_text
    from perfmodel.schema.table_files import list_models, load_tables

    chosen = [load_tables(name) for name in ([options.name] if options.name else list_models())]
    if options.as_json:
        full = bool(options.name)
        emit_json("show", models=[catalogue_text.model_record(item, full=full) for item in chosen])
    else:
        emit(catalogue_text.model_text(chosen[0]) if options.name else catalogue_text.models_text(chosen))


def _show_chips(options: ShowOptions) -> None:
    from perfmodel.report.chip_text import chip_text, chips_text
    from perfmodel.schema.machine import list_chips, load_chip

    chosen = [load_chip(name) for name in ([options.name] if options.name else list_chips())]
    if options.as_json:
        emit_json("show", chips=[chip.model_dump(mode="json") for chip in chosen])
    else:
        emit_cited(chip_text(chosen[0]) if options.name else chips_text(chosen))


def _show_calibrations(options: ShowOptions) -> None:
    """Print the list of shipped calibrations, of one machine or all."""
    from perfmodel.report.calibration_text import calibration_record, calibrations_text
    from perfmodel.schema.machine import load_machine

    if options.name is not None:
        load_machine(options.name)
    chosen = [shipped_calibration(name) for name in list_calibrations(options.name)]
    if options.as_json:
        emit_json("show", calibrations=[calibration_record(item) for item in chosen])
    else:
        emit(calibrations_text(chosen))


def _show_calibration(options: ShowOptions, name: str) -> None:
    """Print what a calibration holds, its samples, or how it differs from another."""
    from perfmodel.report import calibration_text as report
    from perfmodel.schema.machine import list_chips, list_machines
    from perfmodel.schema.table_files import list_models
    from perfmodel.validate.points import count_since_fit, load_samples_of, run_of

    for kind, names in (("machines", list_machines), ("models", list_models), ("chips", list_chips)):
        if name in names():
            step = f"perfmodel show {kind} {name}\n  its calibrations: perfmodel show calibrations"
            raise BadInputError(f"{name} is one of {kind}, no calibration.", f"  {step}")
    name = calibration_of(name) or name
    calibration = load_calibration(name)
    if options.compare is not None:
        if options.samples:
            raise BadInputError("--compare and --samples cannot be combined.", "leave one of them out.")
        other = load_calibration(calibration_of(options.compare) or options.compare)
        rows = report.comparison(calibration, other)
        if options.as_json:
            pairs = {"a": (calibration, other), "b": (other, calibration)}
            only = {side: [_cell(curve) for curve in report.only_in(*pair)] for side, pair in pairs.items()}
            emit_json("show", compare=[options.what, options.compare], curves=rows, only=only)
        else:
            emit(report.comparison_text(calibration, other, rows))
        return
    points = load_samples_of(calibration, name) if options.samples else None
    run = run_of(name)
    try:
        since = count_since_fit(calibration, run)
    except BadInputError as error:  # the calibration itself can still be shown
        warn(f"what was measured since it was fitted is not known: {error.message}")
        since = 0, 0
    if options.as_json:
        records = points.to_dict(orient="records") if points is not None else None
        more = dict(zip(("open_points", "samples_since"), since, strict=True))
        emit_json("show", calibration=calibration.model_dump(mode="json"), samples=records, **more)
        return
    text = [report.calibration_text(calibration, run=run, since=since)]
    if points is not None:
        text.append(report.samples_text(points))
    emit("\n\n".join(text))


def _cell(curve: Curve) -> dict[str, object]:
    return {"collective": curve.collective, "gpus": curve.gpus, "domain_gpus": curve.domain_gpus}
