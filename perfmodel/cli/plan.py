"""``perfmodel plan``: which sharding for which table, what it costs, and how far from the bound."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.chip import BatchOption, ChipPageOption, OnChipOption, RobustOption, on_chip, only_on_chip
from perfmodel.cli.dense import DenseOption, layers_of, whole_of
from perfmodel.cli.ids import AlphaOption, DistributionOption, ids_of
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
    check_most,
    check_per_node,
    library_of,
    machine_of,
    one_output,
)
from perfmodel.cli.output import (
    SaidError,
    check_target,
    emit,
    emit_json,
    note,
    on_terminal,
    rewrite,
    terminal_columns,
    warn,
    warn_stopped,
    write_whole,
)
from perfmodel.cli.project import IdDtypeOption, PayloadOption, ScenarioOption, reserve_of
from perfmodel.cli.typed_line import TypedLine
from perfmodel.errors import BadInputError

if TYPE_CHECKING:
    from perfmodel.plan import Evaluator
    from perfmodel.plan.training import WholeStep
    from perfmodel.schema.machine import Machine

_STOPPED = 130
_LINE_EVERY_S = 0.2
_DEFAULT_BATCH = "1024"
DEFAULT_RESERVE = "15%"
"""Of a GPU's memory, for what a plan does not count; TorchRec's planner keeps as much."""
_OBJECTIVES = ("latency", "throughput")
_FORMATS = ("plan", "torchrec")
_WORTH_SAYING = 0.005  # of the time
_OTHERS_SHARE = 0.1  # of the time limit, for a look at the schemes that a format leaves out

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="A shipped set of tables (perfmodel models), or a CSV, JSON, YAML, TOML file.",
    ),
]
GpusOption = Annotated[
    str | None,
    typer.Option("--gpus", metavar="N", help="GPUs to place the tables on (default: those of --plan)."),
]
ObjectiveOption = Annotated[
    str,
    typer.Option(
        "--objective",
        metavar="NAME",
        help="latency: the forward pass; throughput: forward and backward, as in training.",
    ),
]
MaxHbmOption = Annotated[
    str | None,
    typer.Option(
        "--max-hbm",
        metavar="SIZE",
        help="Memory of each GPU that tables may use (default: what --reserve leaves).",
    ),
]
KeptOption = Annotated[
    str | None,
    typer.Option(
        "--reserve",
        metavar="PART",
        help="Part of each GPU's memory kept for CUDA, NCCL and dense layers "
        "(default: 15%, none with --max-hbm).",
    ),
]
OptimizerOption = Annotated[
    str | None,
    typer.Option(
        "--optimizer",
        metavar="NAME",
        help="Whose state is kept: none, sgd, rowwise-adagrad, adagrad, adam (default: none; "
        "rowwise-adagrad for throughput).",
    ),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Of --out: plan (default), or torchrec, with the shardings alone that TorchRec has.",
    ),
]
PlanOption = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="What this plan costs, as --out wrote it; no search."),
]
LimitOption = Annotated[
    str, typer.Option("--time-limit", metavar="TIME", help="Longest search, e.g. 10s (default).")
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="Of the random moves of the search.")
]


def plan(
    context: typer.Context,
    model: ModelOption = None,
    gpus: GpusOption = None,
    chip: OnChipOption = None,
    robust: RobustOption = False,
    report: ChipPageOption = None,
    batch: BatchOption = None,
    objective: ObjectiveOption = _OBJECTIVES[0],
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
    file_format: FormatOption = _FORMATS[0],
    force: ForceOption = False,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Which sharding for which table, what it costs, and how far it is from the best there can be?

    Ctrl-C ends the search and prints the best plan so far.

    \b
    Examples
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 128
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 64 --objective throughput --max-hbm 60GB
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 64 --objective throughput --dense dlrm-dcnv2
      perfmodel plan --model tables.csv --gpus 16 --machine h200-sxm-ib --out plan.json
      perfmodel plan --model tables.csv --gpus 16 --reserve 20% --format torchrec --out plan.json
      perfmodel plan --model tables.csv --plan plan.json --batch 4096
      perfmodel plan --model criteo-kaggle --on-chip ascend-910 --distribution zipf:1.05
    """
    if chip is not None:
        on_chip(context)
        return
    only_on_chip(robust=robust, report=report)
    one_output(json=as_json, csv=as_csv)
    _check_out(out, file_format, force=force)
    texts = {"model": model, "gpus": gpus, "batch": batch, "time_limit": time_limit}
    numbers = {**_numbers(plan_file, **texts), "ids": ids_of(alpha, distribution)}
    training = _training(objective)
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
        limit = _limit(box, max_hbm, reserve)
        answer = _answer(box, numbers, options, limit, plan_file, seed, file_format)
    if out is not None:
        _write(answer, out, file_format)
    kept = out is not None or plan_file is not None
    again = "" if kept else TypedLine.of(context).text(more=["--out", "plan.json"])
    whole = whole_of(answer, layers)
    file, capped = calibration_file(calibration), max_hbm is not None and reserve is None
    _deliver(answer, whole, file, again, capped=capped, as_json=as_json, as_csv=as_csv)
    if out is not None:
        note(f"wrote {out}")
    if file_format == "torchrec" and answer.found.stopped not in ("given", "interrupt"):
        note(_cost_of_torchrec(answer, numbers["time_limit"] * _OTHERS_SHARE, seed))
    if answer.found.stopped == "interrupt":
        warn_stopped()
        raise SaidError(_STOPPED)


