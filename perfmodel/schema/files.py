"""Files: error messages of one form, files that are written whole, and the place of a user's own results."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfmodel import resources
from perfmodel.errors import BadInputError

if TYPE_CHECKING:
    from pydantic import ValidationError

SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
"""Separators that stand in place of commas in a CSV file, by name."""

LATEST = "latest"  # word for the newest run that holds a calibration
SAMPLES_NAME = "samples.jsonl"
MACHINE_NAME = "machine.toml"  # file names in the folder of a run, besides its calibrations (*.json)
SAMPLES_SUFFIX = ".samples.csv"
"""Suffix of the samples' file beside a calibration: ``mine.json``, ``mine.samples.csv``."""

BROKEN = ".broken"  # part of the name of a folder that was put aside because its samples cannot be read
HOME_VARIABLE = "PERFMODEL_HOME"

_SHOWN_PROBLEMS = 5
_LONGEST_VALUE = 60
_LONGEST_LINE = 120
_LONGEST_PROBLEM = 2_000
_MOST_NEAREST = 3
_MOST_NAMES = 60
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SIGNED = re.compile(r"[+-](?:[\d.]+(?:[eE][+-]?\d+)?|∞)(?:\s?[%×]|\s[^\W\d]\w*(?:/s)?)?")
_EXPECTED = {
    "machine file": "TOML with name, title and a table [values.KEY] for each value, as in "
    "perfmodel show machines h100-sxm-ib --toml",
    "chip file": "TOML with name, title, [buffers] and a table [values.KEY] for each value, as in "
    "perfmodel show chips ascend-910 --toml",
    "table file": "a list of tables with rows, dim, pooling and dtype; perfmodel show --help",
    "frame": "columns rows and dim, and as wanted pooling, dtype, weighted, distribution, name, count, "
    "features, buckets",
    "distribution file": "CSV with row_share and lookup_share, a bin of rows a line, each adding up to 1",
    "sample file": "CSV with collective, payload_bytes, gpus, time_s and more; perfmodel import --help",
    "calibration": "a file that perfmodel import wrote; perfmodel import --help",
}
_REASONS = {"missing": "is missing", "extra_forbidden": "is not a field", "frozen_set_type": "is not a field"}
"""Words for pydantic's error types; others have pydantic's words without ``_PREFIX`` and ``_SUFFIX``."""
_PREFIX = re.compile(r"^\w+ should")
_SUFFIX = re.compile(r" after validation| or instance of \w+|, unable to parse string as an? \w+")

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _LONGEST_VALUE


def expected(what: str) -> str:
    """Expected content of a file of this kind ("machine file"), in a few words, for an error message."""
    text = next((text for kind, text in _EXPECTED.items() if what.startswith(kind)), "")
    return f"expected: {text}." if text else f"check {what if what.startswith('--') else 'the file'}."


def cell(text: str) -> str:
    """A name as a field of a CSV file, made safe for spreadsheets, which run fields that look like formulas.

    Limits: ``=cmd``, ``-2+3`` -> ``'=cmd``, ``'-2+3``; numbers, with or without a unit -> unchanged
    Source: OWASP, CSV injection
    """
    begins = text[:1] in ("=", "@", "\t", "\r") or (text[:1] in ("+", "-") and not _SIGNED.fullmatch(text))
    return f"'{text}" if begins else text


def first_line(text: str) -> str:
    """First line of a library's message, cut to one screen width, without the final dot."""
    line = next(iter(text.splitlines()), "").removesuffix(".")
    return f"{line[:_LONGEST_LINE]}{'…' if line[_LONGEST_LINE:] else ''}"


def shown(value: object) -> str:
    """A value from a file in short printable form, for a message."""
    try:
        text = _SHORT.repr(value)
    except ValueError:  # Python does not print it
        return "a number of many digits"
    return f"{text[:_LONGEST_VALUE]}{'…' if text[_LONGEST_VALUE:] else ''}"


def invalid_fields(
    error: ValidationError, what: str, where: str, line_numbers: Sequence[int] = ()
) -> BadInputError:
    """pydantic's errors on at most one screen; line_numbers  as of ``describe_problems``"""
    words = f"{what} {where} is not valid: {describe_problems(error, line_numbers)}."
    return BadInputError(words, expected(what), where=f"{what} {where}")


def describe_problems(error: ValidationError, line_numbers: Sequence[int] = ()) -> str:
    """pydantic's errors in words: path, reason and value of each field.

    line_numbers  of the rows of a CSV file: ``tables.3.rows`` is then printed as ``line 5, rows``
    """
    lines = []
    for problem in error.errors()[:_SHOWN_PROBLEMS]:
        kind = problem["type"]
        field = ".".join(map(str, problem["loc"]))
        match problem["loc"]:
            case (_, int(row), *columns) if line_numbers:
                field = ", ".join([f"line {line_numbers[row]}", *map(str, columns)])
        words = _REASONS.get(kind) or _SUFFIX.sub("", _PREFIX.sub("must", problem["msg"]))
        if kind == "value_error":  # our own say the value
            words = words.removeprefix("Value error, ")
        elif kind not in _REASONS:
            words = f"{words} (found {shown(problem['input'])})"
            field = field or "the whole file"
        line = f"{field}: {words}" if field else words
        lines.append(line[:_LONGEST_PROBLEM])
    left = error.error_count() - len(lines)
    return "; ".join([*lines, f"and {left} more"] if left else lines)


