"""Runs a command from its words to its exit code; every error becomes text."""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
import warnings

import typer

from perfmodel.cli.app import COMMANDS, LoadedCommand, app
from perfmodel.cli.output import (
    ReaderLeftError,
    SaidError,
    check_stdout,
    fail,
    read_trouble,
    report_bug,
    set_running,
    warn_stopped,
)
from perfmodel.cli.signals import STOPPED, was_asked_to_end
from perfmodel.cli.waiting_line import WaitingLine
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.question.spec import name_flag
from perfmodel.resources import out_of_memory

_WORKING_ALONE = ("calibrate", "explore")
"""Commands that show their progress themselves."""
_PLAIN = {
    r"Input should be a valid integer.*": "it must be a whole number",
    r"Input should be greater than or equal to (\S+)": r"it must be at least \1",
}
"""Plain words for messages of the library that reads the options."""
_UsageError = typer.BadParameter.__mro__[2]
"""The base class of typer's errors about arguments."""


def run_words(words: list[str]) -> int:
    """Run the words of a command line, and return the exit code; ``-v`` may be at any place among them."""
    end = words.index("--") if "--" in words else len(words)
    arguments = [word for word in words[:end] if word not in ("-v", "--verbose")]
    verbose = len(arguments) < end
    with warnings.catch_warnings():
        if not verbose and not sys.warnoptions:
            warnings.simplefilter("ignore")  # of libraries, about numbers that our errors explain
        return run(arguments + words[end:], verbose=verbose)


def run(arguments: list[str], *, verbose: bool = False) -> int:
    """Run a command and return its exit code; print every error on stderr."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    set_running(verbose=verbose, as_json="--json" in options)
    silent = not arguments or arguments[0].startswith("-") or arguments[0] in _WORKING_ALONE
    try:
        check_stdout()
        with contextlib.nullcontext() if silent else WaitingLine(arguments[0]):
            result = app(args=arguments, prog_name="perfmodel", standalone_mode=False)
        if result == STOPPED:
            warn_stopped()
        return result if isinstance(result, int) else 0
    except SaidError as end:
        return end.exit_code
    except PerfmodelError as error:
        return fail(error, verbose=verbose)
    except (ReaderLeftError, SystemExit):  # here typer exits only if the reader of the help has exited
        return 0
    except (KeyboardInterrupt, typer.Abort):
        warn_stopped()
        return STOPPED
    except Exception as error:  # a usage error, no memory, or a bug
        if was_asked_to_end():  # a library turned the signal into an error of its own
            warn_stopped()
            return STOPPED
        return _report(error, arguments, verbose=verbose)


def _report(error: Exception, arguments: list[str], *, verbose: bool) -> int:
    """Print an error that is none of ours, and return its exit code."""
    if isinstance(error, _UsageError):
        return _report_usage(error, arguments)
    if isinstance(error, OSError):  # of typer, which printed its own help or version?
        frames = traceback.extract_tb(error.__traceback__)
        if any(frame.name == "echo" for frame in frames):
            trouble = read_trouble(error)
            return fail(trouble, verbose=verbose) if isinstance(trouble, PerfmodelError) else 0
    if (no_memory := out_of_memory(error)) is not None:
        return fail(no_memory, verbose=verbose)
    return report_bug(error, arguments, verbose=verbose)


def _report_usage(error: Exception, arguments: list[str]) -> int:
    """Print what typer refused, and what to type instead."""
    context = getattr(error, "ctx", None)
    message = getattr(error, "format_message", lambda: str(error))().strip()
    if not message or message.startswith("Usage:"):  # a group without a command: the message is its help
        print(message, file=sys.stderr)
        return BadInputError.exit_code
    for pattern, plain in _PLAIN.items():
        message = re.sub(pattern, plain, message)
    steps = []
    for option, number, unit in zip(arguments, arguments[1:], arguments[2:], strict=False):
        if option.startswith("--") and number.replace(".", "").isdigit() and f"({unit})" in message:
            steps.append(f"a value and its unit are one word: {option} {number}{unit}")
    command = getattr(context, "command", None)
    if isinstance(command, LoadedCommand) and "No such option" in message:
        flag = getattr(error, "option_name", None)
        settable = [option.name for option in command.asks.declared() if option.by_set]
        steps += [f"write --set {name}=VALUE." for name in settable if name_flag(name) == flag]
        steps += ["tables are --model there: --model NAME or FILE."] if flag == "--tables" else []
    typed = (" ".join(arguments[:count]) for count in (2, 1))
    path = next((f"perfmodel {path}" for path in typed if path in COMMANDS), "perfmodel")
    steps.append(f"see {context.command_path if context else path} --help")
    return fail(BadInputError(message, "\n".join(steps)), verbose=False)
