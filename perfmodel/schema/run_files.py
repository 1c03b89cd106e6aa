"""Reading a calibration run: checked lines, points with their visits, and tables for the fits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.errors import BadInputError
from perfmodel.schema.gate import MOST_RUN_BYTES, read_bounded
from perfmodel.schema.home import SAMPLES_NAME
from perfmodel.schema.run_lines import RUN_FILE, header_of, read_lines
from perfmodel.schema.runs import (
    Finish,
    LookupWork,
    Point,
    PointKind,
    PointLine,
    RunHeader,
    Status,
    Visit,
)
from perfmodel.schema.samples import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

_LONGEST_HEADER = 2**20
_FEWEST_VISITS = 3
"""Visits above which an unfinished point counts, as a noisy one."""
_FLAGS = {Status.OK: "ok", Status.NOISY: "noisy", Status.THROTTLED: "throttled"}
_IN_PLACE = {"all_reduce": ("gloo", "nccl", "rccl")}
"""Collectives that PyTorch's process groups run in place."""


@dataclass(frozen=True)
class Run:
    """One run: the header, and by key of a point the points, their visits in order, and how they ended.

    where  the file, for messages"""

    header: RunHeader
    points: dict[str, Point]
    visits: dict[str, list[Visit]]
    finishes: dict[str, Finish]
    where: str = ""

    @property
    def run_id(self) -> str:
        """``machine-fingerprint``, which is also the name of the run's folder."""
        return f"{self.header.machine}-{self.header.fingerprint[:8]}"

    @property
    def complete(self) -> bool:
        """Whether every point that was begun has ended."""
        return all(map(self.ended, self.points))

    def ended(self, key: str) -> bool:
        """Whether a point has ended; a point whose rank died has not, and is resumed."""
        finish = self.finishes.get(key)
        return finish is not None and not finish.rank_lost

    def usable(self, kind: PointKind) -> Iterator[tuple[Point, list[Visit], str]]:
        """Points of a kind that may be used, each with its visits and a flag (ok, noisy, throttled).

        Left out: failed points, unfinished points with fewer than 3 visits, visits with a wrong element. An
        unfinished point with more visits is noisy.
        """
        for key, point in self.points.items():
            finish = self.finishes.get(key)
            visits = [visit for visit in self.visits.get(key, []) if visit.times_s and not visit.wrong]
            under_way = _FLAGS[Status.NOISY] if len(visits) >= _FEWEST_VISITS else None
            flag = _FLAGS.get(finish.status) if finish and not finish.rank_lost else under_way
            if point.kind is kind and flag is not None and visits:
                yield point, visits, flag

    def library_version(self, backend: str) -> str:
        """Version number of a library: ``torch 2.13.0`` -> ``2.13.0``; empty if there is none."""
        words = re.findall(r"[A-Za-z0-9._+]+", self.header.stack.get(backend, ""))
        numbers = re.findall(r"\d[\w.+]*", " ".join(words))
        return numbers[0] if numbers else "-".join(words)

    def collective_samples(self) -> pd.DataFrame:
        """Collectives as samples (columns of ``schema.samples``): a row per visit, with the median of its
        calls.

        Noisy and throttled points have that flag; variants keep their names.
        """
        import pandas as pd

        rows = [
            (
                self.run_id,
                point.backend,
                self.library_version(point.backend),
                self.header.stack.get("gpu", ""),
                self.header.machine,
                point.operation,
                str(point.clock),
                point.variant,
                point.payload_bytes,
                point.gpus,
                point.nodes,
                point.gpus_per_node,
                point.dtype,
                point.backend in _IN_PLACE.get(point.operation, ()),
                float(np.median(visit.times_s)),
                flag,
                f"visit {number}",
            )
            for point, visits, flag in self.usable(PointKind.COLLECTIVE)
            for number, visit in enumerate(visits, 1)
        ]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    def kernel_samples(self) -> pd.DataFrame:
        """Kernels, one row per point: the fields of Point and Work, and the median of the visits' medians.

        ``time_s`` with ``low_s``, ``high_s`` from the finish line; ``flag`` is ok, noisy or throttled.
        """
        return self._work_samples(PointKind.KERNEL)

    def composed_samples(self) -> pd.DataFrame:
        """Whole passes as in ``kernel_samples``, and ``<step>_time_s`` of every step.

        Limits: a step that an implementation does not time -> NaN
        """
        return self._work_samples(PointKind.COMPOSED)

    def _work_samples(self, kind: PointKind) -> pd.DataFrame:
        import pandas as pd

        rows = [self._work_row(*found) for found in self.usable(kind)]
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(_WORK_COLUMNS))

    def _work_row(self, point: Point, visits: list[Visit], flag: str) -> dict[str, Any]:
        work, finish = point.work or _NO_WORK, self.finishes.get(point.key)
        low_s, high_s = (finish.low_s, finish.high_s) if finish else (None, None)
        own = {"key": point.key, "clock": str(point.clock), "low_s": low_s, "high_s": high_s}
        own |= {"time_s": _median_of_medians([visit.times_s for visit in visits]), "flag": flag}
        row = {name: _field(name, own, point, work) for name in _WORK_COLUMNS}
        for name in dict.fromkeys(name for visit in visits for name in visit.steps_s):
            times = [visit.steps_s[name] for visit in visits if visit.steps_s.get(name)]
            row[f"{name}_time_s"] = _median_of_medians(times)
        return row


