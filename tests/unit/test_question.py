"""Options are declared once: what is asked in Python has their defaults and their limits."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import perfmodel
from perfmodel.cli.app import COMMANDS
from perfmodel.cli.lazy import Command, placed
from perfmodel.errors import BadInputError
from perfmodel.plan.in_python import question_of
from perfmodel.question.groups import DEFAULT_BATCH, LARGEST, EqualTableOptions
from perfmodel.question.passes import LoadOptions
from perfmodel.question.plans import PlanOptions
from perfmodel.question.spec import Arg, flag_of


@pytest.mark.parametrize(
    "name", [name for name, one in COMMANDS.items() if isinstance(one, Command) and one.asks]
)
def test_every_option_has_a_flag_of_its_own_and_words(name: str) -> None:
    command = COMMANDS[name]
    assert isinstance(command, Command)
    options = [
        each for each in placed(command.asks, "question").declared() if not isinstance(each.words, Arg)
    ]
    flags = [each.words.flag or flag_of(each.name) for each in options]
    assert len(set(flags)) == len(flags)
    assert all(each.words.help.endswith(".") for each in options)


def test_plan_tables_has_the_defaults_of_the_command() -> None:
    known = {each.name: each for each in PlanOptions.declared()}
    python = {
        name: each.default
        for name, each in inspect.signature(question_of).parameters.items()
        if name in known and each.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert len(python) > 15
    said = {name: known[name].value(known[name].default) for name in python}
    said |= {"batch": int(DEFAULT_BATCH), "distribution": python["distribution"]}  # uniform, as a value
    listed = {name: value or () for name, value in said.items() if name in ("only", "without")}
    assert python == {**said, **listed}


@pytest.mark.parametrize(("keyword", "most"), LARGEST.items())
def test_a_limit_is_that_of_the_command_and_of_python(keyword: str, most: float) -> None:
    (option,) = [
        each for each in EqualTableOptions.declared() if (each.words.keyword or each.name) == keyword
    ]
    assert option.value(f"{most:.0f}") == most
    with pytest.raises(BadInputError, match=f"{flag_of(option.name)} [^@]*at most {most:.0f}"):
        option.value(f"{2 * most:.0f}")
    asked: dict[str, Any] = {"table_bytes": 10e12, keyword: 2 * most}
    with pytest.raises(BadInputError, match=f"{keyword}"):
        perfmodel.project(**asked)


def test_values_are_read_by_keyword_and_what_nobody_said_is_none() -> None:
    values = LoadOptions.values({"p99": "10ms", "qps": "500k", "wait": "0s", "table_size": "10TB"})
    known = ("limit_s", "qps", "wait_s", "table_bytes", "batch")
    assert [values[name] for name in known] == [0.01, 5e5, 0.0, 1e13, None]
