"""The line that was typed, kept to be printed again: in full, or with a few of its options changed."""

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
    """A command and the options that were given, each with its words: ``("ranks", ("--ranks", "2"))``."""

    command: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @staticmethod
    def of(context: typer.Context) -> TypedLine:
        """Of a command that is running."""
        options = []
        for option in context.command.params:
            name = str(option.name)
            source = context.get_parameter_source(name)
            if source is None or source.name != "COMMANDLINE":
                continue
            options.append((name, tuple(_words(option, context.params[name]))))
        return TypedLine(tuple(context.command_path.split()), tuple(options))

    def pinned(self) -> TypedLine:
        """With the run that ``--calibration latest`` means now: tomorrow it is another one."""
        options = tuple(
            (name, (words[0], str(latest_run())))
            if (name, words[-1:]) == ("calibration", (LATEST,))
            else (name, words)
            for name, words in self.options
        )
        return replace(self, options=options)

    def to(self, command: str, asks: type[CommandOptions]) -> TypedLine:
        """The line of another command, its options in the order in which that command has them."""
        order = [each.name for each in asks.declared()]
        options = sorted(self.options, key=lambda each: order.index(each[0]) if each[0] in order else -1)
        return TypedLine(("perfmodel", command), tuple(options))

    def text(self, without: Sequence[str] = (), more: Sequence[str] = ()) -> str:
        """To paste: ``more`` words, then all options but those ``without``."""
        kept = [word for name, words in self.options if name not in without for word in words]
        return shlex.join([*self.command, *more, *kept])


def _words(option: Any, value: Any) -> list[str]:
    """As they are typed: an option that may be repeated has its name before every value."""
    if value is True:
        return [option.opts[0]]
    each = value if isinstance(value, (list, tuple)) else [value]
    if option.nargs > 1:
        return [option.opts[0], *map(str, each)]
    return [word for item in each for word in (option.opts[0], str(item))]
