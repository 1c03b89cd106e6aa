"""A calibration run on disk: its checked lines, points with their visits, its folder, and ``latest``."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.errors import BadInputError, NoCalibrationError, PerfmodelError
from perfmodel.schema.calibration import Calibration, read_calibration
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.files import BROKEN, LATEST, MACHINE_NAME, SAMPLES_NAME, runs_folder
from perfmodel.schema.gate import MOST_RUN_BYTES, read_bounded
from perfmodel.schema.machine import list_machines
from perfmodel.schema.runs import (
    RUN_FILE,
    Finish,
    LookupWork,
    Point,
    PointKind,
    PointLine,
    RunHeader,
    Status,
    Visit,
    functional_reason,
    header_of,
    put_away,
    read_lines,
)
from perfmodel.schema.samples import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

CLOCK_ORDER = (Clock.STREAM, Clock.GRAPH, Clock.EAGER, Clock.DEVICE)
"""Default order of clocks in a projection: the clock of the shipped calibrations first."""

_SUFFIX = ".json"
_LONGEST_HEADER = 2**20
_FEWEST_VISITS = 3  # with which an unfinished point counts, as a noisy one
_FLAGS = {Status.OK: "ok", Status.NOISY: "noisy", Status.THROTTLED: "throttled"}
_IN_PLACE = {"all_reduce": ("gloo", "nccl", "rccl")}  # what PyTorch's process groups do
_WORK_COLUMNS = (
    *("key", "operation", "backend", "implementation", "clock", "gpus", "nodes", "gpus_per_node"),
    *("dtype", "batch", "tables", "pooling", "dim", "rows", "id_bytes", "shards"),
    *("payload_bytes", "held_out", "time_s", "low_s", "high_s", "flag"),
)
_MADE_UP = ("cpu-", "gpu-")  # beginning of the generated names of hosts that the user does not name


@dataclass(frozen=True)
class Run:
    """One run: the header, and by key of a point the points, their visits in order, and how they ended."""

    header: RunHeader
    points: dict[str, Point]
    visits: dict[str, list[Visit]]
    finishes: dict[str, Finish]

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
            visits = [visit for visit in self.visits.get(key, []) if visit.times_s and not visit.wrong]
            flag = _FLAGS[Status.NOISY] if len(visits) >= _FEWEST_VISITS else None
            if self.ended(key):
                flag = _FLAGS.get(self.finishes[key].status)
            if point.kind is kind and flag is not None and visits:
                yield point, visits, flag

    def library_version(self, backend: str) -> str:
        """Version number of a library: ``torch 2.13.0`` -> ``2.13.0``; empty if there is none."""
        text = self.header.stack.get(backend, "")
        number = re.search(r"\d[\w.+]*", text)
        return number[0] if number else "-".join(re.findall(r"[A-Za-z0-9._+]+", text))

    def collective_samples(self) -> pd.DataFrame:
        """Collectives as samples (columns of ``schema.samples``): a visit a row, the median of its calls."""
        import pandas as pd

        rows = []
        for point, visits, flag in self.usable(PointKind.COLLECTIVE):
            row = {name: value for name, value in point.model_dump().items() if name in COLUMNS}
            row |= {"collective": point.operation, "clock": str(point.clock), "datatype": point.dtype}
            row |= {"source_id": self.run_id, "machine": self.header.machine, "flag": flag}
            row["library_version"] = self.library_version(point.backend)
            row |= {"variant": "default", "gpu": self.header.stack.get("gpu", "")}
            row["in_place"] = point.backend in _IN_PLACE.get(point.operation, ())
            for number, visit in enumerate(visits, 1):
                rows.append({**row, "time_s": float(np.median(visit.times_s)), "note": f"visit {number}"})
        return pd.DataFrame(rows, columns=list(COLUMNS))

    def work_samples(self, kind: PointKind) -> pd.DataFrame:
        """Kernels or whole passes, one row per point: the fields of Point and Work, and medians of visits.

        ``time_s`` with ``low_s``, ``high_s`` from the finish line; ``flag`` is ok, noisy or throttled; of a
        pass, ``<step>_time_s`` of every step.  Limits: a step that an implementation does not time -> NaN
        """
        import pandas as pd

        rows = []
        for point, visits, flag in self.usable(kind):
            finish = self.finishes.get(point.key)
            work = point.work or LookupWork(batch=1)  # a copy or an empty launch looks nothing up
            row: dict[str, object] = {**work.model_dump(), **point.model_dump(exclude={"work"})}
            row |= {"key": point.key, "clock": str(point.clock), "flag": flag}
            row |= {name: getattr(finish, name, None) for name in ("low_s", "high_s")}
            row["time_s"] = _take_medians([visit.times_s for visit in visits])
            row = {name: row[name] for name in _WORK_COLUMNS}
            for name in dict.fromkeys(name for visit in visits for name in visit.steps_s):
                times = [visit.steps_s[name] for visit in visits if visit.steps_s.get(name)]
                row[f"{name}_time_s"] = _take_medians(times)
            rows.append(row)
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(_WORK_COLUMNS))


def _take_medians(times: list[list[float]]) -> float:
    """The median over visits of the median time of a visit's calls [s]."""
    return float(np.median([np.median(batch) for batch in times]))


