"""``perfmodel validate``: how wrong are you? Bands of the tool itself, or the claims of the paper."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli.options import JsonOption
from perfmodel.cli.output import emit, emit_json
from perfmodel.errors import OutsideBandError


def validate(
    paper: Annotated[
        bool, typer.Option("--paper", help="The claims of arXiv 2512.05831 instead of the tool's own bands.")
    ] = False,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Also fits without a part of the samples (about 15 s).")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """How wrong is the tool, and what of the paper holds? Exit code 6 when a band is left.

    A claim of the paper that does not hold, and is recorded as such, is a finding and no failure of the tool.

    \b
    Examples
      perfmodel validate
      perfmodel validate --held-out
      perfmodel validate --paper
    """
    from perfmodel.validate import validate as judge

    verdicts = judge(paper=paper, held_out=held_out)
    outside = [verdict.identifier for verdict in verdicts if verdict.regression]
    if as_json:
        emit_json("validate", paper=paper, verdicts=[vars(v) for v in verdicts], outside=outside)
    else:
        from perfmodel.report.validate import verdicts_text

        emit(verdicts_text(verdicts, paper=paper))
    if outside:
        several = len(outside) > 1
        if paper:
            what = (
                "verdicts are not those that are recorded" if several else "verdict is not the recorded one"
            )
        else:
            what = "bands are left" if several else "band is left"
        raise OutsideBandError(f"{len(outside)} {what}: {', '.join(outside)}.", "see the rows marked with !")
