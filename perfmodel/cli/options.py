"""Reads texts that several commands take: lists, ranges, ``--set``, names of collectives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import COLLECTIVES
from perfmodel.schema.files import unknown_name
from perfmodel.units import parse_bytes, parse_count

N = TypeVar("N", int, float)
_MOST_VALUES = 4096
LEAVE_ONE = "leave one of them out."
EXPLAINED = "leave out {other}: --explain prints one step alone."


def settings_of(settings: Sequence[str] | None, example: str = "nic_bytes_per_s=100GB/s") -> dict[str, str]:
    """The texts of ``--set key=value`` by key.

    example  for the message.  Limits: another form, a repeated key -> BadInputError
    """
    values: dict[str, str] = {}
    for text in settings or []:
        key, _, value = text.partition("=")
        key = key.strip()
        value = value.strip()
        if not key or not value:
            raise BadInputError(f"--set {text} is not key=value.", f"for example --set {example}")
        if key in values:
            raise BadInputError(f"--set {key} is given twice.", "keep one of them.")
        values[key] = value
    return values


def apart(option: str, typed: object, advice: str, **others: object) -> None:
    """Raise BadInputError if another option is typed beside one.

    option, typed  the option in words, and its value;  others  values by name
    advice  what to do; {other} in it is the other option
    A value of None, False or an empty list: not typed.
    """
    empty: tuple[object, ...] = (None, False, [])
    for name in (name for name, value in others.items() if value not in empty and typed not in empty):
        flag = f"--{name if ' ' in name else name.removeprefix('as_').replace('_', '-')}"
        raise BadInputError(f"{option} and {flag} cannot be combined.", advice.format(other=flag))


def check_name(option: str, name: str, names: Sequence[str]) -> str:
    """The name, if it is one of ``names``. Limits: another -> BadInputError that lists them"""
    if name not in names:
        raise unknown_name(option, name, names)
    return name


def split_values(texts: Sequence[str], option: str) -> list[str]:
    """The values in an option's texts, each of which may be a list with commas."""
    values = [value.strip() for text in texts for value in text.split(",")]
    if not all(values):
        raise BadInputError(f"{option} {','.join(texts)}: an empty value.", "leave no comma at an end.")
    return values


def size_values(texts: Sequence[str], option: str = "--size") -> list[int]:
    """Sizes [byte] in the texts of an option: lists, ``64KiB,1MiB``, and ranges by powers of two.

    ``1MiB..1GiB`` is 1, 2, 4 … 1024 MiB.
    """
    return list_values(texts, option, lambda text, name: round(parse_bytes(text, name)))


def count_values(texts: Sequence[str], option: str) -> list[int]:
    """Whole numbers in an option's texts: lists, ``8,16``, and ranges by powers of two, ``8..1024``."""
    return list_values(texts, option, parse_count)


def list_values(texts: Sequence[str], option: str, read: Callable[[str, str], N]) -> list[N]:
    """The sorted values in an option's texts, each read by ``read``: lists, and ranges by powers of two."""
    values: set[N] = set()
    for text in split_values(texts, option):
        ends = [end.strip() for end in text.split("..")]
        units = {re.sub(r"^[\d_. ]+", "", end) == "" for end in ends}  # whether both or neither lack one
        if ends[2:] or not all(ends) or len(units) > 1 or "..." in text:
            step = "the first and the last value have their units, and two dots between"
            example = "1MiB..1GiB" if "size" in option else "8..128"
            raise BadInputError(f"{option} {text} is no range.", f"{step}: {option} {example}")
        value = read(ends[0], option)
        largest = read(ends[-1], option)
        if largest < value:
            raise BadInputError(f"{option} {text} runs downwards.", f"{option} {ends[-1]}..{ends[0]}")
        values.add(value)
        while value < largest:
            value = min(2 * value, largest)
            values.add(value)
    ordered = sorted(values)
    if ordered[_MOST_VALUES:]:
        raise BadInputError(f"{option}: {len(ordered)} values; at most {_MOST_VALUES}.")
    return ordered


def read_collective(text: str) -> str:
    """The name that this program has for a collective, from ``alltoall``, ``AllReduce`` and the like.

    Limits: it is not predicted -> BadInputError
    """
    plain = re.sub(r"[^a-z]", "", text.lower())
    names = {name.replace("_", ""): name for name in COLLECTIVES}
    return names.get(plain) or check_name("--op", text, COLLECTIVES)
