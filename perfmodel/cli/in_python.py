"""``perfmodel.sweep``, ``collective`` and ``check``: commands for programs, in the words of their options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from perfmodel.cli.check import check as run_check
from perfmodel.cli.collective import collective as run_collective
from perfmodel.cli.sweep import compute_rows
from perfmodel.errors import BadInputError, naming_arguments
from perfmodel.question.measured import CheckOptions
from perfmodel.question.passes import CollectiveOptions, SweepOptions
from perfmodel.question.spec import CommandOptions, write_value
from perfmodel.schema.files import unknown_name

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T", bound=CommandOptions)
_OF_SCREEN = ("as_json", "out", "explain", "gates")


@naming_arguments({})
def sweep(**options: Any) -> pd.DataFrame:
    """The rows of ``perfmodel sweep``: options as texts, numbers in SI units, or lists of them."""
    return compute_rows(read_options(SweepOptions, options))[0]


@naming_arguments({})
def collective(**options: Any) -> pd.DataFrame:
    """The results of ``perfmodel collective``. options  op, size [bytes], gpus and more, as of ``sweep``"""
    import pandas as pd

    return pd.DataFrame(run_collective(None, read_options(CollectiveOptions, options)).record()["results"])


@naming_arguments({})
def check(*logs: str | Path, **options: Any) -> dict[str, Any]:
    """The document of ``perfmodel check --json``; a cluster that is not normal raises nothing."""
    listed = logs[0] if len(logs) == 1 else logs
    return run_check(None, read_options(CheckOptions, {"logs": listed, **options})).document("check")


def read_options(question: type[T], values: Mapping[str, object]) -> T:
    """The options of a command from values by name or keyword.

    Limits: as the command's; another name, twice the same, a value that is missing -> BadInputError
    """
    options = {option.name: option for option in question.declared() if option.name not in _OF_SCREEN}
    declared = {option.keyword: option for option in options.values()} | options
    typed: dict[str, Any] = {}
    for name, value in values.items():
        if name not in declared:
            raise unknown_name("argument", name, declared)
        if isinstance(value, Mapping):
            value = [f"{key}={entry}" for key, entry in value.items()]
        if value is not None:
            several = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
            option = declared[name]
            texts = [write_value(name, x) for x in several]
            typed[option.name] = option.check(texts if "list" in str(option.kind) else ",".join(texts))
    if missing := [name for name, option in options.items() if option.required and not typed.get(name)]:
        raise BadInputError(f"{missing[0]} is missing.", f"give {', '.join(missing)}.")
    by_set, of_machine = question.split_settings(typed.pop("settings", None))
    if twice := typed.keys() & by_set.keys():
        raise BadInputError(f"{min(twice)} is given twice.", "leave it out of the settings.")
    return question(**typed | by_set | {"settings": of_machine})
