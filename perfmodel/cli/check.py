"""``perfmodel check``: logs compared with the band of similar clusters, and reasons for outliers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from calibrate.importers import ImportResult, check_given, import_logs
from calibrate.importers.logged_rows import OK, SINGLE_PROCESS
from calibrate.machine.identity import gpu_machine
from perfmodel.cli.chosen import calibration_file, calibration_of, machine_of
from perfmodel.cli.imports import doubt_gpu, unread_text
from perfmodel.cli.output import check_target, emit, emit_json, note, warn_all
from perfmodel.collectives.choose import choose_nearest
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.gates import find_gates
from perfmodel.errors import BadInputError, NoCalibrationError, OutsideBandError
from perfmodel.question.measured import CheckOptions
from perfmodel.report.check_text import check_text, outside_line, series_record
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.files import write_whole_text
from perfmodel.schema.machine import Machine, list_machines
from perfmodel.units import counted

if TYPE_CHECKING:
    from perfmodel.validate.checked import Series, WrongResults

_NETWORKS = {  # in the output of NCCL_DEBUG=INFO
    "efa": r"NET/OFI.*\befa\b",
    "slingshot": r"NET/OFI.*\bcxi\b",
    "roce": r"NET/IB.*/RoCE",
    "infiniband": r"NET/IB.*/IB\b",
}


def check(context: typer.Context, options: CheckOptions) -> None:
    """Compare benchmark logs with the band of similar clusters, and print which are abnormal, and why."""
    from perfmodel.validate.reasons import find_facts, find_reasons, find_settings

    check_given(options.op, options.clock, options.gpus, options.gpus_per_node)
    if options.gates is not None:
        check_target(options.gates, option="--gates")
    calibration = calibration_of(options.calibration)
    given = options.machine is not None or calibration is not None
    machine = machine_of(options.machine, None, calibration) if given else None
    curves, wrong, doubts = list["Series"](), list["WrongResults"](), list[str]()
    unjudged: dict[str, BadInputError | NoCalibrationError] = {}
    for path in options.logs:
        try:
            more, damaged, unsure = _judge(path, options, machine, calibration)
        except (BadInputError, NoCalibrationError) as error:
            if len(options.logs) == 1:
                raise
            unjudged[str(path)] = error
            doubts.append(f"{path}: no verdict. {error}")
            continue
        curves, wrong, doubts = curves + more, wrong + damaged, doubts + unsure
    warn_all(doubts)
    if options.gates is not None:
        groups = [(s.model, s.collective, s.gpus, s.gpus_per_node, s.payload_bytes) for s in curves]
        gates = [gate._asdict() for gate in find_gates(groups)]
        write_whole_text(options.gates, json.dumps({"gates": gates}, indent=1) + "\n", "gates")
    judged = [(series, find_reasons(series, curves)) for series in curves]
    facts, settings = find_facts(curves), find_settings(curves)
    if options.as_json:
        emit_json(
            "check",
            outside=sum(series.abnormal for series in curves),
            curves=[series_record(series, reasons) for series, reasons in judged],
            wrong_results=[results._asdict() for results in wrong],
            stated=[{"log": log, "name": rule.name} for log, rule in facts],
            settings=[{"log": log, "setting": name, "costs": cost} for log, name, cost in settings],
            no_verdict=[{"log": log} | error.to_dict() for log, error in unjudged.items()],
            warnings=doubts,
            calibration_file=calibration_file(calibration),
        )
    elif judged or wrong:
        emit(check_text(judged, wrong, facts, settings, len(unjudged)))
    if wrong or any(series.abnormal for series in curves):
        raise OutsideBandError(outside_line(curves, wrong))
    for first in unjudged.values():
        logs = f"no verdict on {counted(len(unjudged), 'log')}: {', '.join(unjudged)}."
        raise type(first)(logs, "the warnings say why, and what to do.")


def _judge(
    path: Path, options: CheckOptions, named: Machine | None, calibration: str | None
) -> tuple[list[Series], list[WrongResults], list[str]]:
    """(curves of a log beside their bands, wrong results, doubts). named  the machine, if one was given

    Limits: nothing in the log can be compared -> BadInputError; no band is known -> NoCalibrationError
    """
    from perfmodel.validate.checked import build_series, find_wrong_results

    result = import_logs(
        [path],
        library_version=options.library_version,
        op=options.op,
        gpus=options.gpus,
        clock=options.clock,
        gpus_per_node=options.gpus_per_node,
        overruled=True,
    )
    (backend, version, gpu, logged), machine = result.stack, named or _recognize(result)
    if calibration is None:
        try:
            nearest = choose_nearest(machine, Backend(backend), Clock(logged), version)
        except NoCalibrationError as error:
            raise NoCalibrationError(error.message, "give another --machine, or a --calibration.") from None
        model = CollectiveModel(machine, nearest)
    else:
        model = CollectiveModel.load(machine, load_calibration(calibration).backend, None, calibration)
    samples = result.samples.replace({"flag": {SINGLE_PROCESS: OK}})
    curves = build_series(samples, model, result.said, model.clock == logged)
    wrong = find_wrong_results(result.samples)
    if not curves and not wrong:
        raise BadInputError(
            f"nothing in {path} can be compared with a band.",
            "name logs of all_to_all, all_reduce, all_gather, reduce_scatter or broadcast.",
        )
    doubts = [*unread_text(result.unread), *result.warnings]
    doubts += doubt_gpu(gpu, machine, force=True)
    if model.clock != logged:
        clocks = f"the log was timed with the clock {logged}, and the band is of {model.clock}"
        doubts.append(f"{clocks}: sizes that are mostly latency are not judged")
    return curves, wrong, doubts


def _recognize(result: ImportResult) -> Machine:
    """The likeliest shipped machine with the log's GPU.

    Limits: no shipped machine has the GPU, or the log names no GPU -> BadInputError that asks for --machine
    """
    gpu = result.stack.gpu
    network = next((key for key, words in _NETWORKS.items() if re.search(words, result.said)), "")
    likely, also = gpu_machine([gpu], network) if gpu else ("", "")
    if likely not in list_machines():
        raise BadInputError(
            f"which machine should it be like? The log is of {gpu or 'a GPU that it does not name'}.",
            f"give --machine: {', '.join(list_machines())}; or a machine file of your own.",
        )
    note(f"machine: {likely}, by the GPU {gpu}{f'; {also}' if also else ''}")
    return machine_of(likely)
