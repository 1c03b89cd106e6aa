"""``perfmodel collective``: the time of a collective on a machine."""

from __future__ import annotations

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
    collective_name,
    count_values,
    one_output,
    size_values,
    split_values,
)
from perfmodel.cli.output import emit, emit_json, note, warn
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.passes.settings import of_its_file
from perfmodel.question.passes import CollectiveOptions
from perfmodel.report.collective_text import collective_text
from perfmodel.report.projection_text import origin
from perfmodel.schema.evidence import COLLECTIVES, PER_PEER, RING_BACKENDS

if TYPE_CHECKING:
    import pandas as pd

    from perfmodel.schema.machine import Machine

_ALL = "all"
_NCCL_ALIGNMENT_BYTES = 16


def collective(context: typer.Context, options: CollectiveOptions) -> None:
    """Predict collectives, and print their times as a table, JSON or CSV."""
    one_output(json=options.as_json, csv=options.as_csv)
    calibration = calibration_of(options.calibration, options.backend, options.clock)
    chosen = machine_of(options.machine, options.settings, calibration)
    check_per_node(options.gpus_per_node, chosen)
    frame = questions(options.op, options.size, options.gpus, options.gpus_per_node or chosen.gpus_per_node)
    library = library_of(chosen, options.backend, calibration, best=False)
    check_alignment(frame, library)
    with advice(chosen, library, options.clock):
        model, answers, missing = _predict(
            frame, chosen, library, options.clock, calibration, split_values(options.op, "--op")
        )
    for text in of_its_file(chosen):
        warn(text)
    if missing:
        warn(f"{library} has no {', '.join(missing)} on {chosen.name}: left out")
    if (answers["gpus"] == 1).any():
        note("one GPU sends nothing: 0 s")
    if options.as_csv:
        emit(answers.to_csv(index=False))
    elif options.as_json:
        results = answers.to_dict(orient="records")
        single = {str(k): v for k, v in results[0].items()} if len(results) == 1 else {}
        emit_json(
            "collective",
            machine=chosen.name,
            overrides=sorted(chosen.overrides),
            backend=str(model.calibration.backend),
            calibration=model.calibration_id,
            calibration_file=calibration_file(calibration),
            missing=missing,
            **single,
            results=results,
        )
    else:
        shown = origin(model.calibration_id, calibration_file(calibration))
        emit(collective_text(answers, shown, chosen))


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


def check_alignment(frame: pd.DataFrame, library: str) -> None:
    """Raise BadInputError for sizes of less than 16 B per peer with NCCL or RCCL, 1 B with other libraries.

    Smaller messages would send nothing.
    """
    least = _NCCL_ALIGNMENT_BYTES if library in RING_BACKENDS else 1
    split = frame[frame["collective"].isin(PER_PEER) & (frame["gpus"] > 1)]
    short = split[split["payload_bytes"] < least * split["gpus"]]
    if len(short):
        worst = short.iloc[int((short["payload_bytes"] / short["gpus"]).to_numpy().argmin())]
        size, ranks, most = int(worst["payload_bytes"]), int(worst["gpus"]), int(split["gpus"].max())
        limit = f"{library.upper()}'s {least} B alignment" if library in RING_BACKENDS else "one byte"
        raise BadInputError(
            f"{size} B over {ranks} ranks is {size / ranks:.3g} B per peer, below {limit}: "
            "it would time an empty call.",
            f"the smallest size here is {least * most} B" + (f", for {most} ranks." if most > ranks else "."),
        )


def _predict(
    frame: pd.DataFrame,
    machine: Machine,
    library: str,
    clock: str | None,
    calibration: str | None,
    ops: list[str],
) -> tuple[CollectiveModel, pd.DataFrame, list[str]]:
    """The model, a row of times for each row of ``frame``, and collectives that the library does not have.

    ops  as typed: only with ``all`` may the library lack some
    """
    import pandas as pd

    model = CollectiveModel.load(machine, library, clock, calibration)
    parts, missing, first = [], [], None
    for name, rows in frame.groupby("collective", sort=False):
        try:
            parts.append(model.answers(rows))
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
    return model, answers, missing
