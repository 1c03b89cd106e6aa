"""Many configurations: row-wise all together, or each with its fastest or named shardings; grids of them."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.answer.answer import Answer, answer_at
from perfmodel.answer.inputs import DEFAULT_RESERVE, DEFAULTS, Room, find_sizes
from perfmodel.answer.question import Question, read_keywords
from perfmodel.answer.ranking import answer_each, rank
from perfmodel.engine.basis import PassBasis
from perfmodel.engine.grid import Configs, cost_grid, project_grid
from perfmodel.engine.schemes import ALL, PLANNED, ROW_WISE, WAYS
from perfmodel.model import capacity
from perfmodel.model.capacity import list_allowed_gpus, list_even_gpus, round_to_nodes
from perfmodel.resources import DEFAULT_MACHINE
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.gate import MOST_BATCH, MOST_GPUS
from perfmodel.schema.machine import Machine
from perfmodel.schema.workload import TableSet

if TYPE_CHECKING:
    import pandas as pd

Columns = Mapping[str, NDArray[Any]]
Done = Callable[[int], None]
_LARGER = 1.01  # of a batch: a smaller gain is not looked for by another search

MOST_COMPARED = 2000
"""Configurations whose shardings are compared: each takes some 30 ms; row-wise alone is a grid."""


def is_compared(question: Question) -> bool:
    """Whether shardings are compared for each configuration; else all are row-wise, and computed together."""
    return question.sharding != ROW_WISE


def prepare(
    workload: TableSet | Mapping[str, Any] | pd.DataFrame | None = None,
    machine: str | Machine = DEFAULT_MACHINE,
    **options: Any,
) -> tuple[PassBasis, Configs]:
    """(what all configurations share: machine, libraries, constants; the configurations), to be costed.

    workload  a table set, columns of numbers by name, or a frame with a row for each configuration
    options   the further keywords of ``perfmodel.project``
    """
    question, columns = read_keywords(workload, machine, **options)
    return question.prepare(columns)


def project_row_wise(
    workload: TableSet | Mapping[str, Any] | pd.DataFrame | None = None,
    machine: str | Machine = DEFAULT_MACHINE,
    **options: Any,
) -> pd.DataFrame:
    """Each configuration sharded row-wise, all costed together. One row per configuration.

    workload, machine, values  as of ``perfmodel.project``
    options  of ``perfmodel project`` by their names: backend (nccl, nvshmem, best), clock, reserve,
             gpus_per_node, rows (hbm, host, host-cached:10%), unpooled (True: no bags), overrides of machine
             values, calibration, payload (precision of bags on the wire), distribution (of ids: uniform,
             zipf:1.05 ...), kernels (fbgemm, torch, perfmodel), objective (latency: the forward pass,
             throughput: a training step), optimizer (whose state is kept)

    Columns: the configuration, the columns of ``project_grid`` (s, bytes), evidence, main_evidence, clock.
    Limits: a value that cannot be used, lengths that differ -> BadInputError;  no calibration for the
            machine or the library -> NoCalibrationError
    """
    return build_frame(*prepare(workload, machine, **options))


def build_frame(basis: PassBasis, work: Configs) -> pd.DataFrame:
    """The frame of ``project_row_wise``, a row for each of these configurations."""
    import pandas as pd

    columns: dict[str, Any]
    columns = {"table_bytes": work.table_bytes, "batch": work.batch, "id_bytes": work.id_bytes}
    if len(work.tables) == 1:
        only = work.tables
        for name, values in (("table_count", only.count), ("pooling", only.pooling), ("dim", only.dim)):
            columns[name] = np.broadcast_to(values[0], work.gpus.shape)
    columns |= project_grid(basis, work)
    words = pd.Index([str(e) for e in Evidence])
    for name in ("evidence", "main_evidence"):
        columns[name] = pd.Categorical.from_codes(columns[name], words, ordered=True)
    names = "+".join(dict.fromkeys(str(c) for c in basis.setting.links.clocks))
    columns["clock"] = pd.Categorical.from_codes(np.zeros(work.gpus.size, dtype=np.int8), pd.Index([names]))
    return pd.DataFrame(columns)


def sweep_columns(question: Question, columns: Columns, done: Done = lambda count: None) -> pd.DataFrame:
    """The frame of ``project_row_wise``, with a further column ``sharding``.

    It has a row for each configuration and sharding of the question; the index is the configuration's place.
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
        frame["sharding"] = pd.Categorical(frame["sharding"], categories=[*WAYS, PLANNED])
    else:
        frame = build_frame(*question.prepare(columns))
        code = np.full(len(frame), list(WAYS).index(ROW_WISE), dtype=np.int8)
        names = pd.Index([*WAYS, PLANNED])
        frame.insert(0, "sharding", pd.Series(pd.Categorical.from_codes(code, names), frame.index))
        done(len(frame))
    return frame


