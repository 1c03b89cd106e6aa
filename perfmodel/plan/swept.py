"""A sweep over configurations, each with its fastest sharding or with named shardings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.schemes import AUTO, ROW_WISE, WAYS
from perfmodel.plan.as_projection import Compared, compared
from perfmodel.plan.leading import leading_on_enough, leads, on_enough
from perfmodel.projections import prepare, project, project_one
from perfmodel.projections.grid import costed
from perfmodel.projections.projection import Projection, projection_at
from perfmodel.schema.evidence import Evidence

if TYPE_CHECKING:
    import pandas as pd

Columns = Mapping[str, NDArray[Any]]
Done = Callable[[int], None]

MOST_COMPARED = 2000
"""Configurations whose shardings are compared: each takes some 30 ms; row-wise alone is a grid."""


def are_compared(ways: Sequence[str] | None, options: Mapping[str, Any]) -> bool:
    """Whether shardings are compared for each configuration; else all are row-wise, and computed together.

    ways  as in ``swept``;  options  of ``project``
    """
    if ways is None:
        return options.get("tier") is None and options.get("reduction", AUTO) == AUTO
    return tuple(ways) != (ROW_WISE,)


def swept(
    columns: Columns, ways: Sequence[str] | None, done: Done, options: Mapping[str, Any]
) -> pd.DataFrame:
    """The frame of ``projections.project``, with a further column ``sharding``.

    It has a row for each configuration and each of ``ways``; the index is the position of the configuration.
    columns  arrays of equal length, an entry per configuration, as of ``project``
    options  arguments of ``project`` that all configurations share
    ways     sharding options, names of ``WAYS``;  None: the fastest that fits each configuration
             (``leading``)
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
        frame = project(columns, **options)
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
        config = {name: float(values[at]) for name, values in columns.items()}
        on_gpus = partial(_on_gpus, {**options, **config})
        for each in _leading(base, on_gpus) if ways is None else _named(base, on_gpus, ways):
            if each.answer is not None:
                yield at, {"sharding": each.way, **_row(each.answer)}
        done(1)


def _on_gpus(options: Mapping[str, Any], gpus: int) -> Projection:
    return project_one(**{**options, "gpus": gpus})


def _leading(base: Projection, on_gpus: Callable[[int], Projection]) -> list[Compared]:
    """The sharding that ``project`` would answer with, as a list with one entry."""
    row_wise = Compared(ROW_WISE, None, base, base.gpu_count.memory_bytes)
    if not leads(base):
        return [row_wise]
    found = leading_on_enough(base, on_gpus)
    return [found.best[0] if found.best else row_wise]


def _named(base: Projection, on_gpus: Callable[[int], Projection], ways: Sequence[str]) -> list[Compared]:
    """The results of the named shardings, on the fewest GPUs where any of them fits."""
    return on_enough(base, on_gpus, lambda each: list(compared(each, ways)), any_fits, ways)[1]


def any_fits(found: Sequence[Compared]) -> bool:
    """Whether any of the results fits in memory."""
    return any(each.answer is not None and each.fits for each in found)


def _row(answer: Projection) -> dict[str, Any]:
    """The values of a row, by the columns of ``projections.project``."""
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
