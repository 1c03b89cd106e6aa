"""``perfmodel check``: logs compared with the band of similar clusters, and reasons for outliers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
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
from perfmodel.errors import BadInputError, NoCalibrationError, OutsideBandError, PerfmodelError
from perfmodel.question.measured import CheckOptions
from perfmodel.report.check_text import check_text, no_verdict_line, outside_line, series_record
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.machine import Machine, list_machines
from perfmodel.schema.whole_files import write_whole_text
from perfmodel.validate.reason_table import ReasonRule, load_reasons

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
    from perfmodel.validate.reasons import reasons_of

    check_given(options.op, options.clock, options.gpus, options.gpus_per_node)
    calibration = calibration_of(options.calibration)
    given = options.machine is not None or calibration is not None
    machine = machine_of(options.machine, None, calibration) if given else None
    found, wrong, doubts = list["Series"](), list["WrongResults"](), list[str]()
    unjudged: list[tuple[str, PerfmodelError]] = []
    for path in options.logs:
        try:
            curves, damaged, unsure = _judged(path, options, machine, calibration)
        except (BadInputError, NoCalibrationError) as error:
            if len(options.logs) == 1:
                raise
            unjudged.append((str(path), error))
            continue
        found, wrong, doubts = found + curves, wrong + damaged, doubts + unsure
    warn_all(doubts)
    if options.gates is not None:
        groups = [(s.model, s.collective, s.gpus, s.gpus_per_node, s.payload_bytes) for s in found]
        gates = [gate._asdict() for gate in find_gates(groups)]
        write_whole_text(options.gates, json.dumps({"gates": gates}, indent=1) + "\n", "gates")
    found = [replace(each, reasons=reasons_of(each, found)) for each in found]
    outside, facts = [each for each in found if each.stretches], stated_facts(found)
    logs = {each.log: each.said for each in found}
    settings = [(log, *setting) for log, said in logs.items() for setting in find_settings(said)]
    if options.as_json:
        emit_json(
            "check", outside=len(outside), curves=[series_record(each) for each in found],
            wrong_results=[each._asdict() for each in wrong],
            stated=[{"log": log, "name": rule.name} for log, rule in facts],
            settings=[{"log": log, "setting": name, "costs": cost} for log, name, cost in settings],
            no_verdict=[{"log": log} | error.to_dict() for log, error in unjudged],
            warnings=doubts, calibration_file=calibration_file(calibration),
        )  # fmt: skip
    else:
        emit(check_text(found, wrong, unjudged, facts, settings))
    if outside or wrong:
        raise OutsideBandError(outside_line(found, wrong))
    if unjudged:
        _, first = unjudged[0]
        raise type(first)(no_verdict_line(unjudged), "the answer says why, and what to do.")


def find_settings(said: str) -> list[tuple[str, str]]:
    """(variable of NCCL with its value, what it costs), of those that a log says were set."""
    costs = load_reasons().setting
    stated = re.findall(rf"({'|'.join(costs)}) set by environment to ([\w,:^+.-]+)", said)
    return [(f"{name}={value}", costs[name]) for name, value in dict.fromkeys(stated) if value != "0"]


def stated_facts(curves: Sequence[Series]) -> list[tuple[str, ReasonRule]]:
    """Each log of normal curves with a reason for slow collectives that its lines of NCCL state."""
    from perfmodel.validate.reasons import TESTS

    slow = {one.log for one in curves if one.stretches}
    facts = [
        (one.log, rule)
        for one in curves
        for rule in load_reasons().reason if one.log not in slow and re.search(rule.stated, one.said)
        if any(True for _ in TESTS[rule.test](one, rule.rate))
    ]  # fmt: skip
    return list(dict.fromkeys(facts))


def _judged(
    path: Path, options: CheckOptions, named: Machine | None, calibration: str | None
) -> tuple[list[Series], list[WrongResults], list[str]]:
    """(curves of a log beside their bands, wrong results, doubts). named  the machine, if one was given

    Limits: nothing in the log can be compared -> BadInputError; no band is known -> NoCalibrationError
    """
    from perfmodel.validate.checked import series_of, wrong_results

    result = import_logs(
        [path], library_version=options.version, op=options.op, gpus=options.gpus, clock=options.clock,
        gpus_per_node=options.gpus_per_node, overruled=True,
    )  # fmt: skip
    machine = named or _likeliest(result)
    model = _model(machine, calibration, result)
    same = model.clock == result.stack.clock
    judged = result.samples.replace({"flag": {SINGLE_PROCESS: OK}})
    curves = series_of(judged, model, result.said, same)
    wrong = wrong_results(result.samples)
    if not curves and not wrong:
        raise BadInputError(
            f"nothing in {path} can be compared with a band.",
            "name logs of all_to_all, all_reduce, all_gather, reduce_scatter or broadcast.",
        )
    doubts = [*unread_text(result.unread), *result.warnings]
    doubts += doubt_gpu(result.stack.gpu, machine, force=True)
    if not same:
        clocks = f"the log was timed with the clock {result.stack.clock}, and the band is of {model.clock}"
        doubts.append(f"{clocks}: sizes that are mostly latency are not judged")
    return curves, wrong, doubts


def _likeliest(result: ImportResult) -> Machine:
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


def _model(machine: Machine, calibration: str | None, result: ImportResult) -> CollectiveModel:
    """The model that gives the band: by the given calibration, else by a shipped one.

    Among shipped calibrations, the library version nearest to the log's counts.
    """
    if calibration is not None:
        return CollectiveModel.load(machine, load_calibration(calibration).backend, None, calibration)
    backend, version, _, clock = result.stack
    try:
        found = nearest_calibration(machine, Backend(backend), Clock(clock), version)
    except NoCalibrationError as error:
        hint = "give another --machine, or a --calibration of your own (perfmodel import LOG… --out FILE)."
        raise NoCalibrationError(error.message, hint) from None
    return CollectiveModel(machine, found)
