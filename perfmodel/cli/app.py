"""All commands in one place. Nothing heavy is imported here: ``perfmodel --help`` must be quick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from perfmodel.cli.calibrate import calibrate
from perfmodel.cli.calibrations import calibrations, show
from perfmodel.cli.catalogue import machines, models
from perfmodel.cli.chips import chips
from perfmodel.cli.collective import collective
from perfmodel.cli.doctor import doctor
from perfmodel.cli.explain import explain
from perfmodel.cli.figure import figure
from perfmodel.cli.imports import import_
from perfmodel.cli.output import emit
from perfmodel.cli.plan import plan
from perfmodel.cli.project import project
from perfmodel.cli.report import report
from perfmodel.cli.simulate import simulate
from perfmodel.cli.sweep import sweep
from perfmodel.cli.validate import validate

HELP = """How much slower does an embedding bag get when its tables are spread over many GPUs, and why?

\b
Examples
  perfmodel project --table-size 10TB
  perfmodel collective --op all_to_all --size 1GiB --gpus 128
  perfmodel COMMAND --help

Exit codes: 0 ok, 2 bad input, 3 no calibration for it, 4 no such hardware or a rank was lost (run it
again), 5 too noisy (--strict), 6 outside a validation band, 130 stopped, 1 a bug (-v shows the
traceback). The answer goes to stdout, warnings and progress to stderr.
"""

app = typer.Typer(
    help=HELP,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from perfmodel import __version__

        emit(f"perfmodel {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the traceback of an error (anywhere on the line).")
    ] = False,
) -> None:
    """Options of the program itself; ``--verbose`` is taken out before, in ``perfmodel.cli.main``."""


COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "project": (project, "How much slower, and because of what?"),
    "collective": (collective, "What does a collective take, at any number of GPUs?"),
    "explain": (explain, "The equation of a step with your numbers in it, each with its source."),
    "sweep": (sweep, "A grid of configurations to CSV or Parquet."),
    "plan": (plan, "Which sharding for which table, and how far from the best there can be?"),
    "simulate": (simulate, "What one chip does, request by request, beside what is predicted."),
    "report": (report, "One HTML page to send to someone."),
    "figure": (figure, "One figure of a page: a picture, a page of it alone, or its numbers."),
    "validate": (validate, "How wrong is it, and what of the paper holds?"),
    "doctor": (doctor, "What can be measured on this machine, and what would be assumed?"),
    "calibrate": (calibrate, "What does this machine do? Measures it, and fits a calibration."),
    "import": (import_, "Calibrate from nccl-tests or NVSHMEM logs that you already have."),
    "show": (show, "What is in a calibration?"),
    "calibrations": (calibrations, "What is shipped, and how well does it predict?"),
    "machines": (machines, "The shipped machines, with sources."),
    "chips": (chips, "The shipped chips of many cores, with sources; where each way to look up wins."),
    "models": (models, "The shipped sets of embedding tables, with sources."),
}

for name, (command, summary) in COMMANDS.items():
    app.command(name, short_help=summary)(command)
