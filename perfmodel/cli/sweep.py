"""``perfmodel sweep``: a grid of configurations to CSV or Parquet, or machines side by side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from numpy.typing import NDArray

from perfmodel.answer import Question
from perfmodel.answer import sweep as grids
from perfmodel.answer.inputs import DEFAULTS, TooFewGpusError, share_equally
from perfmodel.cli.options import LEAVE_ONE, apart, check_name, list_values, split_values
from perfmodel.cli.output import CommandReply, check_target, note, warn
from perfmodel.cli.question import calibration_file, check_model, check_size, choose, question_of, split_names
from perfmodel.effort import tell
from perfmodel.engine.schemes import ALL, ROW_WISE
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.model.capacity import gpus_needed
from perfmodel.question.groups import choose_optimizer, is_training
from perfmodel.question.passes import SweepOptions
from perfmodel.question.spec import Opt
from perfmodel.report.sweep_text import machines_text, sweep_text
from perfmodel.schema.files import cell, write_whole
from perfmodel.schema.workload import UNIFORM
from perfmodel.units import counted, format_count, parse_count, parse_price

if TYPE_CHECKING:
    import pandas as pd

_MOST = 5_000_000
_MOST_PRINTED = 100_000
_COUNTS = ("gpus", "gpus_needed", "gpus_paid", "batch", "samples", "table_count", "dim", "id_bytes")
_AXES = {
    option.name: (option.keyword, option.flag, option.words.read)
    for option in SweepOptions.declared()
    if isinstance(option.words, Opt) and option.words.several and option.words.read
}
"""Options of numbers that the points of the grid have: the column, the flag, and how a value is read."""


def sweep(context: typer.Context | None, options: SweepOptions) -> CommandReply | None:
    """Project a grid of configurations: write it as CSV or Parquet, or print its range."""
    apart("--json", options.as_json, LEAVE_ONE, out=options.out)
    if options.out is not None:
        check_target(options.out, ".csv", ".parquet", what="a sweep")
    frame, write = compute_rows(options)
    if options.out is not None:
        write_whole(options.out, partial(_write_file, frame, kind=options.out.suffix.lower()))
        note(f"{counted(len(frame), 'configuration')} written to {options.out}")
        return None
    if options.as_json and len(frame) > _MOST_PRINTED:
        raise BadInputError(f"{len(frame)} rows are too many to print.", "write them with --out x.parquet")
    words = {name: str for name in frame.columns if frame[name].dtype.kind not in "iufb"}
    return CommandReply(lambda: {"rows": frame.astype(words).to_dict(orient="records")}, lambda: write(frame))


def compute_rows(options: SweepOptions) -> tuple[pd.DataFrame, Callable[[pd.DataFrame], str]]:
    """(the rows of a sweep, one for each configuration; the function that writes their text)."""
    typed = vars(options)
    check_model(typed)
    apart("--set global_batch", options.global_batch, LEAVE_ONE, batch=options.batch, grid=options.grid)
    axes = _read_axes(options)
    names = split_names(options.model, "--model") if options.model else []
    dtypes = split_values([options.dtype or "fp32"], "--set dtype")
    of_tables = [{"model": name} for name in dict.fromkeys(names)] or [{"dtype": name} for name in dtypes]
    unlisted = typed | dict.fromkeys([*_AXES, "dtype", "model", "global_batch"])  # asked on axes
    pairs = itertools.product(choose(typed), of_tables)
    questions = [question_of(unlisted | tables, choice) for choice, tables in pairs]
    for question in questions:
        check_size(question, max(axes.get("table_bytes", [0.0])))
    _check_count(axes, len(questions), sum(map(grids.is_compared, questions)))
    sharding = questions[0].sharding
    how = {
        ALL: "each with every sharding that it allows",
        None: "each with the fastest sharding of TorchRec's that fits",
    }.get(sharding, f"sharded {sharding}")
    several = [name.replace("_", " ") for name in axes if name != "gpus" and len(axes[name]) > 1]
    several += ["tables, types or shardings"] if len(of_tables) > 1 or sharding == ALL else []
    only_machines = not any((options.out, options.grid, options.gpus, several))  # differ, so compare them
    if options.by is not None or options.price or (len(questions) > len(of_tables) and only_machines):
        apart("--by", True, LEAVE_ONE, grid=options.grid)
        if several:
            words = f"--by compares machines for one question: several {', '.join(several)}."
            raise BadInputError(words, "give one value.")
        return _compare_machines(options, questions, axes, how)
    columns = grids.combine_axes(**axes)
    if options.global_batch is not None:
        if "gpus" not in columns:
            step = "give --gpus, e.g. --gpus 16..128; or --by time, which compares machines."
            raise BadInputError("--set global_batch: on which GPUs?", step)
        total = parse_count(options.global_batch, "--set global_batch")
        columns["batch"] = np.array([float(share_equally(total, int(gpus))) for gpus in columns["gpus"]])
    return _run(columns, questions, grids.sweep_columns), lambda frame: sweep_text(frame, how)


def _compare_machines(
    options: SweepOptions, questions: Sequence[Question], axes: Mapping[str, list[float]], how: str
) -> tuple[pd.DataFrame, Callable[[pd.DataFrame], str]]:
    """Machines side by side, each on the typed GPUs, else on those that are best by the criterion."""
    columns = grids.combine_axes(**{"batch": [DEFAULTS["batch"]], **axes})
    by = check_name("--by", options.by or ("cost" if options.price else "time"), [*grids.CRITERIA])
    nodes = {question.machine.name: question.machine.gpus_per_node for question in questions}
    prices, currency = _read_prices(options.price or [], by, list(nodes))
    samples = parse_count(options.global_batch) if options.global_batch else None
    if not (samples or options.batch):  # those of all GPUs of the first machine
        few = columns if "gpus" in columns else _run(columns, questions[:1], grids.sweep_samples)
        samples = int(DEFAULTS["batch"] * few["gpus"].min())
    rows = _run(columns, questions, partial(grids.sweep_samples, samples=samples, spreads=grids.SPREADS))
    ranked = grids.rank_machines(rows, by, samples, nodes, prices, every="gpus" in columns)
    return ranked, lambda frame: machines_text(frame, by, currency, how)


def _read_prices(texts: Sequence[str], by: str, machines: Sequence[str]) -> tuple[dict[str, float], str]:
    """(price of a GPU for an hour by machine, their currency).

    Limits: another machine, one twice, two currencies, costs without a price -> BadInputError
    """
    prices: dict[str, float] = {}
    currencies: set[str] = set()
    step = f"one price for each of {', '.join(machines)}, e.g. --price {machines[0]}=2.5USD/GPU/h"
    for text in texts:
        name, _, price = map(str.strip, text.partition("="))
        if name not in machines or name in prices:
            raise BadInputError(f"--price {text} is of no machine here, or its second.", step)
        prices[name], currency = parse_price(price, f"--price {name}")
        currencies.add(currency)
    if len(currencies) > 1:
        raise BadInputError(f"--price in {' and '.join(sorted(currencies))}.", "give all in one currency.")
    if by == "cost" and len(prices) < len(machines):
        missing = ", ".join(name for name in machines if name not in prices)
        raise BadInputError(f"--price: none is given for {missing}.", step)
    return prices, "".join(currencies)


def _read_axes(options: SweepOptions) -> dict[str, list[float]]:
    """The values of every axis of the grid, by column: as typed, else as in the paper's grid."""
    axes = dict[str, list[float]]()
    if options.grid is not None:
        apart("--grid", options.grid, LEAVE_ONE, table_size=options.table_size)
        preset = grids.GRIDS[check_name("--grid", options.grid, [*grids.GRIDS])]()
        axes = {name: [float(v) for v in dict.fromkeys(column.tolist())] for name, column in preset.items()}
    for name, (keyword, flag, read) in _AXES.items():
        if texts := getattr(options, name):
            axes[keyword] = [float(value) for value in list_values(texts, flag, read)]
    if options.model:
        return axes or {"batch": [DEFAULTS["batch"]]}
    if "gpus" not in axes and "table_bytes" not in axes:
        step = "give --table-size, --gpus, --model or --grid, e.g. --grid paper-1"
        raise BadInputError("which tables?", step)
    return axes


