"""``perfmodel calibrate``: reads the options; ``perfmodel.cli.measuring`` measures."""

from __future__ import annotations

from pathlib import Path

import typer

from calibrate.planning.measurement_plan import Request
from calibrate.providers import CLOCKS
from perfmodel.cli import measuring
from perfmodel.cli.options import count_values, size_values, split_values
from perfmodel.cli.typed_line import TypedLine
from perfmodel.errors import BadInputError
from perfmodel.question.measured import CalibrateOptions
from perfmodel.schema.evidence import Clock
from perfmodel.schema.files import unknown_name
from perfmodel.units import parse_ratio, parse_time

DEVICES = ("auto", "cpu", "cuda")
GRIDS = ("paper",)
LEAST_LIMIT_S = 1.0
LEAST_NOISE = 1e-4
"""Least half-width of an interval, as a share of the time: a smaller value must be a typing error."""


def calibrate(context: typer.Context, options: CalibrateOptions) -> None:
    """Measure this machine, fit a calibration, and print it; or print only the plan of the run."""
    with measuring.rank_zero_speaks():
        if options.out is not None and not options.out.strip():
            raise BadInputError(
                "--out is empty.", "give a folder, or leave --out out: runs in $PERFMODEL_HOME."
            )
        counts = count_values(options.ranks, "--ranks") if options.ranks else []
        asked = measuring.Asked(
            request=_request(options, counts),
            start=max(counts, default=None),
            device=_device(options.device),
            machine=options.machine,
            limit_s=_limit(options.time_limit),
            out=None if options.out is None else Path(options.out),
            fresh=options.fresh,
            typed=TypedLine.of(context),
        )
    measuring.run(asked, plan_only=options.plan_only, strict=options.strict, as_json=options.as_json)


def _request(options: CalibrateOptions, counts: list[int]) -> Request:
    if options.grid is not None and options.grid not in GRIDS:
        raise unknown_name("--grid", options.grid, GRIDS)
    return Request(
        preset="quick" if options.quick else "standard",
        only=split_values(options.only, "--only") if options.only else (),
        ranks=counts or None,
        sizes=size_values(options.sizes, "--sizes") if options.sizes else None,
        clocks=_clocks(options.clock) if options.clock else None,
        backends=split_values(options.backend, "--backend") if options.backend else None,
        oversubscribe=options.oversubscribe,
        noise=None if options.noise is None else _noise(options.noise),
        grid=options.grid or "",
    )


def _noise(text: str) -> float:
    share = parse_ratio(text, "--noise")
    if not LEAST_NOISE <= share < 1:
        raise BadInputError(
            f"--noise {text}: half of the 95 % interval is a share of the time.",
            f"from {100 * LEAST_NOISE:g}% to 99%, for example --noise 2%.",
        )
    return share


def _clocks(texts: list[str]) -> list[Clock]:
    names = split_values(texts, "--clock")
    known = [str(clock) for clock in CLOCKS]
    for name in names:
        if name not in known:
            raise unknown_name("--clock", name, known)
    return [Clock(name) for name in dict.fromkeys(names)]


def _device(text: str) -> str:
    if text not in DEVICES:
        raise unknown_name("--device", text, DEVICES)
    return text


def _limit(text: str | None) -> float | None:
    """Convert the text of ``--time-limit`` into seconds; None without the option.

    Limits: no unit, less than LEAST_LIMIT_S -> BadInputError
    """
    if text is None:
        return None
    bare = text.strip()
    if bare.replace(".", "", 1).isdecimal() and float(bare) > 0:
        raise BadInputError(f"--time-limit {bare}: seconds or minutes?", f"write {bare}s or {bare}min.")
    try:
        seconds = parse_time(text, "--time-limit")
    except BadInputError as error:
        step = f"at least {LEAST_LIMIT_S:g}s, for example 90s, 10min or 2h."
        raise BadInputError(error.message, step) from None
    if seconds < LEAST_LIMIT_S:
        raise BadInputError(
            f"--time-limit {bare} is too short to measure anything.", f"at least {LEAST_LIMIT_S:g}s."
        )
    return seconds
