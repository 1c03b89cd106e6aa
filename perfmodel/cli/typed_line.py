"""The command line as it was typed, to print it again, with some options changed if needed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perfmodel.schema.files import LATEST

if TYPE_CHECKING:
    import typer

    from perfmodel.answer import Question


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
            if source is None or source.name != "COMMANDLINE":
                continue
            options.append((name, tuple(_words(option, context.params[name] or ()))))
        by_set = context.meta.get("by_set", {})
        options += [(name, ("--set", f"{name}={text}")) for name, text in by_set.items()]
        return TypedLine(tuple(context.command_path.split()), tuple(options))

    def pinned(self) -> TypedLine:
        """The line in which ``--calibration latest`` names the run that is the latest now."""
        from perfmodel.schema.run_files import latest_run

        options = tuple(
            (name, (words[0], str(latest_run())))
            if (name, words[-1:]) == ("calibration", (LATEST,))
            else (name, words)
            for name, words in self.options
        )
        return replace(self, options=options)

    def text(self, without: Sequence[str] = (), more: Sequence[str] = ()) -> str:
        """The line to paste: the command, ``more`` words, then all options except ``without``."""
        kept = [word for name, words in self.options if name not in without for word in words]
        return shlex.join([*self.command, *more, *kept])


@dataclass(frozen=True)
class TypedNames:
    """Names for printed commands, as the user typed them; "": not typed."""

    machine: str = ""
    calibration: str = ""
    backend: str = ""

    @staticmethod
    def of(machine: str | None, calibration: str | None, backend: str | None) -> TypedNames:
        """The names from a command's options; None: not typed."""
        return TypedNames(machine or "", calibration or "", (backend or "") if calibration else "")

    def line(self, words: Sequence[str], question: Question) -> str:
        """The command that asks a question again. words  that it begins with"""
        options = question.list_arguments(**vars(self))
        return shlex.join([*words, *options])


def _words(option: Any, value: Any) -> list[str]:
    """The words of an option with this value; a list repeats the option before each of its values."""
    if isinstance(value, bool):
        return [(option.opts if value else option.secondary_opts)[0]]
    each = value if isinstance(value, (list, tuple)) else [value]
    if option.nargs > 1:
        return [option.opts[0], *map(str, each)]
    return [word for item in each for word in (option.opts[0], str(item))]
