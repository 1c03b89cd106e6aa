"""``plan --on-chip`` and ``explain WAY --on-chip``: as ``chip plan`` and ``chip explain`` were spelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from perfmodel.errors import BadInputError

_OF_BOTH = ("chip", "batch", "alpha", "distribution", "settings", "as_json")
_PLAN = (*_OF_BOTH, "model", "robust", "effort", "time_limit", "seed", "report", "force")
_EXPLAIN = (*_OF_BOTH, "rows", "dim", "dtype", "pooling")
_WAYS = ("GM", "L1", "GM-UB", "L1-UB")
_EXAMPLE = "--chip ascend-910 --rows 100000"

OnChipOption = Annotated[str | None, typer.Option("--on-chip", hidden=True)]
RobustOption = Annotated[bool, typer.Option("--robust", hidden=True)]
RowsOption = Annotated[str | None, typer.Option("--rows", hidden=True)]


def plan_on_chip(context: typer.Context) -> None:
    """``chip plan`` with the options of ``plan``. Limits: one that is about GPUs -> BadInputError"""
    from perfmodel.cli.onechip.plan import plan

    asked = context.params
    meant = [name for name in _PLAN if name != "force" or asked["report"] is not None]
    _check_meant(context, meant, "plans for the cores of one chip")
    plan(context, **{name: asked[name] for name in _PLAN})


def explain_on_chip(context: typer.Context) -> None:
    """``chip explain`` with the options of ``explain``. Limits: one that is about GPUs -> BadInputError"""
    from perfmodel.cli.onechip.explain import explain

    _check_meant(context, ("step", *_EXPLAIN), "explains one core of one chip")
    explain(context.params["step"], **{name: context.params[name] for name in _EXPLAIN})


def plan_without_chip(*, robust: bool) -> None:
    """Limits: an option of ``--on-chip`` without it -> BadInputError"""
    if robust:
        raise BadInputError(
            "--robust applies to mappings to cores.", "use perfmodel chip plan, or leave it out."
        )


def explain_without_chip(step: str, rows: str | None) -> None:
    """Limits: a way, or ``--rows``, without ``--on-chip`` -> BadInputError"""
    name = step.strip().upper().replace("_", "-")
    if name in _WAYS:
        raise BadInputError(
            f"{name} is a way to look a table up on a core of a chip.",
            f"for one table: perfmodel chip explain {name} {_EXAMPLE}",
        )
    if rows is not None:
        raise BadInputError(
            "--rows applies to a table on a chip.",
            f"for a table on a chip: perfmodel chip explain GM {_EXAMPLE}",
        )


def _check_meant(context: typer.Context, meant: Sequence[str], what: str) -> set[str]:
    """Parameters that were typed; what  they are to be about. Limits: another one -> BadInputError"""
    given = {}
    for option in context.command.params:
        source = context.get_parameter_source(str(option.name))
        if source is not None and source.name == "COMMANDLINE":
            given[str(option.name)] = option.opts[0]
    other = [option for name, option in given.items() if name not in meant]
    if other:
        usable = sorted(
            p.opts[0]
            for p in context.command.params
            if p.name in meant and p.name != "chip" and p.opts[0].startswith("-")
        )
        raise BadInputError(
            f"{other[0]} and --on-chip cannot be combined: --on-chip {what}.",
            f"leave one of them out; --on-chip goes with {', '.join(usable)}.",
        )
    return set(given)