def _check_count(axes: Mapping[str, list[float]], times: int, compared: int) -> None:
    """Raise BadInputError for more configurations than ``_MOST``, or too many that compare shardings.

    times, compared  configurations for each point of the axes, and how many of these compare shardings
    """
    points = math.prod(len(values) for values in axes.values())
    if points * times > _MOST:
        total_text = counted(points * times, "configuration")
        raise BadInputError(f"{total_text} are too many at once (at most {_MOST}).", "split the grid.")
    if points * compared > grids.MOST_COMPARED:
        raise BadInputError(
            f"shardings are compared for at most {format_count(grids.MOST_COMPARED)} configurations, "
            f"and these are {format_count(points * compared)}.",
            f"split the grid, or give --sharding {ROW_WISE}, which takes {format_count(_MOST)} at once.",
        )


def _run(
    columns: grids.Columns, questions: Sequence[Question], answer: Callable[..., pd.DataFrame]
) -> pd.DataFrame:
    """Project all configurations: a row for each. answer  computes the rows, as ``sweep_columns``

    columns  the values of the axes at each point;  questions  for each machine and set of tables
    """
    import pandas as pd

    total = len(next(iter(columns.values()))) * len(questions)
    done = answered = 0
    frames: list[pd.DataFrame] = []

    def advance(count: int) -> None:
        nonlocal done
        done += count
        tell(f"{done} of {total} configurations")

    for question in questions:
        possible = _find_possible(columns, question)
        advance(int(possible.size - possible.sum()))
        if possible.any():
            point = {name: column[possible] for name, column in columns.items()}
            frame = answer(question, point, advance)
            answered += frame.index.nunique()
            frames += [_label(frame, question)] if len(frame) else []
    why = "tables that do not fit the GPUs, or have fewer rows than there are GPUs"
    if questions[0].sharding not in (None, ROW_WISE):
        why += ", or do not allow the sharding"
    total_text = counted(total, "configuration")
    if not frames:
        error = _explain_none(columns, questions[0], why)
        error.message = error.message if total == 1 else f"none of {total_text} is possible: {error.message}"
        raise error
    if answered < total:
        warn(f"{total - answered} of {total_text} left out: {why}.")
    rows = pd.concat(frames, ignore_index=True)
    steps = [name for name in rows.columns if name.endswith("_time_s")]
    return rows.fillna(dict.fromkeys(steps, 0.0))  # some libraries have further steps


