"""Options are declared once: what is asked in Python has their defaults and their limits."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import perfmodel
from perfmodel.cli.app import COMMANDS, load_options
from perfmodel.errors import BadInputError
from perfmodel.plan.frames import build_question
from perfmodel.question.groups import LARGEST, QuestionOptions
from perfmodel.question.plans import PlanOptions
from perfmodel.question.spec import TURNS, Opt, name_flag


def test_every_option_has_a_flag_of_its_own_and_words_and_all_are_128() -> None:
    """Options with a flag, ``--json`` too, are at most 18 of a command."""
    counts = []
    for name in COMMANDS:
        options = [option for option in load_options(name).declared() if isinstance(option.words, Opt)]
        assert len({option.flag for option in options}) == len(options)
        assert all(option.words.help.endswith(".") for option in options)
        counts.append(sum(not option.by_set for option in options))
    assert len(counts) == 12 and max(counts) <= 18 and sum(counts) <= 128
    turns = {option.name: TURNS[option.turn] for option in load_options("project").declared()}
    shown = {"table_size": "Tables", "max_latency": "Question", "machine": "Machine", "as_json": "Output"}
    assert turns.items() >= shown.items()


def test_plan_tables_has_the_defaults_of_the_command() -> None:
    known = {each.name: each for each in PlanOptions.declared()}
    python = {
        name: each.default
        for name, each in inspect.signature(build_question).parameters.items()
        if name in known and each.kind is inspect.Parameter.KEYWORD_ONLY
    }
    said = {name: known[name].value(known[name].default) for name in python}
    assert python == {name: value or () if name == "only" else value for name, value in said.items()}


@pytest.mark.parametrize(("keyword", "most"), LARGEST.items())
def test_a_limit_is_that_of_the_command_and_of_python(keyword: str, most: float) -> None:
    (option,) = [each for each in QuestionOptions.declared() if (each.words.keyword or each.name) == keyword]
    assert option.value(f"{most:.0f}") == most
    shown = option.words.maximum if isinstance(option.words.maximum, str) else f"{most:.0f}"
    with pytest.raises(BadInputError, match=f"{name_flag(option.name)} [^@]*at most {shown}"):
        option.value(f"{2 * most:.0f}")
    asked: dict[str, Any] = {"table_bytes": 10e12, keyword: 2 * most}
    with pytest.raises(BadInputError, match=f"{keyword}"):
        perfmodel.project(**asked)


UNBOUNDED = {
    "max_hbm": "at most the machine's memory",
    "size": "at most what a calibration's table of times has",
    "gpus_per_node": "at most the machine's",
    "gpus": "of a log: at most what its rows have",
}
"""Numbers without a range in their declaration, and why they need none."""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_number_has_a_range(name: str) -> None:
    """What is read as a number, on the command line or by typer, has a largest value."""
    for each in load_options(name).declared():
        if isinstance(each.words, Opt) and (each.words.read or each.kind in (int | None, float | None, int)):
            assert each.words.maximum is not None or each.name in UNBOUNDED, (name, each.name)
