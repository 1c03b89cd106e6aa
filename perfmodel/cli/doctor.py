"""``perfmodel doctor``: what can be measured on this machine, and what would have to be assumed?"""

from __future__ import annotations

from typing import Annotated

import typer

from calibrate.machine.doctor import examine
from calibrate.machine.identity import identify
from calibrate.providers import PROVIDERS, availability, proven
from perfmodel.cli.options import JsonOption
from perfmodel.cli.output import emit, emit_json
from perfmodel.report.doctor_text import doctor_record, doctor_text, prospects

HostMachineOption = Annotated[
    str | None,
    typer.Option(
        "--machine",
        metavar="NAME",
        help="This machine: a shipped one, a TOML file, or a name of your own (default: "
        "recognized by its GPUs, else by its processor).",
    ),
]


def doctor(
    machine: HostMachineOption = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            "--ranks",
            metavar="N",
            min=1,
            help="Ranks on this node (default: one per GPU, else one per core).",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What can be measured here, what would a projection rest on, and what would disturb a measurement?

    Inspects the machine and imports each library, which takes some seconds. It times only a 0.3 s loop, to
    find noisy neighbours.

    \b
    Examples
      perfmodel doctor
      perfmodel doctor --ranks 8
      perfmodel doctor --machine h100-sxm-efa --json
    """
    host = identify(machine)
    findings = examine(host, ranks)
    libraries = proven({name: availability(name) for name in PROVIDERS})
    rows = prospects(host, libraries)
    if as_json:
        emit_json("doctor", **doctor_record(host, libraries, rows, findings))
    else:
        emit(doctor_text(host, libraries, rows, findings))
