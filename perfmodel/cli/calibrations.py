"""``perfmodel show`` and ``calibrations``: what is in a calibration, and which are shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.chosen import calibration_of
from perfmodel.cli.options import JsonOption
from perfmodel.cli.output import check_folder, emit, emit_json, note
from perfmodel.errors import BadInputError
from perfmodel.report import calibration_text as report
from perfmodel.report.calibration_text import calibration_record, calibrations_text
from perfmodel.report.doubts import doubts as doubts_of
from perfmodel.report.doubts import doubts_text
from perfmodel.schema.calibration import Curve, list_calibrations, load_calibration, shipped_calibration
from perfmodel.schema.machine import load_machine


def calibrations(
    machine: Annotated[
        str | None, typer.Option("--machine", metavar="NAME", help="Show only those of this machine.")
    ] = None,
    rebuild: Annotated[
        Path | None,
        typer.Option("--rebuild", metavar="FOLDER", help="Fit all of them again from the shipped samples."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """The shipped calibrations: machine, library, version, clock, and its error on points left out.

    --rebuild fits them again, which takes about half a minute; the files are equal byte for byte.

    \b
    Examples
      perfmodel calibrations
      perfmodel calibrations --machine h200-sxm-ib
      perfmodel calibrations --rebuild rebuilt
    """
    if rebuild is not None:
        _rebuild(rebuild, as_json)
        return

    if machine is not None:
        load_machine(machine)
    found = [shipped_calibration(name) for name in list_calibrations(machine)]
    if as_json:
        emit_json("calibrations", calibrations=[calibration_record(item) for item in found])
    else:
        emit(calibrations_text(found))


def _rebuild(folder: Path, as_json: bool) -> None:
    """Write every shipped calibration below ``folder`` and say which differ from what is shipped."""
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


def show(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A calibration file, the id of a shipped calibration, or latest (your newest run)."
        ),
    ] = None,
    samples: Annotated[bool, typer.Option("--samples", help="Show the measured points behind it.")] = False,
    check: Annotated[bool, typer.Option("--check", help="What is doubtful in it.")] = False,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option("--compare", metavar="A B", help="Show two calibrations side by side."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What is in a calibration: every fitted curve as a formula, with intervals and leave-one-out errors.

    \b
    Examples
      perfmodel show h100-sxm-ib/nccl-2.29.2-stream
      perfmodel show h100-sxm-ib/nccl-2.29.2-stream --samples
      perfmodel show latest --check
      perfmodel show --compare h100-sxm-ib/nccl-2.27.3-stream h100-sxm-ib/nccl-2.29.2-stream
    """
    from perfmodel.validate.points import run_of, samples_of

    if compare is not None:
        if name is not None or samples or check:
            raise BadInputError(
                "--compare takes two calibrations and nothing else.", "perfmodel show --compare A B"
            )
        first, second = (load_calibration(calibration_of(item) or item) for item in compare)
        rows = report.comparison(first, second)
        if as_json:
            pairs = {"a": (first, second), "b": (second, first)}
            only = {name: [_cell(c) for c in report.only_in(*pair)] for name, pair in pairs.items()}
            emit_json("show", compare=list(compare), curves=rows, only=only)
        else:
            emit(report.comparison_text(first, second, rows))
        return
    if name is None:
        raise BadInputError("which calibration?", "perfmodel calibrations lists the shipped ones.")
    name = calibration_of(name) or name
    found = load_calibration(name)
    points = samples_of(found, name) if samples else None
    doubts = doubts_of(found) if check else None
    if as_json:
        records = points.to_dict(orient="records") if points is not None else None
        emit_json("show", calibration=found.model_dump(mode="json"), samples=records, doubts=doubts)
        return
    text = [doubts_text(doubts)] if doubts is not None else []
    text.append(report.calibration_text(found, run=run_of(name)))
    if points is not None:
        text.append(report.samples_text(points))
    emit("\n\n".join(text))
