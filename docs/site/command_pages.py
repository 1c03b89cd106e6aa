"""A page for each command: its help, its arguments and options, as the program itself knows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from typer.cli import get_docs_for_click

from perfmodel.cli.app import COMMANDS, app
from perfmodel.cli.lazy import Command, CommandGroup

_FOLDER = "reference/commands"
_EXAMPLES = re.compile(r"^Examples?\n(?P<lines>(?:  .*\n|\n(?=  ))+)", re.MULTILINE)


@cache
def pages() -> dict[str, str]:
    """Markdown by the name of the file, in the order of the help."""
    top = app.context_class(app, info_name="perfmodel")
    made = {f"{_FOLDER}/{'-'.join(words)}.md": _page(one, words, top) for words, one in _commands(COMMANDS)}
    rows = [
        f"| [`perfmodel {' '.join(words)}`]({'-'.join(words)}.md) | {one.summary} |" for words, one in _all()
    ]
    index = "\n".join(
        ["# Every command and option", "", "| command | answers |", "|---|---|", *rows, "", _codes()]
    )
    return {f"{_FOLDER}/index.md": index, **made}


def _all() -> list[tuple[tuple[str, ...], Command]]:
    return list(_commands(COMMANDS))


def _commands(
    of: dict[str, Any] | Any, before: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Command]]:
    """The words of each command that the help lists, and where it is."""
    for name, one in of.items():
        if isinstance(one, CommandGroup):
            yield from _commands(one.commands, (*before, name))
        else:
            yield (*before, name), one


def _page(place: Command, words: tuple[str, ...], top: Any) -> str:
    """One command: the summary, the help, the options."""
    group = app
    for word in words[:-1]:
        group = group.commands[word]
    command = group.commands[words[-1]].load()
    context = command.context_class(command, info_name=words[-1], parent=top)
    prefix = " ".join(("perfmodel", *words[:-1]))
    text = get_docs_for_click(obj=command, ctx=context, name=words[-1], call_prefix=prefix)
    text = _EXAMPLES.sub(_as_console, text.replace("\b\n", ""))
    return re.sub(r"^# `(.*)`$", r"# \1", text, count=1, flags=re.MULTILINE)


def _as_console(found: re.Match[str]) -> str:
    lines = [line.removeprefix("  ") for line in found["lines"].rstrip().splitlines()]
    return "\n".join(["", "**Examples**:", "", "```sh", *lines, "```", ""])


def _codes() -> str:
    from perfmodel.cli.app import HELP

    return "## Exit codes\n\n" + HELP.partition("Exit codes: ")[2].strip().capitalize()
