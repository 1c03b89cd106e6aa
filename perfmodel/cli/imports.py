"""``perfmodel import``: a calibration from existing logs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from calibrate.importers import ImportResult, LogLine, import_logs, reasons_of
from calibrate.importers.logged_rows import OK
from calibrate.machine.identity import list_machines_with
from perfmodel.cli.output import (
    CommandReply,
    check_target,
    is_verbose,
    note,
    refuse_ending,
    strip_numbers,
    warn,
    warn_all,
)
from perfmodel.collectives.choose import choose_calibration
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.question.measured import ImportOptions, LogOptions
from perfmodel.report.calibration_text import calibration_text
from perfmodel.report.terminal import paragraph
from perfmodel.schema.calibration import Calibration, save_calibration
from perfmodel.schema.evidence import COLLECTIVES, Backend, Clock
from perfmodel.schema.fields import find_doubts
from perfmodel.schema.files import SAMPLES_SUFFIX, invalid_fields
from perfmodel.schema.machine import Machine, list_machines, load_machine
from perfmodel.schema.samples import write_samples

if TYPE_CHECKING:
    import pandas as pd

_SHOWN_UNREAD = 5
_GPU_MODEL = re.compile(r"\b[a-z]+\d{2,}x?\b")
"""A model of a GPU in the title of a machine, as h100 or mi355x."""


def import_logs_of(context: typer.Context, options: ImportOptions) -> CommandReply:
    """Fit a calibration to benchmark logs, and write it with its samples."""
    out = options.out
    samples_path = None if out is None else out.with_name(out.name.removesuffix(".json") + SAMPLES_SUFFIX)
    if out is not None and samples_path is not None:
        if out.suffix != ".json":
            raise refuse_ending(out, "a calibration")
        check_target(out, force=options.force)
        check_target(samples_path, force=options.force)
    result = read_logs(options.logs, options)
    machine = _find_machine(options.machine, result.stack.gpu)
    result.samples["machine"] = machine.name
    warn_all([*list_unread(result.unread), *result.warnings])
    doubts = doubt_gpu(result.stack.gpu, machine, force=options.force)
    doubts += _doubt_samples(result)
    calibration = _fit(result, machine, "own" if out is None else out.stem)
    warn_all(doubts)
    if out is not None and samples_path is not None:
        write_samples(result.samples.drop_duplicates(), samples_path)
        save_calibration(calibration, out)
        note(f"wrote {out} and {samples_path}")
        note(f"all constants:\n  perfmodel show {shlex.quote(str(out))}")
    head = f"{len(result.samples)} samples of {result.stack}: {_count_fitted(result.samples, calibration)}"
    return CommandReply(
        lambda: {
            "calibration": calibration.model_dump(mode="json"),
            "samples": len(result.samples),
            "unread": [line._asdict() for line in result.unread],
            "warnings": [*result.warnings, *doubts],
        },
        lambda: f"{paragraph(head)}\n\n{calibration_text(calibration, machine, brief=not is_verbose())}",
    )


def read_logs(paths: list[Path], options: LogOptions, *, overruled: bool = False) -> ImportResult:
    """The samples of logs, with what was typed for logs that do not say it. overruled  of ``import_logs``"""
    names = "gpus_per_node", "op", "clock", "gpus", "library_version"
    typed = {name: getattr(options, name) for name in names}
    return import_logs(paths, **typed, overruled=overruled)


def _find_machine(name: str | None, gpu: str) -> Machine:
    """The typed machine; else the only shipped machine that has this GPU.

    gpu  as the logs name it.  Limits: several such machines, or none -> BadInputError
    """
    if name is not None:
        return load_machine(name)
    fitting = list_machines_with(gpu)
    if len(fitting) != 1:
        names = ", ".join(fitting or list_machines())
        raise BadInputError(
            f"the machine is not clear: the logs are of {gpu or 'an unnamed GPU'}.",
            f"give --machine: {names}; or a machine file of your own.",
        )
    note(f"machine: {fitting[0]} (the only shipped one with a {gpu})")
    return load_machine(fitting[0])


def doubt_gpu(gpu: str, machine: Machine, *, force: bool) -> list[str]:
    """A warning if the logs may be from another GPU than the machine's.

    gpu  as the logs name it;  force  whether ``--force`` was typed
    Limits: the machine's GPU -> none; another GPU with a shipped machine -> BadInputError; a warning with
            ``force``, and for a machine file of one's own that names another GPU
    """
    if not gpu:
        return [f"the logs do not name their GPU: assuming {machine.name}"]
    fitting, is_own = list_machines_with(gpu), machine.name not in list_machines()
    in_title, in_logs = (set(_GPU_MODEL.findall(text.lower())) for text in (machine.title, gpu))
    if machine.name in fitting or (is_own and (not in_title or in_title & in_logs)):
        return []
    text = f"the logs are of {gpu}, and {machine.name} is another machine ({machine.title})"
    if not force and not is_own:
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
    groups: dict[str, list[LogLine]] = {}
    for line in unread:
        groups.setdefault(strip_numbers(line.reason), []).append(line)
    texts = []
    for lines in groups.values():
        places = ", ".join(line.place for line in lines[:_SHOWN_UNREAD])
        places += f" and {len(lines) - _SHOWN_UNREAD} more" if lines[_SHOWN_UNREAD:] else ""
        if lines[0].line_no == 0:
            texts.append(f"not used: {places}: {lines[0].reason}")
        else:
            count = f"{len(lines)} line{'s' if len(lines) > 1 else ''} not used"
            texts.append(f"{count}: {lines[0].reason}\n{places}\n{lines[0].text}")
    return texts


def _fit(result: ImportResult, machine: Machine, suffix: str) -> Calibration:
    """The calibration that fits the samples.

    suffix  appended to the calibration's id
    Limits: no curve and no law fits the samples -> BadInputError
    """
    from pydantic import ValidationError

    from perfmodel.fit.build import Identity, fit_calibration

    stack = result.stack
    _require_fittable(result)
    points = _select_variant(result.samples[result.samples["flag"] == OK])
    identity = Identity(
        machine.name,
        Backend(stack.backend),
        stack.library_version,
        Clock(stack.clock),
        checked=not (points["note"].str.contains("not checked") & ~points["in_place"]).any(),
        note=f"imported from {', '.join(sorted(set(points['source_id'])))}",
        complete=not result.cut,
    )
    shipped = None
    if machine.name in list_machines():
        try:
            shipped = choose_calibration(machine, identity.backend, None)
        except NoCalibrationError:
            shipped = None
    like = shipped if shipped is not None and shipped.machine == machine.name else None
    try:
        fitted = fit_calibration(points, machine, identity, like=like)
    except ValidationError as error:
        raise BadInputError(
            f"no curve or law fits these samples: {invalid_fields(error, 'fit', 'of them').message}",
            "look for impossible times: too long, too short, or in another unit.",
        ) from None
    return fitted.model_copy(update={"calibration_id": f"{fitted.calibration_id}+{suffix}"})


def _require_fittable(result: ImportResult) -> None:
    """Raise BadInputError, with reasons, unless a sample is without a flag, out of place and modelled."""
    points = result.samples
    modelled, good = points["collective"].isin(COLLECTIVES), points["flag"] == OK
    if not (modelled & good & ~points["in_place"]).any():
        counts = {"of no modelled collective": (~modelled).sum(), "in place": points["in_place"].sum()}
        counts |= {f"marked '{flag}'": count for flag, count in _count_flags(points).items()}
        reasons = [f"  {count} rows {words}: not fitted" for words, count in counts.items() if count]
        lines = ["nothing in these logs can be fitted:", *reasons_of(result.unread), *reasons]
        raise BadInputError("\n".join(lines), "name other logs.")


def _count_flags(points: pd.DataFrame) -> dict[str, int]:
    """How many samples have each flag of doubt."""
    counts = points.loc[points["flag"] != OK, "flag"].value_counts()
    return {str(flag): int(count) for flag, count in counts.sort_index().items()}


def _select_variant(points: pd.DataFrame) -> pd.DataFrame:
    """The samples of one variant of the kernels: the variant that reaches the largest messages.

    NVSHMEM kernels by a thread or a warp stop at small messages.
    """
    reach = points.groupby("variant")["payload_bytes"].max().sort_index()
    if len(reach) == 1:
        return points
    chosen = str(reach.idxmax())
    left = ", ".join(name for name in reach.index if name != chosen)
    warn(f"curves are of {chosen}, which reaches the largest messages; kept as samples only: {left}")
    return points[points["variant"] == chosen]


def _count_fitted(samples: pd.DataFrame, calibration: Calibration) -> str:
    """How many samples were fitted, and how many were not, by reason: ``21 fitted, 21 in place``."""
    counts = {"fitted": calibration.sample_count}
    counts |= {"in place": int(((samples["flag"] == OK) & samples["in_place"]).sum())}
    counts |= _count_flags(samples)
    counts["of another variant, type or collective"] = len(samples) - sum(counts.values())
    return ", ".join(f"{count} {words}" for words, count in counts.items() if count or words == "fitted")
