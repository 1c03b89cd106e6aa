"""``perfmodel sweep``: a grid of configurations to CSV or Parquet, or machines side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from numpy.typing import NDArray

from perfmodel.answer import Question
from perfmodel.answer.inputs import DEFAULTS
from perfmodel.answer.sweep import (
    CRITERIA,
    GRIDS,
    MOST_COMPARED,
    SPREADS,
    TRIES,
    Columns,
    combine_axes,
    find_feasible,
    is_compared,
    rank_machines,
    sweep_columns,
    sweep_samples,
    sweep_within,
)
from perfmodel.cli.chosen import calibration_file
from perfmodel.cli.options import LEAVE_ONE, apart, count_values, size_values, split_values
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
from perfmodel.units import counted, format_count, parse_count, parse_number, parse_price, parse_time

if TYPE_CHECKING:
    import pandas as pd

_CHUNK = 1 << 20
_MOST = 50_000_000
_MOST_PRINTED = 100_000
_MOST_PRICE = 1e4  # of a GPU for an hour
_AXES = ("table_size", "gpus", "batch", "tables", "pooling", "dim")
_COUNTS = ("gpus", "gpus_needed", "gpus_paid", "batch", "samples", "table_count", "dim", "id_bytes")
_HOW = {
    None: "each with the fastest sharding of TorchRec's that fits",
    ALL: "each with every sharding that it allows",
}

Tables = str | TableSet
"""An element type of equal tables, or a set of tables."""
Sweep = Callable[..., "pd.DataFrame"]
"""Computes the rows of a sweep, as ``sweep_columns`` does."""


def sweep(context: typer.Context, options: SweepOptions) -> None:
    """Project a grid of configurations, and write it as CSV or Parquet or print its range."""
    apart("--json", options.as_json, LEAVE_ONE, out=options.out)
    if options.out is not None:
        if options.out.suffix.lower() not in (".csv", ".parquet"):
            raise BadInputError(
                f"--out {options.out}: what kind of file?", "end the name in .csv or .parquet"
            )
        check_target(options.out)
    check_model({name: value or None for name, value in context.params.items()})
    axes = _read_axes(options, context.params)
    what: list[Tables] = list(split_values([options.dtype or "fp32"], "--set dtype"))
    if options.model:
        what = [load_tables(name) for name in dict.fromkeys(split_names(options.model, "--model"))]
    own = dict.fromkeys((*_AXES, "dtype", "model", "global_batch"))
    questions = on_machines(question_of({**context.params, **own}), context.params)
    question = questions[0]
    for asking in questions:
        check_size(asking, *axes.get("table_bytes", []))
    answer: Sweep = sweep_columns
    if options.max_latency is not None:
        typed = {"batch": options.batch, "set global_batch": options.global_batch, "grid": options.grid}
        apart("--set max_latency", options.max_latency, LEAVE_ONE, **typed)
        if question.sharding == ALL:
            raise BadInputError("--sharding all is of many shardings.", "name one of them.")
        answer = partial(sweep_within, limit_s=parse_time(options.max_latency))
    compared = sum(map(is_compared, questions))
    tries = len(what) * (1 if options.max_latency is None else TRIES)
    _check_count(axes, len(what) * len(questions), tries * compared)
    columns = combine_axes(**axes)
    how = _HOW.get(question.sharding, f"sharded {question.sharding}")
    several = len(what) > 1 or any(len(values) > 1 for values in axes.values())
    alone = options.out or options.grid or options.gpus or several or question.sharding == ALL
    if options.by is not None or options.price or (len(questions) > 1 and not alone):
        _compare_machines(options, questions, what, axes, answer, how)
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


def _compare_machines(
    options: SweepOptions,
    questions: Sequence[Question],
    what: Sequence[Tables],
    axes: dict[str, list[float]],
    answer: Sweep,
    how: str,
) -> None:
    """Print machines side by side, each on the typed GPUs, else on those that are best by the criterion."""
    columns = combine_axes(**{"batch": [DEFAULTS["batch"]], **axes})
    by = _read_criterion(options, columns, len(what) * (len(WAYS) if questions[0].sharding == ALL else 1))
    nodes = {asking.machine.name: asking.machine.gpus_per_node for asking in questions}
    prices, currency = _read_prices(options, by, list(nodes))
    samples = parse_count(options.global_batch) if options.global_batch else None
    if not (samples or options.batch or options.max_latency):  # those of all GPUs of the first machine
        few = columns if "gpus" in columns else _run(columns, what, questions[:1], sweep_samples)
        samples = int(DEFAULTS["batch"] * few["gpus"].min())
    if options.max_latency is None:
        answer = partial(sweep_samples, samples=samples, spreads=SPREADS)
    rows = _run(columns, what, questions, answer)
    ranked = rank_machines(rows, by, samples, nodes, prices, every="gpus" in columns)
    _deliver(ranked, lambda: machines_text(ranked, by, currency, how), options)


def _read_criterion(options: SweepOptions, columns: Columns, many: int) -> str:
    """The criterion of ``--by``, else cost if there are prices. many  table sets, types, shardings

    Limits: another word, more than one question -> BadInputError
    """
    best = "throughput" if options.max_latency is not None else "time"
    by = options.by or ("cost" if options.price else best)
    if by not in CRITERIA:
        raise unknown_name("--by", by, CRITERIA)
    apart("--by", by, LEAVE_ONE, grid=options.grid)
    if by == "time" and options.max_latency is not None:
        why = "each machine has another batch within it"
        raise BadInputError(
            f"--by time and --set max_latency cannot be combined: {why}.", "give --by throughput."
        )
    apart("--set global_batch", options.global_batch, LEAVE_ONE, batch=options.batch)
    free = [name.replace("_", " ") for name in columns if name != "gpus" and len(set(columns[name])) > 1]
    if many > 1 or free:
        which = ", ".join(free) or "tables, types or shardings"
        raise BadInputError(f"--by compares machines for one question: several {which}.", "give one value.")
    return by


def _read_prices(options: SweepOptions, by: str, machines: Sequence[str]) -> tuple[dict[str, float], str]:
    """(price of a GPU for an hour by machine, their currency).

    Limits: another machine, one twice, two currencies, costs without a price -> BadInputError
    """
    prices: dict[str, float] = {}
    currencies: set[str] = set()
    for text in options.price or []:
        name, _, price = (part.strip() for part in text.partition("="))
        amount, currency = parse_price(price, f"--price {name}")
        if name not in machines or name in prices:
            why = "is given twice" if name in prices else "is not one of --machine"
            step = f"one price for each of {', '.join(machines)}."
            raise BadInputError(f"--price {text}: {name} {why}.", step)
        if amount > _MOST_PRICE:
            raise BadInputError(f"--price {text} is too high.", f"at most {_MOST_PRICE:.0f} an hour.")
        prices[name] = amount
        currencies.add(currency)
    if len(currencies) > 1:
        raise BadInputError(f"--price in {' and '.join(sorted(currencies))}.", "give all in one currency.")
    if by == "cost" and (missing := next((x for x in machines if x not in prices), None)):
        raise BadInputError(f"--by cost: no price of {missing}.", f"give --price {missing}=2.5USD/GPU/h.")
    return prices, "".join(currencies)


def _read_axes(options: SweepOptions, typed: dict[str, Any]) -> dict[str, list[float]]:
    """The values of every axis of the grid: as typed, else of the paper's grid."""
    grid, axes = options.grid, dict[str, list[float]]()
    if grid is not None:
        if grid not in GRIDS:
            raise unknown_name("--grid", grid, GRIDS)
        preset = GRIDS[grid]()
        axes = {name: [float(v) for v in dict.fromkeys(column.tolist())] for name, column in preset.items()}
    if options.table_size:
        own = axes.pop("gpus", []) if not options.gpus else []
        if own:
            numbers = ",".join(f"{count:.0f}" for count in own)
            note(
                f"--table-size takes as many GPUs as each size needs, so the {len(own)} numbers of GPUs of "
                f"{grid} are left out; --gpus {numbers} keeps them"
            )
        axes["table_bytes"] = [float(v) for v in size_values(options.table_size, "--table-size")]
    for name, key in (("gpus", "gpus"), ("batch", "batch"), ("tables", "table_count"), ("dim", "dim")):
        if typed[name]:
            axes[key] = [float(v) for v in count_values(typed[name], f"--{name}")]
    if options.pooling:
        texts = split_values(options.pooling, "--pooling")
        ranges = [text for text in texts if ".." in text]
        single = [parse_number(text, "--pooling") for text in texts if ".." not in text]
        axes["pooling"] = single + [float(v) for v in (count_values(ranges, "--pooling") if ranges else [])]
    if options.model:
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
        many = counted(points * times, "configuration")
        raise BadInputError(f"{many} are too many at once (at most {_MOST}).", "split the grid.")
    if points * compared > MOST_COMPARED:
        raise BadInputError(
            f"shardings are compared for at most {format_count(MOST_COMPARED)} configurations, "
            f"and these are {format_count(points * compared)}.",
            f"split the grid, or give --sharding {ROW_WISE}, which takes {format_count(_MOST)} at once.",
        )


