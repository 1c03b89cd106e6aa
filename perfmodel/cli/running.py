"""Runs a command from its words to its exit code; every error becomes text."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import sys
import traceback
import warnings

import typer

from perfmodel.cli import signals
from perfmodel.cli.app import LoadedCommand, app
from perfmodel.cli.output import RUNNING, check_stdout, fail, note, read_trouble, report_bug
from perfmodel.cli.waiting_line import WaitingLine
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.question.spec import name_flag
from perfmodel.resources import out_of_memory

_UsageError = typer.BadParameter.__mro__[2]
"""The base class of typer's errors about arguments."""


def run(words: list[str]) -> int:
    """Run the words of a command line, and return the exit code; print every error on stderr.

    ``-v`` may be at any place among them.
    """
    end = words.index("--") if "--" in words else len(words)
    options = [word for word in words[:end] if word not in ("-v", "--verbose")]
    RUNNING.verbose = len(options) < end
    RUNNING.as_json = "--json" in options
    arguments = options + words[end:]
    name = next(iter(options), "")
    silent = name == "explore" or not name.isidentifier()  # no command, or an option
    with warnings.catch_warnings():
        if not RUNNING.verbose and not sys.warnoptions:
            warnings.simplefilter("ignore")  # of libraries, about numbers that our errors explain
        try:
            check_stdout()
            with contextlib.nullcontext() if silent else WaitingLine(name, plain=name == "calibrate"):
                result = app(args=arguments, prog_name="perfmodel", standalone_mode=False)
            if result == signals.STOPPED:  # typer's code of a KeyboardInterrupt
                raise KeyboardInterrupt
            return result if isinstance(result, int) else 0
        except SystemExit:  # here typer exits only if the reader of the help has exited
            return 0
        except (Exception, KeyboardInterrupt) as error:
            return _report(error, arguments)


def _report(error: Exception | KeyboardInterrupt, arguments: list[str]) -> int:
    """Print why a command ended, and return its exit code. arguments  the words of its line"""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, OSError) and any(frame.name == "echo" for frame in frames):
        error = read_trouble(error)  # of typer, which printed its own help
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, PerfmodelError):
        return fail(error)
    if isinstance(error, (KeyboardInterrupt, typer.Abort)) or signals.seen:
        note("\nstopped.")  # a library may have turned the signal into an error of its own
        return signals.STOPPED
    if isinstance(error, _UsageError):
        return _report_usage(error, arguments)
    if (no_memory := out_of_memory(error)) is not None:
        return fail(no_memory)
    return report_bug(error, arguments)


def _report_usage(error: Exception, arguments: list[str]) -> int:
    """Print what typer refused, and what to type instead; returns the exit code. arguments  of the line"""
    context = getattr(error, "ctx", None)
    message = getattr(error, "format_message", lambda: str(error))().strip()
    if not message or message.startswith("Usage:"):  # a group without a command: the message is its help
        print(message, file=sys.stderr)
        return BadInputError.exit_code
    steps = []
    for option, number, unit in zip(arguments, arguments[1:], arguments[2:], strict=False):
        if number.replace(".", "").isdigit() and f"({unit})" in message:
            steps.append(f"a value and its unit are one word: {option} {number}{unit}")
    command = getattr(context, "command", None)
    flag = getattr(error, "option_name", None)
    if isinstance(command, LoadedCommand):
        settable = [option.name for option in command.asks.declared() if option.by_set]
        steps += [f"write --set {name}=VALUE." for name in settable if name_flag(name) == flag]
    words = ["perfmodel", *itertools.takewhile(str.isidentifier, arguments)]
    steps.append(f"see {context.command_path if context else shlex.join(words)} --help")
    return fail(BadInputError(message, "\n".join(steps)))
