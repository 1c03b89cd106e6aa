"""A sweep over configurations, each with its fastest sharding or with named shardings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.answer.answer import Answer, answer_at
from perfmodel.answer.answers import build_frame
from perfmodel.answer.question import Question, read_keywords
from perfmodel.answer.ranking import answer_each, rank_on_fewest
from perfmodel.engine.grid import cost_grid
from perfmodel.engine.schemes import ALL, ROW_WISE, WAYS
from perfmodel.errors import BadInputError
from perfmodel.resources import DEFAULT_MACHINE
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import Machine
from perfmodel.schema.workload import TableSet, Workload

if TYPE_CHECKING:
    import pandas as pd
import bisect
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfmodel.model.capacity import allowed_gpus, whole_nodes

if TYPE_CHECKING:
    import pandas as pd


Columns = Mapping[str, NDArray[Any]]
Done = Callable[[int], None]

MOST_COMPARED = 2000
"""Configurations whose shardings are compared: each takes some 30 ms; row-wise alone is a grid."""


def is_compared(question: Question) -> bool:
    """Whether shardings are compared for each configuration; else all are row-wise, and computed together."""
    return question.sharding != ROW_WISE


def project(
    workload: Workload | TableSet | Mapping[str, Any] | pd.DataFrame | None = None,
    machine: str | Machine = DEFAULT_MACHINE,
    *,
    sharding: str | None = None,
    **options: Any,
) -> pd.DataFrame:
    """How much slower is each configuration, and which step takes the time? The answers of ``sweep``.

    workload     a Workload, a TableSet, a mapping or data frame of arrays, or None with keywords only
    machine      a shipped name, the path of a TOML file, or a Machine
    sharding     of all tables, a name of ``perfmodel project --sharding``, or all; None: the fastest that
                 TorchRec runs and that fits
    table_bytes  size of all tables [bytes];  gpus  ranks [-], None: the fewest whole nodes that hold them
    batch        samples per GPU [-];  table_count  equal tables [-];  pooling  rows per bag [-]
    dim          elements per row [-];  dtype  their type;  id_bytes  size of one id [bytes]
    tables       different tables: a TableSet or the name of one, instead of table_count, pooling and dim
    options      as of ``perfmodel.answer.project_row_wise``

    The numbers are scalars, or arrays of one length (all combinations: ``combine_axes``). The index is
    the position of a configuration.

    Columns: sharding, and the columns of ``project_row_wise``.
    Limits: a value that cannot be used, lengths that differ, more than ``MOST_COMPARED`` configurations whose
            shardings are compared, a sharding that none allows -> BadInputError
    """
    question, columns = read_keywords(workload, machine, sharding=sharding, **options)
    count = len(next(iter(columns.values()))) if columns else 1
    if count > MOST_COMPARED and is_compared(question):
        raise BadInputError(
            f"shardings are compared for at most {MOST_COMPARED} configurations, and these are {count}.",
            f"split them, or give sharding={ROW_WISE!r}.",
        )
    frame = sweep_columns(question, columns)
    if frame.empty:
        raise BadInputError(
            f"none of {count} configurations allows sharding {sharding!r}.",
            "use more GPUs, or another sharding.",
        )
    return frame


def sweep_columns(question: Question, columns: Columns, done: Done = lambda count: None) -> pd.DataFrame:
    """The frame of ``project_row_wise``, with a further column ``sharding``.

    It has a row for each configuration and each sharding of the question; the index is the position of the
    configuration.
    columns  arrays of equal length, an entry per configuration, beside what the question has
    done     is called with a number of configurations when they are done
    Limits: a sharding that a configuration does not allow -> no row;  none fits -> row-wise, with ``fits``
    False
    """
    import pandas as pd

    if is_compared(question):
        rows = list(_list_rows(question, columns, done))
        frame = pd.DataFrame([row for _, row in rows], index=[place for place, _ in rows])
        if not rows:
            return frame
        steps = [str(name) for name in frame if str(name).endswith("_time_s")]
        frame = frame.fillna(dict.fromkeys(steps, 0.0))  # a sharding has steps that others have not
        words = [str(evidence) for evidence in Evidence]
        for name in ("evidence", "main_evidence"):
            frame[name] = pd.Categorical(frame[name], categories=words, ordered=True)
        frame["sharding"] = pd.Categorical(frame["sharding"], categories=list(WAYS))
    else:
        frame = build_frame(*question.prepare(columns))
        code = np.full(len(frame), list(WAYS).index(ROW_WISE), dtype=np.int8)
        frame.insert(
            0, "sharding", pd.Series(pd.Categorical.from_codes(code, pd.Index(list(WAYS))), frame.index)
        )
        done(len(frame))
    return frame


def _list_rows(question: Question, columns: Columns, done: Done) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each row as (position of its configuration, values by column)."""
    basis, work = question.prepare(columns)
    costs = cost_grid(basis, work)
    for place in range(len(work)):
        values = {name: column[place].item() for name, column in columns.items()}
        base = answer_at(replace(question, **values), basis, work, costs, place)
        for answer in _answer_base(base):
            yield place, {"sharding": answer.sharding, **_list_values(answer)}
        done(1)


