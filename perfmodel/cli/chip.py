"""``perfmodel plan --on-chip``: which way to look up which table, and which core of one chip owns it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli.output import (
    SaidError,
    emit,
    emit_json,
    note,
    warn_all,
    warn_stopped,
)
from perfmodel.cli.page_file import write
from perfmodel.cli.plan_options import check_page
from perfmodel.cli.typed_line import TypedLine
from perfmodel.errors import BadInputError

if TYPE_CHECKING:
    from perfmodel.onechip.answer import Outcome

_MEANT = (
    "chip",
    "model",
    "batch",
    "alpha",
    "distribution",
    "settings",
    "robust",
    "time_limit",
    "seed",
    "report",
    "force",
    "as_json",
)
_DEFAULT_BATCH = "1024"
_MOST_SAMPLES = 2**31
_STOPPED = 130

OnChipOption = Annotated[
    str | None,
    typer.Option(
        "--on-chip",
        metavar="CHIP",
        help="Not GPUs but the cores of one chip (perfmodel chips), or a TOML file; --batch is of the chip.",
    ),
]
BatchOption = Annotated[
    str | None,
    typer.Option(
        "--batch", metavar="N", help="Samples per GPU; with --on-chip, of the whole chip (default 1024)."
    ),
]
RobustOption = Annotated[
    bool,
    typer.Option(
        "--robust",
        help="With --on-chip: made for the worst of these ids, uniform, zipf:1.05 and one-row.",
    ),
]


def on_chip(context: typer.Context) -> None:
    """The best mapping that is found of tables to the cores of a chip.

    context  of ``perfmodel plan``, whose options it has
    Limits: an option that is about GPUs -> BadInputError that names it
    """
    asked = context.params
    meant = [name for name in _MEANT if name != "force" or asked["report"] is not None]
    given = check_meant(context, meant, "plans for the cores of one chip")
    check_page(asked["report"], None, force=asked["force"])
    if asked["model"] is None:
        raise BadInputError(
            "which tables?", "give --model, e.g. --model mlperf-dlrm-dcnv2 (perfmodel models lists them)"
        )
    from perfmodel.cli.ids import ids_of
    from perfmodel.cli.options import settings_of
    from perfmodel.onechip.answer import outcome_on
    from perfmodel.plan.tables import PlanTables
    from perfmodel.schema.chip import load_chip
    from perfmodel.units import parse_count, parse_time

    samples = parse_count(asked["batch"] or _DEFAULT_BATCH, "--batch")
    if samples > _MOST_SAMPLES:
        raise BadInputError(f"--batch {samples} is more than one chip is given.", f"at most {_MOST_SAMPLES}.")
    ids = ids_of(asked["alpha"], asked["distribution"])
    limit_s = parse_time(asked["time_limit"], "--time-limit") if "time_limit" in given else None
    box = load_chip(asked["chip"]).with_overrides(dict(settings_of(asked["settings"], "local_bytes=1MiB")))
    tables = PlanTables.load(asked["model"], ids)
    search = {"time_limit_s": limit_s, "seed": asked["seed"], "robust": asked["robust"]}
    with _ended_by_ctrl_c() as stop:
        answer = outcome_on(box, tables, samples, ids, stop=stop, **search)
        _deliver(answer, context)
    if answer.stopped == "interrupt":
        warn_stopped()
        raise SaidError(_STOPPED)


def _deliver(answer: Outcome, context: typer.Context) -> None:
    """The page first, then the answer."""
    from perfmodel.onechip.memory import too_large
    from perfmodel.report.onechip.mapping_text import mapping_text

    asked = context.params
    large = too_large(answer.cost.chip, answer.tables.total_bytes)
    warn_all(large)
    if asked["report"] is not None:
        _write(answer, asked["report"], TypedLine.of(context))
    if asked["as_json"]:
        emit_json("plan", **answer.to_dict(), notes=large)
    else:
        emit(mapping_text(answer))
    if asked["report"] is not None:
        note(f"wrote {asked['report']}")


@contextmanager
def _ended_by_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed: the first one ends the search, and what was found is written as ever.

    Limits: a second one -> KeyboardInterrupt;  not the main thread, which has no signals -> never
    """
    pressed: list[int] = []

    def press(number: int, frame: FrameType | None) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def _write(answer: Outcome, path: Path, typed: TypedLine) -> None:
    """The page, with the line that makes it again in any folder."""
    from perfmodel.report.onechip.mapping_page import chip_page

    command = typed.text(without=("report", "force", "as_json"), more=["--report", path.name, "--force"])
    write(chip_page(answer, command), path, "html")


def only_on_chip(*, robust: bool) -> None:
    """Limits: an option of ``--on-chip`` without it -> BadInputError"""
    if robust:
        raise BadInputError("--robust is of mappings to cores.", "give --on-chip CHIP, or leave it out.")


def _given(context: typer.Context) -> dict[str, str]:
    """Parameters that were typed, with their options."""
    found = {}
    for option in context.command.params:
        source = context.get_parameter_source(str(option.name))
        if source is not None and source.name == "COMMANDLINE":
            found[str(option.name)] = option.opts[0]
    return found


def check_meant(context: typer.Context, meant: Sequence[str], what: str) -> dict[str, str]:
    """Options that were typed, by their parameters; what  they are to be about.

    Limits: one of another parameter -> BadInputError that names it
    """
    given = _given(context)
    other = [option for name, option in given.items() if name not in meant]
    if other:
        usable = sorted(
            p.opts[0]
            for p in context.command.params
            if p.name in meant and p.name != "chip" and p.opts[0].startswith("-")
        )
        raise BadInputError(
            f"{other[0]} and --on-chip exclude each other: --on-chip {what}.",
            f"leave one of them out; --on-chip goes with {', '.join(usable)}.",
        )
    return given
