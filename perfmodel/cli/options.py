"""Reads texts that several commands take: lists, ranges, ``--set``, names of collectives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import COLLECTIVES, SAMPLES_ONLY
from perfmodel.schema.files import unknown_name
from perfmodel.units import parse_bytes, parse_count

_MOST_VALUES = 4096
_EXAMPLES = {
    **dict.fromkeys(("--size", "--sizes"), "1MiB,16MiB"),
    "--table-size": "10TB,20TB",
    "--machine": "h100-sxm-ib,h200-sxm-ib",
    "--backend": "nccl,nvshmem",
}
"""Example values of options that take lists, for messages; all others take numbers."""
LEAVE_ONE = "leave one of them out."


def settings_of(settings: list[str] | None, example: str = "nic_bytes_per_s=100GB/s") -> dict[str, str]:
    """The texts of ``--set key=value`` by key.

    example  for the message.  Limits: another form, a repeated key -> BadInputError
    """
    values: dict[str, str] = {}
    for text in settings or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise BadInputError(f"--set {text} is not key=value.", f"for example --set {example}")
        if key.strip() in values:
            raise BadInputError(f"--set {key.strip()} is given twice.", "keep one of them.")
        values[key.strip()] = value.strip()
    return values


def apart(option: str, typed: object, advice: str, **others: object) -> None:
    """Raise BadInputError if another option is typed beside one.

    option, typed  the option in words, and its value;  others  values by name
    advice  what to do; {other} in it is the other option
    A value of None, False or an empty list: not typed.
    """
    if _is_typed(typed):
        for name in (name for name, value in others.items() if _is_typed(value)):
            other = f"--{name if ' ' in name else name.removeprefix('as_').replace('_', '-')}"
            raise BadInputError(f"{option} and {other} cannot be combined.", advice.format(other=other))


def check_explained(explain: object, **others: object) -> None:
    """Raise BadInputError if another output is typed beside ``--explain``. others  as in ``apart``"""
    apart("--explain", explain, "leave out {other}: --explain prints one step alone.", **others)


def _is_typed(value: object) -> bool:
    return value is not None and value is not False and value != []


def split_values(texts: list[str], option: str) -> list[str]:
    """The values in an option's texts, each of which may be a list with commas."""
    values = [part.strip() for text in texts for part in text.split(",")]
    if not values or any(not value for value in values):
        raise BadInputError(
            f"{option} {','.join(texts)}: an empty value.",
            f"for example {option} {_EXAMPLES.get(option, '8,64')}",
        )
    return values


def check_distinct(names: Sequence[str], option: str) -> None:
    """Refuse two machines or chips with the same name: the name tells their answers apart."""
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise BadInputError(
            f"{option} has {twice} twice.", "leave one of them, or give a changed file a name of its own."
        )


def size_values(texts: list[str], option: str = "--size") -> list[int]:
    """Sizes [byte] in the texts of an option: lists, ``64KiB,1MiB``, and ranges by powers of two.

    ``1MiB..1GiB`` is 1, 2, 4 … 1024 MiB.
    """

    def read(text: str) -> int:
        size = parse_bytes(text, option)
        if abs(size - round(size)) > 1e-9 * size:
            raise BadInputError(f"{option} {text} is not a whole number of bytes ({size:.3f}).")
        return round(size)

    return _read_ranges(texts, option, read)


def count_values(texts: list[str], option: str) -> list[int]:
    """Whole numbers in an option's texts: lists, ``8,16``, and ranges by powers of two, ``8..1024``."""
    return _read_ranges(texts, option, lambda text: parse_count(text, option))


def _read_ranges(texts: list[str], option: str, read: Callable[[str], int]) -> list[int]:
    values: set[int] = set()
    for text in split_values(texts, option):
        start, dots, end = (part.strip() for part in text.partition(".."))
        if end.startswith("."):
            ends = re.split(r"\.{3,}", text, maxsplit=1)
            raise BadInputError(f"{option} {text}: a range has two dots.", f"{option} {'..'.join(ends)}")
        if dots and not (start and end):
            missing = f"write the {'last' if start else 'first'} value, too"
            step = f"{missing}: {option} {start or '…'}..{end or '…'}"
            raise BadInputError(f"{option} {text}: a range has two ends.", step)
        units = [re.sub(r"^[\d_. ]+", "", number) for number in (start, end)]
        if dots and bool(units[0]) != bool(units[1]):
            bare, unit = (start, units[1]) if units[1] else (end, units[0])
            step = f"{option} {start}{unit}..{end}" if units[1] else f"{option} {start}..{end}{unit}"
            raise BadInputError(f"{option} {text}: {bare} has no unit.", step)
        value, most = read(start), read(end if dots else start)
        if most < value:
            step = f"the smaller number comes first: {option} {end}..{start}."
            raise BadInputError(f"{option} {text} runs downwards.", step)
        values.add(most)
        while value < most:
            values.add(value)
            value *= 2
    if len(values) > _MOST_VALUES:
        raise BadInputError(f"{option}: {len(values)} values; at most {_MOST_VALUES}.")
    return sorted(values)


def collective_name(text: str) -> str:
    """The name that this program has for a collective, from ``alltoall``, ``AllReduce`` and the like.

    Limits: it is not predicted -> BadInputError
    """
    plain = re.sub(r"[^a-z]", "", text.lower())
    for name in COLLECTIVES:
        if plain == name.replace("_", ""):
            return name
    if plain in SAMPLES_ONLY:
        raise BadInputError(
            f"--op {text} has no curve: logs of it are kept as samples, and not fitted.",
            f"with a curve: {', '.join(COLLECTIVES)}.",
        )

    raise unknown_name("--op collective", text, COLLECTIVES)
