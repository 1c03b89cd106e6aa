"""Text of the measurement that would narrow the band most, and the command that makes it."""

from __future__ import annotations

import itertools
import math
import shlex
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


def experiment_text(
    experiment: NextExperiment, machine: str, run: str = "", *, brief: bool = False, more: str = ""
) -> str:
    """How much of the time was not measured on this machine, and the command that narrows the band most.

    machine  the name for ``perfmodel import``
    run      the command that measures kernels into the user's run; "": a new run
    brief    on two lines, without sizes of messages, and without NCCL's and NVSHMEM's own benchmarks
    more     of a brief text: what else the command can print
    """
    links = [name.split(":") for name in experiment.only if not name.startswith("kernel:")]
    share, width = format_fraction(experiment.share), format_fraction(experiment.only_band_share)
    if not links:
        names = [name.removeprefix("kernel:") for name in experiment.only]
        words = ", ".join(_KERNEL_WORDS.get(name, name.replace("_", " ")) for name in names)
        only = ",".join(dict.fromkeys("composed" if name in _KERNEL_WORDS else "kernels" for name in names))
        command, place, what = (
            run or f"perfmodel calibrate --only {only}",
            "this machine",
            f"times of {words}",
        )
    else:
        only = ",".join(f"{library}:{operation}" for library, operation in links)
        what = " and ".join(dict.fromkeys(f"{operation.replace('_', '-')}s" for _, operation in links))
        command, place = f"perfmodel calibrate --only {only}{_sizes(experiment)}", experiment.where
    if brief:
        first, where = f"{share} of the time is not measured here.", f"On {place}:"
        first += f" More: {more}" if more else ""
        line = f"{where} {command}"
        line = line if len(line) <= page_width() else f"{paragraph(where)}\n{command_lines(command)}"
        return f"{paragraph(first)}\n{line}"
    first = f"{share} of the time is not measured here; {what} make {width} of the band. Measure them on "
    lines = [paragraph(f"{first}{place}{_messages(experiment)}:"), command_lines(command)]
    tests = [_test_name(*link) for link in links if link[0] in _TESTS]
    if tests:
        words = f"perfmodel import *.log --machine {shlex.quote(machine)} --out {_free_name()}"
        lines += [paragraph(f"or {', '.join(dict.fromkeys(tests))}, and then"), command_lines(words)]
    return "\n".join(lines)


def _messages(experiment: NextExperiment) -> str:
    """The sizes of the messages: ``, messages of 3 KiB to 608 MiB``."""
    if experiment.least_bytes is None or experiment.most_bytes is None:
        return ""
    least, most = format_bytes(experiment.least_bytes), format_bytes(experiment.most_bytes)
    return f", messages of {least}" + (f" to {most}" if most != least else "")


def _sizes(experiment: NextExperiment) -> str:
    """The option `` --sizes 4KiB..64MiB`` if only sizes are missing: powers of two around the messages."""
    if not experiment.sizes_alone or not experiment.least_bytes or not experiment.most_bytes:
        return ""
    ends = (
        2.0 ** math.floor(math.log2(experiment.least_bytes)),
        2.0 ** math.ceil(math.log2(experiment.most_bytes)),
    )
    low, high = (format_bytes(end).replace(" ", "").replace(".0", "") for end in ends)
    return f" --sizes {low}" + (f"..{high}" if high != low else "")


def _free_name() -> str:
    """An unused file name for a calibration: ``mine.json``, ``mine-2.json``, …"""
    names = itertools.chain(["mine.json"], (f"mine-{number}.json" for number in itertools.count(2)))
    return next(name for name in names if not Path(name).exists())


_TESTS = ("nccl", "rccl", "nvshmem")
_KERNEL_WORDS = {"handover": "from kernels to collectives and back"}


def _test_name(library: str, operation: str) -> str:
    """The usual benchmark of the operation: ``alltoall_perf`` (NCCL), ``alltoall_latency`` (NVSHMEM)."""
    if library == "nvshmem":
        names = {"all_to_all": "alltoall", "reduce_scatter": "reducescatter", "all_gather": "fcollect"}
        return f"{names.get(operation, operation)}_latency"
    return f"{'alltoall' if operation == 'all_to_all' else operation}_perf"