def read_run(path: Path | str) -> Run:
    """A run from its folder or its file. Limits: an unusable line but a cut last one -> BadInputError"""
    file = _find_samples(path)
    lines = read_lines(read_bounded(file, RUN_FILE, MOST_RUN_BYTES), file)
    if lines.damage:
        number, why = lines.damage[0]
        raise BadInputError(
            f"{RUN_FILE} {file}, line {number}: {why}. Lines that cannot be used: {len(lines.damage)}.",
            "run perfmodel calibrate again as before: it measures again what the lines held, and keeps a "
            f"copy of the file; or {put_away(file)}",
        )
    run = Run(lines.header, {}, {}, {})
    for _, line in lines.good:
        if isinstance(line, PointLine):  # a second point line restarts the point
            run.points[line.key] = line.point
            run.visits[line.key] = []
        elif isinstance(line, Visit):
            run.visits[line.key].append(line)
        if isinstance(line, Finish):
            run.finishes[line.key] = line
        elif isinstance(line, PointLine) or not run.ended(line.key):  # begun again, or resumed
            run.finishes.pop(line.key, None)
    return run


def read_header(path: Path | str) -> RunHeader:
    """The first line of a run, from its folder or its file: fast, however long the run is."""
    file = _find_samples(path)
    try:
        with file.open("rb") as stream:
            line = stream.readline(_LONGEST_HEADER)
    except OSError as error:
        raise BadInputError(f"{RUN_FILE} {file} cannot be read: {error.strerror or error}.") from None
    return header_of(line, file)


def _find_samples(path: Path | str) -> Path:
    """The file of a run, from its folder or the file itself."""
    file = Path(path)
    return file / SAMPLES_NAME if file.is_dir() else file


def run_folder(text: str) -> Path | None:
    """The folder of a run, from ``latest``, its path, or the path of its samples; None for anything else."""
    if text == LATEST:
        return latest_run()
    path = Path(text)
    folder = path.parent if path.name == SAMPLES_NAME else path
    with suppress(OSError, ValueError):
        return folder if folder.is_dir() else None
    return None


def latest_run() -> Path:
    """The last written run below ``runs_folder`` that holds a calibration, and is no functional check."""
    runs: list[tuple[int, Path]] = []
    with suppress(OSError):
        runs = [(path.stat().st_mtime_ns, path.parent) for path in runs_folder().glob(f"*/{SAMPLES_NAME}")]
    for _, run in sorted(runs, reverse=True):
        if BROKEN not in run.name and calibrations_of(run) and not read_header(run).functional_only:
            return run
    raise NoCalibrationError(
        f"no finished run is in {runs_folder()}; functional checks do not count.",
        "measure this machine:\n  perfmodel calibrate --quick",
    )


def calibrations_of(folder: Path) -> dict[Path, Calibration]:
    """Calibrations in the folder of a run, by file; first the one that a projection uses by default."""
    calibrations = {}
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            calibrations[path] = read_calibration(path)
        except BadInputError as error:
            if (folder / SAMPLES_NAME).is_file():
                step = f"the samples beside it are kept; to write it again:\n  {calibrate_line(folder)}"
                raise BadInputError(error.message, step) from None
            raise
    return dict(sorted(calibrations.items(), key=lambda item: preference(item[1])))


