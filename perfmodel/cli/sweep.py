"""``perfmodel sweep``: a grid of configurations to CSV or Parquet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import typer
from numpy.typing import NDArray

from perfmodel.answer import Question
from perfmodel.answer.inputs import DEFAULTS
from perfmodel.answer.sweep import (
    GRIDS,
    MOST_COMPARED,
    SPREADS,
    TRIES,
    combine_axes,
    find_feasible,
    is_compared,
    rank_machines,
    sweep_columns,
    sweep_samples,
    sweep_within,
)
from perfmodel.cli.chosen import calibration_file
from perfmodel.cli.machines import read_criterion, read_prices
from perfmodel.cli.options import (
    LEAVE_ONE,
    apart,
    count_values,
    size_values,
    split_values,
)
from perfmodel.cli.output import check_target, emit, emit_json, note, warn
from perfmodel.cli.question import (
    advised,
    check_model,
    check_size,
    on_machines,
    question_of,
    share_of,
    split_names,
)
from perfmodel.cli.waiting_line import Progress
from perfmodel.engine.schemes import ALL, ROW_WISE, WAYS
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.model.capacity import gpus_needed
from perfmodel.question.groups import choose_optimizer, is_training
from perfmodel.question.passes import SweepOptions
from perfmodel.report.machines_text import machines_text
from perfmodel.report.sweep_text import sweep_text
from perfmodel.schema.files import cell, unknown_name, write_whole
from perfmodel.schema.table_files import load_tables
from perfmodel.schema.workload import UNIFORM, TableSet
from perfmodel.units import format_count, parse_count, parse_number, parse_time

if TYPE_CHECKING:
    import pandas as pd


_CHUNK = 1 << 20
_MOST = 50_000_000
_MOST_PRINTED = 100_000
_AXES = ("table_size", "gpus", "batch", "tables", "pooling", "dim")
_COUNTS = ("gpus", "gpus_needed", "gpus_paid", "batch", "samples", "table_count", "dim", "id_bytes")

Many = list[str] | None
Sweep = Callable[..., "pd.DataFrame"]
"""Computes the rows of a sweep, as ``sweep_columns`` does."""


def sweep(context: typer.Context, options: SweepOptions) -> None:
    """Project a grid of configurations, and write it as CSV or Parquet or print its range."""
    apart("--json", options.as_json, LEAVE_ONE, out=options.out)
    if options.out is not None:
        _check_kind(options.out)
        check_target(options.out)
    check_model({name: value or None for name, value in context.params.items()})
    axes = _axes(
        options.grid,
        {name: context.params[name] for name in _AXES if context.params[name]},
        bool(options.model),
    )
    what: list[str | TableSet] = list(split_values([options.dtype or "fp32"], "--set dtype"))
    if options.model:
        what = [load_tables(name) for name in dict.fromkeys(split_names(options.model, "--model"))]
    own = dict.fromkeys((*_AXES, "dtype", "model", "global_batch"))
    question = question_of({**context.params, **own})
    questions, everything = on_machines(question, context.params), question.sharding == ALL
    for one in questions:
        check_size(one, *axes.get("table_bytes", []))
    answer: Sweep = sweep_columns
    if options.max_latency is not None:
        typed = {"batch": options.batch, "set global_batch": options.global_batch, "grid": options.grid}
        apart("--set max_latency", options.max_latency, LEAVE_ONE, **typed)
        if everything:
            raise BadInputError("--sharding all is of many shardings.", "name one of them.")
        answer = partial(sweep_within, limit_s=parse_time(options.max_latency))
    compared = sum(is_compared(question) for question in questions)
    tries = len(what) * (1 if options.max_latency is None else TRIES)
    _check_count(axes, len(what) * len(questions), tries * compared)
    columns = combine_axes(**axes)
    how = _HOW.get(question.sharding, f"sharded {question.sharding}")
    if options.by is not None or options.price:
        columns = combine_axes(**{"batch": [DEFAULTS["batch"]], **axes})
        by = read_criterion(options, columns, len(what) * (len(WAYS) if everything else 1))
        nodes = {one.machine.name: one.machine.gpus_per_node for one in questions}
        prices, currency = read_prices(options, by, list(nodes))
        samples = parse_count(options.global_batch) if options.global_batch else None
        if not (
            samples or options.batch or options.max_latency
        ):  # as many as all GPUs of the first machine have by default
            few = columns if "gpus" in columns else _run(columns, what, questions[:1], sweep_samples)
            samples = int(DEFAULTS["batch"] * few["gpus"].min())
        if options.max_latency is None:
            answer = partial(sweep_samples, samples=samples, spreads=SPREADS if by == "cost" else (1.0,))
        ranked = rank_machines(_run(columns, what, questions, answer), by, samples, nodes, prices)
        _deliver(ranked, lambda: machines_text(ranked, by, currency, how), options)
        return
    if options.global_batch is not None:
        if "gpus" not in columns:
            step = "give --gpus, e.g. --gpus 16..128; or --by time, which compares machines."
            raise BadInputError("--set global_batch: on which GPUs?", step)
        if options.grid is not None:
            raise BadInputError("--grid has its batches.", "leave it or global_batch out.")
        columns["batch"] = np.array([float(share_of(context.params, int(g))) for g in columns["gpus"]])
    frame = _run(columns, what, questions, answer)
    _deliver(frame, lambda: sweep_text(frame, how), options)


_HOW = {
    None: "each with the fastest sharding of TorchRec's that fits",
    ALL: "each with every sharding that it allows",
}


def _axes(grid: str | None, given: dict[str, list[str]], of_models: bool) -> dict[str, list[float]]:
    """The values of every axis of the grid: as typed, else of the preset ``grid``.

    given      typed texts by option;  of_models  whether table sets were typed, not equal tables
    """
    axes: dict[str, list[float]] = {}
    if grid is not None:
        if grid not in GRIDS:
            raise unknown_name("--grid", grid, GRIDS)
        preset = GRIDS[grid]()
        axes = {name: [float(v) for v in dict.fromkeys(column.tolist())] for name, column in preset.items()}
    if "table_size" in given:
        own = axes.pop("gpus", []) if "gpus" not in given else []
        if own:
            numbers = ",".join(f"{count:.0f}" for count in own)
            note(
                f"--table-size takes as many GPUs as each size needs, so the {len(own)} numbers of GPUs of "
                f"{grid} are left out; --gpus {numbers} keeps them"
            )
        axes["table_bytes"] = [float(v) for v in size_values(given["table_size"], "--table-size")]
    for name in ("gpus", "batch", "tables", "dim"):
        if name in given:
            key = "table_count" if name == "tables" else name
            axes[key] = [float(v) for v in count_values(given[name], f"--{name}")]
    if "pooling" in given:
        texts = split_values(given["pooling"], "--pooling")
        ranges = [text for text in texts if ".." in text]
        single = [parse_number(text, "--pooling") for text in texts if ".." not in text]
        axes["pooling"] = single + [float(v) for v in (count_values(ranges, "--pooling") if ranges else [])]
    if of_models:
        return axes or {"batch": [DEFAULTS["batch"]]}
    if "gpus" not in axes and "table_bytes" not in axes:
        next_step = "give --table-size, --gpus, --model or --grid, e.g. --grid paper-1"
        raise BadInputError("which tables?", next_step)
    return axes


def _check_count(axes: dict[str, list[float]], times: int, compared: int) -> None:
    """Raise BadInputError for more configurations than ``_MOST``, or too many that compare shardings.

    times, compared  configurations for each point of the axes, and how many of these compare shardings
    """
    points = math.prod(len(values) for values in axes.values())
    if points * times > _MOST:
        raise BadInputError(
            f"{_count(points * times)} are too many at once (at most {_MOST}).", "split the grid."
        )
    if points * compared > MOST_COMPARED:
        raise BadInputError(
            f"shardings are compared for at most {format_count(MOST_COMPARED)} configurations, "
            f"and these are {format_count(points * compared)}.",
            f"split the grid, or give --sharding {ROW_WISE}, which takes {format_count(_MOST)} at once.",
        )


def _run(
    columns: dict[str, NDArray[np.float64]],
    what: Sequence[str | TableSet],
    questions: list[Question],
    answer: Sweep,
) -> pd.DataFrame:
    """Project all configurations: a row for each. answer  computes the rows, as ``sweep_columns``

    columns  the values of the axes at each point
    what     element types of equal tables, or sets of tables;  questions  for each machine
    """
    points = len(next(iter(columns.values())))
    total = points * len(what) * len(questions)
    done = Progress(total, "configurations")
    frames, constants, answered = [], [], 0
    for question in questions:
        with advised(question):
            same = _constants(question)
            for each in what:
                own = _tables(each)
                word = {"model": each.name} if isinstance(each, TableSet) else {"dtype": each}
                for start in range(0, points, _CHUNK):
                    part = {name: column[start : start + _CHUNK] for name, column in columns.items()}
                    kept = _possible(part, question, each)
                    done.advance(int(kept.size - kept.sum()))
                    if not kept.any():
                        continue
                    part = {name: column[kept] for name, column in part.items()}
                    frame = answer(replace(question, **own), part, done.advance)
                    answered += frame.index.nunique()
                    if len(frame):
                        frames.append(frame.reset_index(drop=True))
                        constants.append({**same, **word, "clock": str(frame["clock"].iloc[0])})
    left_out = total - answered
    why = "tables that do not fit the GPUs, or have fewer rows than there are GPUs"
    if questions[0].sharding not in (None, ROW_WISE):
        why += ", or do not allow the sharding"
    if "limit_s" in getattr(answer, "keywords", {}):
        why += ", or take longer than max_latency"
    if not frames:
        raise BadInputError(f"none of {_count(total)} is possible: {why}.", "use more GPUs.")
    if left_out:
        warn(f"{left_out} of {_count(total)} left out: {why}.")
    return _joined(frames, constants)


def _tables(what: str | TableSet) -> dict[str, Any]:
    """A type of equal tables, or a set of tables, by its keyword of ``perfmodel.project``."""
    return {"tables": what, "table_set": what} if isinstance(what, TableSet) else {"dtype": what}


def _possible(
    part: dict[str, NDArray[np.float64]], question: Question, what: str | TableSet
) -> NDArray[np.bool_]:
    """For each point of ``part`` whether it can be projected: the tables fit the GPUs, and have enough rows.

    what  an element type of equal tables, or a set of tables
    """
    training = is_training(question.objective)
    if isinstance(what, str):
        return find_feasible(part, question.machine_of_rows, question.reserve, training=training, dtype=what)
    if "gpus" not in part:
        return np.ones(len(next(iter(part.values()))), dtype=bool)
    room = question.machine_of_rows.value("hbm_bytes")
    held = float(PlanTables.of(what).count_bytes(training=training).sum())
    return np.asarray(part["gpus"] >= gpus_needed(held, room, question.reserve))


def _count(number: int) -> str:
    return f"{number} configuration{'s' if number != 1 else ''}"


def _constants(question: Question) -> dict[str, str]:
    """The texts of columns that are the same for all configurations of a question: machine, backend, …."""
    machine, own = question.machine, calibration_file(question.calibration)
    names = ", ".join(dict.fromkeys(question.load_setting().links.calibrations))
    return {
        "machine": machine.name,
        "backend": question.backend,
        "distribution": question.distribution.name if question.distribution else UNIFORM.name,
        "objective": question.objective,
        "optimizer": question.optimizer or choose_optimizer(training=is_training(question.objective)),
        "calibration": f"{own} ({names})" if own else names,
        "overrides": " ".join(f"{key}={machine.value(key):.15g}" for key in sorted(machine.overrides)),
    }


def _joined(frames: list[pd.DataFrame], constants: list[dict[str, str]]) -> pd.DataFrame:
    """The frames joined, with their constant columns first, as categories; numbers of things as integers."""
    import pandas as pd

    words = {key: list(dict.fromkeys(one[key] for one in constants)) for key in constants[0]}
    parts = []
    for frame, own in zip(frames, constants, strict=True):
        columns: dict[str, Any] = {}
        for key, known in words.items():
            codes = np.full(len(frame), known.index(own[key]), dtype=np.int8)
            columns[key] = pd.Categorical.from_codes(codes, pd.Index(known, dtype=object))
        for key in frame.columns:
            if key not in words:
                columns[key] = frame[key].to_numpy().astype(np.int64) if key in _COUNTS else frame[key]
        parts.append(pd.DataFrame(columns, copy=False))  # shares the frame's arrays
    if len(parts) == 1:
        return parts[0]
    whole = pd.concat(parts, ignore_index=True)
    steps = [name for name in whole.columns if name.endswith("_time_s")]
    return whole.fillna(dict.fromkeys(steps, 0.0))  # some libraries have further steps


def _check_kind(path: Path) -> None:
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise BadInputError(f"--out {path}: what kind of file?", "end the name in .csv or .parquet")


def _write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write the frame as Parquet, with dictionaries for text only: other columns are then 5 times as fast."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    words = [name for name in frame.columns if frame[name].dtype.kind not in "iufb"]
    pyarrow.parquet.write_table(table, path, use_dictionary=words)


def _write_csv(frame: pd.DataFrame, stream: BinaryIO) -> None:
    """Write the frame as CSV by pyarrow, which is ten times as fast as pandas."""
    import pyarrow
    import pyarrow.csv

    words = [name for name in frame.columns if frame[name].dtype.kind not in "iufb"]
    plain = frame.astype(dict.fromkeys(words, str))
    bare = not any(set(',"\n') & set(str(word)) for name in words for word in frame[name].unique())
    table = pyarrow.Table.from_pandas(plain, preserve_index=False)
    stream.write((",".join(frame.columns) + "\n").encode())
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none" if bare else "needed")
    pyarrow.csv.write_csv(table, stream, options)


def _to_file(frame: pd.DataFrame, path: Path) -> None:
    with path.open("wb") as stream:
        _write_csv(frame, stream)


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame, in which names of models that a spreadsheet would run as formulas are escaped."""
    if "model" not in frame:
        return frame
    return frame.assign(model=frame["model"].cat.rename_categories(cell))


def _deliver(frame: pd.DataFrame, text: Callable[[], str], options: SweepOptions) -> None:
    """Write the frame to a file, or print it as JSON or this text."""
    if (out := options.out) is not None:
        if out.suffix.lower() == ".csv":
            write_whole(out, lambda path: _to_file(_named(frame), path))
        else:
            write_whole(out, lambda path: _write_parquet(frame, path))
        note(f"{_count(len(frame))} written to {out}")
        return
    if len(frame) > _MOST_PRINTED and options.as_json:
        raise BadInputError(
            f"{len(frame)} rows are too many to print.", "write them with --out sweep.parquet"
        )
    if options.as_json:
        words = {name: str for name in frame.columns if frame[name].dtype.kind not in "iufb"}
        emit_json("sweep", rows=frame.astype(words).to_dict(orient="records"))
    else:
        emit(text())
