"""``perfmodel check``: logs compared with the band of similar clusters, and reasons for outliers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from calibrate.importers import ImportResult, check_given, import_logs
from calibrate.importers.logged_rows import OK, SINGLE_PROCESS
from calibrate.machine.identity import match_machine
from perfmodel.cli.imports import doubt_gpu, list_unread
from perfmodel.cli.output import CommandReply, check_target, note, warn_all
from perfmodel.cli.question import calibration_file, choose
from perfmodel.collectives.choose import choose_nearest
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.gates import find_gates
from perfmodel.errors import BadInputError, NoCalibrationError, OutsideBandError, PerfmodelError
from perfmodel.question.measured import CheckOptions
from perfmodel.report.check_text import check_text, name_outside, record_series
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.files import write_whole_text
from perfmodel.schema.machine import Machine, list_machines, load_machine
from perfmodel.units import counted

if TYPE_CHECKING:
    from perfmodel.validate.checked import Series, WrongResults

_NETWORKS = {  # in the output of NCCL_DEBUG=INFO
    "efa": r"NET/OFI.*\befa\b",
    "slingshot": r"NET/OFI.*\bcxi\b",
    "roce": r"NET/IB.*/RoCE",
    "infiniband": r"NET/IB.*/IB\b",
}


def check(context: typer.Context | None, options: CheckOptions) -> CommandReply:
    """Compare benchmark logs with the band of similar clusters: which are abnormal, and why."""
    from perfmodel.validate.reasons import find_facts, find_reasons, find_settings

    check_given(options.op, options.clock)
    if options.gates is not None:
        check_target(options.gates, option="--gates")
    machine = calibration = None
    if options.machine is not None or options.calibration is not None:
        machine, _, calibration = choose({"machine": options.machine, "calibration": options.calibration})[0]
    curves, wrong, doubts = list["Series"](), list["WrongResults"](), list[str]()
    unjudged: dict[str, BadInputError | NoCalibrationError] = {}
    for path in options.logs:
        try:
            judged, damaged, unsure = _judge(path, options, machine, calibration)
        except (BadInputError, NoCalibrationError) as error:
            if len(options.logs) == 1:
                raise
            unjudged[str(path)] = error
            doubts.append(f"{path}: no verdict. {error}")
            continue
        curves, wrong, doubts = curves + judged, wrong + damaged, doubts + unsure
    warn_all(doubts)
    if options.gates is not None:
        groups = [(s.model, s.collective, s.gpus, s.gpus_per_node, s.payload_bytes) for s in curves]
        gates = [gate._asdict() for gate in find_gates(groups)]
        write_whole_text(options.gates, json.dumps({"gates": gates}, indent=1) + "\n", "gates")
    explained = [(series, find_reasons(series, curves)) for series in curves]
    facts, settings = find_facts(curves), find_settings(curves)
    return CommandReply(
        lambda: {
            "outside": sum(series.abnormal for series in curves),
            "curves": [record_series(series, reasons) for series, reasons in explained],
            "wrong_results": [results._asdict() for results in wrong],
            "stated": [{"log": log, "name": rule.name} for log, rule in facts],
            "settings": [{"log": log, "setting": name, "costs": cost} for log, name, cost in settings],
            "no_verdict": [{"log": log} | error.to_dict() for log, error in unjudged.items()],
            "warnings": doubts,
            "calibration_file": calibration_file(calibration),
        },
        lambda: check_text(explained, wrong, facts, settings, len(unjudged)),
        error=_find_error(curves, wrong, unjudged),
    )


def _find_error(
    curves: list[Series],
    wrong: list[WrongResults],
    unjudged: dict[str, BadInputError | NoCalibrationError],
) -> PerfmodelError | None:
    """The error of the exit code: an abnormal curve or wrong results, else a log without a verdict."""
    if wrong or any(series.abnormal for series in curves):
        return OutsideBandError(name_outside(curves, wrong))
    for error in unjudged.values():
        logs = f"no verdict on {counted(len(unjudged), 'log')}: {', '.join(unjudged)}."
        return type(error)(logs, "the warnings say why, and what to do.")
    return None


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
    (backend, version, gpu, clock), machine = result.stack, named or _recognize(result)
    if calibration is None:
        try:
            nearest = choose_nearest(machine, Backend(backend), Clock(clock), version)
        except NoCalibrationError as error:
            raise NoCalibrationError(error.message, "give another --machine, or a --calibration.") from None
        model = CollectiveModel(machine, nearest)
    else:
        model = CollectiveModel.load(machine, load_calibration(calibration).backend, None, calibration)
    samples = result.samples.replace({"flag": {SINGLE_PROCESS: OK}})
    curves = build_series(samples, model, result.said, model.clock == clock)
    wrong = find_wrong_results(result.samples)
    if not curves and not wrong:
        raise BadInputError(
            f"nothing in {path} can be compared with a band.",
            "name logs of all_to_all, all_reduce, all_gather, reduce_scatter or broadcast.",
        )
    doubts = [*list_unread(result.unread), *result.warnings, *doubt_gpu(gpu, machine, force=True)]
    if model.clock != clock:
        clocks = f"the log was timed with the clock {clock}, and the band is of {model.clock}"
        doubts.append(f"{clocks}: sizes that are mostly latency are not judged")
    return curves, wrong, doubts


def _recognize(result: ImportResult) -> Machine:
    """The likeliest shipped machine with the log's GPU.

    Limits: no shipped machine has the GPU, or the log names no GPU -> BadInputError that asks for --machine
    """
    gpu = result.stack.gpu
    network = next((name for name, pattern in _NETWORKS.items() if re.search(pattern, result.said)), "")
    likely, remark = match_machine([gpu], network) if gpu else ("", "")
    if likely not in list_machines():
        raise BadInputError(
            f"which machine should it be like? The log is of {gpu or 'a GPU that it does not name'}.",
            f"give --machine: {', '.join(list_machines())}; or a machine file of your own.",
        )
    note(f"machine: {likely}, by the GPU {gpu}{f'; {remark}' if remark else ''}")
    return load_machine(likely)
