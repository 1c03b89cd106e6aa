"""``perfmodel plan``: which sharding for which table, what it costs, and how far from the bound."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perfmodel.cli.codes import STOPPED
from perfmodel.cli.dense import DenseOption, layers_of, whole_of
from perfmodel.cli.ids import AlphaOption, DistributionOption, ids_of
from perfmodel.cli.onechip.old_spellings import (
    OnChipOption,
    RobustOption,
    plan_on_chip,
    plan_without_chip,
)
from perfmodel.cli.options import (
    BackendOption,
    CalibrationOption,
    ClockOption,
    CsvOption,
    ForceOption,
    GpusPerNodeOption,
    JsonOption,
    MachineOption,
    OutOption,
    SetOption,
    advice,
    calibration_file,
    calibration_of,
    check_per_node,
    library_of,
    machine_of,
    one_output,
)
from perfmodel.cli.output import (
    SaidError,
    emit,
    emit_json,
    note,
    on_terminal,
    rewrite,
    terminal_columns,
    warn,
    warn_stopped,
)
from perfmodel.cli.page_file import write
from perfmodel.cli.plan_options import (
    FORMATS,
    OBJECTIVES,
    BatchOption,
    FormatOption,
    GpusOption,
    KeptOption,
    LimitOption,
    MaxHbmOption,
    ModelOption,
    ObjectiveOption,
    OptimizerOption,
    PageOption,
    PlanOption,
    SeedOption,
    check_out,
    check_page,
    is_training,
    limit_of,
    numbers_of,
)
from perfmodel.cli.typed_line import TypedLine
from perfmodel.cli.workload import IdDtypeOption, PayloadOption, ScenarioOption
from perfmodel.errors import BadInputError
from perfmodel.plan import Evaluator, PlanTables, torchrec, write_plan
from perfmodel.plan.exchange_sets import ExchangeSets
from perfmodel.plan.outcome import given_outcome, outcome_of
from perfmodel.plan.search import Search
from perfmodel.plan.torchrec_files import plan_of, read_any_plan
from perfmodel.report.page.plan_page import plan_page
from perfmodel.report.plan_text import plan_csv, plan_text, progress_text
from perfmodel.units import format_fraction, format_time

if TYPE_CHECKING:
    from perfmodel.plan.training import WholeStep
    from perfmodel.schema.machine import Machine

_LINE_EVERY_S = 0.2
_OF_EXPLAIN = (
    *("model", "batch", "alpha", "distribution", "payload", "id_dtype", "machine", "backend", "clock"),
    *("gpus_per_node", "scenario", "settings", "calibration"),
)
"""Options that ``perfmodel explain`` has too."""
_WORTH_SAYING = 0.005  # of the time
_OTHERS_SHARE = 0.1  # of the time limit, for a look at the schemes that a format leaves out


def plan(
    context: typer.Context,
    model: ModelOption = None,
    gpus: GpusOption = None,
    chip: OnChipOption = None,
    robust: RobustOption = False,
    report: PageOption = None,
    batch: BatchOption = None,
    objective: ObjectiveOption = OBJECTIVES[0],
    max_hbm: MaxHbmOption = None,
    reserve: KeptOption = None,
    optimizer: OptimizerOption = None,
    payload: PayloadOption = None,
    alpha: AlphaOption = None,
    distribution: DistributionOption = None,
    dense: DenseOption = None,
    id_dtype: IdDtypeOption = "int64",
    machine: MachineOption = None,
    backend: BackendOption = None,
    clock: ClockOption = None,
    gpus_per_node: GpusPerNodeOption = None,
    scenario: ScenarioOption = "cluster",
    settings: SetOption = None,
    calibration: CalibrationOption = None,
    time_limit: LimitOption = "10s",
    seed: SeedOption = 0,
    plan_file: PlanOption = None,
    out: OutOption = None,
    file_format: FormatOption = FORMATS[0],
    force: ForceOption = False,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Which sharding for which table, what it costs, and how far it is from the best there can be?

    Ctrl-C ends the search and prints the best plan so far; in the first seconds there is none yet.

    \b
    Examples
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 128
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 64 --objective throughput --max-hbm 60GB
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 64 --objective throughput --dense dlrm-dcnv2
      perfmodel plan --model tables.csv --gpus 16 --machine h200-sxm-ib --out plan.json
      perfmodel plan --model tables.csv --gpus 16 --reserve 20% --format torchrec --out plan.json
      perfmodel plan --model tables.csv --plan plan.json --batch 4096
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 128 --report plan.html
    """
    if chip is not None:
        plan_on_chip(context)
        return
    plan_without_chip(robust=robust)
    one_output(json=as_json, csv=as_csv)
    check_out(out, file_format, force=force)
    check_page(report, out, force=force)
    texts = {"model": model, "gpus": gpus, "batch": batch, "time_limit": time_limit}
    numbers = {**numbers_of(plan_file, **texts), "ids": ids_of(alpha, distribution)}
    training = is_training(objective)
    calibration = calibration_of(calibration, backend, clock)
    box = machine_of(machine, settings, calibration)
    check_per_node(gpus_per_node, box)
    library = library_of(box, backend, calibration)
    layers = layers_of(dense, box)
    options: dict[str, Any] = {
        "backend": library,
        "clock": clock,
        "scenario": scenario,
        "calibration": calibration,
        "gpus_per_node": gpus_per_node,
        "id_dtype": id_dtype,
        "payload": payload,
        "optimizer": optimizer or ("rowwise-adagrad" if training else "none"),
        "training": training,
    }
    with advice(box, library, clock):
        limit = limit_of(box, max_hbm, reserve)
        try:
            answer = _answer(box, numbers, options, limit, plan_file, seed, file_format)
        except KeyboardInterrupt:
            note("\nstopped before there was a plan to print: the first takes a few seconds.")
            raise SaidError(STOPPED) from None
    if out is not None:
        _write(answer, out, file_format)
    kept = out is not None or plan_file is not None
    again = "" if kept else TypedLine.of(context).text(more=["--out", "plan.json"])
    whole = whole_of(answer, layers)
    file, capped = calibration_file(calibration), max_hbm is not None and reserve is None
    if report is not None:
        _write_page(answer, whole, report, TypedLine.of(context), calibration, capped=capped)
    _deliver(answer, whole, file, again, capped=capped, as_json=as_json, as_csv=as_csv)
    if out is not None:
        note(f"wrote {out}")
    if report is not None:
        note(f"wrote {report}")
    if file_format == "torchrec" and answer.found.stopped not in ("given", "interrupt"):
        note(_cost_of_torchrec(answer, numbers["time_limit"] * _OTHERS_SHARE, seed))
    if answer.found.stopped == "interrupt":
        warn_stopped()
        raise SaidError(STOPPED)


