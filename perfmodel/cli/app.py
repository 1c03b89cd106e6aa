"""All commands: where the question and the answer of each are; a command is imported when it is called."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from perfmodel import __version__
from perfmodel.cli.output import CommandReply, emit, print_reply
from perfmodel.errors import BadInputError
from perfmodel.question.spec import TURNS, Arg, CommandOptions, Declared

HELP = """How much slower does an embedding bag get when its tables are spread over many GPUs, and why?

\b
Examples
  perfmodel project --table-size 10TB
  perfmodel collective --op all_to_all --size 1GiB --gpus 128
  perfmodel COMMAND --help

Exit codes: 0 ok, 2 bad input, 3 no calibration for it, 4 no such hardware or a rank was lost (run it
again), 5 too noisy (--strict), 6 outside a validation band, 130 stopped, 1 a bug. The answer goes to
stdout, warnings and progress to stderr. -v, anywhere on the line, shows all of an answer of project, an
import's constants, and an error's traceback.
"""

ON_CHIP = "One chip: how to look up which table, on which core?"

COMMANDS = {
    "project": ("passes", "How much slower is it, and why?"),
    "collective": ("passes", "How long does a collective take, on any number of GPUs?"),
    "sweep": ("passes", "A grid of configurations to CSV or Parquet; or machines side by side."),
    "plan": ("plans", "Which sharding for which table, and what does the plan cost?"),
    "chip plan": ("plans", "Which way to look up which table, and which core owns it?"),
    "report": ("passes", "One HTML page to send to someone."),
    "explore": ("passes", "Ask in your browser: sliders for the tables and the machine."),
    "check": ("measured", "Is my cluster normal? Logs beside clusters like it, with likely reasons."),
    "validate": ("measured", "How accurate is it, and which claims of the paper hold?"),
    "calibrate": ("measured", "Measure this machine, and fit a calibration."),
    "import": ("measured", "Calibrate from nccl-tests or NVSHMEM logs that you already have."),
    "show": ("measured", "What is shipped, and what is in a file?"),
}
"""Each command with the module of its question class in ``perfmodel.question``, and its line of help."""
_PLACES = {  # of functions that are not ``perfmodel.cli.NAME.NAME``
    "chip plan": "cli.chip.plan",
    "explore": "explore.serve.explore",
    "import": "cli.imports.import_logs_of",
}
_PLAIN: dict[str, Any] = dict(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


class CommandGroup(TyperGroup):
    """A group whose commands are ``Unloaded`` until one of them is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name of the command in ``args``, the command itself (imported now), and the words after it."""
        name, command, words = super().resolve_command(ctx, args)
        return name, build_command(command.path) if isinstance(command, Unloaded) else command, words


class Unloaded(TyperCommand):
    """A command that is not imported yet, for lists and suggestions. path  its words, ``chip plan``"""

    def __init__(self, path: str) -> None:
        _, line = COMMANDS[path]
        super().__init__(path.rpartition(" ")[2], short_help=line, rich_markup_mode=None)
        self.path = path


class LoadedCommand(TyperCommand):
    """A command whose help has its options in the groups of their question class, ``asks``."""

    asks: type[CommandOptions]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words after the command. Limits: an option of one value is typed twice -> BadInputError"""
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for param in order:
            if order.count(param) > 1 and not (param.multiple or getattr(param, "is_flag", None)):
                raise BadInputError(f"{param.opts[0]} is given twice.", "keep one of them.")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the options of each group, and the options that ``--set`` takes."""
        rows = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        sections: dict[str, list[Any]] = {title: [] for title in ("Arguments", *TURNS, "Values of --set")}
        for option in self.asks.declared():
            if option.by_set:
                sections["Values of --set"].append((option.name, option.words.help))
            elif isinstance(option.words, Arg):
                sections["Arguments"].append((option.flag, option.words.help))
            else:
                sections[TURNS[option.turn]].append(rows.get(option.name))
        if help_option := self.get_help_option(ctx):  # its name differs among versions of typer
            sections["Output"].append(help_option.get_help_record(ctx))
        for title, records in sections.items():
            if lines := [record for record in records if record]:
                with formatter.section(title):
                    formatter.write_dl(lines)


def load_object(path: str) -> Any:
    """Import ``module.name`` of the package ``perfmodel``."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"perfmodel.{module}"), name)


def load_options(path: str) -> type[CommandOptions]:
    """Import the question class of a command, ``ChipPlanOptions`` of ``chip plan``."""
    name = f"question.{COMMANDS[path][0]}.{path.title().replace(' ', '')}Options"
    options: type[CommandOptions] = load_object(name)
    return options


def build_command(path: str) -> TyperCommand:
    """The command with the options of its question class; the function that answers is imported later."""
    question = load_options(path)

    def run(context: typer.Context, **values: Any) -> Any:
        """What typer calls with the typed values: makes the question, has it answered, prints the answer."""
        by_set: dict[str, Any] = {}
        if "settings" in values:
            by_set, values["settings"] = question.split_settings(values["settings"])
        options = question(**values, **by_set)
        context.params.update(vars(options))
        context.meta["by_set"] = by_set
        answer = load_object(_PLACES.get(path, f"cli.{path}.{path}"))(context, options)
        if isinstance(answer, CommandReply):
            print_reply(path, answer, as_json=values["as_json"])
        return answer

    of_context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    options = [of_context, *(build_parameter(option) for option in question.declared() if not option.by_set)]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    program = typer.Typer(**_PLAIN)
    program.command(path.rpartition(" ")[2], cls=LoadedCommand, help=inspect.getdoc(question))(run)
    loaded = typer.main.get_command(program)
    assert isinstance(loaded, LoadedCommand)
    loaded.asks = question
    return loaded


def build_parameter(option: Declared) -> inspect.Parameter:
    """A declared option or argument as a parameter that typer reads: a switch, a text or several texts."""
    words = option.words
    shown: Any
    if isinstance(words, Arg):
        shown = typer.Argument(help=words.help, metavar=option.flag, callback=option.check)
    else:
        name = words.flag or option.flag
        shown = typer.Option(name, help=words.help, metavar=words.metavar, callback=option.check)
    text = bool if option.kind is bool else list[str] if "list" in str(option.kind) else str
    default = inspect.Parameter.empty if option.required else option.default
    if type(default) is int:
        default = str(default)  # as it would be typed
    annotation: object = Annotated[text | None, shown]
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(option.name, kind, default=default, annotation=annotation)


def _print_version(wanted: bool) -> None:
    if wanted:
        from calibrate.running.stack import read_revision

        revision = read_revision(Path(__file__).resolve().parents[2])
        emit(f"perfmodel {__version__}" + (f" (git {revision})" if revision else ""))
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print version (and commit)."),
    ] = False,
) -> None:
    """Options of the program itself; ``perfmodel.cli.running`` takes ``-v`` out of the words before."""


def build_program() -> TyperGroup:
    """The program as typer runs it, with the commands of ``COMMANDS``, not loaded yet, and their groups."""
    wide = {"max_content_width": 100}
    root = typer.Typer(
        cls=CommandGroup, callback=_options, help=HELP, no_args_is_help=True, context_settings=wide, **_PLAIN
    )
    program = typer.main.get_command(root)
    assert isinstance(program, TyperGroup)
    chip = CommandGroup(name="chip", help=ON_CHIP, no_args_is_help=True, rich_markup_mode=None)
    for path in COMMANDS:
        group, _, name = path.partition(" ")
        program.add_command(chip if name else Unloaded(path), group)
        if name:
            chip.add_command(Unloaded(path), name)
    return program


app = build_program()
