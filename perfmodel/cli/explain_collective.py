"""``perfmodel explain collective``: how the time of one collective came about."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import typer

from perfmodel.cli.chosen import (
    advice,
    calibration_file,
    calibration_of,
    check_per_node,
    library_of,
    machine_of,
)
from perfmodel.cli.collective import check_alignment, questions
from perfmodel.cli.output import emit_cited, emit_json
from perfmodel.cli.typed_line import TypedLine
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.errors import BadInputError
from perfmodel.passes.one_collective import explain_collective
from perfmodel.report.explanation_text import collective_explanation_text
from perfmodel.report.projection_text import origin

COLLECTIVE = "collective"
_MEANT = (
    *("step", "op", "size", "gpus", "machine", "backend", "clock", "gpus_per_node", "calibration"),
    *("settings", "as_json"),
)
_EXAMPLE = "perfmodel explain collective --op all_to_all --size 1GiB --gpus 128"

OpOption = Annotated[
    str | None,
    typer.Option("--op", metavar="NAME", help="For explain collective: all_to_all, reduce_scatter …"),
]
SizeOption = Annotated[
    str | None,
    typer.Option(
        "--size", metavar="SIZE", help="For explain collective: bytes of one rank's buffer, e.g. 1GiB."
    ),
]


def is_collective(step: str) -> bool:
    """Whether what is explained is a collective, and not a step."""
    return step.strip().lower() == COLLECTIVE


def only_of(context: typer.Context, meant: Collection[str], what: str) -> None:
    """Limits: an option that was typed and is not meant -> BadInputError that names it

    what  is explained, with what makes it so
    """
    other = [words[0] for name, words in TypedLine.of(context).options if name not in meant]
    if other:
        raise BadInputError(f"{other[0]} says nothing about {what}.", f"leave {other[0]} out.")


def only_of_collective(step: str, op: str | None, size: str | None) -> None:
    """Limits: options of a collective where a step is explained -> BadInputError"""
    for option, value in (("--op", op), ("--size", size)):
        if value is not None:
            raise BadInputError(f"{option} applies to a collective, not to {step}.", f"e.g. {_EXAMPLE}")


def explain_one_collective(context: typer.Context) -> None:
    """The answer of ``perfmodel collective`` for one size, stage by stage.

    context  of ``perfmodel explain``, whose options it has
    Limits: no op, size or GPUs, several of them, an option of tables -> BadInputError that says so
    """
    only_of(context, _MEANT, "a collective")
    asked = context.params
    for option, name in (("--op", "op"), ("--size", "size"), ("--gpus", "gpus")):
        if asked[name] is None:
            raise BadInputError(f"a collective needs {option}.", f"e.g. {_EXAMPLE}")
    backend, clock, node = asked["backend"], asked["clock"], asked["gpus_per_node"]
    calibration = calibration_of(asked["calibration"], backend, clock)
    box = machine_of(asked["machine"], asked["settings"], calibration)
    check_per_node(node, box)
    frame = questions([asked["op"]], [asked["size"]], [asked["gpus"]], node or box.gpus_per_node)
    if len(frame) != 1:
        raise BadInputError(f"these are {len(frame)} collectives.", "explain one of them.")
    library = library_of(box, backend, calibration, best=False)
    check_alignment(frame, library)

    one = frame.iloc[0]
    with advice(box, library, clock):
        model = CollectiveModel.load(box, library, clock, calibration)
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
