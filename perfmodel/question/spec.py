"""How an option is declared: as a field of a question, with its type, its default, and these words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from inspect import get_annotations
from typing import Any, ClassVar, get_args, get_type_hints

from perfmodel.errors import BadInputError


@dataclass(frozen=True)
class Opt:
    """The words of an option.

    help, metavar  on the screen of ``--help``
    flag           where it is not the name of the field: ``--plan``, ``--overlap/--no-overlap``
    read           a text and the option's name to its value in SI units; None: it stays as it was typed
    keyword        the name of that value, where it is not the name of the field: ``table_bytes``
    least, most    of a number;  check  what else it must be;  said  whether the default is in the help
    """

    help: str
    metavar: str | None = None
    flag: str = ""
    read: Callable[[str, str], Any] | None = None
    keyword: str = ""
    least: float | None = None
    most: float | None = None
    check: Callable[[Any], Any] | None = None
    said: bool = True


@dataclass(frozen=True)
class Arg:
    """The words of an argument: it has no name on the command line."""

    help: str


@dataclass(frozen=True)
class Declared:
    """An option or an argument of a question; required: it has no default."""

    name: str
    kind: Any
    words: Opt | Arg
    default: Any
    required: bool

    def value(self, typed: Any) -> Any:
        """In SI units; None: nobody said it. Limits: a text that cannot be read, too much -> BadInputError"""
        words = self.words
        if typed is None or isinstance(words, Arg) or words.read is None:
            return typed
        value = words.read(typed, flag_of(self.name))
        if words.most is not None and value > words.most:
            raise BadInputError(
                f"{flag_of(self.name)} {value:.15g} is more than this model covers.",
                f"at most {words.most:.0f}.",
            )
        return value


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """What can be asked of a command. Its docstring is the help; groups of options are base classes.

    turn  of a group in the help: those of tables 0, a command's own 1, the machine's 2, the output's 3
    """

    turn: ClassVar[int] = 1

    @classmethod
    def declared(cls) -> Iterator[Declared]:
        """All options, in the order of the help."""
        hints = get_type_hints(cls, include_extras=True)
        turns: dict[str, int] = {}
        for each in cls.__mro__[:-1]:
            turns |= dict.fromkeys(get_annotations(each), vars(each).get("turn", 1))
        for field in sorted(fields(cls), key=lambda each: turns[each.name]):
            kind, words = get_args(hints[field.name])
            required = field.default is MISSING
            yield Declared(field.name, kind, words, None if required else field.default, required)

    @classmethod
    def values(cls, typed: Mapping[str, Any]) -> dict[str, Any]:
        """What was typed by name, as values by keyword; None: nobody said it."""
        return {
            getattr(each.words, "keyword", "") or each.name: each.value(typed.get(each.name))
            for each in cls.declared()
        }


def flag_of(name: str) -> str:
    """``--table-size`` of ``table_size``."""
    return f"--{name.removeprefix('as_').replace('_', '-')}"