def unknown_name(
    kind: str, name: str, known: Iterable[str], usual: str = "", meant: str = ""
) -> BadInputError:
    """The error for an unknown name, with the nearest.

    usual  preferred to others that begin so;  meant  the name that another tool's word stands for
    """
    names = sorted(known)
    nearest = [meant] if meant in names else []
    nearest = nearest or _find_nearest(name.strip().casefold(), sorted(names, key=lambda x: x != usual))
    step = f"did you mean {' or '.join(nearest)}? " if nearest else ""
    left = len(names) - _MOST_NEAREST
    listed = [*names[:_MOST_NEAREST], f"and {left} more"] if names[_MOST_NAMES:] else names
    step += f"known: {', '.join(listed) or 'none'}."
    where = "" if kind.startswith("--") else kind
    return BadInputError(f"{kind} {shown(name)} is not known.", step, where=where, allowed=names)


def _find_nearest(text: str, names: Sequence[str]) -> list[str]:
    """At most three names: those that begin so; else the most alike; else those with its first word."""
    if len(text) < 2:
        return []
    plain = {candidate.casefold(): candidate for candidate in reversed(names)}
    begins = [name for name in names if name.casefold().startswith(text)]
    alike = begins or [plain[word] for word in difflib.get_close_matches(text, list(plain), n=1, cutoff=0.75)]
    first_word = text.partition("-")[0]
    return (alike or [name for name in names if name.casefold().startswith(first_word)])[:_MOST_NEAREST]


def looks_like_path(text: str, suffixes: Sequence[str]) -> bool:
    """Whether a text looks like a path (a slash, one of ``suffixes``), not like a shipped name."""
    return not {"/", "\\"}.isdisjoint(text) or text.lower().endswith(tuple(suffixes))


def find_shipped(kind: str, name: str, folder: str, suffix: str, usual: str = "") -> Path:
    """Path of a shipped file by its name; kind  for a message;  usual  as of ``unknown_name``."""
    shipped = resources.data_names(folder, suffix)
    if name not in shipped:
        raise unknown_name(kind, name, shipped, usual)
    return resources.data_path(folder, name + suffix)


def find_file(kind: str, name_or_path: str | Path, folder: str, suffix: str) -> Path:
    """Path of a user's own file, or of a shipped one of ``folder``. kind, Limits  as ``find_shipped``"""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or looks_like_path(text, [suffix]):
        return Path(name_or_path)
    return find_shipped(kind, text, folder, suffix)


def write_whole(path: Path, content: str | bytes | Callable[[Path], object], what: str = "") -> None:
    """Write a file whole or not at all: beside it, under a random name that replaces even a link."""
    draft = path.parent / f".{path.name[:60]}.{os.urandom(8).hex()}{path.suffix}"
    try:
        if callable(content):
            content(draft)
        else:
            draft.write_bytes(content.encode() if isinstance(content, str) else content)
        with draft.open("rb") as stream, contextlib.suppress(OSError):  # some file systems cannot
            os.fsync(stream.fileno())
        os.replace(draft, path)
    except (OSError, ValueError) as error:
        raise cannot_write(path, error, what) from None
    finally:
        with contextlib.suppress(OSError, ValueError):
            draft.unlink()


def cannot_write(path: Path, error: Exception, what: str = "") -> BadInputError:
    """The error for a place that cannot be written: the system's reason, and what helps."""
    reason = (getattr(error, "strerror", None) or str(error)).lower()
    named = f"{what} {path}" if what else str(path)
    step = "check the folder and its permissions, or name another."
    if getattr(error, "errno", None) in _FULL:
        step = "free some space there, and rerun the command."
    return BadInputError(f"{named} cannot be written: {reason}.", step)


def home_folder() -> Path:
    """``$PERFMODEL_HOME``, else the user's data folder of this system. It need not exist."""
    if place := os.environ.get(HOME_VARIABLE, "").strip():
        return Path(place).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("perfmodel", appauthor=False))


def runs_folder() -> Path:
    """Default place of the folders of runs. It need not exist."""
    return home_folder() / "runs"


def place_samples(out: Path) -> Path:
    """The file of the samples beside a calibration's file: ``mine.samples.csv`` of ``mine.json``."""
    return out.with_name(f"{out.name.removesuffix('.json')}{SAMPLES_SUFFIX}")
