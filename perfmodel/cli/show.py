"""``perfmodel show``: what is shipped, and what is in a file of the same kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import typer

from perfmodel.cli.chosen import calibration_of
from perfmodel.cli.options import apart, one_output, settings_of
from perfmodel.cli.output import check_folder, emit, emit_cited, emit_json, note, warn
from perfmodel.errors import BadInputError
from perfmodel.question.chips import EXAMPLE
from perfmodel.question.measured import LISTS, ShowOptions
from perfmodel.schema.calibration import Curve, list_calibrations, load_calibration, shipped_calibration

_OWN_NAME = "A start for your own: write a name of its own below, and where you read each number."
_OF_A_LIST = "as_toml", "settings", "rebuild"
_OF_A_CALIBRATION = "samples", "compare"


def show(context: typer.Context, options: ShowOptions) -> None:
    """Print a list of what is shipped, one of it in full, or a calibration."""
    one_output(json=options.as_json, toml=options.as_toml)
    lists = ", ".join(LISTS)
    if options.what is None:
        raise BadInputError("nothing is named.", f"give {lists}, or a calibration: its file, id, or latest.")
    kinds: dict[str, Callable[[ShowOptions], None]] = {
        "machines": _show_machines, "models": _show_models,
        "chips": _show_chips, "calibrations": _show_calibrations,
    }  # fmt: skip
    if options.what in kinds:
        taken = {"machines": ("as_toml",), "chips": ("as_toml", "settings"), "calibrations": ("rebuild",)}
        _refuse(options, *taken.get(options.what, ()))
        kinds[options.what](options)
    else:
        if options.name is not None:
            raise BadInputError(f"{options.what} is no list.", f"give {lists}; --compare: two calibrations.")
        _refuse(options, *_OF_A_CALIBRATION)
        _show_calibration(options, options.what)


def _refuse(options: ShowOptions, *taken: str) -> None:
    """Raise BadInputError for an option that is of something else. taken  the options that are of this"""
    flags = {"as_toml": "--toml", "settings": "--set"}
    for name in (*_OF_A_LIST, *_OF_A_CALIBRATION):
        if getattr(options, name) and name not in taken:
            raise BadInputError(
                f"{flags.get(name, f'--{name}')} is not of {options.what}.", "perfmodel show --help"
            )


def _show_machines(options: ShowOptions) -> None:
    from perfmodel.report import catalogue_text
    from perfmodel.schema.machine import list_machines, load_machine, machine_file

    if options.as_toml:
        if options.name is None:
            advice = "perfmodel show machines h100-sxm-ib --toml"
            raise BadInputError("--toml prints the file of one machine.", advice)
        emit(f"# {_OWN_NAME}\n{machine_file(options.name).rstrip()}")
        return
    chosen = [load_machine(name) for name in ([options.name] if options.name else list_machines())]
    if options.as_json:
        emit_json("show", machines=[machine.model_dump(mode="json") for machine in chosen])
    elif options.name:
        emit_cited(catalogue_text.machine_text(chosen[0]))
    else:
        emit_cited(catalogue_text.machines_text(chosen))


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
    from perfmodel.schema.machine import chip_file, list_chips, load_chip

    name, settings = options.name, dict(settings_of(options.settings, EXAMPLE))
    if options.as_toml:
        if name is None or settings:
            advice = "perfmodel show chips ascend-910 --toml"
            raise BadInputError("--toml prints the file of one shipped chip.", advice)
        emit(chip_file(name))
        return
    if name is None and settings:
        raise BadInputError("--set needs one chip.", "name it: perfmodel show chips ascend-910")
    chosen = [load_chip(item).with_overrides(settings) for item in ([name] if name else list_chips())]
    if options.as_json:
        emit_json("show", chips=[chip.model_dump(mode="json") for chip in chosen])
    else:
        emit_cited(chip_text(chosen[0]) if name else chips_text(chosen))


def _show_calibrations(options: ShowOptions) -> None:
    """Print the list of shipped calibrations, of one machine or all, or fit them again."""
    from perfmodel.report.calibration_text import calibration_record, calibrations_text
    from perfmodel.schema.machine import load_machine

    if options.rebuild is not None:
        apart("--rebuild", options.rebuild, "leave one of them out.", name=options.name)
        _rebuild(options.rebuild, options.as_json)
        return
    if options.name is not None:
        load_machine(options.name)
    chosen = [shipped_calibration(name) for name in list_calibrations(options.name)]
    if options.as_json:
        emit_json("show", calibrations=[calibration_record(item) for item in chosen])
    else:
        emit(calibrations_text(chosen))


def _rebuild(folder: Path, as_json: bool) -> None:
    """Fit every shipped calibration again below ``folder``, and print which differ from the shipped file."""
    from perfmodel.fit.shipped import rebuild

    check_folder(folder)
    shipped = set(list_calibrations())
    differing = []
    for name, fitted in rebuild(folder):
        same = name in shipped and fitted.to_json() == shipped_calibration(name).to_json()
        differing += [] if same else [name]
        note(f"{name}: {'as shipped' if same else 'differs from what is shipped'}")
    if as_json:
        emit_json("show", folder=str(folder), differing=differing)
    else:
        emit(f"Wrote {folder}; {len(differing)} differ from the shipped ones.")


def _show_calibration(options: ShowOptions, name: str) -> None:
    """Print what a calibration holds, its samples, or how it differs from another."""
    from perfmodel.report import calibration_text as report
    from perfmodel.validate.points import run_of, samples_of, since_its_fit

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
    points = samples_of(calibration, name) if options.samples else None
    run = run_of(name)
    try:
        since = since_its_fit(calibration, run)
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
