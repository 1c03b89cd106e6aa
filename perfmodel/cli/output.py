"""Prints the answer on stdout and everything else on stderr; says where a file can be written."""

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
_LONGEST_STEM = 60  # characters of up to 4 bytes; with a suffix within the 255 bytes of file systems
_MOST_WARNINGS = 8
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


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


@dataclass(frozen=True)
class CommandReply:
    """The answer of a command; only what is printed is computed.

    record    the keys of its JSON document;  text  its screen; "": none
    warnings  printed after the text;  error  raised at the end, for the exit code
    """

    record: Callable[[], Mapping[str, Any]]
    text: Callable[[], str]
    warnings: Sequence[str] = ()
    error: Exception | None = None

    @staticmethod
    def explain(explanation: Explanation, **more: object) -> CommandReply:
        """The answer of ``--explain``. more  further keys of the document"""
        from perfmodel.report.explanation_text import explanation_text

        return CommandReply(lambda: more | explanation.to_dict(), lambda: explanation_text(explanation))


def print_reply(command: str, reply: CommandReply, *, as_json: bool) -> None:
    """Print an answer as JSON, or as text with its warnings; then raise its error."""
    if as_json:
        emit_json(command, **reply.record())
    elif text := reply.text():
        emit(text)
        warn_all(reply.warnings)
    if reply.error is not None:
        raise reply.error


_running = {"verbose": False, "json": False}
"""Options of the running command that the functions here obey."""


def set_running(*, verbose: bool, as_json: bool) -> None:
    """Remember whether the running command has ``-v`` and ``--json``."""
    _running.update(verbose=verbose, json=as_json)


def is_verbose() -> bool:
    """Whether the running command was called with ``-v``."""
    return _running["verbose"]


before_writing: list[Callable[[], None]] = []
"""Functions to call before each write: they hide the line of progress."""


def emit(text: str) -> None:
    """Print the answer of a command on stdout."""
    check_stdout()
    for hide in before_writing:
        hide()
    try:
        sys.stdout.write(escape_controls(text.rstrip("\n"), sys.stdout.encoding) + "\n")
        sys.stdout.flush()
    except OSError as error:
        raise read_trouble(error) from None


def check_stdout() -> None:
    """Raise CannotWriteError, before any work, if stdout is closed (``>&-``)."""
    if sys.stdout is None or sys.stdout.closed:
        raise CannotWriteError("stdout is closed")


def read_trouble(error: OSError) -> ReaderLeftError | CannotWriteError:
    """The error for a failed write to stdout, which says whether its reader left; the buffer is dropped."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that exit flushes nothing
    return ReaderLeftError() if error.errno == errno.EPIPE else CannotWriteError(error.strerror or str(error))


def emit_json(command: str, **content: Any) -> None:
    """Print a JSON document: schema_version, command, then ``content`` in the given order; NaN as null."""
    emit(_write_json({"schema_version": SCHEMA_VERSION, "command": command, **content}, indent=2))


def _write_json(document: Mapping[str, Any], indent: int | None = None) -> str:
    text = json.dumps(simplify(document), indent=indent, ensure_ascii=False, allow_nan=False)
    return _CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def escape_controls(text: str, encoding: str | None = None) -> str:
    """The text with control characters escaped, so that none moves the cursor or changes colours.

    Limits: newline, tab -> kept;  any other control character -> as Python's ``ascii`` writes it;  a
    character that ``encoding`` lacks -> ?
    """
    text = _CONTROL.sub(lambda match: ascii(match.group())[1:-1], text)
    return text.encode(encoding or "utf-8", errors="replace").decode(encoding or "utf-8")


def simplify(value: Any) -> Any:
    """``value`` converted to Python numbers, texts, lists and dictionaries, which JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): simplify(entry) for key, entry in value.items()}
    if isinstance(value, (set, frozenset)):
        value = sorted(value)
    if isinstance(value, (list, tuple)):
        return [simplify(entry) for entry in value]
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return simplify(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (bool, int, float)) or value is None else str(value)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    _write_error(_fit_screen(_wrap_message(text.strip().splitlines(), "warning: ")))


def strip_numbers(text: str) -> str:
    """The text without its numbers and units, to find warnings that differ only by numbers."""
    return re.sub(r"[-+]?\d[\d.,e+-]*( ?[kKMGT]?i?B)?", "#", text)


def warn_all(texts: Sequence[str]) -> None:
    """Print warnings on at most a screen. If they differ only by numbers: the first, and how many."""
    groups: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        groups.setdefault(strip_numbers(text), []).append(text)
    shown = [
        alike[0] + (f" (and {len(alike) - 1} more like it)" if alike[1:] else "") for alike in groups.values()
    ]
    if left := len(shown) - _MOST_WARNINGS:
        shown[_MOST_WARNINGS:] = [f"and {left} more (--json has all)"] if left > 0 else []
    for text in shown:
        warn(text)


