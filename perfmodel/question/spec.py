"""How an option is declared: as a field of a question, with its type, its default, and these words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from inspect import get_annotations
from typing import Any, ClassVar, get_args, get_type_hints

from perfmodel.errors import BadInputError

_SEPARATED = re.compile(r",|\.\.")


@dataclass(frozen=True)
class Opt:
    """The words of an option.

    help, metavar  on the screen of ``--help``
    flag           where it is not the name of the field: ``--plan``, ``--overlap/--no-overlap``
    read           a text and the option's name to its value in SI units; None: it stays as it was typed
    keyword        the name of that value, where it is not the name of the field: ``table_bytes``
    least, most    of a number, or as they are typed: ``1h``;  check  what else it must be
    several        values that commas or ``..`` separate, each from ``least`` to ``most``
    said           whether the default is in the help
    """

    help: str
    metavar: str | None = None
    flag: str = ""
    read: Callable[[str, str], Any] | None = None
    keyword: str = ""
    least: float | str | None = None
    most: float | str | None = None
    check: Callable[[Any], Any] | None = None
    several: bool = False
    said: bool = True

    def saying(self, words: str, **changed: Any) -> Opt:
        """The same number of another command, with other words."""
        return replace(self, help=words, **changed)

    def end(self, bound: float | str | None) -> float | None:
        """``least`` or ``most`` as a value."""
        if isinstance(bound, str):
            assert self.read is not None
            return float(self.read(bound, ""))
        return bound


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

    @property
    def flag(self) -> str:
        """As it is typed; of an argument its name."""
        if isinstance(self.words, Arg):
            return self.name.upper()
        return self.words.flag.partition("/")[0] or flag_of(self.name)

    def value(self, typed: Any) -> Any:
        """In SI units; None: nobody said it.

        Limits: a text that cannot be read, or a value outside its range -> BadInputError
        """
        words = self.words
        if typed is None or isinstance(words, Arg) or words.read is None:
            return typed
        value = words.read(typed, self.flag)
        self._check(words, value, typed)
        return value

    def checked(self, typed: Any) -> Any:
        """As it was typed; read here, before anything is loaded that computes.

        Limits: an empty text, or a value that cannot be read or is outside the range -> BadInputError;  some
        values where one is asked for -> who answers knows what else they may be meant to be
        """
        words = self.words
        for text in typed if isinstance(typed, (list, tuple)) else [typed]:
            if isinstance(text, str) and not text.strip():
                raise BadInputError(f"{self.flag} is empty.", "give it a value, or leave it out.")
            if isinstance(words, Arg) or words.read is None or text is None:
                continue
            for part in _SEPARATED.split(text) if words.several else [text]:
                try:
                    value = words.read(part.strip(), self.flag)
                except BadInputError:
                    if _SEPARATED.search(part) or not part.strip():
                        continue
                    raise
                self._check(words, value, part)
        return words.check(typed) if isinstance(words, Opt) and words.check else typed

    def _check(self, words: Opt, value: Any, typed: str) -> None:
        for bound, sign, word, most in ((words.most, 1, "more", "most"), (words.least, -1, "less", "least")):
            end = words.end(bound)
            if end is not None and sign * value > sign * end:
                found = typed if isinstance(bound, str) else f"{value:.15g}"
                ends = bound if isinstance(bound, str) else f"{end:.16g}"
                raise BadInputError(
                    f"{self.flag} {found} is {word} than this model covers.",
                    f"at {most} {ends}.",
                    allowed=f"at {most} {ends}",
                )


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
