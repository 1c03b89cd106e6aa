"""``perfmodel validate``: errors of predictions, against measurements or published claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from perfmodel.cli.options import LEAVE_ONE, apart
from perfmodel.cli.output import emit, emit_json
from perfmodel.errors import BadInputError, OutsideBandError
from perfmodel.question.measured import ValidateOptions
from perfmodel.report.dlrm_text import dlrm_text
from perfmodel.report.own_run import own_run_text
from perfmodel.report.validation_text import verdicts_text
from perfmodel.schema.dense import ANY, load_rates
from perfmodel.schema.run_folders import run_folder
from perfmodel.validate import Verdict, dlrm, judged_steps
from perfmodel.validate import validate as judge
from perfmodel.validate.dlrm_inputs import load_inputs


def validate(context: typer.Context, options: ValidateOptions) -> None:
    """Compare predictions with measurements or published claims, and print the verdicts."""
    asked = {"paper": options.paper, "held_out": options.held_out}
    apart("--dlrm", options.dlrm, LEAVE_ONE, **asked, run=options.run)
    apart("--run", options.run, LEAVE_ONE, **asked)
    apart("--paper", options.paper, LEAVE_ONE, held_out=options.held_out)
    if options.dlrm:
        _whole_models(as_json=options.as_json)
        return
    if options.run is not None:
        _own_run(options.run, as_json=options.as_json)
        return
    verdicts = judge(paper=options.paper, held_out=options.held_out)
    if options.as_json:
        _emit_json(verdicts, paper=options.paper)
    else:
        emit(verdicts_text(verdicts, paper=options.paper))
    if options.paper:
        _end(verdicts, "verdict is not the recorded one", "verdicts are not those that are recorded")
    else:
        _end(verdicts, "band is left", "bands are left")


def _emit_json(verdicts: Sequence[Verdict], **more: Any) -> None:
    emit_json(
        "validate", **more, verdicts=[vars(verdict) for verdict in verdicts], outside=_outside(verdicts)
    )


def _outside(verdicts: Sequence[Verdict]) -> list[str]:
    return [verdict.identifier for verdict in verdicts if verdict.regression]


def _end(verdicts: Sequence[Verdict], one: str, several: str) -> None:
    """Raise the error of exit code 6 if a verdict is worse than the recorded one, or outside its band.

    one, several  the message's words for one bad verdict, and for several
    """
    outside = _outside(verdicts)
    if outside:
        what = several if len(outside) > 1 else one
        raise OutsideBandError(f"{len(outside)} {what}: {', '.join(outside)}.", "see the rows marked with !")


def _whole_models(*, as_json: bool) -> None:
    inputs = load_inputs()
    efficiency = {each.generation: each.products for each in load_rates().share if each.generation != ANY}
    frames = dlrm.mlperf_frame(), dlrm.unseen_frame(), dlrm.share_frame(), dlrm.speedup_frame()
    rows, unseen, shares, speedups = (
        [{str(k): v for k, v in row.items()} for row in f.to_dict("records")] for f in frames
    )
    verdicts = judged_steps()
    if as_json:
        _emit_json(
            verdicts,
            dense_efficiency=efficiency,
            assumed={"mlperf": inputs.mlperf.why, "embark": inputs.embark.why},
            rows=rows,
            rows_left_out=unseen,
            left_out=dlrm.left_out(),
            shares=shares,
            speedups=speedups,
        )
    else:
        emit(dlrm_text(efficiency, rows, unseen, dlrm.left_out(), shares, speedups, verdicts))
    _end(verdicts, "verdict is not the recorded one", "verdicts are not those recorded")


def _own_run(text: str, *, as_json: bool) -> None:
    from perfmodel.validate.own import compare_run, judge_run, step_errors

    folder = run_folder(text)
    if folder is None:
        raise BadInputError(f"--run {text} is not a folder.", "give the folder of a run, or latest.")
    passes = compare_run(folder)
    steps, verdicts = step_errors(passes), judge_run(passes)
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
