"""``perfmodel validate``: errors of predictions, against measurements or published claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from perfmodel.cli.options import LEAVE_ONE, apart
from perfmodel.cli.output import emit, emit_json
from perfmodel.errors import BadInputError, OutsideBandError
from perfmodel.question.measured import ValidateOptions
from perfmodel.report.own_run import own_run_text
from perfmodel.report.validation_text import verdicts_text
from perfmodel.schema.run_files import run_folder
from perfmodel.validate import Verdict
from perfmodel.validate import validate as judge


def validate(context: typer.Context, options: ValidateOptions) -> None:
    """Compare predictions with measurements or published claims, and print the verdicts."""
    apart("--run", options.run, LEAVE_ONE, paper=options.paper, held_out=options.held_out)
    apart("--paper", options.paper, LEAVE_ONE, held_out=options.held_out)
    if options.run is not None:
        _own_run(options.run, as_json=options.as_json)
        return
    verdicts = judge(paper=options.paper, held_out=options.held_out)
    if options.as_json:
        _emit_json(verdicts, paper=options.paper)
    else:
        emit(verdicts_text(verdicts, "claims of papers" if options.paper else "bands"))
    outside = _outside(verdicts)
    if outside:
        what = "bands are left" if len(outside) > 1 else "band is left"
        raise OutsideBandError(f"{len(outside)} {what}: {', '.join(outside)}.", "see the rows marked with !")


def _emit_json(verdicts: Sequence[Verdict], **more: Any) -> None:
    emit_json(
        "validate", **more, verdicts=[vars(verdict) for verdict in verdicts], outside=_outside(verdicts)
    )


def _outside(verdicts: Sequence[Verdict]) -> list[str]:
    return [verdict.identifier for verdict in verdicts if verdict.regression]


def _own_run(text: str, *, as_json: bool) -> None:
    from perfmodel.validate.own import compare_run, compare_steps, judge_run

    folder = run_folder(text)
    if folder is None:
        raise BadInputError(f"--run {text} is not a folder.", "give the folder of a run, or latest.")
    passes = compare_run(folder)
    steps, verdicts = compare_steps(passes), judge_run(passes)
    if as_json:
        _emit_json(
            verdicts,
            run=str(folder),
            passes=passes.drop(columns="key").to_dict(orient="records"),
            steps=steps.to_dict(orient="records"),
        )
    else:
        emit(own_run_text(passes, steps, verdicts))
    outside = _outside(verdicts)
    if outside:
        raise OutsideBandError(f"outside: {', '.join(outside)}.", "see the rows marked with !")
