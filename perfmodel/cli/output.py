"""Prints the answer on stdout and everything else on stderr; writes a file completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import math
import os
import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel import __version__
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.report.terminal import page_width, wrapped
from perfmodel.schema.files import cannot_write

if TYPE_CHECKING:
    from perfmodel.engine.explained import Explanation

SCHEMA_VERSION = 4
"""Version of every JSON document that the command line prints (docs/commands.md)."""

_INDENT = " " * len("error: ")
_COMMAND = "  "
_LONGEST_ERROR_LINES = 24
_LONGEST_LINE = 1000  # characters
_MOST_WARNINGS = 8


class CannotWriteError(BadInputError):
    """The answer cannot be written: the disk is full, or stdout is closed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot write the answer: {reason}.")


class ReaderLeftError(Exception):
    """The reader of stdout has exited (``| head``). That is no error, but nothing more can be printed."""


class SaidError(Exception):
    """Ends the command with ``exit_code``, without a message: all messages have been printed already."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


_asked = {"verbose": False, "json": False}


def set_asked(*, verbose: bool, as_json: bool) -> None:
    """Remember whether the running command has ``-v`` and ``--json``, for the functions that print."""
    _asked.update(verbose=verbose, json=as_json)


def is_verbose() -> bool:
    """Whether the running command was called with ``-v``."""
    return _asked["verbose"]


before_writing: list[Callable[[], None]] = []
"""Functions to call before each write."""


def _about_to_write() -> None:
    for hide in before_writing:
        hide()


def emit(text: str) -> None:
    """Print the answer of a command on stdout."""
    check_stdout()
    _about_to_write()
    try:
        sys.stdout.write(encodable(printable(text.rstrip("\n")), sys.stdout.encoding) + "\n")
        sys.stdout.flush()
    except OSError as error:
        raise stdout_trouble(error) from None


_CITED = re.compile(r"(?<![\w/])data/[a-z_]+")


def emit_cited(text: str) -> None:
    """Print an answer on stdout; if it names shipped files as ``data/…``, also say where that folder is."""
    from perfmodel.resources import data_path

    where = f"\n\nFiles in data/ are in {data_path()}" if _CITED.search(text) else ""
    emit(f"{text}{where}")


def emit_explanation(command: str, explanation: Explanation, *, as_json: bool, **more: object) -> None:
    """Print an explained step on stdout, as text or JSON. more  further keys of the document"""
    from perfmodel.report.explanation_text import explanation_text

    if as_json:
        emit_json(command, **more, **explanation.to_dict())
    else:
        emit_cited(explanation_text(explanation))


def check_stdout() -> None:
    """Raise CannotWriteError, before any work, if stdout is closed (``>&-``)."""
    if sys.stdout is None or sys.stdout.closed:
        raise CannotWriteError("stdout is closed")


def stdout_trouble(error: OSError) -> ReaderLeftError | CannotWriteError:
    """The error for a failed write to stdout, which says whether its reader left; the buffer is dropped."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that exit flushes nothing
    return ReaderLeftError() if error.errno == errno.EPIPE else CannotWriteError(error.strerror or str(error))


def emit_json(command: str, **content: Any) -> None:
    """Print a JSON document: schema_version, command, then ``content`` in the given order; NaN as null."""
    emit(_json_text({"schema_version": SCHEMA_VERSION, "command": command, **content}, indent=2))


def _json_text(document: dict[str, Any], indent: int | None = None) -> str:
    text = json.dumps(plain(document), indent=indent, ensure_ascii=False, allow_nan=False)
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def printable(text: str) -> str:
    """The text with control characters escaped, so that none moves the cursor or changes colours.

    Limits: newline, tab -> kept;  any other control character -> as Python's ``ascii`` writes it
    """
    return _CONTROL.sub(lambda found: ascii(found.group())[1:-1], text)


