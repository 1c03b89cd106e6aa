"""Groups that know the names of their commands, and load one when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True)
class Command:
    """Where the function of a command is: ``perfmodel.cli.project:project``."""

    place: str
    summary: str


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
        return name, found.load() if isinstance(found, _Unloaded) else found, rest

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
        self._place = known.place

    def load(self) -> Any:
        """The command itself."""
        module, _, function = self._place.partition(":")
        alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        alone.command(self.name)(getattr(import_module(module), function))
        return typer.main.get_command(alone)