_WORK_COLUMNS = (
    *("key", "operation", "backend", "implementation", "clock", "variant", "gpus", "nodes", "gpus_per_node"),
    *("dtype", "batch", "tables", "pooling", "dim", "rows", "id_bytes", "distribution", "shards"),
    *("payload_bytes", "held_out", "time_s", "low_s", "high_s", "flag"),
)
_NO_WORK = LookupWork(batch=1)
"""Work of a copy or an empty launch, which looks nothing up; its bytes are in the point."""


def _field(name: str, own: dict[str, Any], point: Point, work: LookupWork) -> Any:
    if name in own:
        return own[name]
    return getattr(point if name in Point.model_fields else work, name)


def _median_of_medians(times: list[list[float]]) -> float:
    return float(np.median([np.median(part) for part in times]))


def read_run(path: Path | str) -> Run:
    """A run from its folder or its file.

    Limits: an incomplete last line (lost power), a blank line -> left out; any other unreadable line, or a
    line that belongs to no point -> BadInputError with its number
    """
    file = _samples(path)
    found = read_lines(read_bounded(file, RUN_FILE, MOST_RUN_BYTES), file)
    if found.damage:
        raise found.error(file)
    run = Run(found.header, {}, {}, {}, str(file))
    for _, line in found.good:
        _add(run, line)
    return run


def read_header(path: Path | str) -> RunHeader:
    """The first line of a run, from its folder or its file: fast, however long the run is.

    Limits: no complete line, or not a header -> BadInputError
    """
    file = _samples(path)
    try:
        with file.open("rb") as stream:
            first = stream.readline(_LONGEST_HEADER)
    except OSError as error:
        raise BadInputError(f"{RUN_FILE} {file} cannot be read: {error.strerror or error}.") from None
    return header_of(first, file)


def _samples(path: Path | str) -> Path:
    file = Path(path)
    return file / SAMPLES_NAME if file.is_dir() else file


def _add(run: Run, line: PointLine | Visit | Finish) -> None:
    if isinstance(line, PointLine):  # a second point line restarts the point
        run.points[line.key] = line.point
        run.visits.pop(line.key, None)
        run.finishes.pop(line.key, None)
    elif isinstance(line, Visit):
        run.visits.setdefault(line.key, []).append(line)
        if (finish := run.finishes.get(line.key)) is not None and finish.rank_lost:
            del run.finishes[line.key]  # the point is resumed
    else:
        run.finishes[line.key] = line
