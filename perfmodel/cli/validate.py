"""``perfmodel validate``: errors of predictions, against measurements or published claims."""

from __future__ import annotations

import typer

from perfmodel.cli.options import LEAVE_ONE, apart
from perfmodel.cli.output import CommandReply
from perfmodel.errors import BadInputError, OutsideBandError
from perfmodel.question.measured import ValidateOptions
from perfmodel.report.validation_text import own_run_text, verdicts_text
from perfmodel.schema.run_files import run_folder
from perfmodel.units import counted
from perfmodel.validate import validate as judge


def validate(context: typer.Context, options: ValidateOptions) -> CommandReply:
    """Compare predictions with measurements or published claims."""
    apart("--run", options.run, LEAVE_ONE, paper=options.paper, held_out=options.held_out)
    apart("--paper", options.paper, LEAVE_ONE, held_out=options.held_out)
    record: dict[str, object] = {"paper": options.paper}
    if options.run is not None:
        from perfmodel.validate.own import compare_run, compare_steps, judge_run

        folder = run_folder(options.run)
        if folder is None:
            raise BadInputError(f"--run {options.run} is not a folder.", "give that of a run, or latest.")
        passes = compare_run(folder)
        steps = compare_steps(passes)
        verdicts = judge_run(passes)
        record = {"run": str(folder), "passes": passes.drop(columns="key").to_dict(orient="records")}
        record |= {"steps": steps.to_dict(orient="records")}
        text = own_run_text(passes, steps, verdicts)
    else:
        verdicts = judge(paper=options.paper, held_out=options.held_out)
        text = verdicts_text(verdicts, "claims of papers" if options.paper else "bands")
    outside = [verdict.identifier for verdict in verdicts if verdict.regression]
    words = f"{counted(len(outside), 'band')} left: {', '.join(outside)}."
    return CommandReply(
        lambda: record | {"verdicts": [vars(verdict) for verdict in verdicts], "outside": outside},
        lambda: text,
        error=OutsideBandError(words, "see the rows marked with !") if outside else None,
    )
