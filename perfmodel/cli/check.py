"""``perfmodel check``: logs compared with the band of similar clusters, and reasons for outliers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from calibrate.importers import ImportResult, check_given, import_logs
from calibrate.importers.logged_rows import OK, SINGLE_PROCESS
from calibrate.machine.identity import gpu_machine
from perfmodel.cli.chosen import calibration_file, calibration_of, machine_of
from perfmodel.cli.imports import doubt_gpu, unread_text
from perfmodel.cli.output import emit, emit_json, note, warn_all
from perfmodel.collectives.choose import nearest_calibration
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.gates import find_gates
from perfmodel.errors import BadInputError, NoCalibrationError, OutsideBandError
from perfmodel.question.measured import CheckOptions
from perfmodel.report.check_text import Unjudged, check_text, outside_line, series_record
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.machine import Machine, list_machines
from perfmodel.schema.whole_files import write_whole_text
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
    """Compare benchmark logs with the band of similar clusters, and print which are outside, and why."""
    from perfmodel.validate.reasons import find_facts, find_reasons, find_settings

    check_given(options.op, options.clock, options.gpus, options.gpus_per_node)
    calibration = calibration_of(options.calibration)
    given = options.machine is not None or calibration is not None
    machine = machine_of(options.machine, None, calibration) if given else None
    curves, wrong, doubts = list["Series"](), list["WrongResults"](), list[str]()
    unjudged: Unjudged = {}
    for path in options.logs:
        try:
            more, damaged, unsure = _judge(path, options, machine, calibration)
        except (BadInputError, NoCalibrationError) as error:
            if len(options.logs) == 1:
                raise
            unjudged[str(path)] = error
            continue
        curves, wrong, doubts = curves + more, wrong + damaged, doubts + unsure
    warn_all(doubts)
    if options.gates is not None:
        groups = [(s.model, s.collective, s.gpus, s.gpus_per_node, s.payload_bytes) for s in curves]
        gates = [gate._asdict() for gate in find_gates(groups)]
        write_whole_text(options.gates, json.dumps({"gates": gates}, indent=1) + "\n", "gates")
    curves = [replace(one, reasons=find_reasons(one, curves)) for one in curves]
    facts, outside = find_facts(curves), sum(bool(one.stretches) for one in curves)
    settings = find_settings(curves)
    if options.as_json:
        emit_json(
            "check",
            outside=outside,
            curves=[series_record(one) for one in curves],
            wrong_results=[results._asdict() for results in wrong],
            stated=[{"log": log, "name": rule.name} for log, rule in facts],
            settings=[{"log": log, "setting": name, "costs": cost} for log, name, cost in settings],
            no_verdict=[{"log": log} | error.to_dict() for log, error in unjudged.items()],
            warnings=doubts,
            calibration_file=calibration_file(calibration),
        )
    else:
        emit(check_text(curves, wrong, unjudged, facts, settings))
    if outside or wrong:
        raise OutsideBandError(outside_line(curves, wrong))
    for first in unjudged.values():
        logs = f"no verdict on {counted(len(unjudged), 'log')}: {', '.join(unjudged)}."
        raise type(first)(logs, "the answer says why, and what to do.")


def _judge(
    path: Path, options: CheckOptions, named: Machine | None, calibration: str | None
) -> tuple[list[Series], list[WrongResults], list[str]]:
    """(curves of a log beside their bands, wrong results, doubts). named  the machine, if one was given

    Limits: nothing in the log can be compared -> BadInputError; no band is known -> NoCalibrationError
    """
    from perfmodel.validate.checked import build_series, find_wrong_results

    result = import_logs(
        [path],
        library_version=options.version,
        op=options.op,
        gpus=options.gpus,
        clock=options.clock,
        gpus_per_node=options.gpus_per_node,
        overruled=True,
    )
    machine = named or _recognize(result)
    model, logged = _load_model(machine, calibration, result), result.stack.clock
    samples = result.samples.replace({"flag": {SINGLE_PROCESS: OK}})
    curves = build_series(samples, model, result.said, model.clock == logged)
    wrong = find_wrong_results(result.samples)
    if not curves and not wrong:
        raise BadInputError(
            f"nothing in {path} can be compared with a band.",
            "name logs of all_to_all, all_reduce, all_gather, reduce_scatter or broadcast.",
        )
    doubts = [*unread_text(result.unread), *result.warnings]
    doubts += doubt_gpu(result.stack.gpu, machine, force=True)
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


def _load_model(machine: Machine, calibration: str | None, result: ImportResult) -> CollectiveModel:
    """The model of the band: by the given calibration, else the shipped one nearest to the log's version."""
    if calibration is not None:
        return CollectiveModel.load(machine, load_calibration(calibration).backend, None, calibration)
    backend, version, _, clock = result.stack
    try:
        return CollectiveModel(machine, nearest_calibration(machine, Backend(backend), Clock(clock), version))
    except NoCalibrationError as error:
        hint = "give another --machine, or a --calibration of your own (perfmodel import LOG… --out FILE)."
        raise NoCalibrationError(error.message, hint) from None
