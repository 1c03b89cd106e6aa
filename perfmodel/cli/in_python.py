"""``perfmodel.sweep``, ``collective`` and ``check``: commands for programs, in the words of their options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from perfmodel.cli.check import check as run_check
from perfmodel.cli.collective import collective as run_collective
from perfmodel.cli.sweep import compute_rows
from perfmodel.errors import BadInputError, naming_arguments
from perfmodel.question.measured import CheckOptions
from perfmodel.question.passes import CollectiveOptions, SweepOptions
from perfmodel.question.spec import CommandOptions
from perfmodel.schema.files import unknown_name
from perfmodel.units import parse_count

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T", bound=CommandOptions)
_OF_SCREEN = ("as_json", "out", "explain", "gates")


def sweep(**options: Any) -> pd.DataFrame:
    """The rows of ``perfmodel sweep``: options as texts, numbers in SI units, or lists of them."""
    frame: pd.DataFrame = _call(SweepOptions, options, lambda typed: compute_rows(typed)[0])
    return frame


def collective(**options: Any) -> pd.DataFrame:
    """The results of ``perfmodel collective``. options  op, size [bytes], gpus and more, as of ``sweep``"""
    import pandas as pd

    answer = _call(CollectiveOptions, options, lambda typed: run_collective(None, typed))
    return pd.DataFrame(answer.record()["results"])


def check(*logs: str | Path, **options: Any) -> dict[str, Any]:
    """The document of ``perfmodel check --json``; a cluster that is not normal raises nothing."""
    return dict(_call(CheckOptions, {"logs": logs, **options}, lambda typed: run_check(None, typed)).record())


@naming_arguments({})
def _call(question: type[T], words: Mapping[str, Any], answer: Callable[[T], Any]) -> Any:
    """The answer to the question with these options. Limits: as the command's, with names of arguments"""
    options = {x.name: x for x in question.declared() if x.name not in _OF_SCREEN}
    declared = {option.keyword: option for option in options.values()} | options
    typed: dict[str, Any] = {}
    for name, value in words.items():
        if name not in declared:
            raise unknown_name("argument", name, declared)
        option = declared[name]
        if value is None:
            continue
        if isinstance(value, Mapping):
            value = [f"{key}={entry}" for key, entry in value.items()]
        several = "list" in str(option.kind)
        values = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        texts = [os.fspath(x) if isinstance(x, (str, os.PathLike)) else f"{x:.15g}" for x in values]
        text = option.check(texts if several else ",".join(texts))
        number = option.kind in (int, int | None)
        typed[option.name] = parse_count(text, name) if number else text
    if missing := [name for name, option in options.items() if option.required and name not in typed]:
        raise BadInputError(f"{missing[0]} is missing.", f"give {', '.join(missing)}.")
    return answer(question(**typed))
