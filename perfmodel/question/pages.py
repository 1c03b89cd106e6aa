"""Options of the commands whose answer is a page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from perfmodel.question import groups
from perfmodel.question.groups import QuestionOptions
from perfmodel.question.spec import CommandOptions, Opt
from perfmodel.units import parse_count


@dataclass(frozen=True, kw_only=True)
class ReportOptions(QuestionOptions):
    """One HTML page that opens from disk with no network: the answer, its figures, their data and sources.

    \b
    Examples
      perfmodel report
      perfmodel report --table-size 20TB --batch 4096 --machine h200-sxm-ib --out h200.html
      perfmodel report --calibration latest --gpus 8
      perfmodel report --model mlperf-dlrm-dcnv2 --gpus 64
      perfmodel report --paper --out paper.html
    """

    paper: Annotated[
        bool, Opt("Only the figures of arXiv 2512.05831, with what it says and whether it holds.")
    ] = False
    out: Annotated[Path | None, Opt("Page to write, .html (default: report.html).", "FILE")] = None


@dataclass(frozen=True, kw_only=True)
class ExploreOptions(CommandOptions):
    """Ask in your browser: sliders for the tables and the machine, and the answer beside them.

    The page is served on this machine alone, and needs no network. Only who knows the secret in the printed
    address can open it. The address then holds the question: a copied link asks it again.

    \b
    Examples
      perfmodel explore
      perfmodel explore --model mlperf-dlrm-dcnv2 --machine h200-sxm-ib
      perfmodel explore --model tables.csv --port 8051 --no-browser
    """

    model: groups.Model = None
    machine: groups.Machine = None
    port: Annotated[
        int,
        Opt("Port to listen on; 0: any that is free.", "N", read=partial(parse_count, allow_zero=True),
            maximum=65535),
    ] = 8050  # fmt: skip
    browser: Annotated[bool, Opt("Open the page in your browser.", flag="--browser/--no-browser")] = True
