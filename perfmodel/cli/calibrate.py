"""``perfmodel calibrate``: reads the options; ``perfmodel.cli.measuring`` measures."""

from __future__ import annotations

import typer

from calibrate.planning.measurement_plan import Request
from calibrate.providers import CLOCKS
from perfmodel.cli import measuring
from perfmodel.cli.options import check_name, count_values, size_values, split_values
from perfmodel.cli.output import CommandReply
from perfmodel.cli.typed_line import TypedLine
from perfmodel.errors import BadInputError
from perfmodel.question.measured import CalibrateOptions
from perfmodel.schema.evidence import Clock
from perfmodel.units import parse_ratio, parse_time

DEVICES = ("auto", "cpu", "cuda")
LEAST_LIMIT_S = 1.0
LEAST_NOISE = 1e-4
"""Least half-width of an interval, as a share of the time: a smaller value must be a typing error."""


def calibrate(context: typer.Context, options: CalibrateOptions) -> CommandReply | None:
    """Measure this machine, and fit a calibration; or show only the plan of the run."""
    with measuring.let_rank_zero_speak():
        check_name("--device", options.device, DEVICES)
        run = measuring.Measurement(
            options, _read_request(options), _read_limit(options.time_limit), TypedLine.of(context)
        )
    return run.measure()


def _read_request(options: CalibrateOptions) -> Request:
    """The measurements that the options ask for."""
    noise = None if options.noise is None else parse_ratio(options.noise, "--noise")
    if noise is not None and not LEAST_NOISE <= noise < 1:
        raise BadInputError(
            f"--noise {options.noise}: half of the 95 % interval is a share of the time.",
            f"from {100 * LEAST_NOISE:g}% to 99%, for example --noise 2%.",
        )
    clocks = split_values(options.clock, "--clock") if options.clock else []
    for clock in clocks:
        check_name("--clock", clock, [*map(str, CLOCKS)])
    return Request(
        preset="quick" if options.quick else "standard",
        only=split_values(options.only, "--only") if options.only else (),
        ranks=count_values(options.ranks, "--ranks") if options.ranks else None,
        sizes=size_values(options.sizes, "--sizes") if options.sizes else None,
        clocks=[Clock(clock) for clock in dict.fromkeys(clocks)] or None,
        backends=split_values(options.backend, "--backend") if options.backend else None,
        oversubscribe=options.oversubscribe,
        noise=noise,
        grid="" if options.grid is None else check_name("--grid", options.grid, ["paper"]),
    )


def _read_limit(text: str | None) -> float | None:
    """The text of ``--time-limit`` in seconds; None without the option.

    Limits: no unit, less than LEAST_LIMIT_S -> BadInputError
    """
    if text is None:
        return None
    step = f"at least {LEAST_LIMIT_S:g}s, for example 90s, 10min or 2h."
    try:
        limit_s = parse_time(text, "--time-limit")
    except BadInputError as error:
        raise BadInputError(error.message, step) from None
    if limit_s < LEAST_LIMIT_S:
        raise BadInputError(f"--time-limit {text.strip()} is too short to measure anything.", step)
    return limit_s