def _list_rows(question: Question, columns: Columns, done: Done) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield each row as (position of its configuration, values by column)."""
    basis, work = question.prepare(columns)
    costs = cost_grid(basis, work)
    for place in range(work.gpus.size):
        values = {name: column[place].item() for name, column in columns.items()}
        base = answer_at(replace(question, **values), basis, work, costs, place)
        for answer in _answer_base(base):
            yield place, {"sharding": answer.sharding, **_list_values(answer)}
        done(1)


def _answer_base(base: Answer) -> list[Answer]:
    """The answers with the question's shardings, on the fewest GPUs where any of them fits."""
    sharding = base.question.sharding
    if sharding is None:
        return [rank(base).answer]
    names = tuple(WAYS) if sharding == ALL else (sharding,)
    return [answer for answer in answer_each(base, names)[1] if isinstance(answer, Answer)]


def _list_values(answer: Answer) -> dict[str, object]:
    """The values of a row, by the columns of ``project_row_wise``."""
    work = answer.work
    columns = {"table_bytes": work.table_bytes, "batch": work.batch, "id_bytes": work.id_bytes}
    if len(work.tables) == 1:
        only = work.tables
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
"""Multiples of the fewest GPUs that are tried by cost, for more GPUs may share the tables more evenly; so are
numbers of ``list_even_gpus`` up to the largest of them."""


def sweep_samples(
    question: Question,
    columns: Columns,
    done: Done,
    samples: int | None = None,
    spreads: Sequence[float] = (1.0,),
) -> pd.DataFrame:
    """The rows of ``sweep_columns`` that fit, with so many samples on all GPUs together.

    columns   without gpus: of one configuration, so that the index of every row is 0
    done      is called with a number of configurations when they are done
    samples   of which the fullest GPU has ceil(samples / gpus); None: each GPU has ``columns["batch"]``
    spreads   multiples of the fewest GPUs that fit, which are tried if ``columns`` have no gpus
    """

    def answer(counts: Sequence[float], count_done: Done = lambda count: None) -> pd.DataFrame:
        """The rows that fit, on these numbers of GPUs."""
        gpus = np.array(counts, dtype=np.float64)
        point = {name: np.resize(column, gpus.size) for name, column in columns.items()} | {"gpus": gpus}
        point = point if samples is None else point | {"batch": np.ceil(samples / gpus)}
        return _answer_fitting(question, point, count_done)

    if "gpus" in columns:
        return answer(columns["gpus"].tolist(), done)
    done(1)
    # The fewest GPUs are at least those that a batch of one sample needs.
    small = columns if samples is None else {**columns, "batch": np.array([1.0])}
    frame = _answer_fitting(question, small)
    if frame.empty:
        return frame
    node = question.machine.gpus_per_node
    fewest = int(frame["gpus"].iloc[0])
    counts = list_allowed_gpus(fewest, _MOST_TIMES * fewest, node)
    if answer([fewest]).empty:
        place = bisect.bisect_left(counts, True, key=lambda count: not answer([count]).empty)
        fewest = counts[: place + 1].pop()
    wanted = [math.ceil(ratio * fewest) for ratio in spreads]
    tables = len(question.table_set.tables) if question.table_set else int(frame["table_count"].iloc[0])
    wanted += list_even_gpus(fewest + 1, int(max(spreads) * fewest), tables, node)
    rows = answer(sorted({float(round_to_nodes(count, node)) for count in wanted}))
    return rows.set_axis(frame.index.repeat(len(rows)))


