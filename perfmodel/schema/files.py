"""Files: error messages of one form, files that are written whole, and the place of a user's own results."""

from __future__ import annotations

import contextlib
import difflib
import errno
import heapq
import os
import re
import reprlib
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.errors import BadInputError

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
"""Separators that stand in place of commas in a CSV file, by name."""

LATEST = "latest"
"""Word for the newest run that holds a calibration."""

SAMPLES_NAME = "samples.jsonl"
MACHINE_NAME = "machine.toml"
"""File names in the folder of a run, besides its calibrations (``*.json``)."""

SAMPLES_SUFFIX = ".samples.csv"
"""Suffix of the samples' file beside a calibration: ``mine.json``, ``mine.samples.csv``."""

BROKEN = ".broken"
"""Part of the name of a folder that was put aside because its samples cannot be read."""

HOME_VARIABLE = "PERFMODEL_HOME"

_SHOWN_PROBLEMS = 5
_LONGEST_VALUE = 60
_LONGEST_PROBLEM = 2_000
_MOST_NEAREST = 3
_MANY_NAMES = 60  # above this, only the nearest names are listed, of as many that share most pairs of letters
_LONG = 1e16  # above this, a limit is printed with an exponent
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
_REASONS = {
    "missing": "is missing",
    "extra_forbidden": "is not a field",
    "frozen_set_type": "is not a field",  # what a file cannot say
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be finite",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} letters",
    "too_short": "must not be empty",
    "too_long": "must have at most {max_length} entries",
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
}
"""Plain words for pydantic's error types."""
_TYPES = {
    "float": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "dict": "a table of fields",
    "model": "a table of fields",
    "mapping": "a table of fields",
}
"""What a value must be, by the first word of pydantic's error types (``int_parsing``)."""


def expected(what: str) -> str:
    """Expected content of a file of this kind ("machine file"), in a few words, for an error message."""
    text = next((text for kind, text in _EXPECTED.items() if what.startswith(kind)), "")
    instead = f"check {what}." if what.startswith("--") else "check the file."
    return f"expected: {text}." if text else instead


def key_twice(key: object, where: str) -> BadInputError:
    """The error for a file that has one key twice."""
    return BadInputError(f"{where}: key {shown(key)} stands twice in one object.", "leave one of them.")


def cell(text: str) -> str:
    """A name as a field of a CSV file, made safe for spreadsheets, which run fields that look like formulas.

    Limits: ``=cmd``, ``-2+3`` -> ``'=cmd``, ``'-2+3``; numbers, with or without a unit -> unchanged
    Source: OWASP, CSV injection
    """
    begins = text[:1] in ("=", "@", "\t", "\r") or (text[:1] in ("+", "-") and not _SIGNED.fullmatch(text))
    return f"'{text}" if begins else text


def first_line(text: str) -> str:
    """First line of a library's message, cut to one screen width, without the final dot."""
    line = text.splitlines()[0].removesuffix(".") if text else ""
    return line if len(line) <= 2 * _LONGEST_VALUE else line[: 2 * _LONGEST_VALUE] + "…"


def shown(value: object) -> str:
    """A value from a file in short printable form, for a message."""
    text = _SHORT.repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


class _Short(reprlib.Repr):
    """Shortens a value's text without writing all of a large value first."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxdict = self.maxtuple = self.maxset = _LONGEST_VALUE
        self.maxstring = self.maxother = 4 * _LONGEST_VALUE

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if abs(x) < 10**_LONGEST_VALUE else "a number of many digits"


_SHORT = _Short()


def invalid_fields(
    error: ValidationError, what: str, where: str, line_numbers: Sequence[int] = ()
) -> BadInputError:
    """pydantic's errors on at most one screen: path, reason and value of each field.

    line_numbers  of the rows of a CSV file: ``tables.3.rows`` is then printed as ``line 5, rows``
    """
    lines = []
    for problem in error.errors(include_url=False)[:_SHOWN_PROBLEMS]:
        place, value = problem["loc"], ""
        field = ".".join(map(str, place))
        if line_numbers and len(place) > 1 and isinstance(place[1], int):
            field = ", ".join([f"line {line_numbers[place[1]]}", *map(str, place[2:])])
        if problem["type"] not in ("missing", "extra_forbidden", "value_error"):  # our own say the value
            value = f" (found {shown(problem.get('input'))})"
        if problem["type"] != "value_error":
            field = field or "the whole file"
        line = f"{field}: {_describe_problem(problem)}{value}" if field else _describe_problem(problem)
        lines.append(line if len(line) <= _LONGEST_PROBLEM else line[:_LONGEST_PROBLEM] + "…")
    left = error.error_count() - len(lines)
    omitted = f"; and {left} more" if left > 0 else ""
    words = f"{what} {where} is not valid: {'; '.join(lines)}{omitted}."
    return BadInputError(words, expected(what), where=f"{what} {where}")


def _describe_problem(problem: ErrorDetails) -> str:
    """One of pydantic's errors in plain words: long limits shortened, whole ones with all digits."""
    context: dict[str, Any] = dict(problem.get("ctx", {}))
    for key, limit in context.items():
        if isinstance(limit, (int, float)) and not isinstance(limit, bool):
            integral = limit == int(limit) and abs(limit) < _LONG
            context[key] = f"{int(limit):,}".replace(",", " ") if integral else f"{limit:g}"
    kind = problem["type"]
    if kind == "greater_than_equal":
        return "must not be negative" if context["ge"] == "0" else f"must be at least {context['ge']}"
    if kind in _REASONS:
        return _REASONS[kind].format(**context)
    wanted = _TYPES.get(kind.partition("_")[0])
    return f"must be {wanted}" if wanted else problem["msg"].removeprefix("Value error, ")


