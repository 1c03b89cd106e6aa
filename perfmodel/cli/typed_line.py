"""The command line as it was typed, to print it again, with some options changed if needed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perfmodel.schema.files import LATEST

if TYPE_CHECKING:
    import typer


@dataclass(frozen=True)
class TypedLine:
    """A command, and its options that were typed, each with name and words: ("ranks", ("--ranks", "2"))."""

    command: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @staticmethod
    def of(context: typer.Context) -> TypedLine:
        """The command line of the running command."""
        options = []
        for option in context.command.params:
            name = str(option.name)
            source = context.get_parameter_source(name)
            if source is not None and source.name == "COMMANDLINE":
                options.append((name, _list_words(option, context.params[name] or ())))
        by_set = context.meta.get("by_set", {})
        options += [(name, ("--set", f"{name}={text}")) for name, text in by_set.items()]
        return TypedLine(tuple(context.command_path.split()), tuple(options))

    def pinned(self) -> TypedLine:
        """The line in which ``--calibration latest`` names the run that is the latest now."""
        from perfmodel.schema.run_files import latest_run

        options = tuple(
            (name, (words[0], str(latest_run())) if words == ("--calibration", LATEST) else words)
            for name, words in self.options
        )
        return replace(self, options=options)

    def text(self, without: Sequence[str] = (), more: Sequence[str] = (), command: str = "") -> str:
        """The line to paste: the command, or another; ``more`` words; then all options but ``without``."""
        begin = (self.command[0], command) if command else self.command
        words = [word for name, words in self.options if name not in without for word in words]
        return shlex.join([*begin, *more, *words])


def _list_words(option: Any, value: Any) -> tuple[str, ...]:
    """The words of an option with this value; a list repeats the option before each of its values."""
    if isinstance(value, bool):
        return ((option.opts if value else option.secondary_opts)[0],)
    values = value if isinstance(value, (list, tuple)) else [value]
    return tuple(word for text in values for word in (option.opts[0], str(text)))
