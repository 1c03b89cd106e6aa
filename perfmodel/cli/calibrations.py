"""``perfmodel show`` and ``perfmodel calibrations``: the content of a calibration, and the shipped ones."""

from __future__ import annotations

from pathlib import Path

import typer

from perfmodel.cli.chosen import calibration_of
from perfmodel.cli.output import check_folder, emit, emit_json, note, warn
from perfmodel.errors import BadInputError
from perfmodel.question.measured import CalibrationListOptions, ShowOptions
from perfmodel.report import calibration_text as report
from perfmodel.report.calibration_text import calibration_record, calibrations_text
from perfmodel.schema.calibration import Curve, list_calibrations, load_calibration, shipped_calibration
from perfmodel.schema.machine import load_machine


def calibrations(context: typer.Context, options: CalibrationListOptions) -> None:
    """Print the list of shipped calibrations, or fit them again."""
    if options.rebuild is not None:
        _rebuild(options.rebuild, options.as_json)
        return

    if options.machine is not None:
        load_machine(options.machine)
    found = [shipped_calibration(name) for name in list_calibrations(options.machine)]
    if options.as_json:
        emit_json("calibrations", calibrations=[calibration_record(item) for item in found])
    else:
        emit(calibrations_text(found))


def _rebuild(folder: Path, as_json: bool) -> None:
    """Fit every shipped calibration again below ``folder``, and print which differ from the shipped file."""
    from perfmodel.fit.shipped import rebuild

    check_folder(folder)
    shipped = set(list_calibrations())
    differing = []
    for name, made in rebuild(folder):
        same = name in shipped and made.to_json() == shipped_calibration(name).to_json()
        differing += [] if same else [name]
        note(f"{name}: {'as shipped' if same else 'differs from what is shipped'}")
    if as_json:
        emit_json("calibrations", folder=str(folder), differing=differing)
    else:
        emit(f"Wrote {folder}; {len(differing)} differ from the shipped ones.")


def _cell(curve: Curve) -> dict[str, object]:
    return {"collective": curve.collective, "gpus": curve.gpus, "domain_gpus": curve.domain_gpus}


def show(context: typer.Context, options: ShowOptions) -> None:
    """Print what a calibration holds, its samples, or how it differs from another."""
    from perfmodel.validate.points import run_of, samples_of, since_its_fit

    if options.compare is not None:
        if options.name is not None or options.samples:
            raise BadInputError(
                "--compare takes two calibrations and nothing else.", "perfmodel show --compare A B"
            )
        first, second = (load_calibration(calibration_of(item) or item) for item in options.compare)
        rows = report.comparison(first, second)
        if options.as_json:
            pairs = {"a": (first, second), "b": (second, first)}
            only = {name: [_cell(c) for c in report.only_in(*pair)] for name, pair in pairs.items()}
            emit_json("show", compare=list(options.compare), curves=rows, only=only)
        else:
            emit(report.comparison_text(first, second, rows))
        return
    if options.name is None:
        raise BadInputError("which calibration?", "perfmodel calibrations lists the shipped ones.")
    name = calibration_of(options.name) or options.name
    found = load_calibration(name)
    points = samples_of(found, name) if options.samples else None
    run = run_of(name)
    try:
        since = since_its_fit(found, run)
    except BadInputError as error:  # the calibration itself can still be shown
        warn(f"what was measured since it was fitted is not known: {error.message}")
        since = 0, 0
    if options.as_json:
        records = points.to_dict(orient="records") if points is not None else None
        more = dict(zip(("open_points", "samples_since"), since, strict=True))
        emit_json("show", calibration=found.model_dump(mode="json"), samples=records, **more)
        return
    text = [report.calibration_text(found, run=run, since=since)]
    if points is not None:
        text.append(report.samples_text(points))
    emit("\n\n".join(text))
