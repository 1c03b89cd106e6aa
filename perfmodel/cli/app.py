"""The table of all commands: the modules and the line of help of each. A command is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from perfmodel import __version__
from perfmodel.cli.lazy import Command, CommandGroup, LazyGroup
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

ON_CHIP = """One chip of many cores: which way to look up which table, and on which core?

\b
Examples
  perfmodel chip plan --chip ascend-910 --model criteo-kaggle --distribution zipf:1.05

perfmodel show chips lists the chips that are shipped.
"""


def _print_version(wanted: bool) -> None:
    if wanted:
        from calibrate.running.stack import git_revision

        revision = git_revision(Path(__file__).resolve().parents[2])
        emit(f"perfmodel {__version__}" + (f" (git {revision})" if revision else ""))
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print version and commit."),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Show all of an answer of project, an import's constants, an error's traceback (anywhere on "
            "the line).",
        ),
    ] = False,
) -> None:
    """Options of the program itself. ``perfmodel.cli.main`` takes ``--verbose`` out of the words before."""


COMMANDS: dict[str, Command | CommandGroup] = {
    "project": Command(
        "passes:ProjectOptions",
        "project:project",
        "How much slower is it, and why?",
    ),
    "collective": Command(
        "passes:CollectiveOptions",
        "collective:collective",
        "How long does a collective take, on any number of GPUs?",
    ),
    "sweep": Command(
        "passes:SweepOptions",
        "sweep:sweep",
        "A grid of configurations to CSV or Parquet.",
    ),
    "plan": Command(
        "plans:PlanOptions",
        "plan:plan",
        "Which sharding for which table, and what does the plan cost?",
    ),
    "chip": CommandGroup(
        "One chip of many cores: which way to look up which table, and on which core?",
        ON_CHIP,
        {
            "plan": Command(
                "plans:ChipPlanOptions",
                "chip:plan",
                "Which way to look up which table, and which core owns it?",
            ),
        },
    ),
    "report": Command("pages:ReportOptions", "report:report", "One HTML page to send to someone."),
    "explore": Command(
        "pages:ExploreOptions",
        "serve:explore",
        "Ask in your browser: sliders for the tables and the machine.",
        "explore",
    ),
    "check": Command(
        "measured:CheckOptions",
        "check:check",
        "Is my cluster normal? Logs beside clusters like it, with likely reasons.",
    ),
    "validate": Command(
        "measured:ValidateOptions",
        "validate:validate",
        "How accurate is it, and which claims of the paper hold?",
    ),
    "calibrate": Command(
        "measured:CalibrateOptions",
        "calibrate:calibrate",
        "Measure this machine, and fit a calibration.",
    ),
    "import": Command(
        "measured:ImportOptions",
        "imports:import_",
        "Calibrate from nccl-tests or NVSHMEM logs that you already have.",
    ),
    "show": Command("measured:ShowOptions", "show:show", "What is shipped, and what is in a file?"),
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