_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def plain(value: Any) -> Any:
    """``value`` converted to Python numbers, texts, lists and dictionaries, which JSON can hold."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value) if isinstance(value, (set, frozenset)) else value
        return [plain(item) for item in items]
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    return str(value)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    _write_error("\n".join(_one_screen(_wrapped(text.strip().splitlines(), "warning: "))))


def numberless(text: str) -> str:
    """The text without its numbers and units, to find warnings that differ only by numbers."""
    return re.sub(r"[-+]?\d[\d.,e+-]*( ?[kKMGT]?i?B)?", "#", text)


def warn_all(texts: Sequence[str]) -> None:
    """Print warnings on at most a screen. If they differ only by numbers: the first, and how many."""
    groups: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        groups.setdefault(numberless(text), []).append(text)
    shown = [
        same[0] + (f" (and {len(same) - 1} more like it)" if same[1:] else "") for same in groups.values()
    ]
    for text in shown[:_MOST_WARNINGS]:
        warn(text)
    if len(shown) > _MOST_WARNINGS:
        warn(f"and {len(shown) - _MOST_WARNINGS} more (--json has all)")


def note(text: str) -> None:
    """Print progress or a remark on stderr. Indented lines are commands to paste."""
    _write_error("\n".join(_wrapped(text.strip().splitlines(), "")), begin="\n" if text[:1] == "\n" else "")


def fail(error: PerfmodelError, *, verbose: bool, cause: BaseException | None = None) -> int:
    """Print an error (what, where, what to do) and return its exit code.

    verbose  also print the traceback of ``cause``, else of ``error``
    With ``--json`` the error is a line of JSON, the last line of stderr.
    """
    if verbose:
        _write_error("".join(traceback.format_exception(cause or error)).rstrip())
    if _asked["json"]:
        _write_error(_json_text({"error": error.to_dict()}))
        return error.exit_code
    lines = [*error.message.strip().splitlines(), *error.next_step.rstrip().splitlines()]
    _write_error("\n".join(_one_screen(_wrapped(lines))))
    return error.exit_code


def _one_screen(lines: list[str]) -> list[str]:
    """The lines that fit a screen; long lines are cut, but not commands to paste."""
    shown = [_cut(line) for line in lines[:_LONGEST_ERROR_LINES]]
    left = len(lines) - len(shown)
    return [*shown, f"{_INDENT}… and {left} more lines"] if left else shown


def _cut(line: str) -> str:
    whole = len(line) <= _LONGEST_LINE or line.lstrip().startswith("perfmodel ")
    return line if whole else line[:_LONGEST_LINE] + "…"


def _wrapped(lines: list[str], label: str = "error: ") -> list[str]:
    """The lines of an error as wide as the page, the first after ``label``, the others indented.

    An indented line, or a line with pip install, is a command to paste: it is not wrapped.
    """
    shown: list[str] = []
    for i, line in enumerate(lines or [""]):
        own = " " * len(label) + line[: len(line) - len(line.lstrip())]
        if line.startswith(_COMMAND) or (i > 0 and "pip install" in line):
            shown.append(own + line.strip())
            continue
        first = label if i == 0 else own
        shown += wrapped(line.strip(), page_width(sys.stderr), first, own, long_words=False)
    return shown


def report_bug(error: BaseException, arguments: list[str], *, verbose: bool) -> int:
    """Print an unexpected exception as a bug on one screen, and return its exit code."""
    where = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" at {Path(where[0].filename).name}:{where[0].lineno}" if where else ""
    text = " ".join(str(error).split())[:300]
    bug = PerfmodelError(
        f"this is a bug in perfmodel {__version__}: {type(error).__name__}{place}: {text}",
        f"please report it with this command:\n{_COMMAND}perfmodel {shlex.join(arguments)}\n"
        "add -v for the traceback.",
    )
    return fail(bug, verbose=verbose, cause=error)


def on_terminal() -> bool:
    """Whether stderr is a terminal on which a line can be rewritten."""
    seen = sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()
    return seen and os.environ.get("TERM") != "dumb"


def warn_stopped() -> None:
    """Print that Ctrl-C stopped the command."""
    _write_error("\nstopped.")


def _write_error(text: str, *, begin: str = "", end: str = "\n") -> None:
    if sys.stderr is None:
        return
    _about_to_write()
    try:
        sys.stderr.write(begin + encodable(printable(text), sys.stderr.encoding) + end)
        sys.stderr.flush()
    except OSError:
        pass  # nobody reads stderr


def encodable(text: str, encoding: str | None) -> str:
    """The text with u, x, * … for µ, ×, · … if ``encoding`` lacks these characters."""
    name = encoding or "utf-8"
    try:
        text.encode(name)
        return text
    except (UnicodeEncodeError, LookupError):
        for fancy, simple in _SIMPLE.items():
            text = text.replace(fancy, simple)
        return text.encode("ascii", errors="replace").decode("ascii")


_SIMPLE = {
    "µ": "u", "×": "x", "·": "*", "–": "-", "→": "->", "≤": "<=", "≥": ">=", "÷": "/", "±": "+-",
    "α": "alpha", "β": "beta", "…": "...", "≈": "~", "²": "^2",
}  # fmt: skip


def not_json(out: Path, what: str) -> BadInputError:
    """The error for a file name without the ending .json. what  the file holds: "a plan" """
    name = f"{what.split()[-1]}.json"
    try:
        name = str(out / name) if out.is_dir() else name if out.exists() or str(out) == "-" else f"{out}.json"
    except (OSError, ValueError) as error:
        return cannot_write(out, error)
    return BadInputError(f"--out {out}: {what} is a .json file.", shlex.join(["--out", name]))


def check_target(
    path: Path, *, force: bool = False, free: Callable[[], Path] | None = None, option: str = "--out"
) -> None:
    """Raise BadInputError if a file exists, or its folder is missing, before any work is done.

    force  an existing file may be replaced;  free  returns a name to suggest instead; None: ``free_name``
    """
    try:
        folder, there, parent = path.is_dir(), os.path.lexists(path), path.parent.is_dir()
        device = path.exists() and not folder and not path.is_file()
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from None
    if folder:
        raise BadInputError(f"{path} is a folder.", f"name a file in it: {path}/…")
    if device:
        raise BadInputError(f"{path} is a device or a pipe, which no file replaces.", "name a file.")
    if there and not force:
        other = shlex.join([option, str(free() if free else free_name(path))])
        what = "exists already" if path.exists() else "is a link already, to a file that is not there"
        raise BadInputError(f"{path} {what}.", f"{other} is free; or remove it first.")
    if not parent:
        words = shlex.join(["mkdir", "-p", str(path.parent)])
        raise BadInputError(f"{path.parent} is not a folder.", f"make it first:\n  {words}")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent):
            pass
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from None


_LONGEST_STEM = 60  # characters of up to 4 bytes; with a suffix within the 255 bytes of file systems


def free_name(path: Path, beside: Callable[[Path], Path] = lambda path: path, *, first: bool = False) -> Path:
    """The first of ``mine-2.json``, ``mine-3.json`` … that is free.

    beside  gives a file to be free too;  first  whether ``mine.json`` itself may be it
    """
    if first and not os.path.lexists(path):
        return path
    names = (
        path.with_name(f"{path.stem[:_LONGEST_STEM]}-{number}{path.suffix}") for number in itertools.count(2)
    )
    return next(name for name in names if not os.path.lexists(name) and not os.path.lexists(beside(name)))
