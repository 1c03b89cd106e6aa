"""All commands in one place: where each is, and its line of help. It is loaded when it is asked for."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from perfmodel.cli.lazy import Command, Group, LazyGroup
from perfmodel.cli.output import emit

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


def _print_version(wanted: bool) -> None:
    if wanted:
        from perfmodel import __version__

        emit(f"perfmodel {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the traceback of an error (anywhere on the line).")
    ] = False,
) -> None:
    """Options of the program itself; ``--verbose`` is taken out before, in ``perfmodel.cli.main``."""


COMMANDS: dict[str, Command | Group] = {
    "project": Command("perfmodel.cli.project:project", "How much slower, and because of what?"),
    "collective": Command(
        "perfmodel.cli.collective:collective", "What does a collective take, at any number of GPUs?"
    ),
    "explain": Command(
        "perfmodel.cli.explain:explain",
        "The equation of a step with your numbers in it, each with its source.",
    ),
    "sweep": Command("perfmodel.cli.sweep:sweep", "A grid of configurations to CSV or Parquet."),
    "plan": Command(
        "perfmodel.cli.plan:plan", "Which sharding for which table, and how far from the best there can be?"
    ),
    "simulate": Command(
        "perfmodel.cli.simulate:simulate", "What one chip does, request by request, beside what is predicted."
    ),
    "report": Command("perfmodel.cli.report:report", "One HTML page to send to someone."),
    "figure": Command(
        "perfmodel.cli.figure:figure", "One figure of a page: a picture, a page of it alone, or its numbers."
    ),
    "validate": Command("perfmodel.cli.validate:validate", "How wrong is it, and what of the paper holds?"),
    "doctor": Command(
        "perfmodel.cli.doctor:doctor", "What can be measured on this machine, and what would be assumed?"
    ),
    "calibrate": Command(
        "perfmodel.cli.calibrate:calibrate", "What does this machine do? Measures it, and fits a calibration."
    ),
    "import": Command(
        "perfmodel.cli.imports:import_", "Calibrate from nccl-tests or NVSHMEM logs that you already have."
    ),
    "show": Command("perfmodel.cli.calibrations:show", "What is in a calibration?"),
    "calibrations": Command(
        "perfmodel.cli.calibrations:calibrations", "What is shipped, and how well does it predict?"
    ),
    "machines": Command("perfmodel.cli.catalogue:machines", "The shipped machines, with sources."),
    "chips": Command(
        "perfmodel.cli.chips:chips",
        "The shipped chips of many cores, with sources; where each way to look up wins.",
    ),
    "models": Command(
        "perfmodel.cli.catalogue:models", "The shipped sets of embedding tables, with sources."
    ),
}

_root = typer.Typer(
    cls=LazyGroup,
    callback=_options,
    help=HELP,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"max_content_width": 100},
)
app = cast(LazyGroup, typer.main.get_command(_root)).add(COMMANDS)
