"""The lines of a run's file: which are usable, and which are damaged."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from perfmodel.errors import BadInputError
from perfmodel.schema.files import invalid_fields
from perfmodel.schema.home import BROKEN
from perfmodel.schema.runs import Finish, Line, PointLine, RunHeader, Status, Visit
from perfmodel.units import counted

RUN_FILE = "run file"
_BLANK = b" \t\r\0"
"""Bytes that may surround a line, or be alone in one: lost power leaves zero bytes."""
_MOST_NAMED = 8

_LINE: TypeAdapter[Any] = TypeAdapter(Line)


class Damage(NamedTuple):
    """An unusable line, and why."""

    number: int
    why: str


@dataclass(frozen=True)
class RunLines:
    """Contents of a file: the header, the usable lines after it with their numbers, and damaged lines.

    whole_bytes   up to the end of the last complete line; what follows was cut short
    """

    header: RunHeader
    whole_bytes: int
    good: Sequence[tuple[int, PointLine | Visit | Finish]]
    damage: Sequence[Damage]

    @property
    def damage_text(self) -> str:
        """Words such as ``3 lines (7, 9, 12)``."""
        numbers = [str(item.number) for item in self.damage]
        more = " …" if len(numbers) > _MOST_NAMED else ""
        return f"{counted(len(numbers), 'line')} ({', '.join(numbers[:_MOST_NAMED])}{more})"

    def error(self, file: Path) -> BadInputError:
        """The error: which lines are damaged, and how to go on."""
        first = self.damage[0]
        more = f" In all, {self.damage_text} cannot be used." if len(self.damage) > 1 else ""
        return BadInputError(
            f"{RUN_FILE} {file}, line {first.number}: {first.why}.{more}",
            "run perfmodel calibrate again as before: it measures again what the lines held, and keeps a "
            f"copy of the file; or {put_away(file)}",
        )


def read_lines(raw: bytes, file: Path) -> RunLines:
    """The lines of a run's file. Blank lines, and zero bytes around a line, are ignored.

    Limits: no complete line, or a first line that is not the header of a run -> BadInputError
    """
    whole = raw[: raw.rfind(b"\n") + 1]
    lines = whole.split(b"\n")[:-1]
    if not lines:
        raise BadInputError(f"{RUN_FILE} {file} holds no whole line.", put_away(file))
    header = header_of(lines[0], file)
    good: list[tuple[int, PointLine | Visit | Finish]] = []
    damage: list[Damage] = []
    held: dict[str, list[int]] = {}  # visits of each point, and visits with times
    for number, text in enumerate(lines[1:], 2):
        bare = text.strip(_BLANK)
        if not bare:
            continue
        try:
            line = parse_line(bare, number, file)
        except BadInputError as error:
            why = error.message.partition("is not valid: ")[2].removeprefix("the whole file: ").rstrip(".")
            damage.append(Damage(number, why))
            continue
        if isinstance(line, RunHeader):
            damage.append(Damage(number, "a second header"))
        elif why := _why_unusable(line, held):
            damage.append(Damage(number, why))
        else:
            good.append((number, line))
    return RunLines(header, len(whole), good, damage)


def _why_unusable(line: PointLine | Visit | Finish, held: dict[str, list[int]]) -> str:
    """Why a readable line contradicts the lines before it; "" if it is usable.

    held  by key of a point: [its visits so far, its visits with times]; a usable line is counted
    """
    if isinstance(line, PointLine):
        if line.key != line.point.key:
            return "the key is not that of the point"
        held[line.key] = [0, 0]
        return ""
    if line.key not in held:
        return f"a {line.type} of a point that no line before it names"
    visits, timed = held[line.key]
    if isinstance(line, Visit):
        held[line.key] = [visits + 1, timed + bool(line.times_s)]
        return ""
    if line.visits > visits:
        return f"the end of a point of {counted(line.visits, 'visit')}, of which {visits} are there"
    if line.status is not Status.FAILED and not timed:
        return "the end of a point that was never timed"
    return ""


def header_of(first: bytes, file: Path) -> RunHeader:
    """The header in the first line. Limits: anything else -> BadInputError"""
    header = parse_line(first, 1, file)
    if not isinstance(header, RunHeader):
        raise BadInputError(f"{RUN_FILE} {file}, line 1: not the header of a run.", put_away(file))
    return header


def parse_line(text: bytes, number: int, file: Path) -> RunHeader | PointLine | Visit | Finish:
    """Line ``number`` (from 1) of a run's file. Limits: anything else -> BadInputError"""
    try:
        line: RunHeader | PointLine | Visit | Finish = _LINE.validate_json(text, strict=True)
    except ValidationError as error:
        message = invalid_fields(error, RUN_FILE, f"{file}, line {number},").message
        raise BadInputError(message, put_away(file)) from None
    return line


def put_away(file: Path) -> str:
    """Advice for a message: how to put the folder of a run aside, under an unused name."""
    folder = file.parent
    aside = next(
        path
        for count in itertools.count(1)
        if not (path := folder.with_name(f"{folder.name}{BROKEN}{count if count > 1 else ''}")).exists()
    )
    return f"put the folder away and measure again:\n  {shlex.join(['mv', str(folder), str(aside)])}"
