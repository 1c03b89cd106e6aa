"""Runs a command from its words to its exit code; every error becomes text."""

from __future__ import annotations

import re
import shlex
import sys
import traceback
import warnings
from contextlib import AbstractContextManager, nullcontext

import typer

from perfmodel.cli.app import app
from perfmodel.cli.codes import BAD_USAGE, STOPPED
from perfmodel.cli.output import (
    ReaderLeftError,
    SaidError,
    check_stdout,
    fail,
    report_bug,
    set_asked,
    stdout_trouble,
    warn_stopped,
)
from perfmodel.cli.signals import was_asked_to_end
from perfmodel.cli.waiting_line import WaitingLine
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.question.spec import name_flag
from perfmodel.resources import out_of_memory


def command(given: list[str]) -> int:
    """Run the words of a command line, and return the exit code; ``-v`` may be at any place among them."""
    options = _options(given)
    verbose = any(word in ("-v", "--verbose") for word in options)
    arguments = [word for word in options if word not in ("-v", "--verbose")] + given[len(options) :]
    with warnings.catch_warnings():
        if not verbose and not sys.warnoptions:
            warnings.simplefilter("ignore")  # of libraries, about numbers that our errors explain
        return run(arguments, verbose=verbose)


def _options(words: list[str]) -> list[str]:
    return words[: words.index("--")] if "--" in words else words


def _waiting(arguments: list[str]) -> AbstractContextManager[object]:
    """A context that shows a line while the command works; nothing for calibrate and explore."""
    alone = not arguments or arguments[0].startswith("-") or arguments[0] in ("calibrate", "explore")
    return nullcontext() if alone else WaitingLine(arguments[0])


def run(arguments: list[str], *, verbose: bool = False) -> int:
    """Run a command (without the word perfmodel) and return its exit code; print every error on stderr."""
    before = sys.modules.get("perfmodel.cli.chosen")
    if before is not None:  # a process may run several commands, and files change in between
        before.load_calibration_file.cache_clear()
    set_asked(verbose=verbose, as_json="--json" in _options(arguments))
    usage_error = typer.BadParameter.__mro__[2]  # the base class of typer's errors about arguments
    try:
        check_stdout()
        with _waiting(arguments):
            result = app(args=arguments, prog_name="perfmodel", standalone_mode=False)
        if result == STOPPED:
            warn_stopped()
        return result if isinstance(result, int) else 0
    except SaidError as end:
        return end.exit_code
    except PerfmodelError as error:
        return fail(error, verbose=verbose)
    except (KeyboardInterrupt, typer.Abort):
        warn_stopped()
        return STOPPED
    except (
        ReaderLeftError,
        SystemExit,
    ):  # in this mode typer exits only if the reader of the help has exited
        return 0
    except Exception as error:  # sorted below: a usage error, no memory, or a bug
        if was_asked_to_end():  # a library turned the signal into an error of its own
            warn_stopped()
            return STOPPED
        if isinstance(error, usage_error):
            return _bad_usage(error, arguments)
        if isinstance(error, OSError) and _while_printing(error):
            trouble = stdout_trouble(error)
            return fail(trouble, verbose=verbose) if isinstance(trouble, PerfmodelError) else 0
        no_memory = out_of_memory(error)
        if no_memory is not None:
            return fail(no_memory, verbose=verbose)
        return report_bug(error, arguments, verbose=verbose)


_PLAIN = {
    r"Input should be a valid integer.*": "it must be a whole number",
    r"Input should be greater than or equal to (\S+)": r"it must be at least \1",
}
"""Plain words for messages of the library that reads the options."""


def _while_printing(error: BaseException) -> bool:
    """Whether the error was raised while typer printed its own help or version (``echo``)."""
    return any(frame.name == "echo" for frame in traceback.extract_tb(error.__traceback__))


def _bad_usage(error: Exception, arguments: list[str]) -> int:
    context = getattr(error, "ctx", None)
    named = arguments and not arguments[0].startswith("-")
    own = f"perfmodel {arguments[0]}" if named else "perfmodel"
    command = getattr(context.command, "typed", context.command_path) if context is not None else own
    message = getattr(error, "format_message", lambda: str(error))().strip()
    for said, plain in _PLAIN.items():
        message = re.sub(said, plain, message)
    if not message or message.startswith("Usage:"):  # a group without a command: the message is its help
        print(message, file=sys.stderr)
        return BAD_USAGE
    step = f"see {command} --help"
    asks = getattr(getattr(context, "command", None), "asks", None)
    flag = getattr(error, "option_name", None) or ""
    for option in asks.declared() if asks is not None and "No such option" in message else ():
        if option.by_set and name_flag(option.name) == flag:
            step = f"write --set {option.name}=VALUE.\n{step}"
    for option, number, unit in zip(arguments, arguments[1:], arguments[2:], strict=False):
        if option.startswith("--") and number.replace(".", "").isdigit() and f"({unit})" in message:
            step = f"a value and its unit are one word: {option} {number}{unit}\n{step}"
    known = {
        name for option in (context.command.params if context is not None else ()) for name in option.opts
    }
    if getattr(error, "option_name", None) == "--tables" and "--model" in known:
        given = arguments[arguments.index("--tables") + 1 :][:1] if "--tables" in arguments else []
        step = (
            f"tables are --model there: --model {shlex.quote(given[0]) if given else 'NAME or FILE'}\n{step}"
        )
    return fail(BadInputError(message, step), verbose=False)
