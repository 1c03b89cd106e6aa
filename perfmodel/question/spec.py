"""How an option is declared: a field of a question class with a type, a default, and an ``Opt``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from inspect import get_annotations
from typing import Any, ClassVar, get_args, get_type_hints

from perfmodel.errors import BadInputError

_SEPARATED = re.compile(r",|\.\.")


@dataclass(frozen=True)
class Opt:
    """The help of an option, and how its text becomes a value.

    help, metavar  as ``--help`` prints them
    flag           its flag, if not the field's name: ``--plan``, ``--map/--no-map``
    read           reads the text: called with the text and the flag, returns the value in SI units; None: the
                   text is the value
    keyword        the name of the value, if it is not the field's name: ``table_bytes``
    least, most    limits of the value, as a number or as typed: ``1h``
    several        values may be separated by commas or ``..``; each is within the limits
    """

    help: str
    metavar: str | None = None
    flag: str = ""
    read: Callable[[str, str], Any] | None = None
    keyword: str = ""
    least: float | str | None = None
    most: float | str | None = None
    several: bool = False

    def saying(self, words: str, **changed: Any) -> Opt:
        """A copy of the option with another help text. changed  other fields to replace"""
        return replace(self, help=words, **changed)

    def end(self, bound: float | str | None) -> float | None:
        """A limit as a number; None: no limit. bound  ``least`` or ``most``"""
        if isinstance(bound, str):
            assert self.read is not None
            return float(self.read(bound, ""))
        return bound


@dataclass(frozen=True)
class Arg:
    """The help of an argument, which has no flag."""

    help: str


@dataclass(frozen=True)
class Declared:
    """An option or an argument of a question class.

    name, kind, default  of the field;  words  its ``Opt`` or ``Arg``;  required  whether it has no default
    """

    name: str
    kind: Any
    words: Opt | Arg
    default: Any
    required: bool

    @property
    def flag(self) -> str:
        """The flag as it is typed; for an argument its name in capitals."""
        if isinstance(self.words, Arg):
            return self.name.upper()
        return self.words.flag.partition("/")[0] or name_flag(self.name)

    def value(self, typed: Any) -> Any:
        """The typed text as a value in SI units; None: not typed.

        Limits: a text that cannot be read, or a value outside its range -> BadInputError
        """
        words = self.words
        if typed is None or isinstance(words, Arg) or words.read is None:
            return typed
        value = words.read(typed, self.flag)
        self._check(words, value, typed)
        return value

    def checked(self, typed: Any) -> Any:
        """The typed text, after a check that imports nothing heavy.

        Limits: an empty text, a value that cannot be read or is out of range -> BadInputError;  a list where
        a single value is expected -> not checked, because the command may give it another meaning
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
        return typed

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
    """The options of a command. Its docstring is the help; base classes are groups of options.

    turn  position of a group in the help: 0 tables, 1 the command's own options, 2 machine, 3 output
    """

    turn: ClassVar[int] = 1

    @classmethod
    @cache
    def declared(cls) -> tuple[Declared, ...]:
        """All options, in the order of the help."""
        hints = get_type_hints(cls, include_extras=True)
        turns: dict[str, int] = {}
        for each in cls.__mro__[:-1]:
            turns |= dict.fromkeys(get_annotations(each), vars(each).get("turn", 1))
        found = []
        for field in sorted(fields(cls), key=lambda each: turns[each.name]):
            kind, words = get_args(hints[field.name])
            required = field.default is MISSING
            found.append(Declared(field.name, kind, words, None if required else field.default, required))
        return tuple(found)

    @classmethod
    def values(cls, typed: Mapping[str, Any]) -> dict[str, Any]:
        """The typed options as values by keyword; None: not typed."""
        return {
            getattr(each.words, "keyword", "") or each.name: each.value(typed.get(each.name))
            for each in cls.declared()
        }


def name_flag(name: str) -> str:
    """The flag of a field: ``--table-size`` of ``table_size``."""
    return f"--{name.removeprefix('as_').replace('_', '-')}"
