"""``perfmodel show``, ``calibrations``, ``import``: what is in a calibration, and one made from logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.options import ClockOption, ForceOption, JsonOption
from perfmodel.cli.output import check_folder, check_target, emit, emit_json, note, warn
from perfmodel.errors import BadInputError

if TYPE_CHECKING:
    import pandas as pd

    from calibrate.importers import ImportResult, UnreadLine
    from perfmodel.schema.calibration import Calibration
    from perfmodel.schema.evidence import Backend
    from perfmodel.schema.machine import Machine

_SHOWN_UNREAD = 5
_SAMPLES_SUFFIX = ".samples.csv"


def calibrations(
    machine: Annotated[
        str | None, typer.Option("--machine", metavar="NAME", help="Only those of this machine.")
    ] = None,
    rebuild: Annotated[
        Path | None,
        typer.Option("--rebuild", metavar="FOLDER", help="Fit all of them again from the shipped samples."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """The shipped calibrations: machine, library, version, clock, and its error on points left out.

    --rebuild writes them anew, byte for byte those that are shipped (about half a minute).

    \b
    Examples
      perfmodel calibrations
      perfmodel calibrations --machine h200-sxm-ib
      perfmodel calibrations --rebuild rebuilt
    """
    if rebuild is not None:
        _rebuild(rebuild, as_json)
        return
    from perfmodel.report.calibration import calibration_record, calibrations_text
    from perfmodel.schema.calibration import list_calibrations, shipped_calibration
    from perfmodel.schema.machine import load_machine

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
    from perfmodel.schema.calibration import list_calibrations, shipped_calibration

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


def show(
    name: Annotated[
        str | None, typer.Argument(help="A calibration file, or the id of a shipped one.")
    ] = None,
    samples: Annotated[bool, typer.Option("--samples", help="The measured points behind it.")] = False,
    check: Annotated[bool, typer.Option("--check", help="What to doubt in it.")] = False,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option("--compare", metavar="A B", help="Two calibrations side by side."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What is in a calibration: every fitted curve as a formula, with intervals and leave-one-out errors.

    \b
    Examples
      perfmodel show h100-sxm-ib/nccl-2.29.2-stream
      perfmodel show h100-sxm-ib/nccl-2.29.2-stream --samples
      perfmodel show mine.json --check
      perfmodel show --compare h100-sxm-ib/nccl-2.27.3-stream h100-sxm-ib/nccl-2.29.2-stream
    """
    from perfmodel.report import calibration as report
    from perfmodel.schema.calibration import load_calibration

    if compare is not None:
        if name is not None or samples or check:
            raise BadInputError("--compare takes two calibrations and nothing else.", "show --compare A B")
        first, second = (load_calibration(item) for item in compare)
        rows = report.comparison(first, second)
        if as_json:
            emit_json("show", compare=list(compare), curves=rows)
        else:
            emit(report.comparison_text(first, second, rows))
        return
    if name is None:
        raise BadInputError("which calibration?", "perfmodel calibrations lists the shipped ones.")
    found = load_calibration(name)
    points = _samples_of(found, name) if samples else None
    doubts = report.doubts(found) if check else None
    if as_json:
        records = points.to_dict(orient="records") if points is not None else None
        emit_json("show", calibration=found.model_dump(mode="json"), samples=records, doubts=doubts)
        return
    text = [report.calibration_text(found)]
    if points is not None:
        text.append(report.samples_text(points))
    if doubts is not None:
        text.append(report.doubts_text(doubts))
    emit("\n\n".join(text))


def _samples_of(calibration: Calibration, name: str) -> pd.DataFrame:
    """The points that a calibration was fitted from: beside its file, or among the shipped ones."""
    from perfmodel.schema.samples import load_samples

    beside = Path(name).with_name(Path(name).name.removesuffix(".json") + _SAMPLES_SUFFIX)
    if name.endswith(".json") and beside.is_file():
        return load_samples(beside)
    frame = load_samples(backend=str(calibration.backend))
    sources = {source for curve in calibration.curves for source in curve.sources}
    sources |= {source for law in calibration.laws for source in law.sources}
    chosen = frame[frame["source_id"].isin(sources) & (frame["clock"] == str(calibration.clock))]
    if chosen.empty:
        raise BadInputError(f"the samples of {name} are not here.", f"expected them in {beside}")
    return chosen.reset_index(drop=True)


