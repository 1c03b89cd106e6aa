"""``perfmodel doctor``: measurements that are possible on this machine, and values that would be assumed."""

from __future__ import annotations

import typer

from calibrate.machine.doctor import examine
from calibrate.machine.identity import identify
from calibrate.providers import PROVIDERS, availability, proven
from perfmodel.cli.output import emit, emit_json
from perfmodel.question.measured import DoctorOptions
from perfmodel.report.doctor_text import doctor_record, doctor_text, prospects


def doctor(context: typer.Context, options: DoctorOptions) -> None:
    """Print the possible measurements on this machine, and the evidence that a projection would have."""
    host = identify(options.machine)
    findings = examine(host, options.ranks)
    libraries = proven({name: availability(name) for name in PROVIDERS})
    rows = prospects(host, libraries)
    if options.as_json:
        emit_json("doctor", **doctor_record(host, libraries, rows, findings))
    else:
        emit(doctor_text(host, libraries, rows, findings))