def _answer(
    machine: Machine,
    numbers: dict[str, Any],
    options: dict[str, Any],
    limit_bytes: float,
    plan_file: Path | None,
    seed: int,
    file_format: str,
) -> Any:
    """The outcome of a search, or of the plan in a file."""
    tables = PlanTables.load(numbers["model"], numbers["ids"])
    plan, sets = read_any_plan(plan_file, tables) if plan_file is not None else (None, None)
    if sets is None and file_format == "torchrec":
        sets = ExchangeSets()
    gpus = numbers["gpus"] or (plan.gpus if plan else 0)
    evaluator = Evaluator.on(machine, tables, numbers["batch"], gpus, sets=sets, **options)
    if plan is not None:
        if sets is not None:  # as TorchRec runs it, if it can
            plan = plan_of(torchrec.torchrec_plan(evaluator, plan), tables)
        return given_outcome(evaluator, plan, limit_bytes)
    return _search(evaluator, limit_bytes, numbers["time_limit"], seed, file_format)


def _search(
    evaluator: Evaluator, limit_bytes: float, time_limit_s: float, seed: int, file_format: str
) -> Any:
    restrict = torchrec.runnable if file_format == "torchrec" else None
    progress = _Progress(time_limit_s)
    try:
        search = Search(
            evaluator, limit_bytes, time_limit_s=time_limit_s, seed=seed, restrict=restrict, watch=progress
        )
        found = search.run()
    finally:
        progress.clear()
    return outcome_of(search, found)


def _write(answer: Any, out: Path, file_format: str) -> None:
    found = answer.found
    if file_format == "torchrec":
        torchrec.write(answer.evaluator, found.plan, out, found.limit_bytes)
    else:
        write_plan(found.plan, out)


def _write_page(
    answer: Any,
    whole: WholeStep | None,
    path: Path,
    typed: TypedLine,
    calibration: str | Path | None,
    *,
    capped: bool,
) -> None:
    """The page, with the line that makes it again in any folder."""
    from perfmodel.report.page.alerts import alerts

    without = ["report", "force", "as_json", "as_csv"]
    without += [] if answer.found.restricted else ["out", "file_format"]
    command = typed.text(without=without, more=["--report", path.name])
    asked = [word for name, words in typed.options if name in _OF_EXPLAIN for word in words]
    doubts = alerts(None, calibration)
    page = plan_page(answer, command, whole, capped=capped, alerts=doubts, asked=asked)
    write(page, path, "html")


def _cost_of_torchrec(answer: Any, time_limit_s: float, seed: int) -> str:
    """What a short search among all schemes finds besides."""
    limit, restricted_s = answer.found.limit_bytes, answer.found.cost.time_s
    try:
        found = Search(answer.evaluator.exchanging(None), limit, time_limit_s=time_limit_s, seed=seed).run()
    except BadInputError:  # in so short a time
        return f"no plan without TorchRec's limits was found in {format_time(time_limit_s)}"
    gain = 1 - found.cost.time_s / restricted_s
    if gain < _WORTH_SAYING:
        return f"nothing faster without TorchRec's limits was found in {format_time(found.seconds)}"
    return (
        f"TorchRec's limits cost {format_fraction(gain)} or more of this time: "
        f"{format_time(found.cost.time_s)} without them (without --format torchrec)"
    )


class _Progress:
    """One line on a terminal: the best plan so far, the bound, the time that is left."""

    def __init__(self, time_limit_s: float) -> None:
        self._limit_s, self._began = time_limit_s, time.monotonic()
        self._last_s, self._shown, self._live = -1.0, "", on_terminal()

    def __call__(self, best_s: float, bound_s: float) -> None:
        now = time.monotonic() - self._began
        if not self._live or now - self._last_s < _LINE_EVERY_S:
            return

        self._last_s = now
        text = progress_text(best_s, bound_s, now, self._limit_s, terminal_columns())
        rewrite(text, self._shown)
        self._shown = text

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            rewrite("", self._shown)
            self._shown = ""


def _deliver(
    answer: Any,
    whole: WholeStep | None,
    calibration: str | None,
    again: str,
    *,
    capped: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    if as_json:
        samples = answer.evaluator.batch * answer.evaluator.gpus
        step = whole.to_dict(samples) if whole else None
        emit_json("plan", **answer.to_dict(), dense_step=step, calibration_file=calibration)
    elif as_csv:
        emit(plan_csv(answer))
    else:
        emit(plan_text(answer, calibration, again, whole, capped=capped))
        for line in answer.evaluator.setting.notes:
            warn(line)
