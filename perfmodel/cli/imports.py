"""``perfmodel import``: a calibration from existing logs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from calibrate.importers.logged_rows import OK, SINGLE_PROCESS, LogLine
from calibrate.importers.merge import ImportResult, import_logs, reasons_of
from calibrate.machine.identity import list_machines_with, match_machine
from perfmodel.cli.output import CommandReply, check_target, note, warn, warn_all
from perfmodel.collectives.choose import list_matching
from perfmodel.errors import BadInputError
from perfmodel.question.measured import ImportOptions, LogOptions
from perfmodel.report.calibration_text import calibration_text
from perfmodel.report.terminal import paragraph
from perfmodel.schema.calibration import Calibration, save_calibration
from perfmodel.schema.evidence import COLLECTIVES, Backend, Clock
from perfmodel.schema.fields import find_doubts
from perfmodel.schema.files import place_samples, write_whole
from perfmodel.schema.machine import Machine, list_machines, load_machine
from perfmodel.schema.samples import write_samples

if TYPE_CHECKING:
    import pandas as pd


def import_logs_of(context: typer.Context, options: ImportOptions) -> CommandReply:
    """Fit a calibration to benchmark logs, and write it with its samples."""
    out = options.out
    if out is not None:
        check_target(out, ".json", what="a calibration", force=options.force)
        check_target(place_samples(out), force=options.force)
    result = read_logs(options.logs, options)
    machine = find_machine(result) if options.machine is None else load_machine(options.machine)
    result.samples["machine"] = machine.name
    warn_all([*list_unread(result.unread), *result.warnings])
    doubts = doubt_gpu(result.stack.gpu, machine, force=options.force)
    doubts += _doubt_samples(result)
    calibration = _fit(result, machine, "own" if out is None else out.stem)
    warn_all(doubts)
    if out is not None:
        _write_both(result, calibration, out)
        note(f"wrote {out} and {place_samples(out)}")
        note(f"all constants:\n  perfmodel show {shlex.quote(str(out))}")
    fitted = {"fitted": calibration.sample_count, **_count_unfitted(result.samples)}
    fitted["of another variant or type"] = len(result.samples) - sum(fitted.values())
    counts = ", ".join(f"{count} {words}" for words, count in fitted.items() if count)
    head = f"{len(result.samples)} samples of {result.stack}: {counts}"
    return CommandReply(
        lambda: {
            "calibration": calibration.model_dump(mode="json"),
            "samples": len(result.samples),
            "unread": [line._asdict() for line in result.unread],
            "warnings": [*result.warnings, *doubts],
        },
        lambda: f"{paragraph(head)}\n\n{calibration_text(calibration)}",
    )


def read_logs(paths: list[Path], options: LogOptions, *, overruled: bool = False) -> ImportResult:
    """The samples of logs, with what was typed for logs that do not say it. overruled  of ``import_logs``"""
    names = "gpus_per_node", "op", "clock", "gpus", "library_version"
    typed = {name: getattr(options, name) for name in names}
    return import_logs(paths, **typed, overruled=overruled)


def _write_both(result: ImportResult, calibration: Calibration, out: Path) -> None:
    """Write the calibration and its samples; if one cannot be written, neither replaces a file."""

    def write(draft: Path) -> None:
        write_samples(result.samples.drop_duplicates(), draft)
        save_calibration(calibration, out)

    write_whole(place_samples(out), write, "samples")


def find_machine(result: ImportResult) -> Machine:
    """The likeliest shipped machine with the logs' GPU and network; a line says which.

    Limits: no shipped machine has the GPU, or the logs name no GPU -> BadInputError that asks for --machine
    """
    from perfmodel.validate.reasons import load_reasons

    gpu = result.stack.gpu
    patterns = load_reasons().network
    network = next((name for name, pattern in patterns.items() if re.search(pattern, result.said)), "")
    likely, remark = match_machine([gpu], network) if gpu else ("", "")
    if likely not in list_machines():
        raise BadInputError(
            f"which machine is it? The logs are of {gpu or 'a GPU that they do not name'}.",
            f"give --machine: {', '.join(list_machines())}; or a machine file of your own.",
        )
    note(f"machine: {likely}, by the GPU {gpu}{f'; {remark}' if remark else ''}")
    return load_machine(likely)


def doubt_gpu(gpu: str, machine: Machine, *, force: bool) -> list[str]:
    """A warning if the logs may be from another GPU than a shipped machine's.

    gpu  as the logs name it;  force  whether ``--force`` was typed
    Limits: the machine's GPU, or a machine of one's own -> none; another GPU -> BadInputError, with
            ``force`` a warning
    """
    if not gpu:
        return [f"the logs do not name their GPU: assuming {machine.name}"]
    fitting = list_machines_with(gpu)
    if machine.name in fitting or machine.name not in list_machines():
        return []
    text = f"the logs are of {gpu}, and {machine.name} is another machine ({machine.title})"
    if not force:
        instead = " or ".join(fitting) or "FILE.toml for a machine with that GPU"
        raise BadInputError(f"{text}.", f"--machine {instead}; or --force to use them anyway.")
    return [text]


def _doubt_samples(result: ImportResult) -> list[str]:
    """Warnings about samples that are far faster or slower than any product could be."""
    usable = result.samples[result.samples["flag"] == OK]
    if usable.empty:
        return []
    doubted = find_doubts(*(usable[name].to_numpy(float) for name in ("payload_bytes", "time_s", "gpus")))
    return [f"far from any known hardware, check units and log: {text}" for text in doubted.values()]


def list_unread(unread: list[LogLine]) -> list[str]:
    """Warnings for lines of logs that were not used, one for each reason."""
    return [f"not used: {reason.strip()}" for reason in reasons_of(unread)]


def _fit(result: ImportResult, machine: Machine, suffix: str) -> Calibration:
    """The calibration that fits the samples. suffix  appended to the calibration's id

    Limits: no curve and no law fits the samples -> BadInputError
    """
    from perfmodel.fit.build import Identity, fit_calibration

    counts = _count_unfitted(result.samples)
    if sum(counts.values()) == len(result.samples):
        reasons = [f"  {count} rows {words}: not fitted" for words, count in counts.items()]
        lines = ["nothing in these logs can be fitted:", *reasons_of(result.unread), *reasons]
        step = "name other logs."
        if (result.samples["flag"] == SINGLE_PROCESS).any():
            step = "run the tests with a process for each GPU (mpirun -np 8 … -g 1), or name other logs."
        raise BadInputError("\n".join(lines), step)
    stack = result.stack
    points = _select_variant(result.samples[result.samples["flag"] == OK])
    identity = Identity(
        machine.name,
        Backend(stack.backend),
        stack.library_version,
        Clock(stack.clock),
        checked=not (points["note"].str.contains("not checked") & ~points["in_place"]).any(),
        note=f"imported from {', '.join(sorted(set(points['source_id'])))}",
        complete=not (result.cut or any(line.line_no for line in result.unread)),
    )
    like = next(iter(list_matching(machine.name, identity.backend)), None)
    fitted = fit_calibration(points, machine, identity, like=like)
    return fitted.model_copy(update={"calibration_id": f"{fitted.calibration_id}+{suffix}"})


def _count_unfitted(samples: pd.DataFrame) -> dict[str, int]:
    """How many samples are not fitted, by reason: each counts once, for its flag or else the first reason."""
    why = samples["flag"].map("marked '{}'".format)
    good = samples["flag"] == OK
    modelled = samples["collective"].isin(COLLECTIVES)
    why[good & samples["in_place"]] = "in place"
    why[good & ~modelled] = "of no modelled collective"
    counts = why[~good | samples["in_place"] | ~modelled].value_counts().sort_index()
    return {str(words): int(count) for words, count in counts.items()}


def _select_variant(points: pd.DataFrame) -> pd.DataFrame:
    """The samples of one variant of the kernels: the variant that reaches the largest messages.

    NVSHMEM kernels by a thread or a warp stop at small messages.
    """
    reach = points.groupby("variant")["payload_bytes"].max().sort_index()
    chosen = str(reach.idxmax())
    if left := ", ".join(name for name in reach.index if name != chosen):
        warn(f"curves are of {chosen}, which reaches the largest messages; kept as samples only: {left}")
    return points[points["variant"] == chosen]
