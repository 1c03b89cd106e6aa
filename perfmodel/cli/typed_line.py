"""The command line as it was typed, to print it again, with some options changed if needed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


@dataclass(frozen=True)
class TypedLine:
    """A command, and its options that were typed, each with name and words: ("ranks", ("--ranks", "2"))."""

    command: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @staticmethod
    def of(context: typer.Context) -> TypedLine:
        """The command line of the running command; a list repeats its option before each of its values."""
        options: list[tuple[str, tuple[str, ...]]] = []
        for option in context.command.params:
            name = str(option.name)
            if getattr(context.get_parameter_source(name), "name", "") != "COMMANDLINE":
                continue
            value = context.params.get(name)
            if isinstance(value, bool):
                words = [(option.opts if value else option.secondary_opts)[0]]
            else:
                values = value if isinstance(value, list) else [] if value is None else [value]
                words = [word for text in values for word in (option.opts[0], str(text))]
            options.append((name, tuple(words)))
        by_set = context.meta.get("by_set", {})
        options += [(name, ("--set", f"{name}={text}")) for name, text in by_set.items()]
        return TypedLine(tuple(context.command_path.split()), tuple(options))

    def text(self, without: Sequence[str] = (), more: Sequence[str] = (), command: str = "") -> str:
        """The line to paste: the command, or another; ``more`` words; then all options but ``without``."""
        begin = (self.command[0], command) if command else self.command
        words = [word for name, words in self.options if name not in without for word in words]
        return shlex.join([*begin, *more, *words])