def rank_machines(
    rows: pd.DataFrame,
    by: str,
    samples: int | None,
    nodes: Mapping[str, int],
    prices: Mapping[str, float],
    *,
    every: bool = False,
) -> pd.DataFrame:
    """The best row of each machine, the best machine first.

    by     a name of ``CRITERIA``;  samples  of all GPUs; None: each GPU has its batch
    every  True: the best row of each machine and number of GPUs
    nodes  GPUs of a node (of an NVL72: a tray), by machine;  prices  of a GPU for an hour, by machine

    Columns beside those of ``rows``: samples; gpus_paid, of whole nodes; samples_per_s; sample_time_s;
    cost of 10⁹ samples = price × GPUs paid × hours; ratio to the best machine; decided: their 95 % bands do
    not overlap (prices are exact).
    """
    key = CRITERIA[by]
    names = rows["machine"].astype(str)
    node, price = names.map(nodes), names.map(prices).astype(float)
    total = rows["gpus"] * rows["batch"] if samples is None else samples
    paid = -(-rows["gpus"] // node) * node
    time = rows["time_s"] / total
    columns = rows.assign(samples=total, gpus_paid=paid, samples_per_s=1 / time, sample_time_s=time)
    columns["cost_of_1e9_samples"] = price * paid * 1e9 * time / 3600
    alike = ["machine", "gpus"] if every else ["machine"]
    best = columns.sort_values(key, kind="stable").drop_duplicates(alike, ignore_index=True)
    low = best[key] * best["low_s"] / best["time_s"]
    high = best[key] * best["high_s"] / best["time_s"]
    return best.assign(ratio=best[key] / best[key][0], decided=low.gt(high[0]))


def _answer_fitting(question: Question, columns: Columns, done: Done = lambda count: None) -> pd.DataFrame:
    """The rows of ``sweep_columns`` that fit."""
    frame = sweep_columns(question, columns, done)
    return frame[frame["fits"]] if len(frame) else frame


def sweep_within(question: Question, columns: Columns, limit_s: float) -> pd.DataFrame:
    """The row of one configuration with its largest batch that fits and takes ``limit_s`` at most [s].

    A batch takes the upper end of its 95 % band. Without gpus in ``columns`` it has those that the default
    batch needs.
    Source: the upper end of the band and the buffers grow with the batch, so intervals are halved. A planner
    starts from the batch of one sharding for all tables; its times grow less than the batch, so the batch
    that is as much larger as the latency is longer meets it too.
    Limits: it does not fit, or one sample takes longer -> no row;  a planner -> the largest to 1 %
    """
    row = _answer_batch(question, columns, int(DEFAULTS["batch"]))
    return _find_batch(question, {**columns, "gpus": row["gpus"].to_numpy()}, limit_s) if len(row) else row


def _answer_batch(question: Question, values: Columns, batch: int) -> pd.DataFrame:
    """The rows of one configuration with this batch that fit."""
    return _answer_fitting(question, {**values, "batch": np.array([batch])})


def _find_batch(question: Question, values: Columns, limit_s: float) -> pd.DataFrame:
    """The rows of one configuration with its largest batch whose band ends within ``limit_s``: 1 or none."""
    import pandas as pd

    uniform = replace(question, planner=None)

    @cache
    def end_s(batch: int) -> float:
        """Upper end of the band with this batch, which grows with it; infinite if it does not fit."""
        row = _answer_batch(uniform, values, batch)
        return float(row["high_s"].iloc[0]) if len(row) else np.inf

    powers = bisect.bisect_right(range(MOST_BATCH.bit_length()), limit_s, key=lambda n: end_s(2**n))
    least = 2**powers // 2  # meets the limit, and twice as much does not
    most = min(2**powers, MOST_BATCH)
    batch = bisect.bisect_right(range(MOST_BATCH), limit_s, least, most, key=lambda less: end_s(less + 1))
    if question.planner is not None:
        return _grow_batch(question, values, max(batch, 1), limit_s)
    return _answer_batch(question, values, batch) if batch else pd.DataFrame()


def _grow_batch(question: Question, values: Columns, batch: int, limit_s: float) -> pd.DataFrame:
    """The rows of a planner with its largest batch (``sweep_within``). batch  the first that is tried"""
    import pandas as pd

    best = pd.DataFrame()
    meets, fails = 0, MOST_BATCH  # the largest that meets the limit, the smallest that does not
    while batch > _LARGER * meets:
        row = _answer_batch(question, values, batch)
        if len(row) and row["high_s"].iloc[0] <= limit_s:
            best, meets = row, batch
            batch = int(batch * limit_s / row["high_s"].iloc[0])
        else:  # memory is short, or a step is as slow for fewer samples
            fails = batch
        batch = batch if batch < fails else int((meets * fails) ** 0.5)
    return best


def combine_axes(**axes: Iterable[float]) -> dict[str, NDArray[Any]]:
    """All combinations of the axes, the last varying fastest; one flat array per axis.

    Limits: one value per axis -> one configuration; sizes 2 and 3 -> 6 configurations
    """
    values = [np.asarray(list(axis), dtype=np.float64) for axis in axes.values()]
    mesh = np.meshgrid(*values, indexing="ij")
    return {name: a.ravel() for name, a in zip(axes, mesh, strict=True)}


def find_feasible(
    columns: Columns,
    machine: Machine,
    reserve: float = DEFAULT_RESERVE,
    *,
    training: bool = False,
    **values: Any,
) -> NDArray[np.bool_]:
    """Which points of a grid are feasible: rows fit the memory, and every GPU gets a row of each table.

    training  whether the rows are those of a training pass;  values  fixed values of the grid (dtype, ...)
    Limits: 10 TB on 64 GPUs of 80 GB -> False, on 128 -> True;  values that are never valid -> BadInputError
    """
    room = Room(machine.value("hbm_bytes"), reserve, machine.gpus_per_node, training)
    a, needed, gpus, row = find_sizes({**values, **columns}, room)
    rows = a["table_bytes"] / (a["table_count"] * row)
    fewest = capacity.gpus_needed(a["table_bytes"], room.hbm_bytes, 0.0)
    return np.asarray((gpus >= fewest) & (needed <= MOST_GPUS) & (rows >= gpus))


def list_paper_1(gpus: Iterable[float] = (1, 2, 4, 8)) -> dict[str, NDArray[Any]]:
    """Grid 1 of arXiv 2512.05831: one table; 192 points with the paper's own GPU counts.

    Source: arXiv 2512.05831, evaluation: T = 1, B 128-1024, D 32-256, L 4-16, G 1-8
    """
    return combine_axes(
        gpus=gpus, table_count=(1,), batch=(128, 256, 512, 1024), dim=(32, 64, 128, 256), pooling=(4, 8, 16)
    )


def list_paper_2(gpus: Iterable[float] = (1, 2, 4, 8)) -> dict[str, NDArray[Any]]:
    """Grid 2 of arXiv 2512.05831: many tables; 168 points with the paper's own GPU counts.

    Source: arXiv 2512.05831, evaluation: T 1-64, B 128-4096, L = 32, D 32 or 128, G 1-8
    """
    return combine_axes(
        gpus=gpus, table_count=(1, 2, 4, 8, 16, 32, 64), batch=(128, 1024, 4096), dim=(32, 128), pooling=(32,)
    )


GRIDS: dict[str, Callable[..., Columns]] = {"paper-1": list_paper_1, "paper-2": list_paper_2}
"""Presets of ``perfmodel sweep --grid``."""
