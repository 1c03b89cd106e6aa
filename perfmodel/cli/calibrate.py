"""``perfmodel calibrate``: what does this machine do? The options; ``perfmodel.cli.measuring`` does it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrate.planning.measurement_plan import LEAST_NOISE, Request
from perfmodel.cli import measuring
from perfmodel.cli.doctor import HostMachineOption
from perfmodel.cli.options import JsonOption, count_values, size_values, split_values
from perfmodel.cli.typed_line import TypedLine
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import MEASURED_CLOCKS, Clock
from perfmodel.schema.files import unknown_name
from perfmodel.units import parse_ratio, parse_time

DEVICES = ("auto", "cpu", "cuda")
LEAST_LIMIT_S = 1.0


def calibrate(
    context: typer.Context,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="WHAT",
            help="Measure only LIBRARY, LIBRARY:COLLECTIVE, kernels, kernels:NAME, host (what it takes to "
            "issue a pass, and its memory as GPUs read it) or composed (whole passes). Repeat, or "
            "separate with commas.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="About a minute: few sizes and rank counts, noise target 5 %.")
    ] = False,
    rigorous: Annotated[
        bool, typer.Option("--rigorous", help="Every rank count, all libraries, noise target 1 %.")
    ] = False,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Say what would be measured, and stop.")
    ] = False,
    ranks: Annotated[
        list[str] | None,
        typer.Option(
            "--ranks", metavar="N", help="Numbers of ranks, e.g. 2,4,8 (default: up to one per GPU or core)."
        ),
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option("--sizes", metavar="SIZE", help="Payloads, e.g. 1KiB,1MiB or 1KiB..64MiB (doubling)."),
    ] = None,
    backend: Annotated[
        list[str] | None, typer.Option("--backend", metavar="NAME", help="Libraries, e.g. nccl or mpi,gloo.")
    ] = None,
    clock: Annotated[
        list[str] | None,
        typer.Option("--clock", metavar="NAME", help="Clocks: eager, stream, graph, device."),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", metavar="NAME", help="cuda, cpu, or auto: GPUs where there are any.")
    ] = "auto",
    machine: HostMachineOption = None,
    noise: Annotated[
        str | None,
        typer.Option("--noise", metavar="SHARE", help="Noise target: half of the 95 % interval, e.g. 2%."),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option("--time-limit", metavar="TIME", help="Stop after this time, e.g. 90s, 10min or 2h."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="Folder of the runs (default: runs in $PERFMODEL_HOME)."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what an earlier run has already measured.")
    ] = False,
    drop_damaged: Annotated[
        bool,
        typer.Option(
            "--drop-damaged",
            help="Continue without lines of the run that cannot be read; a copy of the damaged file is kept.",
        ),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit code 5 when a point failed, is noisy or was not reached."),
    ] = False,
    keep_hostnames: Annotated[
        bool, typer.Option("--keep-hostnames", help="Write host names instead of their hashes.")
    ] = False,
    oversubscribe: Annotated[
        bool, typer.Option("--oversubscribe", help="Allow more ranks than cores: a functional check only.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure this machine: collectives, kernels and whole passes. Every result is checked.

    Starts its own ranks, or uses those of torchrun, srun or mpirun. Every sample is written to disk at once:
    Ctrl-C or a crash loses at most one short series of calls. Rerun the command to resume.

    \b
    Examples
      perfmodel calibrate --quick
      perfmodel calibrate --plan-only
      perfmodel calibrate --only mpi:all_to_all,mpi:reduce_scatter --ranks 2
      perfmodel calibrate --rigorous --time-limit 30min --out runs
      torchrun --nproc-per-node 8 --no-python perfmodel calibrate
    """
    with measuring.rank_zero_speaks():
        counts = count_values(ranks, "--ranks") if ranks else []
        asked = measuring.Asked(
            request=_request(
                only, _preset(quick, rigorous), counts, sizes, backend, clock, noise, oversubscribe
            ),
            start=max(counts, default=None),
            device=_device(device),
            machine=machine,
            limit_s=_limit(time_limit),
            out=_folder(out),
            fresh=fresh,
            drop_damaged=drop_damaged,
            keep_hostnames=keep_hostnames,
            typed=TypedLine.of(context),
        )
    measuring.run(asked, plan_only=plan_only, strict=strict, as_json=as_json)


def _request(
    only: list[str] | None,
    preset: str,
    counts: list[int],
    sizes: list[str] | None,
    backend: list[str] | None,
    clock: list[str] | None,
    noise: str | None,
    oversubscribe: bool,
) -> Request:
    return Request(
        preset=preset,
        only=split_values(only, "--only") if only else (),
        ranks=counts or None,
        sizes=size_values(sizes, "--sizes") if sizes else None,
        clocks=_clocks(clock) if clock else None,
        backends=split_values(backend, "--backend") if backend else None,
        oversubscribe=oversubscribe,
        noise=None if noise is None else _noise(noise),
    )


def _noise(text: str) -> float:
    share = parse_ratio(text, "--noise")
    if not LEAST_NOISE <= share < 1:
        raise BadInputError(
            f"--noise {text}: half of the 95 % interval is a share of the time.",
            f"from {100 * LEAST_NOISE:g}% to 99%, for example --noise 2%.",
        )
    return share


def _preset(quick: bool, rigorous: bool) -> str:
    if quick and rigorous:
        raise BadInputError("--quick and --rigorous cannot be combined.", "give one of them, or neither.")
    return "quick" if quick else "rigorous" if rigorous else "standard"


def _clocks(texts: list[str]) -> list[Clock]:
    names = split_values(texts, "--clock")
    known = [str(clock) for clock in MEASURED_CLOCKS]
    for name in names:
        if name not in known:
            raise unknown_name("--clock", name, known)
    return [Clock(name) for name in dict.fromkeys(names)]


def _device(text: str) -> str:
    if text not in DEVICES:
        raise unknown_name("--device", text, DEVICES)
    return text


def _limit(text: str | None) -> float | None:
    """Seconds of ``--time-limit``. Limits: no unit, or less than LEAST_LIMIT_S -> BadInputError"""
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


def _folder(text: str | None) -> Path | None:
    if text is not None and not text.strip():
        raise BadInputError("--out is empty.", "give a folder, or leave --out out: runs in $PERFMODEL_HOME.")
    return None if text is None else Path(text)