def unknown_name(kind: str, name: str, known: Iterable[str], usual: str = "") -> BadInputError:
    """The error for an unknown name: the nearest known names first, then all known names.

    usual  known name that is preferred to others with the same beginning
    """
    names = sorted(known)
    where = "" if kind.startswith("--") else kind
    if len(names) > _MANY_NAMES:
        pairs = {name[i : i + 2] for i in range(len(name[:_LONGEST_VALUE]) - 1)}
        alike = heapq.nlargest(_MANY_NAMES, names, key=lambda known: sum(map(known.__contains__, pairs)))
        near = difflib.get_close_matches(name, alike, n=_MOST_NEAREST, cutoff=0.0)
        step = f"the nearest of {len(names)}: {', '.join(near)}."
    else:
        nearest = _find_nearest(name, sorted(names, key=lambda known: known != usual))
        hint = f"did you mean {' or '.join(nearest)}? " if nearest else ""
        step = f"{hint}known: {', '.join(names) or 'none'}."
    return BadInputError(f"{kind} {shown(name)} is not known.", step, where=where, allowed=names)


def _find_nearest(name: str, names: Sequence[str]) -> list[str]:
    """The known names that are probably meant, at most three.

    That is another case; else all that begin so; else a typing error; else all whose first word, up to a
    dash, is the nearest.  Limits: no name is near -> none
    """
    text = name.strip().casefold()
    plain = {candidate.casefold(): candidate for candidate in reversed(names)}
    if text in plain:
        return [plain[text]]
    if begins := [x for x in names if len(text) >= 2 and x.casefold().startswith(text)]:
        return begins[:_MOST_NEAREST]
    if alike := difflib.get_close_matches(text, list(plain), n=1, cutoff=0.75):
        return [plain[alike[0]]]
    words = {x: x.casefold().partition("-")[0] for x in names}
    nearest = difflib.get_close_matches(text.partition("-")[0], sorted(set(words.values())), n=1)
    return [x for x in names if words[x] in nearest][:_MOST_NEAREST]


def looks_like_path(text: str, suffixes: Sequence[str]) -> bool:
    """Whether a text looks like a path, not like a shipped name."""
    return "/" in text or "\\" in text or text.lower().endswith(tuple(suffixes))


def write_whole(path: Path, write: Callable[[Path], object], what: str = "") -> None:
    """Write a file in one step: ``write`` writes it under a random name beside it, which is then renamed.

    what   names the kind of file in a message ("machine file")
    Links are not followed: a link at ``path`` is replaced by the file, and the linked file is not touched.
    Limits: nothing written, or an error of any kind -> the old file unchanged, and no other file
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:60]}.", suffix=path.suffix, dir=path.parent)
    except (OSError, ValueError) as error:
        raise cannot_write(path, error, what) from None
    draft = Path(name)
    try:
        os.close(handle)
        write(draft)
        _write_through(draft)
        os.replace(draft, path)
    except OSError as error:
        raise cannot_write(path, error, what) from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def write_whole_bytes(path: Path, content: bytes, what: str = "") -> None:
    """Write a file of these bytes atomically."""
    write_whole(path, lambda draft: draft.write_bytes(content), what)


def write_whole_text(path: Path, text: str, what: str = "") -> None:
    """Write a file of this text in UTF-8 atomically."""
    write_whole_bytes(path, text.encode(), what)


def cannot_write(path: Path, error: Exception, what: str = "") -> BadInputError:
    """The error for a place that cannot be written: the system's reason, and what helps."""
    reason = (getattr(error, "strerror", None) or str(error)).lower()
    named = f"{what} {path}" if what else str(path)
    step = "check the folder and its permissions, or name another."
    if getattr(error, "errno", None) in _FULL:
        step = "free some space there, and rerun the command."
    return BadInputError(f"{named} cannot be written: {reason}.", step)


def _write_through(draft: Path) -> None:
    """Synchronise the draft to disk, with the access rights of a new file."""
    handle = os.open(draft, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot
            os.fsync(handle)
        with contextlib.suppress(OSError):
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(handle, 0o666 & ~mask)
    finally:
        os.close(handle)


def home_folder() -> Path:
    """``$PERFMODEL_HOME``, else the user's data folder of this system. It need not exist."""
    if place := os.environ.get(HOME_VARIABLE, "").strip():
        return Path(place).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("perfmodel", appauthor=False))


def runs_folder() -> Path:
    """Default place of the folders of runs. It need not exist."""
    return home_folder() / "runs"


def runs_by_age() -> list[Path]:
    """Folders of runs below ``runs_folder``, last written first; at one instant, the last by name.

    Limits: no run, or an unreadable folder -> empty; a run that was put aside -> left out
    """
    with contextlib.suppress(OSError):
        runs = [(path.stat().st_mtime_ns, path.parent) for path in runs_folder().glob(f"*/{SAMPLES_NAME}")]
        return [run for _, run in sorted(runs, reverse=True) if BROKEN not in run.name]
    return []
