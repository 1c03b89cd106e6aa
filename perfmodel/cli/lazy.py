"""Groups of commands that list names without importing; a command is imported when it is called."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from perfmodel.question.spec import Arg, CommandOptions, Declared, name_flag


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
        name, found, rest = super().resolve_command(ctx, args)
        return name, found.load() if isinstance(found, _Unloaded) else found, rest

    def add(self, commands: Mapping[str, Command | CommandGroup]) -> LazyGroup:
        """Add commands and groups, by name, to this group; return it."""
        for name, one in commands.items():
            if isinstance(one, Command):
                self.add_command(_Unloaded(name, one))
            else:
                inner = LazyGroup(
                    name=name,
                    short_help=one.summary,
                    help=one.help,
                    no_args_is_help=True,
                    rich_markup_mode=None,
                )
                self.add_command(inner.add(one.commands))
        return self


class _Unloaded(TyperCommand):
    """A command that is not imported yet: it has a name and a line of help, for lists and suggestions."""

    def __init__(self, name: str, known: Command) -> None:
        super().__init__(name, short_help=known.summary, rich_markup_mode=None)
        self._known = known

    def load(self) -> Any:
        """Import the command and return it."""
        return loaded(str(self.name), self._known.asks, self._known.answers, self._known.room)


def placed(place: str, room: str = "cli") -> Any:
    """Import the object at ``module:name`` in the package ``perfmodel.ROOM``."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"perfmodel.{room}.{module}"), name)


def loaded(name: str, asks: str | type[CommandOptions], answers: str = "", room: str = "cli") -> Any:
    """The typer command with the options of a question class; the function that answers is imported later.

    asks     the class, or ``module:class`` in ``perfmodel.question``
    answers  ``module:function`` in the package ``perfmodel.ROOM``
    """
    question: type[CommandOptions] = placed(asks, "question") if isinstance(asks, str) else asks

    def run(context: typer.Context, **values: Any) -> Any:
        return placed(answers, room)(context, question(**values))

    of_context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    signature = inspect.Signature([of_context, *map(_parameter, question.declared())])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name, help=inspect.getdoc(question))(run)
    return typer.main.get_command(alone)


def _parameter(declared: Declared) -> inspect.Parameter:
    """A declared option or argument, as a parameter of the function that typer reads."""
    words = declared.words
    shown: Any
    if isinstance(words, Arg):
        shown = typer.Argument(help=words.help, callback=declared.checked)
    else:
        shown = typer.Option(
            words.flag or name_flag(declared.name),
            help=words.help,
            metavar=words.metavar,
            min=None if words.read else words.end(words.least),
            max=None if words.read else words.end(words.most),
            callback=declared.checked,
        )
    return inspect.Parameter(
        declared.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if declared.required else declared.default,
        annotation=Annotated[declared.kind, shown],
    )
