"""Text of the measurement that would narrow the band most, and the command that makes it."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from perfmodel.answer.what_would_help import NextExperiment
from perfmodel.report.terminal import command_lines, page_width, paragraph
from perfmodel.schema.files import SAMPLES_NAME
from perfmodel.units import format_bytes, format_fraction

_KERNEL_WORDS = {"handover": "from kernels to collectives and back"}


def run_line(calibration_file: str | None) -> str:
    """The command that also measures kernels into the folder of the user's run; "" if there is no such run.

    calibration_file  the user's calibration, which lies in the folder of its run
    """
    folder = Path(calibration_file or "").parent
    if not calibration_file or not (folder / SAMPLES_NAME).is_file():
        return ""
    from perfmodel.schema.run_files import calibrate_line

    return calibrate_line(folder)


def experiment_text(
    experiment: NextExperiment, machine: str, run: str = "", *, brief: bool = False, more: str = ""
) -> str:
    """How much of the time was not measured on this machine, and the command that narrows the band most.

    machine  the name for ``perfmodel import``
    run      the command that measures kernels into the user's run; "": a new run
    brief    on two lines, without sizes of messages, and without the import of benchmarks' logs
    more     of a brief text: what else the command can print
    """
    links = [name.split(":") for name in experiment.only if not name.startswith("kernel:")]
    share, width = format_fraction(experiment.share), format_fraction(experiment.only_band_share)
    low, high = experiment.least_bytes, experiment.most_bytes
    if links:
        only = ",".join(f"{library}:{operation}" for library, operation in links)
        measured = " and ".join(dict.fromkeys(f"{x.replace('_', '-')}s" for _, x in links))
        command, place = f"perfmodel calibrate --only {only}", experiment.where
        if experiment.sizes_alone and low and high:  # powers of two around the messages
            ends = 2.0 ** math.floor(math.log2(low)), 2.0 ** math.ceil(math.log2(high))
            sizes = "..".join(dict.fromkeys(map(format_bytes, ends))).replace(" ", "").replace(".0", "")
            command += f" --sizes {sizes}"
    else:
        names = [name.removeprefix("kernel:") for name in experiment.only]
        words = ", ".join(_KERNEL_WORDS.get(name, name.replace("_", " ")) for name in names)
        only = ",".join(dict.fromkeys("composed" if name in _KERNEL_WORDS else "kernels" for name in names))
        measured, place = f"times of {words}", "this machine"
        command = run or f"perfmodel calibrate --only {only}"
    if brief:
        head = f"{share} of the time is not measured here." + (f" More: {more}" if more else "")
        line = f"On {place}: {command}"
        line = line if len(line) <= page_width() else f"{paragraph(f'On {place}:')}\n{command_lines(command)}"
        return f"{paragraph(head)}\n{line}"
    sizes = " to ".join(dict.fromkeys(map(format_bytes, (low, high)))) if low and high else ""
    where = f"{place}, messages of {sizes}" if sizes else place
    head = f"{share} of the time is not measured here; {measured} make {width} of the band. Measure them on "
    lines = [paragraph(f"{head}{where}:"), command_lines(command)]
    if links:
        logs = paragraph("or use logs of nccl-tests, rccl-tests or NVSHMEM's perftests:")
        words = f"perfmodel import *.log --machine {shlex.quote(machine)} --out mine.json"
        lines += [logs, command_lines(words)]
    return "\n".join(lines)
