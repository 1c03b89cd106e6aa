"""Prints the answer on stdout and everything else on stderr; says where a file can be written."""

from __future__ import annotations

import contextlib
import errno
import json
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

import typer

from perfmodel import __version__
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.report.terminal import page_width, wrapped
from perfmodel.schema.files import cannot_write

if TYPE_CHECKING:
    from perfmodel.engine.explained import Explanation

SCHEMA_VERSION = 4
"""Version of every JSON document that the command line prints (docs/commands.md)."""

_MOST_LINES = 24  # of a message
_LONGEST_LINE = 1000  # characters
_MOST_WARNINGS = 8
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class CommandReply:
    """The answer of a command; only what is printed is computed.

    record    the keys of its JSON document;  text  its screen; "": none
    warnings  printed after the text;  error  raised at the end, for the exit code
    """

    record: Callable[[], Mapping[str, Any]]
    text: Callable[[], str]
    warnings: Sequence[str] = ()
    error: BaseException | None = None

    def document(self, command: str) -> dict[str, Any]:
        """Its JSON document, of plain values: arrays are lists, NaN and infinity null."""
        return _make_plain({"schema_version": SCHEMA_VERSION, "command": command, **self.record()})

    @staticmethod
    def explain(explanation: Explanation, **more: object) -> CommandReply:
        """The answer of ``--explain``. more  further keys of the document"""
        from perfmodel.report.explanation_text import explanation_text

        return CommandReply(lambda: more | explanation.to_dict(), lambda: explanation_text(explanation))


def print_reply(command: str, reply: CommandReply, *, as_json: bool) -> None:
    """Print an answer as JSON, or as text with its warnings; then raise its error."""
    if as_json:
        emit(_write_json(reply.document(command), indent=2))
    elif text := reply.text():
        emit(text)
        warn_all(reply.warnings)
    if reply.error is not None:
        raise reply.error


@dataclass
class RunningCommand:
    """Options of the running command that all functions here obey: ``-v`` and ``--json``."""

    verbose: bool = False
    as_json: bool = False


RUNNING = RunningCommand()
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
    """Raise BadInputError, before any work, if stdout is closed (``>&-``)."""
    if sys.stdout is None or sys.stdout.closed:
        raise BadInputError("cannot write the answer: stdout is closed.")


