"""``perfmodel check``: logs compared with the band of similar clusters, and reasons for outliers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from calibrate.importers.merge import check_given
from perfmodel.cli.imports import doubt_gpu, find_machine, list_unread, read_logs
from perfmodel.cli.output import CommandReply, check_target, note, warn_all
from perfmodel.cli.question import ChosenMachine, calibration_file, choose
from perfmodel.collectives.choose import choose_calibration
from perfmodel.collectives.estimate import CollectiveModel, find_gates
from perfmodel.errors import BadInputError, NoCalibrationError, OutsideBandError, PerfmodelError
from perfmodel.question.measured import CheckOptions
from perfmodel.report.check_text import check_text, name_outside, record_series
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.evidence import COLLECTIVES, Backend, Clock
from perfmodel.schema.files import write_whole

if TYPE_CHECKING:
    from perfmodel.validate.checked import Series


def check(context: typer.Context | None, options: CheckOptions) -> CommandReply:
    """Compare benchmark logs with the band of similar clusters: which are abnormal, and why."""
    from perfmodel.validate.reasons import find_facts, find_reasons

    check_given(options.op, options.clock)
    if options.gates is not None:
        check_target(options.gates, option="--gates")
    typed = {"machine": options.machine, "calibration": options.calibration}
    chosen = choose(typed)[0] if any(typed.values()) else None
    curves: list[Series] = []
    doubts: list[str] = []
    refused: dict[str, PerfmodelError] = {}
    for path in options.logs:
        try:
            judged, unsure = _judge(path, options, chosen)
        except (BadInputError, NoCalibrationError) as error:
            if len(options.logs) == 1:
                raise
            refused[str(path)] = error
            doubts.append(f"{path}: no verdict. {error}")
            continue
        curves += judged
        doubts += unsure
    warn_all(doubts)
    if options.gates is not None:
        groups = [(s.model, s.collective, s.gpus, s.gpus_per_node, s.payload_bytes) for s in curves]
        gates = [gate._asdict() for gate in find_gates(groups)]
        write_whole(options.gates, json.dumps({"gates": gates}, indent=1) + "\n", "gates")
        note(f"wrote {options.gates}")
    explained = [(series, find_reasons(series, curves)) for series in curves]
    facts = find_facts(curves)
    abnormal = sum(series.abnormal for series in curves)
    failure = OutsideBandError(name_outside(curves)) if abnormal else next(iter(refused.values()), None)
    return CommandReply(
        lambda: {
            "outside": abnormal,
            "curves": [record_series(series, reasons) for series, reasons in explained],
            "stated": [{"log": log, "name": name, "words": words} for log, name, words in facts],
            "no_verdict": [{"log": log} | error.to_dict() for log, error in refused.items()],
            "warnings": doubts,
            "calibration_file": calibration_file(chosen.calibration if chosen else None),
        },
        lambda: check_text(explained, facts) if curves else "",
        error=failure,
    )


def _judge(path: Path, options: CheckOptions, chosen: ChosenMachine | None) -> tuple[list[Series], list[str]]:
    """(curves of a log beside their bands, doubts). chosen  what was typed

    Limits: nothing in the log can be compared -> BadInputError; no band is known -> NoCalibrationError
    """
    from perfmodel.validate.checked import build_series

    result = read_logs([path], options, overruled=True)
    backend, version, gpu, clock = result.stack
    machine = chosen.machine if chosen else find_machine(result)
    if chosen and chosen.calibration:
        library = load_calibration(chosen.calibration).backend
        model = CollectiveModel.load(machine, library, None, chosen.calibration)
    else:
        model = CollectiveModel(machine, choose_calibration(machine, Backend(backend), Clock(clock), version))
    curves = build_series(result.samples, model, result.said, model.clock == clock)
    if not curves:
        lines = [f"nothing in {path} can be compared with a band.", *(f"  {x}" for x in result.warnings)]
        raise BadInputError("\n".join(lines), f"name logs of {', '.join(COLLECTIVES)}.")
    doubts = [*list_unread(result.unread), *result.warnings, *doubt_gpu(gpu, machine, force=True)]
    if model.clock != clock:
        clocks = f"the log was timed with the clock {clock}, and the band is of {model.clock}"
        doubts.append(f"{clocks}: sizes that are mostly latency are not judged")
    return curves, doubts
