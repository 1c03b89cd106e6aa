"""Lines of the slowdown over table sizes; all workloads of a page are computed together."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.answer import Answer, prepare, project_each, project_grid, project_row_wise
from perfmodel.answer.inputs import DEFAULT_RESERVE
from perfmodel.engine.schemes import AUTO, ROW_WISE
from perfmodel.engine.settings import BEST, Setting
from perfmodel.errors import NoCalibrationError, PerfmodelError
from perfmodel.report.figures.line_traces import SlowdownLine
from perfmodel.report.figures.style import PALETTE
from perfmodel.report.figures.words import library_name
from perfmodel.report.page.setups import WAYS, Curves, Loaded, Setup, beside, clock_words, libraries, with_way

if TYPE_CHECKING:
    import pandas as pd

_LARGEST_BYTES = 100e12
_WORDS = {AUTO: ROW_WISE}
_CLOSE = 1e-9
_STYLES = len(PALETTE)
Workload = Mapping[str, Any]


def line_sizes(one_gpu_bytes: float, node: int, sizes: Sequence[float]) -> list[float]:
    """Table sizes at which a line is computed: round sizes, ``sizes``, and just around a full GPU or node.

    one_gpu_bytes  bytes of tables that a GPU holds;  node  GPUs of a node
    """
    low, high = min([one_gpu_bytes, *sizes]), max([_LARGEST_BYTES, *sizes])
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    even = [step * 10.0**power for power in powers for step in _STEPS]
    full = [one_gpu_bytes, _LESS * node * one_gpu_bytes]
    found = {low, *even, *full, _MORE * one_gpu_bytes, _MORE * node * one_gpu_bytes, *map(float, sizes)}
    return sorted(float(f"{size:.6g}") for size in found if low <= size <= high)


_STEPS = (1.0, 2.0, 3.0, 5.0)
_LESS, _MORE = 0.995, 1.005  # of a full GPU or node: just below, there is room for buffers


def answerable(machine: Any, options: Mapping[str, Any], sizes: Sequence[float]) -> list[Answer]:
    """Projections at the table sizes [byte] that the calibration covers.

    A calibration by the user's own run covers only the numbers of ranks that it measured.
    options  of ``perfmodel.project``, without the table size
    """
    try:
        return project_each("table_bytes", sizes, machine, **options) if sizes else []
    except NoCalibrationError:
        if len(sizes) == 1:
            return []
    return [answer for size in sizes for answer in answerable(machine, options, [size])]


def frame_of(answers: Sequence[Answer]) -> pd.DataFrame:
    """The projections as a frame with the columns that lines need (as from ``perfmodel.project``)."""
    import pandas as pd

    rows = [
        {
            **answer.totals,
            "gpus": answer.gpus,
            "table_bytes": answer.gpu_count.table_bytes,
            "batch": float(answer.work.batch[0]),
            "evidence": str(answer.evidence),
            "main_evidence": str(answer.main_evidence),
        }
        for answer in answers
    ]
    return pd.DataFrame(rows)


class Lines:
    """Computes the lines of a figure: the slowdown over table sizes, for each exchange and library.

    All workloads of a page are computed together, and each line once.
    sizes      table sizes that can be selected [byte]
    workloads  batch, pooling and dim of each
    loaded     machines with their calibrations
    options    of ``perfmodel.project``, without workload and ``Setup``
    own        libraries of the user's own calibration; (): shipped calibrations
    """

    axis = "table_bytes"
    """The quantity along a line, as a keyword of ``perfmodel.project``."""

    def __init__(
        self,
        sizes: Sequence[float],
        workloads: Sequence[Workload],
        loaded: Loaded,
        options: Mapping[str, Any],
        own: Sequence[Curves] = (),
    ) -> None:
        self._sizes, self._workloads, self._loaded = sizes, list(workloads), loaded
        self._options, self._own = options, own
        self._known: dict[int, list[Curves]] = {}
        self._found: dict[tuple[Any, ...], list[pd.DataFrame | None]] = {}

    def of(self, setup: Setup, workload: Workload) -> Iterator[SlowdownLine]:
        """Yield the lines of a figure: the selected exchange, then other exchanges and libraries."""
        seen: list[Any] = []
        taken: set[int] = set()
        for way in self._ways(setup):
            frame = self._frame(way, self._workloads.index(workload))
            if frame is None or (way is not setup and _drawn_already(frame, seen)):
                continue
            seen.append(frame["slowdown"].to_numpy())
            yield SlowdownLine(self._label(way, setup), frame, style=self._style(way, taken))

    def grid(self, way: Setup, options: Mapping[str, Any]) -> list[float]:
        """Values of ``axis`` at which a line is computed, increasing.

        way      the line's machine, library and exchange;  options  of ``perfmodel.project``
        """
        usable = way.machine.value("hbm_bytes") * (1 - float(options.get("reserve", DEFAULT_RESERVE)))
        return line_sizes(usable, options.get("gpus_per_node") or way.machine.gpus_per_node, self._sizes)

    def _ways(self, setup: Setup) -> Iterator[Setup]:
        yield setup
        own = setup.curves
        mine = [] if own.backend == BEST else [own]
        for curves in [*mine, *(c for c in self._beside(setup) if c.backend != own.backend)]:
            for reduction in WAYS:
                if (curves, reduction) != (own, setup.reduction):
                    yield with_way(setup, curves, reduction)

    def _beside(self, setup: Setup) -> list[Curves]:
        """As ``beside``, but the calibrations for a machine are listed only once."""
        name = id(setup.machine)
        if not self._own and name not in self._known:
            self._known[name] = libraries(setup.machine)
        return beside(setup, self._own or self._known[name])

    def _style(self, way: Setup, taken: set[int]) -> int:
        """The number of the colour and marker for a library and exchange, the same in all views of the page.

        taken  numbers that lines of this view have; if it is among them, the next free number is used
        """
        known = [one.backend for one in self._beside(way)]
        kind = _STYLES - 1
        if way.curves.backend in known and way.reduction in WAYS:
            kind = len(WAYS) * known.index(way.curves.backend) + WAYS.index(way.reduction)
        free = [at for at in range(_STYLES) if at not in taken]
        kind = kind % _STYLES if kind % _STYLES in free or not free else free[0]
        taken.add(kind)
        return kind

    def _label(self, way: Setup, chosen: Setup) -> str:
        words = f"{library_name(way.curves.backend)} {_WORDS.get(way.reduction, way.reduction)}"
        clock, own = (clock_words(self._loaded.of(s.machine, s.curves)) for s in (way, chosen))
        words += f", {clock} clock" if clock != own else ""
        return words

    def _frame(self, way: Setup, at: int) -> pd.DataFrame | None:
        try:
            setting = self._loaded.of(way.machine, way.curves)
        except PerfmodelError:
            return None
        key = (id(setting), way.reduction)
        if key not in self._found:
            self._found[key] = self._frames(way, setting)
        return self._found[key][at]

    def _frames(self, way: Setup, setting: Setting) -> list[pd.DataFrame | None]:
        """Projections over ``grid`` for each workload, without sizes that the calibration does not cover.

        Limits: no calibration at all -> None for each workload
        """
        options = {**self._options, **way.options, "setting": setting}
        grid = self.grid(way, options)
        try:
            return self._together(way, grid, options)
        except NoCalibrationError:
            reached = list(self._reached(way, grid, {**options, **self._workloads[0]}))
        except PerfmodelError:
            return [None] * len(self._workloads)
        try:
            return self._together(way, reached, options) if reached else [None] * len(self._workloads)
        except NoCalibrationError:
            return [None] * len(self._workloads)

    def _reached(self, way: Setup, grid: Sequence[float], options: Mapping[str, Any]) -> Iterator[float]:
        """The values of ``grid`` for which there is a calibration."""
        for at in grid:
            with contextlib.suppress(NoCalibrationError):
                project_grid(*prepare(machine=way.machine, **{**options, self.axis: at}))
                yield at

    def _together(
        self, way: Setup, grid: Sequence[float], options: Mapping[str, Any]
    ) -> list[pd.DataFrame | None]:
        n, names = len(grid), list(self._workloads[0])
        columns = {name: np.repeat([work[name] for work in self._workloads], n) for name in names}
        columns[self.axis] = np.tile(grid, len(self._workloads))
        frame = project_row_wise(columns, way.machine, **options)
        return [frame.iloc[at : at + n] for at in range(0, len(frame), n)]


def _drawn_already(frame: pd.DataFrame, seen: Sequence[Any]) -> bool:
    """Whether a line with the same slowdowns is drawn already: a library may have only one of two exchanges.

    seen  slowdowns of the lines that are drawn
    """
    values = frame["slowdown"].to_numpy()
    return any(
        values.shape == other.shape and np.allclose(values, other, rtol=_CLOSE, atol=0) for other in seen
    )