def read_trouble(error: OSError) -> typer.Exit | BadInputError:
    """The error for a failed write to stdout: none to speak of if its reader left (``| head``)."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that exit flushes nothing
    if error.errno == errno.EPIPE:
        return typer.Exit(0)
    return BadInputError(f"cannot write the answer: {error.strerror or error}.")


def _make_plain(document: Mapping[str, object]) -> dict[str, object]:
    """The document with types of JSON: lists for arrays, None for NaN and infinity, texts for all else."""
    from pydantic_core import to_jsonable_python

    def convert(value: object) -> object:  # numpy's numbers and arrays
        return value.tolist() if hasattr(value, "tolist") else str(value)

    return dict(to_jsonable_python(document, inf_nan_mode="null", fallback=convert))


def _write_json(plain: Mapping[str, object], indent: int | None = None) -> str:
    """JSON text; control characters are escaped, so that none acts on a terminal."""
    text = json.dumps(plain, indent=indent, ensure_ascii=False)
    return _CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def escape_controls(text: str, encoding: str | None = None) -> str:
    """The text with control characters escaped, so that none moves the cursor or changes colours.

    Limits: newline, tab -> kept;  any other control character -> as Python's ``ascii`` writes it;  a
    character that ``encoding`` lacks -> ?
    """
    text = _CONTROL.sub(lambda match: ascii(match.group())[1:-1], text)
    return text.encode(encoding or "utf-8", errors="replace").decode(encoding or "utf-8")


def warn(text: str) -> None:
    """Print a warning on stderr."""
    _write_error(_wrap_message(text, "warning: "))


def warn_all(texts: Sequence[str]) -> None:
    """Print different warnings, on at most a screen."""
    warnings = list(dict.fromkeys(texts))
    for text in warnings[:_MOST_WARNINGS]:
        warn(text)
    if left := len(warnings[_MOST_WARNINGS:]):
        warn(f"and {left} more (--json has all)")


def note(text: str) -> None:
    """Print progress or a remark on stderr. Indented lines are commands to paste."""
    _write_error("\n" * text.startswith("\n") + _wrap_message(text, ""))


def fail(error: PerfmodelError, cause: BaseException | None = None) -> int:
    """Print an error (what, where, what to do) and return its exit code.

    With ``-v`` first the traceback of ``cause``, else of ``error``.
    With ``--json`` the error is a line of JSON, the last line of stderr.
    """
    if RUNNING.verbose:
        _write_error("".join(traceback.format_exception(cause or error)).rstrip())
    if RUNNING.as_json:
        _write_error(_write_json(_make_plain({"error": error.to_dict()})))
    else:
        _write_error(_wrap_message(f"{error.message.strip()}\n{error.next_step}", "error: "))
    return error.exit_code


def _wrap_message(text: str, label: str) -> str:
    """A message on one screen, as wide as the page: its first line after ``label``, the others indented.

    An indented line, or a line with pip install, is a command to paste: it is not wrapped.
    """
    shown: list[str] = []
    for place, line in enumerate(text.strip("\n").rstrip().splitlines()):
        lead = " " * (len(label) + len(line) - len(line.lstrip()))
        if line.startswith("  ") or (place and "pip install" in line):
            shown.append(lead + line.strip())
        else:
            begin = lead if place else label
            words = line.strip()[:_LONGEST_LINE]
            shown += wrapped(words, page_width(sys.stderr), begin, lead, long_words=False)
    if left := len(shown[_MOST_LINES:]):
        shown[_MOST_LINES:] = [f"{' ' * len(label)}… and {left} more lines"]
    return "\n".join(shown)


def report_bug(error: BaseException, arguments: list[str]) -> int:
    """Print an unexpected exception as a bug on one screen, and return its exit code."""
    text = " ".join(str(error).split())[:300]
    command = f"perfmodel {shlex.join(arguments)}"
    bug = PerfmodelError(
        f"this is a bug in perfmodel {__version__}: {type(error).__name__}: {text}",
        f"please report it with this command:\n  {command}\nadd -v for the traceback.",
    )
    return fail(bug, error)


def _write_error(text: str) -> None:
    """Write to stderr, in place of the line of progress."""
    for hide in before_writing:
        hide()
    with contextlib.suppress(OSError, AttributeError):  # nobody reads stderr, or there is none
        sys.stderr.write(escape_controls(text, sys.stderr.encoding) + "\n")
        sys.stderr.flush()


def check_target(
    path: Path, *endings: str, what: str = "it", force: bool | None = None, option: str = "--out"
) -> None:
    """Raise BadInputError, before any work, if a file of the user cannot be written.

    endings  of its name, if only these are written;  what  it holds: "a plan"
    force    whether an existing file may be replaced; None: the command has no --force
    """
    if endings and path.suffix.lower() not in endings:
        step = f"end the name in {' or '.join(endings)}"
        raise BadInputError(f"{option} {path}: {what} is a {' or '.join(endings)} file.", f"{step}.")
    try:
        if path.exists() and not path.is_file():
            raise BadInputError(f"{path} is a folder or a device, which no file replaces.", "name a file.")
        if os.path.lexists(path) and not force:
            replaced = "remove it first" if force is None else "replace it by --force"
            raise BadInputError(f"{path} exists already.", f"name another by {option}, or {replaced}.")
        if not path.parent.is_dir():
            words = shlex.join(["mkdir", "-p", str(path.parent)])
            raise BadInputError(f"{path.parent} is not a folder.", f"make it first:\n  {words}")
        with tempfile.NamedTemporaryFile(dir=path.parent):
            pass
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from None