def _answer_base(base: Answer) -> list[Answer]:
    """The answers with the question's shardings, on the fewest GPUs where any of them fits."""
    sharding = base.question.sharding
    if sharding is None:
        return [rank_on_fewest(base).answer if base.gpus > 1 else base]
    names = tuple(WAYS) if sharding == ALL else (sharding,)
    return [answer for answer in answer_each(base, names)[1] if isinstance(answer, Answer)]


def _list_values(answer: Answer) -> dict[str, Any]:
    """The values of a row, by the columns of ``project_row_wise``."""
    work = answer.work
    columns = {"table_bytes": work.table_bytes, "batch": work.batch, "id_bytes": work.id_bytes}
    if len(work.groups) == 1:
        only = work.groups[0]
        columns |= {"table_count": only.count, "pooling": only.pooling, "dim": only.dim}
    return {
        **{name: float(np.ravel(values)[0]) for name, values in columns.items()},
        **answer.totals,
        "fits": answer.fits,
        "evidence": str(answer.evidence),
        "main_evidence": str(answer.main_evidence),
        "clock": "+".join(dict.fromkeys(map(str, answer.setting.links.clocks))),
        **{f"{step.name}_time_s": step.time_s for step in answer.steps},
    }


CRITERIA = {"time": "time_s", "throughput": "sample_time_s", "cost": "cost_of_1e9_samples"}
"""Column of each criterion; less is better."""
_MOST_TIMES = 16
SPREADS = (1.0, 1.05, 1.25, 1.5, 2.0)
"""Multiples of the fewest GPUs that are tried by cost: more GPUs may share the tables more evenly.

Tried too is a GPU for each table, where that is no more than the largest of them.
"""


def sweep_samples(
    question: Question,
    columns: Columns,
    done: Done,
    samples: int | None = None,
    spreads: Sequence[float] = (1.0,),
) -> pd.DataFrame:
    """The rows of ``sweep_columns`` that fit, with so many samples on all GPUs together.

    samples   of which the fullest GPU has ceil(samples / gpus); None: each GPU has ``columns["batch"]``
    spreads   without gpus in the columns, of one point: multiples of the fewest GPUs that fit
    """

    def answer(counts: Sequence[float]) -> pd.DataFrame:
        gpus = np.array(counts, dtype=np.float64)
        point = {name: np.resize(column, gpus.size) for name, column in columns.items()} | {"gpus": gpus}
        point = point if samples is None else point | {"batch": np.ceil(samples / gpus)}
        frame = sweep_columns(question, point, done)
        return frame[frame["fits"]] if len(frame) else frame

    done(len(next(iter(columns.values()))))
    if "gpus" in columns:
        return answer(columns["gpus"].tolist())
    small = columns if samples is None else {**columns, "batch": np.ones(1)}
    frame = sweep_columns(question, small)
    if frame.empty or not frame["fits"].all():
        return frame.head(0)
    node, fewest = question.machine.gpus_per_node, int(frame["gpus"].iloc[0])
    counts = allowed_gpus(fewest, _MOST_TIMES * fewest, node)
    if answer([fewest]).empty:
        place = bisect.bisect_left(counts, True, key=lambda count: not answer([count]).empty)
        fewest = counts[min(place, len(counts) - 1)]
    wanted, most = [math.ceil(ratio * fewest) for ratio in spreads], max(spreads) * fewest
    wanted += [count for count in frame["table_count"].astype(int) if fewest < count <= most]  # a GPU each
    rows = answer(sorted({float(whole_nodes(count, node)) for count in wanted}))
    return rows.set_axis([0] * len(rows))


def rank_machines(
    rows: pd.DataFrame, by: str, samples: int | None, nodes: Mapping[str, int], prices: Mapping[str, float]
) -> pd.DataFrame:
    """The best row of each machine, the best machine first.

    by     a name of ``CRITERIA``;  samples  of all GPUs; None: each GPU has its batch
    nodes  GPUs of a node (of an NVL72: a tray), by machine;  prices  of a GPU for an hour, by machine

    Columns beside those of ``rows``: samples; gpus_paid, of whole nodes; samples_per_s; sample_time_s;
    cost of 10⁹ samples = price × GPUs paid × hours; ratio to the best machine; decided: their 95 % bands do
    not overlap (prices are exact).
    """
    names, key = rows["machine"].astype(str), CRITERIA[by]
    node, price = names.map(nodes), names.map(prices).astype(float)
    total = rows["gpus"] * rows["batch"] if samples is None else samples
    paid, time = -(-rows["gpus"] // node) * node, rows["time_s"] / total
    columns = rows.assign(samples=total, gpus_paid=paid, samples_per_s=1 / time, sample_time_s=time)
    columns["cost_of_1e9_samples"] = price * paid * 1e9 * time / 3600
    best = columns.sort_values(key, kind="stable").drop_duplicates("machine", ignore_index=True)
    low, high = (best[key] * best[end] / best["time_s"] for end in ("low_s", "high_s"))
    return best.assign(ratio=best[key] / best[key][0], decided=low > high[0])
