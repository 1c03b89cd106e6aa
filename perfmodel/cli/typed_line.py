"""The typed command line, kept to print it again, in full or with a few options changed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perfmodel.question.spec import CommandOptions
from perfmodel.schema.home import LATEST
from perfmodel.schema.run_folders import latest_run

if TYPE_CHECKING:
    import typer


@dataclass(frozen=True)
class TypedLine:
    """A command and its typed options, each with its words: ``("ranks", ("--ranks", "2"))``."""

    command: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @staticmethod
    def of(context: typer.Context) -> TypedLine:
        """The line of the running command."""
        options = []
        for option in context.command.params:
            name = str(option.name)
            source = context.get_parameter_source(name)
            if source is None or source.name != "COMMANDLINE":
                continue
            options.append((name, tuple(_words(option, context.params[name]))))
        return TypedLine(tuple(context.command_path.split()), tuple(options))

    def pinned(self) -> TypedLine:
        """The line with the run that ``--calibration latest`` means now in place of ``latest``."""
        options = tuple(
            (name, (words[0], str(latest_run())))
            if (name, words[-1:]) == ("calibration", (LATEST,))
            else (name, words)
            for name, words in self.options
        )
        return replace(self, options=options)

    def to(self, command: str, asks: type[CommandOptions]) -> TypedLine:
        """The line of another command, with the options in that command's order."""
        order = [each.name for each in asks.declared()]
        options = sorted(self.options, key=lambda each: order.index(each[0]) if each[0] in order else -1)
        return TypedLine(("perfmodel", command), tuple(options))

    def text(self, without: Sequence[str] = (), more: Sequence[str] = ()) -> str:
        """The line to paste: the command, ``more`` words, then all options but those in ``without``."""
        kept = [word for name, words in self.options if name not in without for word in words]
        return shlex.join([*self.command, *more, *kept])


def _words(option: Any, value: Any) -> list[str]:
    """The words of an option; an option with several values is repeated before each."""
    if value is True:
        return [option.opts[0]]
    each = value if isinstance(value, (list, tuple)) else [value]
    if option.nargs > 1:
        return [option.opts[0], *map(str, each)]
    return [word for item in each for word in (option.opts[0], str(item))]
