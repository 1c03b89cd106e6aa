"""A sweep over configurations, each with its fastest sharding or with named shardings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.answer import configurations, prepare, project_one, project_row_wise
from perfmodel.answer.projection import Projection, projection_at
from perfmodel.answer.ranking import leads, on_enough, rank_on_enough
from perfmodel.answer.sharding_answers import ShardingAnswer, answer_shardings
from perfmodel.engine.grid import costed
from perfmodel.engine.schemes import ALL, AUTO, ROW_WISE, WAYS, way_named
from perfmodel.errors import BadInputError
from perfmodel.resources import DEFAULT_MACHINE
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import Machine
from perfmodel.schema.workload import TableSet, Workload

if TYPE_CHECKING:
    import pandas as pd

Columns = Mapping[str, NDArray[Any]]
Done = Callable[[int], None]

_ROW_WISE_ALONE = ("reduction", "tier", "local_memory")
"""Arguments that imply row-wise shards, or none."""
MOST_COMPARED = 2000
"""Configurations whose shardings are compared: each takes some 30 ms; row-wise alone is a grid."""


def are_compared(ways: Sequence[str] | None, options: Mapping[str, Any]) -> bool:
    """Whether shardings are compared for each configuration; else all are row-wise, and computed together.

    ways  as in ``swept``;  options  of ``perfmodel.project``
    """
    if ways is None:
        return bool(options.get("reduction", AUTO) == AUTO)
    return tuple(ways) != (ROW_WISE,)


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

    The numbers are scalars, or arrays of one length (``grids.product`` makes all combinations). The index is
    the position of a configuration.

    Columns: sharding, and the columns of ``project_row_wise``.
    Limits: a value that cannot be used, lengths that differ, more than ``MOST_COMPARED`` configurations whose
            shardings are compared, a sharding that none allows -> BadInputError
    """
    columns, shared = configurations(workload, options)
    ways = _ways(sharding, shared)
    count = len(next(iter(columns.values()))) if columns else 1
    if count > MOST_COMPARED and are_compared(ways, shared):
        raise BadInputError(
            f"shardings are compared for at most {MOST_COMPARED} configurations, and these are {count}.",
            f"split them, or give sharding={ROW_WISE!r}.",
        )
    frame = swept(columns, ways, lambda done: None, {**shared, "machine": machine})
    if frame.empty:
        raise BadInputError(
            f"none of {count} configurations allows sharding {sharding!r}.",
            "use more GPUs, or another sharding.",
        )
    return frame


def _ways(sharding: str | None, options: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The sharding options of ``sharding``; None: not given.

    Limits: another than row-wise, with an argument that is of row-wise shards -> BadInputError
    """
    if sharding is None:
        return None
    ways = tuple(WAYS) if sharding.strip().lower() == ALL else (way_named(sharding),)
    alone = [name for name in _ROW_WISE_ALONE if options.get(name, AUTO) not in (None, AUTO)]
    if alone and ways != (ROW_WISE,):
        raise BadInputError(
            f"sharding {sharding!r} and {alone[0]} cannot be combined.", f"{alone[0]} is of row-wise shards."
        )
    return ways


def swept(
    columns: Columns, ways: Sequence[str] | None, done: Done, options: Mapping[str, Any]
) -> pd.DataFrame:
    """The frame of ``project_row_wise``, with a further column ``sharding``.

    It has a row for each configuration and each of ``ways``; the index is the position of the configuration.
    columns  arrays of equal length, an entry per configuration, as of ``perfmodel.project``
    options  arguments of ``perfmodel.project`` that all configurations share
    ways     sharding options, names of ``WAYS``;  None: the fastest that fits each configuration
             (``rank_shardings``)
    done     is called with a number of configurations when they are done
    Limits: an option that a configuration does not allow -> no row;  none fits -> row-wise, with ``fits``
    False
    """
    import pandas as pd

    if are_compared(ways, options):
        rows = list(_rows(columns, ways, done, options))
        frame = pd.DataFrame([row for _, row in rows], index=[at for at, _ in rows])
        if not rows:
            return frame
        steps = [str(name) for name in frame if str(name).endswith("_time_s")]
        frame = frame.fillna(dict.fromkeys(steps, 0.0))  # a sharding has steps that others have not
        for name in ("evidence", "main_evidence"):
            words = [str(each) for each in Evidence]
            frame[name] = pd.Categorical(frame[name], categories=words, ordered=True)
    else:
        frame = project_row_wise(columns, **options)
        frame.insert(0, "sharding", ROW_WISE)
        done(len(frame))
    frame["sharding"] = pd.Categorical(frame["sharding"], categories=list(WAYS))
    return frame


def _rows(
    columns: Columns, ways: Sequence[str] | None, done: Done, options: Mapping[str, Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row as (position of its configuration, values by column); arguments as in ``swept``."""
    forward, work = prepare(columns, **options)
    found = costed(forward, work)
    for at in range(len(work)):
        base = projection_at(forward, work, work.reserve, found, at)
        config = {name: values[at].item() for name, values in columns.items()}
        on_gpus = partial(_on_gpus, {**options, **config})
        for each in _leading(base, on_gpus) if ways is None else _named(base, on_gpus, ways):
            if each.answer is not None:
                yield at, {"sharding": each.way, **_row(each.answer)}
        done(1)


def _on_gpus(options: Mapping[str, Any], gpus: int) -> Projection:
    return project_one(**{**options, "gpus": gpus})


def _leading(base: Projection, on_gpus: Callable[[int], Projection]) -> list[ShardingAnswer]:
    """The sharding that ``project`` would answer with, as a list with one entry."""
    row_wise = ShardingAnswer(ROW_WISE, None, base, base.gpu_count.memory_bytes)
    if not leads(base):
        return [row_wise]
    found = rank_on_enough(base, on_gpus)
    return [found.best[0] if found.best else row_wise]


def _named(
    base: Projection, on_gpus: Callable[[int], Projection], ways: Sequence[str]
) -> list[ShardingAnswer]:
    """The results of the named shardings, on the fewest GPUs where any of them fits."""
    return on_enough(base, on_gpus, lambda each: list(answer_shardings(each, ways)), any_fits, ways)[1]


def any_fits(found: Sequence[ShardingAnswer]) -> bool:
    """Whether any of the results fits in memory."""
    return any(each.answer is not None and each.fits for each in found)


def _row(answer: Projection) -> dict[str, Any]:
    """The values of a row, by the columns of ``project_row_wise``."""
    work = answer.work
    columns = {"table_bytes": work.table_bytes, "batch": work.batch, "id_bytes": work.id_bytes}
    if len(work.groups) == 1:
        only = work.groups[0]
        columns |= {"table_count": only.count, "pooling": only.pooling, "dim": only.dim}
    return {
        **{name: float(np.ravel(values)[0]) for name, values in columns.items()},
        **answer.totals,
        "fits": answer.gpu_count.fits,
        "evidence": str(answer.evidence),
        "main_evidence": str(answer.main_evidence),
        "clock": "+".join(dict.fromkeys(map(str, answer.setting.links.clocks))),
        **{f"{step.name}_time_s": step.time_s for step in answer.steps},
    }