def _explain_none(columns: grids.Columns, question: Question, why: str) -> BadInputError:
    """The error that ``project`` has for the point with the fewest bytes on a GPU, where none is possible."""
    from perfmodel.answer.ranking import name_gpus
    from perfmodel.cli.project import rank_named
    from perfmodel.report.ranking_text import rank_fitting

    place = int(np.argmin(columns.get("table_bytes", 1.0) / columns.get("gpus", 1.0)))
    point: dict[str, Any] = {name: column[place].item() for name, column in columns.items()}
    point |= {name: int(point[name]) for name in _COUNTS if name in point}
    sharding = None if question.sharding == ALL else question.sharding
    question = replace(question, sharding=sharding, **point)
    try:
        rank_named(question) if question.sharding else rank_fitting(question)
    except TooFewGpusError as error:
        return name_gpus(question, error)
    except BadInputError as error:
        return error
    return BadInputError(f"{why}.", "use more GPUs.")


def _find_possible(chunk: grids.Columns, question: Question) -> NDArray[np.bool_]:
    """For each point of ``chunk`` whether the tables fit the GPUs, and have enough rows."""
    training = is_training(question.objective)
    machine = question.machine_of_rows
    if question.table_set is None:
        dtype = question.dtype or DEFAULTS["dtype"]
        return grids.find_feasible(chunk, machine, question.reserve, training=training, dtype=dtype)
    if "gpus" not in chunk:
        return np.ones(len(next(iter(chunk.values()))), dtype=bool)
    held_bytes = float(PlanTables.of(question.table_set).count_bytes(training=training).sum())
    fewest = gpus_needed(held_bytes, machine.value("hbm_bytes"), question.reserve)
    return np.asarray(chunk["gpus"] >= fewest)


def _label(frame: pd.DataFrame, question: Question) -> pd.DataFrame:
    """The rows, behind columns that are the same in all of them: machine, backend, …; counts as integers."""
    import pandas as pd

    machine = question.machine
    file = calibration_file(question.calibration)
    names = ", ".join(dict.fromkeys(question.load_setting().links.calibrations))
    words = {
        "machine": machine.name,
        "backend": question.backend,
        "distribution": question.distribution.name if question.distribution else UNIFORM.name,
        "objective": question.objective,
        "optimizer": question.optimizer or choose_optimizer(training=is_training(question.objective)),
        "calibration": f"{file} ({names})" if file else names,
        "overrides": " ".join(f"{key}={machine.value(key):.15g}" for key in sorted(machine.overrides)),
        **({"model": question.table_set.name} if question.table_set else {"dtype": question.dtype}),
        "clock": str(frame["clock"].iloc[0]),
    }
    counts = {name: np.int64 for name in _COUNTS if name in frame}
    frame = frame.drop(columns="clock").astype(counts).reset_index(drop=True)
    return pd.concat([pd.DataFrame(words, index=frame.index), frame], axis=1)


def _write_file(frame: pd.DataFrame, path: Path, kind: str) -> None:
    """Write the frame by pyarrow, which is ten times as fast as pandas; Parquet has dictionaries for text.

    In CSV, names of models that a spreadsheet would run as formulas are escaped.
    """
    import pyarrow
    import pyarrow.csv

    words = [name for name in frame.columns if frame[name].dtype.kind not in "iufb"]
    if kind == ".parquet":
        frame.to_parquet(path, index=False, use_dictionary=words)
        return
    if "model" in frame:
        frame = frame.assign(model=frame["model"].map(cell))
    bare = not any(set(',"\n') & set(str(word)) for name in words for word in frame[name].unique())
    table = pyarrow.Table.from_pandas(frame.astype(dict.fromkeys(words, str)), preserve_index=False)
    with path.open("wb") as stream:
        stream.write((",".join(frame.columns) + "\n").encode())
        style = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none" if bare else "needed")
        pyarrow.csv.write_csv(table, stream, style)
