"""Text of the measurement that would narrow the band most, and the command that makes it."""

from __future__ import annotations

import math
from pathlib import Path

from perfmodel.answer.what_would_help import NextExperiment
from perfmodel.report.terminal import command_lines, page_width, paragraph
from perfmodel.schema.files import SAMPLES_NAME
from perfmodel.units import format_bytes, format_fraction


def run_line(calibration_file: str | None) -> str:
    """The command that also measures kernels into the folder of the user's run; "" if there is no such run.

    calibration_file  the user's calibration, which lies in the folder of its run
    """
    folder = Path(calibration_file or "").parent
    if not calibration_file or not (folder / SAMPLES_NAME).is_file():
        return ""
    from perfmodel.schema.run_files import calibrate_line

    return calibrate_line(folder)


def experiment_text(experiment: NextExperiment, run: str = "", more: str = "") -> str:
    """How much of the time was not measured on this machine, and the command that narrows the band most.

    run  the command that measures kernels into the user's run; "": a new run;  more  what else can be printed
    """
    links = [name.split(":") for name in experiment.only if not name.startswith("kernel:")]
    command, place = run, "this machine"
    if links:
        only = ",".join(f"{library}:{operation}" for library, operation in links)
        command, place = f"perfmodel calibrate --only {only}", experiment.where
        low, high = experiment.least_bytes, experiment.most_bytes
        if experiment.sizes_alone and low and high:  # powers of two around the messages
            ends = 2.0 ** math.floor(math.log2(low)), 2.0 ** math.ceil(math.log2(high))
            sizes = "..".join(dict.fromkeys(map(format_bytes, ends))).replace(" ", "").replace(".0", "")
            command += f" --sizes {sizes}"
    elif not run:
        parts = ("composed" if name == "kernel:handover" else "kernels" for name in experiment.only)
        command = f"perfmodel calibrate --only {','.join(dict.fromkeys(parts))}"
    share = format_fraction(experiment.share)
    head = f"{share} of the time is not measured here." + (f" More: {more}" if more else "")
    line = f"On {place}: {command}"
    line = line if len(line) <= page_width() else f"{paragraph(f'On {place}:')}\n{command_lines(command)}"
    return f"{paragraph(head)}\n{line}"