def import_(
    logs: Annotated[
        list[Path], typer.Argument(help="Logs: nccl-tests text or -J JSON, NVSHMEM perftest, CSV.")
    ],
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine", metavar="NAME", help="The machine they were taken on (default: by its GPU)."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Calibration to write (.json).")
    ] = None,
    op: Annotated[
        str | None, typer.Option("--op", metavar="NAME", help="The collective, when a log does not name it.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", help="Ranks, when a log does not list them.")
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option("--gpus-per-node", metavar="N", help="GPUs in each node, when a log does not say."),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(
            "--library-version", metavar="VERSION", help="Version of the library, when a log does not say."
        ),
    ] = None,
    clock: ClockOption = None,
    stack: Annotated[
        str | None,
        typer.Option("--stack", metavar="WORDS", help='Which of several stacks to take, e.g. "nccl 2.29.2".'),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Calibrate from logs that people already have. Every line that cannot be used is reported.

    Writes the calibration, and the samples beside it (FILE.samples.csv), only with --out.

    \b
    Examples
      perfmodel import all_gather.log reduce_scatter.log --machine h100-sxm-ib --out mine.json
      perfmodel import alltoall.json --machine h200-sxm-ib --gpus-per-node 8
      perfmodel project --table-size 10TB --calibration mine.json
    """
    if out is not None:
        if out.suffix != ".json":
            raise BadInputError(f"--out {out}: a calibration is a .json file.", f"--out {out}.json")
        check_target(out, force=force)
    from calibrate.importers import import_logs

    result = import_logs(
        logs, gpus_per_node=gpus_per_node, op=op, clock=clock, gpus=gpus, library_version=version, stack=stack
    )
    box = _machine_for(machine, result)
    result.samples["machine"] = box.name
    for line in [*unread_text(result.unread), *result.warnings]:
        warn(line)
    calibration = _fit(result, box)
    if out is not None:
        _write(calibration, result, out)
    _deliver(calibration, result, as_json=as_json)
    if out is not None:
        note(f"wrote {out} and {_samples_path(out)}")
        note(f"next: perfmodel project --table-size 10TB --machine {box.name} --calibration {out}")


def _machine_for(name: str | None, result: ImportResult) -> Machine:
    """The machine that was named, or the only shipped one with this GPU."""
    from perfmodel.schema.machine import list_machines, load_machine

    if name is not None:
        return load_machine(name)
    gpu = result.stack[0].gpu.lower().replace(" ", "-")
    fitting = [item for item in list_machines() if gpu and item.split("-")[0] in gpu.split("-")]
    if len(fitting) == 1:
        note(f"machine: {fitting[0]} (the only shipped one with a {result.stack[0].gpu})")
        return load_machine(fitting[0])
    names = ", ".join(fitting or list_machines())
    raise BadInputError(
        f"which machine? the logs are of {result.stack[0].gpu or 'an unnamed GPU'}.",
        f"give --machine: {names}",
    )


def unread_text(unread: list[UnreadLine]) -> list[str]:
    """Warnings about lines that were not used, those with one reason together."""
    groups: dict[str, list[UnreadLine]] = {}
    for line in unread:
        groups.setdefault(line.reason, []).append(line)
    texts = []
    for reason, lines in groups.items():
        places = ", ".join(line.place for line in lines[:_SHOWN_UNREAD])
        more = f" and {len(lines) - _SHOWN_UNREAD} more" if len(lines) > _SHOWN_UNREAD else ""
        count = f"{len(lines)} line{'s' if len(lines) > 1 else ''} not used"
        texts.append(f"{count}: {reason}\n{places}{more}\n{lines[0].text}")
    return texts


def _fit(result: ImportResult, machine: Machine) -> Calibration:
    from perfmodel.fit.build import Identity, fit_calibration
    from perfmodel.schema.evidence import Backend, Clock

    stack, points = result.stack[0], _one_variant(result.samples)
    checked = not (points["note"].str.contains("not checked") & ~points["in_place"]).any()
    sources = ", ".join(sorted(set(points["source_id"])))
    identity = Identity(
        machine.name, Backend(stack.backend), stack.library_version, Clock(stack.clock), checked=checked,
        note=f"imported from {sources}",
    )  # fmt: skip
    return fit_calibration(points, machine, identity, like=_shipped_like(machine, identity.backend))


def _shipped_like(machine: Machine, backend: Backend) -> Calibration | None:
    """What is shipped for this machine and library: where the laws start."""
    from perfmodel.errors import NoCalibrationError
    from perfmodel.prediction.choose import choose_calibration
    from perfmodel.schema.machine import list_machines

    if machine.name not in list_machines():
        return None
    try:
        found, borrowed = choose_calibration(machine, backend, None)
    except NoCalibrationError:
        return None
    return None if borrowed else found


def _one_variant(points: pd.DataFrame) -> pd.DataFrame:
    """Samples of the variant with the largest message: thread- and warp-wide kernels stop at small ones."""
    if points["variant"].nunique() == 1:
        return points
    reach = points.groupby("variant")["payload_bytes"].max().sort_index()
    chosen = str(reach.idxmax())
    left = ", ".join(name for name in reach.index if name != chosen)
    warn(f"curves are of {chosen}, which reaches the largest messages; kept as samples only: {left}")
    return points[points["variant"] == chosen]


def _samples_path(out: Path) -> Path:
    return out.with_name(out.name.removesuffix(".json") + _SAMPLES_SUFFIX)


def _write(calibration: Calibration, result: ImportResult, out: Path) -> None:
    from perfmodel.schema.calibration import save_calibration
    from perfmodel.schema.samples import write_samples

    write_samples(result.samples.drop_duplicates(), _samples_path(out))
    save_calibration(calibration, out)


def _deliver(calibration: Calibration, result: ImportResult, *, as_json: bool) -> None:
    if as_json:
        unread: list[dict[str, Any]] = [line._asdict() for line in result.unread]
        emit_json(
            "import",
            calibration=calibration.model_dump(mode="json"),
            samples=len(result.samples),
            unread=unread,
            warnings=result.warnings,
        )
        return
    from perfmodel.report.calibration import calibration_text

    emit(f"{len(result.samples)} samples of {result.stack[0]}\n\n" + calibration_text(calibration))
