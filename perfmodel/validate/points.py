"""Finds the samples behind a calibration: beside its file, in its run, or among the shipped samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfmodel.errors import BadInputError
from perfmodel.fit.build import select_usable
from perfmodel.fit.runs import DEFAULT_VARIANT
from perfmodel.schema.calibration import Calibration
from perfmodel.schema.files import SAMPLES_NAME, SAMPLES_SUFFIX
from perfmodel.schema.run_files import read_run
from perfmodel.schema.runs import Point, PointKind
from perfmodel.schema.samples import load_samples

if TYPE_CHECKING:
    import pandas as pd


def run_of(name: str | Path) -> Path | None:
    """The folder of the run that a calibration's file belongs to; None if it belongs to no run."""
    path = Path(name)
    return path.parent if path.suffix == ".json" and (path.parent / SAMPLES_NAME).is_file() else None


def is_behind(point: Point, item: Calibration) -> bool:
    """Whether a measured point was used for this calibration: same library and clock, or a kernel."""
    return point.kind is PointKind.KERNEL or (point.backend, point.clock) == (str(item.backend), item.clock)


def count_since_fit(item: Calibration, folder: Path | None) -> tuple[int, int]:
    """(points of the run that are not measured yet, samples that are newer than the calibration).

    Limits: no run, or fitted at the end of the run -> 0, 0;  only kernels were measured -> no newer samples
    """
    if folder is None:
        return 0, 0
    run = read_run(folder)
    left = [point for key, point in run.points.items() if is_behind(point, item) and not run.ended(key)]
    rows = run.collective_samples()
    rows = rows[(rows["backend"] == str(item.backend)) & (rows["clock"] == str(item.clock))]
    rows = rows[rows["variant"] == DEFAULT_VARIANT]
    return len(left), max(len(select_usable(rows)) - item.sample_count, 0) if len(rows) else 0


def load_samples_of(calibration: Calibration, name: str | Path) -> pd.DataFrame:
    """The samples that a calibration was fitted to, in the columns of ``schema.samples``.

    name  its file, or the name of a shipped calibration
    Limits: samples that are not available -> BadInputError
    """
    run = run_of(name)
    if run is not None:
        frame = read_run(run).collective_samples()
        return frame[(frame["backend"] == calibration.backend) & (frame["clock"] == calibration.clock)]
    beside = Path(name).with_name(Path(name).name.removesuffix(".json") + SAMPLES_SUFFIX)
    if Path(name).suffix == ".json" and beside.is_file():
        return load_samples(beside)
    frame = load_samples(backend=str(calibration.backend))
    sources = {source for curve in calibration.curves for source in curve.sources}
    sources |= {source for law in calibration.laws for source in law.sources}
    chosen = frame[frame["source_id"].isin(sources) & (frame["clock"] == str(calibration.clock))]
    if chosen.empty:
        raise BadInputError(f"the samples of {name} are not here.", f"expected them in {beside}")
    return chosen.reset_index(drop=True)
