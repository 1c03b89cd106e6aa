"""Damage files at random, and try readers on them, also in a process of limited CPU time."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fault_inputs import Reader

from perfmodel.errors import PerfmodelError

LONGEST_MESSAGE = 20_000
"""Characters of an error before it is cut to one screen."""

MOST_CPU_S = 40
"""Of one file: generous, since a busy machine is slower."""

ABSURD = (
    *("9" * 5_000, "1" + "0" * 400, str(2**63), "300000000", "-1e-400", "0x" + "F" * 9_000, "2001-99-99"),
    *("0", "-1", "1e308", "1e400", "1e-320", "-1e300", "nan", "NaN", "inf", "-Infinity", "9" * 30, "0x10"),
    *("true", "yes", "null", "None", '""', "[]", "{}", "1_000", "１２", "1,5", "\x1b[31m", "\x00", "\u202e"),
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def damaged(content: bytes, dice: random.Random) -> bytes:
    """The content after one to three kinds of damage."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        content = dice.choice(_DAMAGES)(content, dice)
    return content


def _place(content: bytes, dice: random.Random) -> int:
    return dice.randrange(len(content) + 1)


def flip_bit(content: bytes, dice: random.Random) -> bytes:
    place = _place(content, dice)
    return content[:place] + bytes([dice.randrange(256)]) + content[place + 1 :]


def _cut(content: bytes, dice: random.Random) -> bytes:
    return content[: _place(content, dice)]


def cut_piece(content: bytes, dice: random.Random) -> bytes:
    place = _place(content, dice)
    return content[:place] + content[place + dice.choice((1, 3, 20, 200)) :]


def repeat_piece(content: bytes, dice: random.Random) -> bytes:
    place = _place(content, dice)
    return content[:place] + content[max(0, place - dice.choice((3, 30, 300))) : place] + content[place:]


def insert_junk(content: bytes, dice: random.Random) -> bytes:
    junk = (
        b"\0" * 16,
        b"\xff\xfe",
        b"\n\n",
        b'"',
        b",",
        b"\x1b]0;x\x07",
        b"[" * 300,
        b"\r",
        bytes(dice.randbytes(9)),
    )
    place = _place(content, dice)
    return content[:place] + dice.choice(junk) + content[place:]


def put_absurd_number(content: bytes, dice: random.Random) -> bytes:
    numbers = list(_NUMBER.finditer(content))
    if not numbers:
        return content
    number = dice.choice(numbers)
    return content[: number.start()] + dice.choice(ABSURD).encode() + content[number.end() :]


def move_lines(content: bytes, dice: random.Random) -> bytes:
    lines = content.split(b"\n")
    line, line_after = dice.randrange(len(lines)), dice.randrange(len(lines))
    choice = dice.randrange(3)
    if choice == 0:
        lines[line], lines[line_after] = lines[line_after], lines[line]
    elif choice == 1:
        del lines[line]
    else:
        lines.insert(line_after, lines[line])
    return b"\n".join(lines)


def insert_long_piece(content: bytes, dice: random.Random) -> bytes:
    """Text, keys, levels or spaces without end."""
    piece, times = dice.choice(_PIECES), dice.choice((40, 400, 4_000, 40_000))
    words = list(_WORD.finditer(content))
    place = dice.choice(words).end() if words and dice.random() < 0.7 else _place(content, dice)
    return content[:place] + piece * times + content[place:]


def put_other_type(content: bytes, dice: random.Random) -> bytes:
    """A word, a number, a list or an object in the place of another one."""
    values = list(_VALUE.finditer(content))
    if not values:
        return content
    value, value_after = dice.choice(values), dice.choice(values)
    new = value_after[0] if dice.random() < 0.5 else dice.choice(ABSURD).encode()
    return content[: value.start()] + new + content[value.end() :]


def repeat_line(content: bytes, dice: random.Random) -> bytes:
    lines = content.split(b"\n")
    place = dice.randrange(len(lines))
    return b"\n".join([*lines[:place], *[lines[place]] * dice.choice((10, 100, 1_000)), *lines[place:]])


_PIECES = (b"A", b".a", b" ", b"[", b'{"a":', b"(", b"9", b"- ", b",", b"\n", b'\\"', b"\xc2\xb2", b"!!int ")
_WORD = re.compile(rb"[A-Za-z_]+")
_VALUE = re.compile(rb'"[^"\n]*"|-?\d[\d.eE+-]*|\[[^\[\]]*\]|\{[^{}]*\}|true|false|null|\w+')
_DAMAGES = (
    *(insert_long_piece, put_other_type, put_other_type, repeat_line),
    *(flip_bit, _cut, cut_piece, repeat_piece, insert_junk, move_lines),
    *(put_absurd_number, put_absurd_number, put_absurd_number),
)


def tried(reader: Reader, path: Path) -> tuple[str, str]:
    """What is wrong with how a reader takes a file, and the words of its refusal.

    Limits: an answer, or an error in words -> nothing is wrong
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            reader.read(path)
    except PerfmodelError as error:
        if len(said := str(error)) > LONGEST_MESSAGE:
            return f"a message of {len(said)} characters", said[:LONGEST_MESSAGE]
        return "" if error.exit_code in (2, 3) else f"exit code {error.exit_code}", said
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return f"{type(error).__name__} at {place}: {str(error)[:100]}", ""
    return "", ""


class Took(NamedTuple):
    """What one file took: what was wrong, the words of its refusal, memory that it added, CPU seconds."""

    wrong: str
    said: str
    peak_bytes: float
    cpu_s: float


def limited(reader: Reader, content: bytes, folder: Path) -> Took:
    """One file read in a process of its own, which may use ``MOST_CPU_S`` of a CPU."""
    path = reader.written(content, folder)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
        Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
        before = _memory("VmRSS")
        result = tried(reader, path)
        os.write(writing, json.dumps([*result, _memory("VmHWM") - before]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        raw = stream.read()
    _, status, used = os.wait4(child, 0)
    cpu_s = used.ru_utime + used.ru_stime
    if not raw:
        return Took(f"ended by signal {status}: {MOST_CPU_S} s of a CPU?", "", 0.0, cpu_s)
    return Took(*json.loads(raw), cpu_s)


def _memory(line: str) -> float:
    """Bytes of this process, by a line of Linux's account of it."""
    match = re.search(rf"{line}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024.0 * int(match[1]) if match else 0.0


def failures(readers: list[Reader], tries: int, seed: int, folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Of so many damaged files, dealt to the readers in turn: reader, what was wrong, and the file."""
    for number in range(tries):
        reader = readers[number % len(readers)]
        dice = random.Random(f"{seed}:{number}")
        content = damaged(dice.choice(reader.whole), dice)
        path = reader.written(content, folder)
        if wrong := tried(reader, path)[0]:
            yield reader.name, wrong, path.read_bytes()