def _check_out(out: Path | None, file_format: str, *, force: bool) -> None:
    if file_format not in _FORMATS:
        from perfmodel.schema.files import unknown_name

        raise unknown_name("--format", file_format, _FORMATS)
    if out is None:
        if file_format != _FORMATS[0]:
            raise BadInputError(f"--format {file_format} needs a file.", "give --out, e.g. --out plan.json")
        return
    if out.suffix.lower() != ".json":
        raise BadInputError(f"--out {out}: a plan is a .json file.", f"--out {out}.json")
    check_target(out, force=force)


def _numbers(plan_file: Path | None, **texts: str | None) -> dict[str, Any]:
    """Numbers of what was typed; the model stays a name. GPUs may be left to a plan: None."""
    from perfmodel.units import parse_count, parse_time

    if texts["model"] is None:
        raise BadInputError(
            "which tables?", "give --model, e.g. --model mlperf-dlrm-dcnv2 (perfmodel models lists them)"
        )
    if texts["gpus"] is None and plan_file is None:
        raise BadInputError("how many GPUs?", "give --gpus, e.g. --gpus 128")
    gpus = parse_count(texts["gpus"], "--gpus") if texts["gpus"] is not None else None
    check_most("gpus", gpus or 0, "--gpus")
    batch = parse_count(texts["batch"] or _DEFAULT_BATCH, "--batch")
    check_most("batch", batch, "--batch")
    return {
        "model": texts["model"],
        "gpus": gpus,
        "batch": batch,
        "time_limit": parse_time(texts["time_limit"] or "", "--time-limit"),
    }


def _training(objective: str) -> bool:
    if objective not in _OBJECTIVES:
        from perfmodel.schema.files import unknown_name

        raise unknown_name("--objective", objective, _OBJECTIVES)
    return objective == "throughput"


def _limit(machine: Machine, max_hbm: str | None, reserve: str | None) -> float:
    """Bytes of each GPU that tables may use: what is not reserved, and no more than --max-hbm."""
    if reserve is None:
        reserve = DEFAULT_RESERVE if max_hbm is None else "0"
    from perfmodel.units import format_bytes, parse_bytes

    whole = machine.value("hbm_bytes")
    limit = whole if max_hbm is None else parse_bytes(max_hbm, "--max-hbm")
    if limit > whole:
        raise BadInputError(
            f"--max-hbm {max_hbm} is more than the {format_bytes(whole, binary=False)} of {machine.name}.",
            f"give less, or change the machine: --set hbm_bytes={max_hbm}",
        )
    return min(limit, whole * (1 - reserve_of(reserve)))


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
    from perfmodel.plan import Evaluator, PlanTables, read_plan
    from perfmodel.plan.outcome import given_outcome

    tables = PlanTables.load(numbers["model"], numbers["ids"])
    plan = read_plan(plan_file, tables) if plan_file is not None else None
    gpus = numbers["gpus"] or (plan.gpus if plan else 0)
    evaluator = Evaluator.on(machine, tables, numbers["batch"], gpus, **options)
    if plan is not None:
        return given_outcome(evaluator, plan, limit_bytes)
    return _search(evaluator, limit_bytes, numbers["time_limit"], seed, file_format)


def _search(
    evaluator: Evaluator, limit_bytes: float, time_limit_s: float, seed: int, file_format: str
) -> Any:
    from perfmodel.plan import torchrec
    from perfmodel.plan.outcome import outcome_of
    from perfmodel.plan.search import Search

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
    from perfmodel.plan import torchrec, write_plan

    found = answer.found
    if file_format == "torchrec":
        write_whole(out, lambda path: torchrec.write(answer.evaluator, found.plan, path, found.limit_bytes))
    else:
        write_whole(out, lambda path: write_plan(found.plan, path))


def _cost_of_torchrec(answer: Any, time_limit_s: float, seed: int) -> str:
    """What a short search among all schemes finds besides."""
    from perfmodel.plan.search import Search
    from perfmodel.units import format_fraction, format_time

    limit, restricted_s = answer.found.limit_bytes, answer.found.cost.time_s
    try:
        found = Search(answer.evaluator, limit, time_limit_s=time_limit_s, seed=seed).run()
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
        from perfmodel.report.plan import progress_text

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
    from perfmodel.report.plan import plan_csv, plan_text

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
