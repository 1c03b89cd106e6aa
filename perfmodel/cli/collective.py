"""``perfmodel collective``: the time of a collective on a machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import typer

from perfmodel.cli.chosen import (
    advice,
    calibration_file,
    calibration_of,
    check_per_node,
    library_of,
    machine_of,
)
from perfmodel.cli.options import (
    check_explained,
    collective_name,
    count_values,
    size_values,
    split_values,
)
from perfmodel.cli.output import emit, emit_explanation, emit_json, note, warn, warn_all
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.gates import find_gates
from perfmodel.engine.settings import BEST, load_setting
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.question.passes import CollectiveOptions
from perfmodel.report.collective_text import collective_text, gates_text
from perfmodel.report.projection_text import origin
from perfmodel.schema.evidence import COLLECTIVES, PER_PEER, RING_BACKENDS

if TYPE_CHECKING:
    import pandas as pd

    from perfmodel.schema.machine import Machine

_ALL = "all"
_NCCL_ALIGNMENT_BYTES = 16
_DECIMAL = re.compile(r"\d\s*[kKMGTP]B\b")  # a size that was typed in SI units


def collective(context: typer.Context, options: CollectiveOptions) -> None:
    """Predict collectives, and print their times as a table, JSON or CSV."""
    check_explained(options.explain, gates=options.gates)
    calibration = calibration_of(options.calibration, options.backend, options.clock)
    chosen = machine_of(options.machine, options.settings, calibration)
    check_per_node(options.gpus_per_node, chosen)
    frame = questions(options.op, options.size, options.gpus, options.gpus_per_node or chosen.gpus_per_node)
    library = library_of(chosen, options.backend, calibration)
    binary = not any(_DECIMAL.search(text) for text in options.size)
    with advice(chosen, library, options.clock):
        models, notes = models_of(chosen, library, options.clock, calibration)
        check_alignment(frame, models)
        if options.explain:
            _explain(frame, models, as_json=options.as_json)
            return
        if options.gates:
            rows = frame.itertuples(index=False, name=None)
            gates = find_gates((models[0], name, gpus, node, [size]) for name, size, gpus, node in rows)
            as_json = {"gates": [gate._asdict() for gate in gates]}
            emit_json("collective", **as_json) if options.as_json else emit(gates_text(gates, binary=binary))
            return
        answers, missing = _predict(frame, models, split_values(options.op, "--op"))
    calibrations = ", ".join(model.calibration_id for model in models)
    warn_all(notes)
    if missing:
        warn(f"{library} has no {', '.join(missing)} on {chosen.name}: left out")
    if (answers["gpus"] == 1).any():
        note("one GPU sends nothing: 0 s")
    if options.as_json:
        results = answers.to_dict(orient="records")
        single = {str(k): v for k, v in results[0].items()} if len(results) == 1 else {}
        emit_json(
            "collective",
            machine=chosen.name,
            overrides=sorted(chosen.overrides),
            backend=library,
            calibration=calibrations,
            calibration_file=calibration_file(calibration),
            missing=missing,
            **single,
            results=results,
        )
    else:
        where = origin(calibrations, calibration_file(calibration))
        emit(collective_text(answers, where, chosen, binary=binary))


def _explain(frame: pd.DataFrame, models: Sequence[CollectiveModel], *, as_json: bool) -> None:
    """Print how the time of a collective follows, by the faster model. Limits: several -> BadInputError"""
    from perfmodel.engine.explained import explain_collective

    if len(frame) != 1:
        raise BadInputError(f"these are {len(frame)} collectives.", "explain one of them.")
    answer = answers_of_faster(models, frame).iloc[0]
    library = answer.get("library", models[0].calibration.backend)
    model = next(model for model in models if model.calibration.backend == library)
    counts = int(answer["gpus"]), int(answer["gpus_per_node"])
    name, size = str(answer["collective"]), float(answer["payload_bytes"])
    emit_explanation("collective", explain_collective(model, name, size, *counts), as_json=as_json)


def questions(ops: list[str], sizes: list[str], gpus: list[str], per_node: int) -> pd.DataFrame:
    """A row for each combination of the requested collectives, numbers of GPUs and sizes.

    ops, sizes, gpus  as typed;  per_node  GPUs of a node that are used
    """
    import pandas as pd

    names = split_values(ops, "--op")
    wanted = list(COLLECTIVES) if names == [_ALL] else [collective_name(name) for name in names]
    rows = [
        (name, payload, ranks)
        for name in dict.fromkeys(wanted)
        for ranks in count_values(gpus, "--gpus")
        for payload in size_values(sizes)
    ]
    frame = pd.DataFrame(rows, columns=["collective", "payload_bytes", "gpus"])
    frame["gpus_per_node"] = frame["gpus"].clip(upper=per_node)
    return frame


def models_of(
    machine: Machine, library: str, clock: str | None, calibration: str | None
) -> tuple[tuple[CollectiveModel, ...], tuple[str, ...]]:
    """The models of a library, two of ``best``, as ``project`` compares them; and notes for the user."""
    if library != BEST:
        return (CollectiveModel.load(machine, library, clock, calibration),), ()
    setting = load_setting(machine, BEST, clock, calibration=calibration)
    libraries = setting.links.libraries.values()
    return tuple(times for times in libraries if isinstance(times, CollectiveModel)), setting.notes


def check_alignment(frame: pd.DataFrame, models: Sequence[CollectiveModel]) -> None:
    """Raise BadInputError for sizes of less than 16 B per peer with NCCL or RCCL, 1 B with other libraries.

    Smaller messages would send nothing.
    """
    rings = [each.calibration.backend for each in models if each.calibration.backend in RING_BACKENDS]
    least, library = (_NCCL_ALIGNMENT_BYTES, rings[0]) if rings else (1, "")
    split = frame[frame["collective"].isin(PER_PEER) & (frame["gpus"] > 1)]
    short = split[split["payload_bytes"] < least * split["gpus"]]
    if len(short):
        worst = short.iloc[int((short["payload_bytes"] / short["gpus"]).to_numpy().argmin())]
        size, ranks, most = int(worst["payload_bytes"]), int(worst["gpus"]), int(split["gpus"].max())
        limit = f"{library.upper()}'s {least} B alignment" if rings else "one byte"
        raise BadInputError(
            f"{size} B over {ranks} ranks is {size / ranks:.3g} B per peer, below {limit}: "
            "it would time an empty call.",
            f"the smallest size here is {least * most} B{f', for {most} ranks' if most > ranks else ''}. "
            "A number without a unit is bytes.",
        )


def _predict(
    frame: pd.DataFrame, models: Sequence[CollectiveModel], ops: list[str]
) -> tuple[pd.DataFrame, list[str]]:
    """A row of times for each row of ``frame``, and collectives that no library has.

    ops  as typed: only with ``all`` may the libraries lack some
    """
    import pandas as pd

    parts, missing, first = [], [], None
    for name, rows in frame.groupby("collective", sort=False):
        try:
            parts.append(answers_of_faster(models, rows))
        except NoCalibrationError as error:
            missing.append(str(name))
            first = first or error
    if first is not None and (ops != [_ALL] or not parts):
        raise first
    answers = pd.concat(parts, ignore_index=True)
    alone = answers["gpus"] == 1
    for column in ("algbw_bytes_per_s", "busbw_bytes_per_s"):
        answers.loc[alone, column] = np.nan
    answers["evidence"] = [
        None if one else found for one, found in zip(alone, answers["evidence"], strict=True)
    ]
    return answers, missing


def answers_of_faster(models: Sequence[CollectiveModel], rows: pd.DataFrame) -> pd.DataFrame:
    """The times of one collective by the model that is faster in each row; of several with its ``library``.

    Limits: equal times -> the first model;  one does not know the collective -> the other's;  no model knows
    it -> NoCalibrationError of the first
    """
    answers: list[pd.DataFrame] = []
    refused: list[NoCalibrationError] = []
    for model in models:
        try:
            answers.append(model.predict(rows).assign(library=str(model.calibration.backend)))
        except NoCalibrationError as error:
            refused.append(error)
    if not answers:
        raise refused[0]
    fastest = answers[0].where(answers[0]["time_s"] <= answers[-1]["time_s"], answers[-1])
    return fastest if len(models) > 1 else fastest.drop(columns="library")