def _run(
    columns: dict[str, NDArray[np.float64]],
    what: Sequence[Tables],
    questions: Sequence[Question],
    answer: Sweep,
) -> pd.DataFrame:
    """Project all configurations: a row for each. answer  computes the rows, as ``sweep_columns``

    columns  the values of the axes at each point;  questions  for each machine
    """
    points = len(next(iter(columns.values())))
    total = points * len(what) * len(questions)
    done = Progress(total, "configurations")
    frames, answered = [], 0
    for question in questions:
        with advised(question):
            same = _list_constants(question)
            for tables in what:
                of_set = isinstance(tables, TableSet)
                own: dict[str, Any] = {"dtype": tables}
                own = {"tables": tables, "table_set": tables} if of_set else own
                word = {"model": tables.name} if isinstance(tables, TableSet) else {"dtype": tables}
                for start in range(0, points, _CHUNK):
                    part = {name: column[start : start + _CHUNK] for name, column in columns.items()}
                    possible = _find_possible(part, question, tables)
                    done.advance(int(possible.size - possible.sum()))
                    if not possible.any():
                        continue
                    part = {name: column[possible] for name, column in part.items()}
                    frame = answer(replace(question, **own), part, done.advance)
                    answered += frame.index.nunique()
                    if len(frame):
                        clock = {"clock": str(frame["clock"].iloc[0])}
                        frames.append((frame.reset_index(drop=True), {**same, **word, **clock}))
    left_out = total - answered
    why = "tables that do not fit the GPUs, or have fewer rows than there are GPUs"
    if questions[0].sharding not in (None, ROW_WISE):
        why += ", or do not allow the sharding"
    if "limit_s" in getattr(answer, "keywords", {}):
        why += ", or take longer than max_latency"
    many = counted(total, "configuration")
    if not frames:
        raise BadInputError(f"none of {many} is possible: {why}.", "use more GPUs.")
    if left_out:
        warn(f"{left_out} of {many} left out: {why}.")
    return _join(frames)


