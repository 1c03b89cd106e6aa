"""How an option is declared: a field of a question class with a type, a default, and an ``Opt``."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from inspect import get_annotations
from numbers import Real
from operator import gt, lt
from pathlib import Path
from typing import Any, ClassVar, get_args, get_type_hints

from perfmodel.errors import BadInputError

_SEPARATED = re.compile(r",|\.\.")
TURNS = ("Tables", "Question", "Machine", "Output")
"""Headings of the help: the groups of options, in their order."""


@dataclass(frozen=True)
class Opt:
    """The help of an option, and how its text becomes a value.

    help, metavar  as ``--help`` prints them
    flag           its flag, if not the field's name: ``--plan``, ``--map/--no-map``
    read           reads the text: called with the text and the flag, returns the value in SI units; None: the
                   text is the value
    keyword        the name of the value, if it is not the field's name: ``table_bytes``
    minimum, maximum  limits of the value, as a number or as typed: ``1h``
    several        values may be separated by commas or ``..``; each is within the limits
    by_set         whether it has no flag: it is typed as ``--set NAME=VALUE``
    """

    help: str
    metavar: str | None = None
    flag: str = ""
    read: Callable[[str, str], Any] | None = None
    keyword: str = ""
    minimum: float | str | None = None
    maximum: float | str | None = None
    several: bool = False
    by_set: bool = False

    def saying(self, words: str, **changed: Any) -> Opt:
        """A copy of the option with another help text. changed  other fields to replace"""
        return replace(self, help=words, **changed)

    def end(self, bound: float | str | None) -> float | None:
        """A limit as a number; None: no limit. bound  ``minimum`` or ``maximum``"""
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
    turn  its place in ``TURNS``
    """

    name: str
    kind: Any
    words: Opt | Arg
    default: Any
    required: bool
    turn: int

    @property
    def keyword(self) -> str:
        """The name of its value, as in ``perfmodel.project``."""
        return getattr(self.words, "keyword", "") or self.name

    @property
    def by_set(self) -> bool:
        """Whether it is typed as ``--set NAME=VALUE``."""
        return isinstance(self.words, Opt) and self.words.by_set

    @property
    def flag(self) -> str:
        """The flag as it is typed, ``--set NAME`` if it has none; for an argument its name in capitals."""
        if isinstance(self.words, Arg):
            return self.name.upper()
        named = f"--set {self.name}" if self.words.by_set else name_flag(self.name)
        return self.words.flag.partition("/")[0] or named

    def to_words(self, text: str) -> list[str]:
        """The words that type this option with a value."""
        return ["--set", f"{self.name}={text}"] if self.by_set else [self.flag, text]

    def value(self, typed: Any) -> Any:
        """The typed text as a value in SI units; None: not typed.

        Limits: a text that cannot be read, or a value outside its range -> BadInputError
        """
        words = self.words
        if typed is None or isinstance(words, Arg) or words.read is None:
            return typed
        value = words.read(typed, self.flag)
        ends = (words.maximum, gt, "more", "most"), (words.minimum, lt, "less", "least")
        for bound, is_beyond, word, extreme in ends:
            end = words.end(bound)
            if end is not None and is_beyond(value, end):
                shown = typed if isinstance(bound, str) else f"{value:.15g}"
                limit = f"at {extreme} {bound if isinstance(bound, str) else f'{end:.16g}'}"
                raise BadInputError(
                    f"{self.flag} {shown} is {word} than this model covers.", f"{limit}.", allowed=limit
                )
        return value

    def check(self, typed: Any) -> Any:
        """What the command gets for its text: a path or a whole number where its kind is that, else the text.

        Imports nothing heavy.  Limits: an empty text, a value that cannot be read or is out of range ->
        BadInputError;  a list where a single value is expected -> not checked, because the command may give
        it another meaning
        """
        words, kind = self.words, str(self.kind)
        for text in typed if isinstance(typed, (list, tuple)) else [typed]:
            if isinstance(text, str) and not text.strip():
                raise BadInputError(f"{self.flag} is empty.", "give it a value, or leave it out.")
            if isinstance(words, Arg) or not isinstance(text, str):
                continue
            for piece in _SEPARATED.split(text) if words.several else [text]:
                try:
                    value = self.value(piece.strip())
                except BadInputError as error:
                    if not error.allowed and (_SEPARATED.search(piece) or not piece.strip()):
                        continue
                    raise
            if "int" in kind:
                return value
        if "Path" in kind and typed:
            return [Path(text) for text in typed] if "list" in kind else Path(typed)
        return list(typed) if isinstance(typed, tuple) else typed


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The options of a command. Its docstring is the help; base classes are groups of options.

    turn     place in ``TURNS`` of the options that a class declares
    of_logs  whether ``--set`` has the declared options alone, and no values of a machine
    """

    turn: ClassVar[int] = 1
    of_logs: ClassVar[bool] = False

    @classmethod
    @cache
    def declared(cls) -> tuple[Declared, ...]:
        """All options of a command, its base classes' too, in the order in which the help lists them."""
        hints = get_type_hints(cls, include_extras=True)
        turns: dict[str, int] = {}
        for base in cls.__mro__:
            turns |= dict.fromkeys(get_annotations(base), vars(base).get("turn", 1))
        options = []
        for field in sorted(fields(cls), key=lambda field: turns[field.name]):
            kind, words = get_args(hints[field.name])
            required = field.default is MISSING
            default = None if required else field.default
            options.append(Declared(field.name, kind, words, default, required, turns[field.name]))
        return tuple(options)

    @classmethod
    def values(cls, typed: Mapping[str, object]) -> dict[str, Any]:
        """The typed options as values by keyword; None: not typed."""
        return {option.keyword: option.value(typed.get(option.name)) for option in cls.declared()}

    @classmethod
    def split_settings(cls, texts: Sequence[str] | None) -> tuple[dict[str, object], list[str] | None]:
        """(texts of ``--set`` that are options of this question, by name; the others, as typed).

        Limits: twice the same, a name that is nearly one, a value that its option refuses -> BadInputError
        """
        from perfmodel.schema.machine import KEYS

        settable = {option.name: option for option in cls.declared() if option.by_set}
        values: dict[str, object] = {}
        remaining = []
        for text in texts or ():
            typed, equals, value = text.partition("=")
            name, value = typed.strip().replace("-", "_"), value.strip()
            if not equals or name not in settable:
                nearest = next(iter(difflib.get_close_matches(name, settable, cutoff=0.7)), "")
                if cls.of_logs or (nearest and name not in KEYS):
                    step = f"did you mean --set {nearest}=…?" if nearest else f"known: {', '.join(settable)}."
                    raise BadInputError(f"--set {name} {'is not known' if equals else 'has no value'}.", step)
                remaining.append(text)
            elif name in values:
                raise BadInputError(f"--set {name} is given twice.", "keep one of them.")
            else:
                values[name] = settable[name].check(value)
        return values, remaining or None


def name_flag(name: str) -> str:
    """The flag of a field: ``--table-size`` of ``table_size``."""
    return f"--{name.removeprefix('as_').replace('_', '-')}"


def write_value(name: str, value: object) -> str:
    """A value from Python as a command line has it. Limits: neither text, path nor number -> BadInputError"""
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, Real):
        return f"{value:.15g}"
    step = "give text, a number, or a list of these."
    raise BadInputError(f"{name} is of type {type(value).__name__}.", step)
