"""Groups that know the names of their commands, and load one when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True)
class Command:
    """Where the function of a command is: ``perfmodel.cli.project:project``.

    by_words  whether that function makes the command, of the words that follow its name
    """

    place: str
    summary: str
    by_words: bool = False


@dataclass(frozen=True)
class CommandGroup:
    """Commands under a common name: ``perfmodel chip plan``."""

    summary: str
    help: str
    commands: Mapping[str, Command]


class LazyGroup(TyperGroup):
    """A group whose commands are ``_Unloaded`` until one of them is resolved."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Of the words after the group: the name, its command, and what is left of them."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found.load(rest) if isinstance(found, _Unloaded) else found, rest

    def add(self, commands: Mapping[str, Command | CommandGroup]) -> LazyGroup:
        """Itself, with more commands by name."""
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
    """What the help of a group and a misspelt name need to know of a command."""

    def __init__(self, name: str, known: Command) -> None:
        super().__init__(name, short_help=known.summary, rich_markup_mode=None)
        self._known = known

    def load(self, words: Sequence[str] = ()) -> Any:
        """The command itself. words  that follow its name"""
        if self._known.by_words:
            return _function(self._known.place)(words)
        return loaded(str(self.name), self._known.place)


def _function(place: str) -> Callable[..., Any]:
    module, _, function = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def loaded(name: str, place: str | Callable[..., Any]) -> Any:
    """The command of a function, or of the place where it is."""
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name)(_function(place) if isinstance(place, str) else place)
    return typer.main.get_command(alone)