def _find_possible(
    part: dict[str, NDArray[np.float64]], question: Question, tables: Tables
) -> NDArray[np.bool_]:
    """For each point of ``part`` whether the tables fit the GPUs, and have enough rows."""
    training = is_training(question.objective)
    if isinstance(tables, str):
        room = question.machine_of_rows
        return find_feasible(part, room, question.reserve, training=training, dtype=tables)
    if "gpus" not in part:
        return np.ones(len(next(iter(part.values()))), dtype=bool)
    room_bytes = question.machine_of_rows.value("hbm_bytes")
    held = float(PlanTables.of(tables).count_bytes(training=training).sum())
    return np.asarray(part["gpus"] >= gpus_needed(held, room_bytes, question.reserve))


def _list_constants(question: Question) -> dict[str, str]:
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


def _join(frames: Sequence[tuple[pd.DataFrame, dict[str, str]]]) -> pd.DataFrame:
    """The frames joined, with their constant columns first, as categories; numbers of things as integers."""
    import pandas as pd

    words = {key: list(dict.fromkeys(own[key] for _, own in frames)) for key in frames[0][1]}
    parts = []
    for frame, own in frames:
        columns: dict[str, Any] = {}
        for key, names in words.items():
            codes = np.full(len(frame), names.index(own[key]), dtype=np.int8)
            columns[key] = pd.Categorical.from_codes(codes, pd.Index(names, dtype=object))
        for key in frame.columns:
            if key not in words:
                columns[key] = frame[key].to_numpy().astype(np.int64) if key in _COUNTS else frame[key]
        parts.append(pd.DataFrame(columns, copy=False))  # shares the frame's arrays
    if len(parts) == 1:
        return parts[0]
    whole = pd.concat(parts, ignore_index=True)
    steps = [name for name in whole.columns if name.endswith("_time_s")]
    return whole.fillna(dict.fromkeys(steps, 0.0))  # some libraries have further steps


def _deliver(frame: pd.DataFrame, text: Callable[[], str], options: SweepOptions) -> None:
    """Write the frame to a file, or print it as JSON or this text."""
    if (out := options.out) is not None:
        write_whole(out, partial(_write_file, frame, kind=out.suffix.lower()))
        note(f"{counted(len(frame), 'configuration')} written to {out}")
    elif not options.as_json:
        emit(text())
    elif len(frame) > _MOST_PRINTED:
        raise BadInputError(
            f"{len(frame)} rows are too many to print.", "write them with --out sweep.parquet"
        )
    else:
        words = {name: str for name in frame.columns if frame[name].dtype.kind not in "iufb"}
        emit_json("sweep", rows=frame.astype(words).to_dict(orient="records"))


def _write_file(frame: pd.DataFrame, path: Path, kind: str) -> None:
    """Write the frame by pyarrow, which is ten times as fast as pandas; Parquet has dictionaries for text.

    In CSV, names of models that a spreadsheet would run as formulas are escaped.
    """
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    words = [name for name in frame.columns if frame[name].dtype.kind not in "iufb"]
    if kind == ".parquet":
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        pyarrow.parquet.write_table(table, path, use_dictionary=words)
        return
    if "model" in frame:
        frame = frame.assign(model=frame["model"].cat.rename_categories(cell))
    plain = frame.astype(dict.fromkeys(words, str))
    bare = not any(set(',"\n') & set(str(word)) for name in words for word in frame[name].unique())
    table = pyarrow.Table.from_pandas(plain, preserve_index=False)
    with path.open("wb") as stream:
        stream.write((",".join(frame.columns) + "\n").encode())
        style = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none" if bare else "needed")
        pyarrow.csv.write_csv(table, stream, style)
