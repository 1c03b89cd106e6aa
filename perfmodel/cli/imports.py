"""``perfmodel import``: a calibration from existing logs."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from calibrate.importers import ImportResult, LogLine, import_logs, reasons_of
from calibrate.importers.logged_rows import OK
from calibrate.machine.identity import gpu_class, shipped_with, words_of
from perfmodel.cli.options import split_values
from perfmodel.cli.output import (
    check_target,
    emit,
    emit_json,
    free_name,
    is_verbose,
    not_json,
    note,
    numberless,
    warn,
    warn_all,
)
from perfmodel.collectives.choose import choose_calibration
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.question.measured import ImportOptions
from perfmodel.report.calibration_text import calibration_text
from perfmodel.report.terminal import paragraph
from perfmodel.schema.calibration import Calibration, save_calibration
from perfmodel.schema.evidence import COLLECTIVES, Backend, Clock
from perfmodel.schema.fields import find_doubts, limits_of
from perfmodel.schema.files import (
    SAMPLES_SUFFIX,
    cannot_write,
    invalid_fields,
    unknown_name,
    write_whole_bytes,
)
from perfmodel.schema.machine import Machine, list_machines, load_machine
from perfmodel.schema.samples import write_samples

if TYPE_CHECKING:
    import pandas as pd

_SHOWN_UNREAD = 5


def import_(context: typer.Context, options: ImportOptions) -> None:
    """Fit a calibration to benchmark logs, write it with its samples, and print it."""
    if options.out is not None:
        _check_out(options.out, force=options.force)

    result = import_logs(
        options.logs,
        gpus_per_node=options.gpus_per_node,
        op=options.op,
        clock=options.clock,
        gpus=options.gpus,
        library_version=options.library_version,
    )
    box = _machine_for(options.machine, result.stack.gpu)
    result.samples["machine"] = box.name
    warn_all([*unread_text(result.unread), *result.warnings])
    gpu_doubt = doubt_gpu(result.stack.gpu, box, force=options.force)
    _doubt_samples(result, split_values([options.accepted], "--set accepted") if options.accepted else [])
    stem = options.out.stem if options.out is not None else "own"
    calibration = _fit(result, box, stem)

    warn_all(gpu_doubt)
    if options.out is not None:
        _write(calibration, result, options.out)
    _deliver(calibration, box, result, gpu_doubt, as_json=options.as_json)
    if options.out is not None:
        note(f"wrote {options.out} and {_samples_path(options.out)}")
        note(f"all constants:\n  perfmodel show {shlex.quote(str(options.out))}")


def _check_out(out: Path, *, force: bool) -> None:
    if out.suffix != ".json":
        raise not_json(out, "a calibration")
    for path in (out, _samples_path(out)):
        check_target(path, force=force, free=lambda: free_name(out, _samples_path))


def _machine_for(name: str | None, gpu: str) -> Machine:
    """The typed machine; else the only shipped machine that has this GPU.

    gpu  as the logs name it.  Limits: several such machines, or none -> BadInputError
    """
    if name is not None:
        return load_machine(name)
    fitting = shipped_with(gpu)
    if len(fitting) == 1:
        note(f"machine: {fitting[0]} (the only shipped one with a {gpu})")
        return load_machine(fitting[0])
    names = ", ".join(fitting or list_machines())
    raise BadInputError(
        f"the machine is not clear: the logs are of {gpu or 'an unnamed GPU'}.",
        f"give --machine: {names}; or a machine file of your own.",
    )


def doubt_gpu(gpu: str, machine: Machine, *, force: bool) -> list[str]:
    """A warning if the logs may be from another GPU than the machine's.

    gpu  as the logs name it;  force  whether ``--force`` was typed
    Limits: the machine's GPU, or a GPU in the name or title of a machine file -> none; another GPU with a
            shipped machine -> BadInputError, a warning with ``force``
    """
    if not gpu:
        return [f"the logs do not name their GPU: assuming {machine.name}"]
    shipped, fitting = machine.name in list_machines(), shipped_with(gpu)
    if machine.name in fitting:
        return []
    if not shipped:
        own = words_of(f"{machine.name} {machine.title}")
        kinds = [gpu_class(name) for name in fitting]
        told = {word for word in own if any(c.isdigit() for c in word)} & words_of(gpu)
        if any(words <= own for words in kinds) or (not kinds and told):
            return []
    text = f"the logs are of {gpu}, and {machine.name} is another machine ({machine.title})"
    if shipped and not force:
        name = " or ".join(fitting)
        instead = f"--machine {name}" if fitting else "--machine FILE.toml for a machine with that GPU"
        raise BadInputError(text + ".", f"{instead}; or --force to use them anyway.")
    return [text]


def _doubt_samples(result: ImportResult, accepted: list[str]) -> None:
    """Check that no sample is far faster or slower than any product could be.

    accepted  names of limits that ``--set accepted`` sets aside
    Limits: an unknown name; a sample beyond a limit that is not accepted -> BadInputError
    """
    known = limits_of("sample")
    for name in accepted:
        if name not in known:
            raise unknown_name("--set accepted", name, known)
    usable = result.samples[result.samples["flag"] == OK]
    if usable.empty:
        return
    numbers = (usable[name].to_numpy(dtype=float) for name in ("payload_bytes", "time_s", "gpus"))
    doubted = find_doubts(*numbers)
    open_ones = {name: text for name, text in doubted.items() if name not in accepted}
    if open_ones:
        words = "\n".join(f"{name}: {text}" for name, text in open_ones.items())
        raise BadInputError(
            f"these samples are far from any known hardware:\n{words}",
            f"check units and log; if it is correct: --set accepted={','.join([*accepted, *open_ones])}",
        )
    warn_all([f"accepted: {name}: {text}" for name, text in doubted.items()])


def unread_text(unread: list[LogLine]) -> list[str]:
    """Warnings for lines of logs that were not used, one for each reason."""
    groups: dict[str, list[LogLine]] = {}
    for line in unread:
        groups.setdefault(numberless(line.reason), []).append(line)
    texts = []
    for lines in groups.values():
        places = ", ".join(line.place for line in lines[:_SHOWN_UNREAD])
        more = f" and {len(lines) - _SHOWN_UNREAD} more" if len(lines) > _SHOWN_UNREAD else ""
        if lines[0].line_no == 0:
            texts.append(f"not used: {places}{more}: {lines[0].reason}")
            continue
        count = f"{len(lines)} line{'s' if len(lines) > 1 else ''} not used"
        texts.append(f"{count}: {lines[0].reason}\n{places}{more}\n{lines[0].text}")
    return texts


def _fit(result: ImportResult, machine: Machine, own_name: str) -> Calibration:
    """The calibration that fits the samples.

    own_name  appended to the calibration's id
    Limits: no curve and no law fits the samples -> BadInputError
    """
    from pydantic import ValidationError

    from perfmodel.fit.build import Identity, fit_calibration

    stack = result.stack
    _require_fittable(result)
    points = _one_variant(result.samples[result.samples["flag"] == OK])
    sources = ", ".join(sorted(set(points["source_id"])))
    checked = not (points["note"].str.contains("not checked") & ~points["in_place"]).any()
    identity = Identity(
        machine.name, Backend(stack.backend), stack.library_version, Clock(stack.clock), checked=checked,
        note=f"imported from {sources}", complete=not result.cut,
    )  # fmt: skip
    like = _shipped_like(machine, identity.backend)
    try:
        found = fit_calibration(points, machine, identity, like=like)
    except ValidationError as error:
        raise BadInputError(
            f"no curve or law fits these samples: {invalid_fields(error, 'fit', 'of them').message}",
            "look for impossible times: too long, too short, or in another unit.",
        ) from None
    return found.model_copy(update={"calibration_id": f"{found.calibration_id}+{own_name}"})


def _shipped_like(machine: Machine, backend: Backend) -> Calibration | None:
    """The shipped calibration of exactly this machine and library, where a fit begins, or None."""
    if machine.name not in list_machines():
        return None
    try:
        found = choose_calibration(machine, backend, None)
    except NoCalibrationError:
        return None
    return found if found.machine == machine.name else None


def _require_fittable(result: ImportResult) -> None:
    """Raise BadInputError, with reasons, unless a sample is without a flag, out of place and modelled."""
    points = result.samples
    known, good, outside = points["collective"].isin(COLLECTIVES), points["flag"] == OK, ~points["in_place"]
    if (known & good & outside).any():
        return
    reasons = reasons_of(result.unread, _SHOWN_UNREAD)
    for bad, what in (
        (~known, "of no collective that is modelled"),
        *((points["flag"] == flag, f"marked '{flag}': kept, not fitted") for flag in _doubts(points)),
        (~outside, "in place: kept as samples, not fitted"),
    ):
        reasons += [f"  {int(bad.sum())} rows {what}"] if bad.any() else []
    raise BadInputError("\n".join(["nothing in these logs can be fitted:", *reasons]), "name other logs.")


def _one_variant(points: pd.DataFrame) -> pd.DataFrame:
    """The samples of one variant of the kernels: the variant that reaches the largest messages.

    NVSHMEM kernels by a thread or a warp stop at small messages.
    """
    if points["variant"].nunique() == 1:
        return points
    reach = points.groupby("variant")["payload_bytes"].max().sort_index()
    chosen = str(reach.idxmax())
    left = ", ".join(name for name in reach.index if name != chosen)
    warn(f"curves are of {chosen}, which reaches the largest messages; kept as samples only: {left}")
    return points[points["variant"] == chosen]


def _samples_path(out: Path) -> Path:
    return out.with_name(out.name.removesuffix(".json") + SAMPLES_SUFFIX)


def _write(calibration: Calibration, result: ImportResult, out: Path) -> None:
    """Write the calibration and its samples; if one of the files cannot be written, neither is."""
    samples = _samples_path(out)
    try:
        with tempfile.TemporaryDirectory(prefix=".import-", dir=out.parent) as name:
            folder = Path(name)
            write_samples(result.samples.drop_duplicates(), folder / samples.name)
            save_calibration(calibration, folder / out.name)
            before = samples.read_bytes() if samples.is_file() else None
            os.replace(folder / samples.name, samples)
            try:
                os.replace(folder / out.name, out)
            except OSError:
                samples.unlink(missing_ok=True)
                if before is not None:
                    write_whole_bytes(samples, before)
                raise
    except OSError as error:
        raise cannot_write(out, error) from None


def _deliver(
    calibration: Calibration,
    machine: Machine,
    result: ImportResult,
    gpu_doubt: list[str],
    *,
    as_json: bool,
) -> None:
    if as_json:
        unread: list[dict[str, Any]] = [line._asdict() for line in result.unread]
        emit_json(
            "import",
            calibration=calibration.model_dump(mode="json"),
            samples=len(result.samples),
            unread=unread,
            warnings=[*result.warnings, *gpu_doubt],
        )
        return

    head = f"{len(result.samples)} samples of {result.stack}: {_shares(result.samples, calibration)}"
    parts = [paragraph(head), calibration_text(calibration, machine, brief=not is_verbose())]
    emit("\n\n".join(parts))


def _doubts(samples: pd.DataFrame) -> list[str]:
    """The flags of doubtful samples, sorted."""
    return sorted(set(samples["flag"]) - {OK})


def _shares(samples: pd.DataFrame, calibration: Calibration) -> str:
    """How many samples were fitted, and how many were not, by reason: ``21 fitted, 21 in place``."""
    good, inside = samples["flag"] == OK, samples["in_place"]
    left = {"in place": int((good & inside).sum())}
    left |= {flag: int((samples["flag"] == flag).sum()) for flag in _doubts(samples)}
    others = len(samples) - calibration.sample_count - sum(left.values())
    left["of another variant, type or collective"] = others
    named = [f"{count} {what}" for what, count in left.items() if count]
    return ", ".join([f"{calibration.sample_count} fitted", *named])