def calibrate_line(folder: Path, *words: str, preset: str = "--quick") -> str:
    """The command that measures what the run in ``folder`` lacks: in the same place, for the same machine.

    words   options such as ``--only gloo``; none: measure all that a projection uses
    preset  ``--quick``; "" for the standard preset, with more sizes and less noise
    Limits: if the stack has changed since, the new measurements go to another folder beside it
    """
    options = ["--out", str(folder.parent)]
    with suppress(OSError):
        options = [] if folder.parent.resolve() == runs_folder().resolve() else options
    with suppress(PerfmodelError):
        machine = read_header(folder).machine
        if not machine.startswith(_MADE_UP) and machine not in list_machines():
            options += ["--machine", machine]
    return shlex.join(["perfmodel", "calibrate", *words, *([preset] if preset else []), *options])


def preference(calibration: Calibration) -> tuple[bool, bool, float, int, int]:
    """Sort key among the calibrations of one run, best first.

    In this order: a whole pass is known on some group of ranks; the calibration is complete; on how many
    groups (by laws: on all); library; clock.
    """
    by_law = all(calibration.law(name) for name in _pass_collectives(calibration))
    groups = math.inf if by_law else len(measured_groups(calibration))
    places = list(Backend).index(calibration.backend), CLOCK_ORDER.index(calibration.clock)
    return not groups, not calibration.complete, -groups, *places


def measured_groups(calibration: Calibration) -> list[int]:
    """Numbers of ranks on which all collectives of a whole pass were measured."""
    cells = {curve.cell for curve in calibration.curves}
    needed = _pass_collectives(calibration)
    return sorted({cell[1] for cell in cells if all((name, *cell[1:]) in cells for name in needed)})


def _pass_collectives(calibration: Calibration) -> tuple[str, ...]:
    """Collectives that a row-wise pass needs, by the calibration's library."""
    alone = calibration.backend is Backend.NVSHMEM  # which exchanges bags, and sums them
    return ("all_to_all",) if alone else ("all_to_all", "reduce_scatter")


def calibration_in(folder: Path, backend: str | None = None, clock: str | None = None) -> Path:
    """The calibration of a run for a library and clock; by default the first of ``calibrations_of``."""
    calibrations = dict[Path, Calibration]()
    if (folder / SAMPLES_NAME).is_file():
        header = read_header(folder)
        why = "holds no calibration: no collective was measured to its end"
        if header.functional_only:
            why = f"is a functional check ({functional_reason(header)}): there is no calibration of it"
        else:
            calibrations = calibrations_of(folder)
        if not calibrations:
            step = f"measure this machine:\n  {calibrate_line(folder)}"
            raise NoCalibrationError(f"run {folder.name} {why}.", step)
    with suppress(BadInputError):  # files of other kinds
        calibrations = calibrations or calibrations_of(folder)
    if not calibrations:
        raise BadInputError(
            f"{folder} is not a run: it holds no {SAMPLES_NAME} and no calibration.",
            "give the folder that perfmodel calibrate names under Wrote, a calibration file, or latest.",
        )
    for path, calibration in calibrations.items():
        if backend in (None, str(calibration.backend)) and clock in (None, str(calibration.clock)):
            return path
    wanted = " at clock ".join(word for word in (backend, clock) if word)
    measured = ", ".join(f"--backend {x.backend} --set clock={x.clock}" for x in calibrations.values())
    raise NoCalibrationError(f"run {folder.name} has nothing of {wanted}.", f"it has {measured}.")


def find_machine_beside(folder: Path, name: str, what: str) -> str:
    """The machine of a run or calibration (``what``): a shipped one, else the file in its folder."""
    path = folder / MACHINE_NAME
    if name in list_machines():
        return name
    if path.is_file():
        return str(path)
    raise BadInputError(
        f"{what} is of {name}, which is not a shipped machine, and {path} is not there.",
        "put it there: perfmodel calibrate wrote it beside the samples of the run (or beside --calibration, "
        "name it with --machine PATH).",
    )


def run_of(calibration: str | Path) -> Path | None:
    """The folder of the run that a calibration's file belongs to; None if it belongs to no run."""
    path = Path(calibration)
    return path.parent if path.suffix == _SUFFIX and (path.parent / SAMPLES_NAME).is_file() else None
