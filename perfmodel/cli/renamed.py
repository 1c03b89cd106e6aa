"""Commands and options that had another name in 0.1: the old name works, and a note gives the new name.

An option that 0.2 no longer has is refused, and the error says which command answers the question now.
"""

from __future__ import annotations

from typing import NamedTuple

from perfmodel.errors import BadInputError


class _Renamed(NamedTuple):
    """A line of 0.1, ``perfmodel BEFORE … OPTION VALUE``, that is now ``perfmodel NOW … FLAG VALUE``.

    option  that the old line has; "": every line of the command is renamed
    flag    what ``option`` is called now; "": it is left out
    named   option that takes the word after the command; "": there is no such word, or it stays
    """

    before: str
    option: str
    now: str
    flag: str = ""
    named: str = ""


_RENAMED = (
    _Renamed("simulate", "", "chip simulate"),
    _Renamed("plan", "--on-chip", "chip plan", "--chip"),
    _Renamed("explain", "--on-chip", "chip explain", "--chip"),
    _Renamed("chips", "--ways", "chip ways", named="--chip"),
)

_LEFT = {
    ("plan", "--processes"): "leave it out: --effort says how much work a search does.",
    ("plan", "--robust"): "give the ids to plan for: --distribution.",
    ("chip plan", "--robust"): "give the ids to plan for: --distribution.",
    ("chip simulate", "--table"): "give --model a file with this table alone.",
    ("chip simulate", "--way"): "perfmodel chip explain WAY has the equations of a way.",
    ("chip simulate", "--one-core"): "perfmodel chip explain WAY has the equations of a way on one core.",
    ("chip simulate", "--trace"): "give the ids as a histogram: --distribution histogram:FILE.csv.",
    ("figure", "--page"): "plans and chips have their own pages: plan --report FILE.html.",
}  # fmt: skip
"""Advice in place of an option of 0.1 that is gone, by command and option."""


def current_words(words: list[str]) -> tuple[list[str], str]:
    """The words of a command line with the names of today, and a note on renamed words.

    Limits: nothing was renamed -> the note is "";  an option that nothing replaces -> BadInputError
    """
    note = ""
    for old in _RENAMED:
        if words[:1] == [old.before] and (not old.option or _flags(words) & {old.option}):
            words = _renamed(words[1:], old)
            note = f"note: perfmodel {f'{old.before} {old.option}'.strip()} is perfmodel {old.now} since 0.2."
            break
    for (command, option), step in _LEFT.items():
        if words[: command.count(" ") + 1] == command.split() and option in _flags(words):
            raise BadInputError(f"perfmodel {command} has no {option} since 0.2.", step)
    return words, note


def _flags(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if word.startswith("--")}


def _renamed(rest: list[str], old: _Renamed) -> list[str]:
    """The words of the new command, then ``rest`` (the words after the old command), its option renamed."""
    if old.named and rest and not rest[0].startswith("-"):
        rest = [old.named, *rest]
    kept = []
    for word in rest:
        name, equals, value = word.partition("=")
        if old.option and name == old.option:
            kept += [old.flag + equals + value] if old.flag else []
        else:
            kept.append(word)
    return [*old.now.split(), *kept]
