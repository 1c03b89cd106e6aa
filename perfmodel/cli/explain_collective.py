"""``perfmodel explain collective``: how the time of one collective was computed."""

from __future__ import annotations

import typer

from perfmodel.cli.chosen import (
    advice,
    calibration_file,
    calibration_of,
    check_per_node,
    library_of,
    machine_of,
)
from perfmodel.cli.collective import answers_of_faster, check_alignment, models_of, questions
from perfmodel.cli.output import emit_cited, emit_json
from perfmodel.errors import BadInputError
from perfmodel.passes.one_collective import explain_collective
from perfmodel.report.explanation_text import collective_explanation_text
from perfmodel.report.projection_text import origin


def explain_one_collective(context: typer.Context) -> None:
    """Print how the time of a collective is computed, stage by stage.

    context  holds the options of ``collective``
    Limits: several collectives, sizes or numbers of GPUs -> BadInputError
    """
    asked = context.params
    backend, clock, node = asked["backend"], asked["clock"], asked["gpus_per_node"]
    calibration = calibration_of(asked["calibration"], backend, clock)
    box = machine_of(asked["machine"], asked["settings"], calibration)
    check_per_node(node, box)
    frame = questions(list(asked["op"]), list(asked["size"]), list(asked["gpus"]), node or box.gpus_per_node)
    if len(frame) != 1:
        raise BadInputError(f"these are {len(frame)} collectives.", "explain one of them.")
    library = library_of(box, backend, calibration)

    one = frame.iloc[0]
    with advice(box, library, clock):
        models, _ = models_of(box, library, clock, calibration)
        check_alignment(frame, models)
        model = models[0]
        if len(models) > 1:
            named = str(answers_of_faster(models, frame)["library"].iloc[0])
            model = next(each for each in models if each.calibration.backend == named)
        found = explain_collective(
            model,
            str(one["collective"]),
            float(one["payload_bytes"]),
            int(one["gpus"]),
            int(one["gpus_per_node"]),
        )
    file = calibration_file(calibration)
    if asked["as_json"]:
        emit_json("explain", **found.to_dict(), calibration_file=file)
        return

    emit_cited(collective_explanation_text(found, origin(model.calibration_id, file)))