def note(text: str) -> None:
    """Print progress or a remark on stderr. Indented lines are commands to paste."""
    _write_error("\n" * text.startswith("\n") + "\n".join(_wrap_message(text.strip().splitlines(), "")))


def fail(error: PerfmodelError, *, verbose: bool, cause: BaseException | None = None) -> int:
    """Print an error (what, where, what to do) and return its exit code.

    verbose  also print the traceback of ``cause``, else of ``error``
    With ``--json`` the error is a line of JSON, the last line of stderr.
    """
    if verbose:
        _write_error("".join(traceback.format_exception(cause or error)).rstrip())
    if _running["json"]:
        _write_error(_write_json({"error": error.to_dict()}))
    else:
        lines = [*error.message.strip().splitlines(), *error.next_step.rstrip().splitlines()]
        _write_error(_fit_screen(_wrap_message(lines, "error: ")))
    return error.exit_code


def _fit_screen(lines: list[str]) -> str:
    """The lines that fit a screen; long lines are cut, but not commands to paste."""
    shown = list(lines[:_LONGEST_ERROR_LINES])
    for place, line in enumerate(shown):
        if len(line) > _LONGEST_LINE and not line.lstrip().startswith("perfmodel "):
            shown[place] = f"{line[:_LONGEST_LINE]}…"
    left = len(lines) - len(shown)
    return "\n".join([*shown, f"{_INDENT}… and {left} more lines"] if left else shown)


def _wrap_message(lines: list[str], label: str) -> list[str]:
    """The lines of a message as wide as the page, the first after ``label``, the others indented.

    An indented line, or a line with pip install, is a command to paste: it is not wrapped.
    """
    shown: list[str] = []
    for place, line in enumerate(lines or [""]):
        lead = " " * (len(label) + len(line) - len(line.lstrip()))
        if line.startswith(_COMMAND) or (place and "pip install" in line):
            shown.append(lead + line.strip())
        else:
            lead_text, width = lead if place else label, page_width(sys.stderr)
            shown += wrapped(line.strip(), width, lead_text, lead, long_words=False)
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


def is_on_terminal() -> bool:
    """Whether stderr is a terminal on which a line can be rewritten."""
    open_stream = sys.stderr is not None and not sys.stderr.closed
    return open_stream and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def warn_stopped() -> None:
    """Print that Ctrl-C stopped the command."""
    _write_error("\nstopped.")


def _write_error(text: str) -> None:
    if sys.stderr is None:
        return
    for hide in before_writing:
        hide()
    with contextlib.suppress(OSError):  # nobody reads stderr
        sys.stderr.write(escape_controls(text, sys.stderr.encoding) + "\n")
        sys.stderr.flush()


def refuse_ending(out: Path, what: str) -> BadInputError:
    """The error for a file name without the ending .json. what  the file holds: "a plan" """
    name = f"{what.split()[-1]}.json" if str(out) in ("-", ".") else f"{out}.json"
    return BadInputError(f"--out {out}: {what} is a .json file.", shlex.join(["--out", name]))


def check_target(path: Path, *, force: bool = False, option: str = "--out") -> None:
    """Raise BadInputError if a file exists, or its folder is missing, before any work is done.

    force  whether an existing file may be replaced
    """
    try:
        if path.is_dir():
            raise BadInputError(f"{path} is a folder.", f"name a file in it: {path}/…")
        if path.exists() and not path.is_file():
            raise BadInputError(f"{path} is a device or a pipe, which no file replaces.", "name a file.")
        if os.path.lexists(path) and not force:
            state = "exists already" if path.exists() else "is a link already, to a file that is not there"
            free = shlex.join([option, str(find_free_name(path))])
            raise BadInputError(f"{path} {state}.", f"{free} is free; or remove it first.")
        if not path.parent.is_dir():
            words = shlex.join(["mkdir", "-p", str(path.parent)])
            raise BadInputError(f"{path.parent} is not a folder.", f"make it first:\n  {words}")
        with tempfile.NamedTemporaryFile(dir=path.parent):
            pass
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from None


def find_free_name(path: Path, *, first: bool = False) -> Path:
    """The first of ``mine-2.json``, ``mine-3.json`` … that is free. first  ``mine.json`` itself may be it"""
    if first and not os.path.lexists(path):
        return path
    stem = path.stem[:_LONGEST_STEM]
    names = (path.with_name(f"{stem}-{number}{path.suffix}") for number in itertools.count(2))
    return next(name for name in names if not os.path.lexists(name))
