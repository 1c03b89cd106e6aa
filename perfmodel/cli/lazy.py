"""Groups of commands that list names without importing; a command is imported when it is called."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from perfmodel.question.spec import TURNS, Arg, CommandOptions, Declared


@dataclass(frozen=True)
class Command:
    """A command, by the modules that are imported when it is called.

    asks     ``module:class`` of its options in ``perfmodel.question``
    answers  ``module:function`` in ``perfmodel.ROOM``, called with the context and the options
    summary  its line of help;  room  the package of ``answers``
    """

    asks: str
    answers: str
    summary: str
    room: str = "cli"


@dataclass(frozen=True)
class CommandGroup:
    """Commands with the same first word, as in ``perfmodel chip plan``. summary  its line of help"""

    summary: str
    help: str
    commands: Mapping[str, Command]


class LazyGroup(TyperGroup):
    """A group whose commands are ``_Unloaded`` until one of them is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name of the command in ``args``, the command itself (imported now), and the words after it."""
        name, command, words = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, _Unloaded) else command, words

    def add(self, commands: Mapping[str, Command | CommandGroup]) -> LazyGroup:
        """Add commands and groups, by name, to this group; return it."""
        for name, command in commands.items():
            if isinstance(command, Command):
                self.add_command(_Unloaded(name, command))
            else:
                inner = LazyGroup(
                    name=name,
                    short_help=command.summary,
                    help=command.help,
                    no_args_is_help=True,
                    rich_markup_mode=None,
                )
                self.add_command(inner.add(command.commands))
        return self


class _Unloaded(TyperCommand):
    """A command that is not imported yet: it has a name and a line of help, for lists and suggestions."""

    def __init__(self, name: str, command: Command) -> None:
        super().__init__(name, short_help=command.summary, rich_markup_mode=None)
        self._command = command

    def load(self) -> Any:
        """Import the command and return it."""
        return load_command(str(self.name), self._command)


class AskedCommand(TyperCommand):
    """A command whose help has its options in the groups of their question class, ``asks``."""

    asks: type[CommandOptions]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the options of each group, and the options that ``--set`` takes."""
        rows = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        sections: dict[str, list[Any]] = {title: [] for title in ("Arguments", *TURNS, "Values of --set")}
        for option in self.asks.declared():
            title = "Arguments" if isinstance(option.words, Arg) else TURNS[option.turn]
            row = rows.get(option.name)
            if option.by_set:
                title, row = "Values of --set", (option.name, option.words.help)
            sections[title].append(row)
        help_option = self.get_help_option(ctx)  # its name differs among versions of click
        sections["Output"].append(help_option.get_help_record(ctx) if help_option else None)
        for title, records in sections.items():
            if lines := [record for record in records if record]:
                with formatter.section(title):
                    formatter.write_dl(lines)


def place(path: str, room: str) -> Any:
    """Import the object at ``module:name`` in the package ``perfmodel.ROOM``."""
    module, _, name = path.partition(":")
    return getattr(import_module(f"perfmodel.{room}.{module}"), name)


def load_command(name: str, command: Command) -> Any:
    """The typer command with the options of a question class; the function that answers is imported later."""
    question: type[CommandOptions] = place(command.asks, "question")

    def run(context: typer.Context, **values: Any) -> Any:
        by_set: dict[str, Any] = {}
        if "settings" in values:
            by_set, values["settings"] = question.split_settings(values["settings"])
        options = question(**values, **by_set)
        context.params.update(vars(options))
        context.meta["by_set"] = by_set
        return place(command.answers, command.room)(context, options)

    options = [option for option in question.declared() if not option.by_set]
    of_context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    signature = inspect.Signature([of_context, *map(_parameter, options)])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name, cls=AskedCommand, help=inspect.getdoc(question))(run)
    loaded = typer.main.get_command(alone)
    loaded.asks = question  # type: ignore[attr-defined]
    return loaded


def _parameter(declared: Declared) -> inspect.Parameter:
    """A declared option or argument, as a parameter of the function that typer reads."""
    words = declared.words
    shown: Any
    if isinstance(words, Arg):
        shown = typer.Argument(help=words.help, callback=declared.check)
    else:
        shown = typer.Option(
            words.flag or declared.flag,
            help=words.help,
            metavar=words.metavar,
            min=None if words.read else words.end(words.minimum),
            max=None if words.read else words.end(words.maximum),
            callback=declared.check,
        )
    return inspect.Parameter(
        declared.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if declared.required else declared.default,
        annotation=Annotated[declared.kind, shown],
    )
