"""Options are declared once: what is asked in Python has their defaults and their limits."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import perfmodel
from perfmodel.cli.app import COMMANDS, load_options
from perfmodel.errors import BadInputError
from perfmodel.plan.in_python import build_question
from perfmodel.question.groups import LARGEST, QuestionOptions
from perfmodel.question.plans import PlanOptions
from perfmodel.question.spec import Opt, name_flag


def test_every_option_has_a_flag_of_its_own_and_words_and_all_are_128() -> None:
    """Options with a flag, ``--json`` too, are at most 18 of a command."""
    counts = []
    for name in COMMANDS:
        options = [option for option in load_options(name).declared() if isinstance(option.words, Opt)]
        assert len({option.flag for option in options}) == len(options)
        assert all(option.words.help.endswith(".") for option in options)
        counts.append(sum(not option.by_set for option in options))
    assert len(counts) == 12 and max(counts) <= 18 and sum(counts) <= 128


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


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("project --table-size 10EB", "at most 1EB"),
        ("project --table-size 10TB --pooling 1e-12", "--pooling 1e-12 is less. at least 1e-06."),
        ("sweep --table-size 10TB --pooling 1,1e-12", "--pooling 1e-12 is less."),
        ("report --pooling 1e-12", "--pooling 1e-12 is less."),
        ("sweep --table-size 10TB --gpus 8..1e9", "--gpus 1000000000 is more."),
        ("plan --model criteo-kaggle --gpus 8 --dense 1e-30s", "from 1ns to 1h for a batch"),
        ("plan --model criteo-kaggle --gpus 8,1e6", "--gpus 1000000 is more. at most 262144."),
        ("project --table-size 10TB --machine", "--machine is empty."),
        ("show machines", "NAME is empty."),
        ("project --table-size 10TB --set id_dtype=int32", "ids of int32 reach 2 147 483 648 rows"),
        ("project --table-size 10TB --dim 1000000", "at most 65536"),
        ("project --table-size 10TB --distribution zipf:50", "from 0 (uniform ids) to 5 (as"),
        ("project --table-size 10TB --set hbm_bytes_per_s=1GB/s", "--set accepted=hbm_bytes_per_s"),
        ("project --table-size 10TB --set dtype=float32", "did you mean fp32?"),
        ("project --table-size 10TB --set payload=int8", "known: bf16, fp16, fp32, fp8"),
        ("project --table-size 10 TB", "one word: --table-size 10TB"),
        ("project --table-size 10TB --clock graph", "write --set clock=VALUE."),
        ("project --table-size 10TB --set reserve=5% --set reserve=6%", "reserve is given twice"),
        ("project --gpus 8 --gpus 144", "--gpus is given twice."),
        ("collective --op all_to_all --gpus 8 --size 1GiB,1EB", "--size 1EB is more. at most 256TiB."),
        ("show criteo", "did you mean criteo-1tb or criteo-kaggle?"),
        ("show docs/examples/criteo-kaggle.plan.json", "is not a calibration: it has no calibration_id."),
        ("chip plan --chip ascend-910 --chip=ascend-910", "--chip is given twice."),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_range(line: str, says: str, cli: Any) -> None:
    """Each of these lines was answered once; an option or a name that is empty took the default."""
    found = cli(*line.split(), *([""] if says.endswith("is empty.") else []))
    assert (found.code, found.out) == (2, "")
    assert says in " ".join(found.err.split()).replace(" than this model covers", "")


def test_nothing_that_was_typed_is_missing_on_the_screen(cli: Any) -> None:
    words = ("--table-size", "10TB", "--tables", "64", "--set", "id_dtype=int32", "--set", "reserve=20%")
    text = cli("project", *words, "--backend", "nvshmem", "--set", "kernels=torch").out
    for said in ("64 of 1.22 G rows", "ids of int32", "20.0 % of memory free", "library nvshmem"):
        assert said in text
    few = cli("project", "--table-size", "1KB", "--pooling", "100").out
    assert "kernels  torch" in text and "100 ids a bag, more than it has rows" in few
