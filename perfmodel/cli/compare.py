"""``perfmodel compare``: a traced run beside the predicted times of its plan, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perfmodel.cli.chosen import (
    advice,
    calibration_file,
    calibration_of,
    check_per_node,
    library_of,
    machine_of,
)
from perfmodel.cli.import_traces import tell_of_file
from perfmodel.cli.output import emit, emit_json, note, warn_all
from perfmodel.cli.page_file import write
from perfmodel.cli.plan_made_for import as_made, ids_as_made
from perfmodel.cli.plan_options import (
    check_page,
    is_training,
)
from perfmodel.cli.typed_line import TypedLine
from perfmodel.errors import BadInputError, OutsideBandError
from perfmodel.passes.allowed_tiers import Below
from perfmodel.passes.exchange_sets import ExchangeSets
from perfmodel.plan import Evaluator, Plan, PlanTables
from perfmodel.plan.files import read_document
from perfmodel.plan.for_torchrec import runnable as torchrec
from perfmodel.plan.for_torchrec.files import plan_of, read_any_plan
from perfmodel.plan.for_torchrec.printed import read_printed_plan
from perfmodel.plan.made_for import MadeFor
from perfmodel.question.groups import default_optimizer
from perfmodel.question.plans import JUDGED, CompareOptions
from perfmodel.report.traced_text import traced_text
from perfmodel.schema.evidence import Clock
from perfmodel.schema.files import unknown_name
from perfmodel.schema.trace_alignment import align
from perfmodel.schema.traces import KernelFamily, RankTrace
from perfmodel.units import parse_count
from perfmodel.validate.traced.comparing import compare as compare_run

if TYPE_CHECKING:
    from perfmodel.schema.machine import Machine


def compare(context: typer.Context, options: CompareOptions) -> None:
    """Compare a traced run with the predicted times of its plan; print the verdict or write a page."""
    if options.judge not in JUDGED:
        raise unknown_name("--judge", options.judge, JUDGED)
    check_page(options.report, None, force=options.force)
    typed = TypedLine.of(context)
    _check_plan(options.model, options.plan_file, options.torchrec_plan)
    of_file = as_made(context, options.plan_file, leave=("objective",))  # the traces show it
    asked = of_file.values
    backend, clock, gpus_per_node = asked["backend"], asked["clock"], asked["gpus_per_node"]
    calibration = calibration_of(asked["calibration"], backend, clock)
    box = machine_of(asked["machine"], asked["settings"], calibration)
    check_per_node(gpus_per_node, box)
    library = library_of(box, backend, calibration)
    read = _read(options.traces)
    training = _training(read) if options.objective is None else is_training(options.objective)
    with advice(box, library, clock):
        tables = PlanTables.load(asked["model"], ids_as_made(asked))
        samples = _batch(asked["batch"], options.plan_file)
        how: dict[str, Any] = {
            "backend": library, "clock": clock, "calibration": calibration, "gpus_per_node": gpus_per_node,
            "id_dtype": asked["id_dtype"], "payload": asked["payload"], "training": training,
            "optimizer": asked["optimizer"] or default_optimizer(training=training),
        }  # fmt: skip
        ways = _plans(box, tables, samples, read, options.plan_file, options.torchrec_plan, how)
        of_file.tell(MadeFor.of(ways[0][0]))
        again = _fitted_to(calibration, read, gpus_per_node or box.gpus_per_node)
        how = {"skip": options.skip, "judged": options.judge, "of_these": again}
        runs = [compare_run(read, *way, **how) for way in ways]
    at = min(range(len(runs)), key=lambda place: runs[place].run.cost)
    found, evaluator = runs[at], ways[at][0]
    if at > 0:
        note(f"{options.plan_file} as TorchRec runs it: each sharding type has exchanges of its own")
    warn_all([*_unread(read), *_other_library(read, evaluator), *evaluator.setting.notes])
    file = calibration_file(calibration)
    if options.report is not None:
        from perfmodel.report.page.traced_page import traced_page

        write(traced_page(found, typed.text(without=["force", "as_json"])), options.report, "html")
    if options.as_json:
        emit_json(
            "compare", **found.to_dict(), training=training, batch=samples, machine=box.name,
            calibrations=list(evaluator.setting.links.calibrations), calibration_file=file,
            unread=_counted(read),
        )  # fmt: skip
    else:
        emit(traced_text(found, file))
    if options.report is not None:
        note(f"wrote {options.report}")
    if not found.inside or found.far:
        from perfmodel.report.traced_text import outside_line

        raise OutsideBandError(outside_line(found), found.reasons[0].words if found.reasons else "")


def _check_plan(model: str | None, plan_file: Path | None, torchrec_plan: Path | None) -> None:
    if model is None and plan_file is None:
        raise BadInputError("which tables?", "give --model, e.g. --model tables.csv")
    if (plan_file is None) == (torchrec_plan is None):
        both = "--plan and --torchrec-plan cannot be combined." if plan_file else "which plan ran?"
        raise BadInputError(both, "give --plan FILE, or --torchrec-plan FILE as TorchRec printed it.")


def _read(paths: Sequence[Path]) -> list[RankTrace]:
    """Read the traces of all ranks. Limits: traces of different runs -> BadInputError"""
    from calibrate.importers.traces.reading import check_alignment, read_traces

    found = read_traces(paths, tell_of_file)
    warn_all(check_alignment(found, align(found)))
    return found


def _training(traces: Sequence[RankTrace]) -> bool:
    """Whether the traces have kernels of a backward pass, so that they are of a training step."""
    return any(kernel.family is KernelFamily.BACKWARD for trace in traces for kernel in trace.kernels)


def _batch(batch: str | None, plan_file: Path | None) -> int:
    """Samples per rank, from ``--batch``, else from the plan file."""
    if batch is not None:
        return parse_count(batch, "--batch")
    document = read_document(plan_file) if plan_file is not None else None
    said = document.get("batch") if isinstance(document, dict) else None
    if isinstance(said, int) and said > 0:
        return said
    raise BadInputError("how many samples has a rank?", "give --batch, e.g. --batch 4096")


def _plans(
    box: Machine,
    tables: PlanTables,
    batch: int,
    traces: Sequence[RankTrace],
    plan_file: Path | None,
    torchrec_plan: Path | None,
    how: dict[str, Any],
) -> list[tuple[Evaluator, Plan]]:
    """The plans that may have run, each with the evaluator that predicts it.

    For a plan file: the plan as it is and, if possible, with the exchanges that TorchRec would run.
    how  further arguments of ``Evaluator.on``
    """
    if plan_file is not None:
        plan, sets = read_any_plan(plan_file, tables)
        where = {"sets": sets, "below": Below.of_plan(plan.tiers)}
        evaluator = Evaluator.on(box, tables, batch, plan.gpus, **how, **where)
        return [(evaluator, plan), *(_in_torchrec(evaluator, plan) if sets is None else [])]
    assert torchrec_plan is not None
    gpus = max(trace.world_size for trace in traces)
    if gpus < 1:
        raise BadInputError(
            "the traces do not say how many ranks ran.", "give --plan with a file that says it."
        )
    whole = Evaluator.on(box, tables, batch, gpus, **how)
    node = min(whole.basis.gpus_per_node or box.gpus_per_node, gpus)
    file = read_printed_plan(torchrec_plan, tables, gpus, node, whole.domain, batch)
    types = {entry.table: entry.sharding_type for entry in file.tables}
    sets = ExchangeSets(tuple(types[name] for name in tables.names))
    return [(whole.exchanging(sets), plan_of(file, tables, str(torchrec_plan)))]


def _in_torchrec(evaluator: Evaluator, plan: Plan) -> list[tuple[Evaluator, Plan]]:
    """The plan with the exchanges that TorchRec would run; [] if TorchRec has no such sharding."""
    try:
        file = torchrec.torchrec_plan(evaluator, plan)
    except BadInputError:
        return []
    types = {entry.table: entry.sharding_type for entry in file.tables}
    sets = ExchangeSets(tuple(types[name] for name in plan.tables.names))
    return [(evaluator.exchanging(sets), plan_of(file, plan.tables))]


def _fitted_to(calibration: Path | str | None, traces: Sequence[RankTrace], per_node: int) -> bool:
    """Whether the user's calibration was fitted to these traces. per_node  GPUs in use in a node"""
    from calibrate.importers.traces.samples import fittable, traced_samples
    from perfmodel.fit.traced import is_fitted_to
    from perfmodel.schema.calibration import load_calibration

    if calibration is None:
        return False
    known = load_calibration(str(calibration))
    if known.clock is not Clock.TRACE:
        return False
    try:
        samples = traced_samples(traces, known.machine, lambda: per_node)
    except BadInputError:  # the traces have no sample to compare with
        return False
    return is_fitted_to(known, fittable(samples))


def _other_library(traces: Sequence[RankTrace], evaluator: Evaluator) -> list[str]:
    """A warning if the traces are of another library than the prediction; else none."""
    ran, known = traces[0].backend, evaluator.setting.backend
    if not ran or ran == known:
        return []
    return [f"the traces are of {ran}, and the prediction is for {known}: give --calibration of {ran}"]


def _counted(traces: Sequence[RankTrace]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for trace in traces:
        found.update(trace.unread)
    return dict(found)


def _unread(traces: Sequence[RankTrace]) -> list[str]:
    cut = [f"{trace.file} was cut: its events before that are compared" for trace in traces if trace.cut]
    return cut + [f"{count} not read: {why}" for why, count in _counted(traces).items()]
