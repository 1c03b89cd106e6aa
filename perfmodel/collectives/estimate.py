"""Times of collectives, for a table of questions or for arrays of one collective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.choose import choose_calibration
from perfmodel.collectives.derivation import Calibrated
from perfmodel.collectives.link_laws import LARGEST_BYTES, Floats
from perfmodel.collectives.time_tables import LIMITS, TimeTable, build_table
from perfmodel.collectives.timings import COLUMNS, Timing, select
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.model.collectives import compute_bus_factor
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Calibration, load_calibration
from perfmodel.schema.evidence import COLLECTIVES, PER_PEER, Backend, Clock, Evidence
from perfmodel.schema.files import unknown_name
from perfmodel.schema.gate import MOST_GPUS
from perfmodel.schema.machine import Machine, list_machines, load_machine
from perfmodel.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd

_KEY_BASE = 2 * MOST_GPUS
Member = TypeVar("Member", Backend, Clock)


@dataclass
class CollectiveModel:
    """Predicts the collectives of one library on one machine at one clock.

    machine, calibration  where they run, and what was measured: there, or on another machine (``borrowed``)
    """

    machine: Machine
    calibration: Calibration
    _tables: dict[tuple[str, int, int], TimeTable] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Share the time tables with all models of this calibration that have no what-ifs."""
        if not (self.borrowed or self.machine.overrides):  # else they are of this what-if alone
            self._tables = Calibrated.of(self.machine, self.calibration).tables

    @staticmethod
    def load(
        machine: Machine,
        backend: str | None = None,
        clock: str | None = None,
        calibration: str | Path | None = None,
    ) -> CollectiveModel:
        """The model of a machine's collectives with a calibration: shipped for it, by name, or from a file.

        backend  None: the machine's default;  clock  None: any clock
        Raises BadInputError for an unknown backend or clock, or a file whose laws another version
        of this program fitted, and NoCalibrationError when no calibration matches.
        """
        library = _read_member(Backend, backend or machine.defaults.backend, "backend")
        wanted = None if clock is None else _read_member(Clock, clock, "clock")
        if calibration is None:
            return CollectiveModel(machine, choose_calibration(machine, library, wanted))
        chosen = load_calibration(calibration)
        _check_laws(chosen, calibration)
        if chosen.backend != library or (wanted is not None and chosen.clock != wanted):
            raise BadInputError(
                f"calibration {chosen.calibration_id} is {chosen.backend} at clock {chosen.clock}, "
                f"not {library}{f' at {wanted}' if wanted else ''}.",
                f"use --backend {chosen.backend} --set clock={chosen.clock}, or another calibration.",
            )
        if chosen.machine not in (machine.name, *list_machines()):
            raise BadInputError(
                f"calibration {chosen.calibration_id} is of {chosen.machine}, not of {machine.name}.",
                "leave --machine out, or use another --calibration.",
            )
        return CollectiveModel(machine, chosen)

    @property
    def borrowed(self) -> bool:
        """Whether the calibration is of another machine, whose times are scaled to the links of this one."""
        return self.calibration.machine != self.machine.name

    @property
    def calibration_id(self) -> str:
        """Name of the calibration that the times come from."""
        return self.calibration.calibration_id

    @property
    def clock(self) -> Clock:
        """Clock on which its times were measured."""
        return self.calibration.clock

    def table(self, collective: str, gpus: int, gpus_per_node: int) -> TimeTable:
        """Times of one group of ranks, 2 or more, at every size; built once, then reused."""
        key = (collective, gpus, gpus_per_node)
        if key not in self._tables:
            group = Group.of(gpus, self.machine.domain_gpus_of(gpus_per_node))
            calibrated = Calibrated.of(self.machine, self.calibration)
            self._tables[key] = build_table(calibrated, self.machine, collective, group)
        return self._tables[key]

    def estimate(
        self,
        collective: str,
        payload_bytes: npt.ArrayLike,
        gpus: npt.ArrayLike,
        gpus_per_node: npt.ArrayLike | None = None,
    ) -> Timing:
        """Times of a collective for arrays that broadcast together.

        payload_bytes   one rank's buffer as nccl-tests prints it [bytes]
        gpus            ranks; 1 takes no time
        gpus_per_node   ranks on each node (default: the machine's, or all ranks where they fit one)
        Raises BadInputError for non-positive input, NoCalibrationError where nothing is known.
        """
        per_node = self.machine.gpus_per_node if gpus_per_node is None else gpus_per_node
        question = (np.asarray(values, float) for values in (payload_bytes, gpus, per_node))
        size, ranks, node = np.broadcast_arrays(*question)
        _check_question(collective, size, ranks, node)
        flat = size.ravel()
        # one number for each pair (ranks, ranks of a node): equal pairs share a table
        keys = (ranks * _KEY_BASE + np.minimum(node, ranks)).ravel().astype(np.int64)
        dtypes = {name: np.dtype(float if name.endswith("_s") else np.int8) for name in COLUMNS}
        columns: dict[str, npt.NDArray[Any]] = {name: np.zeros(flat.size, dtypes[name]) for name in COLUMNS}
        for key in set(keys.tolist()):
            rows = np.flatnonzero(keys == key)
            count, on_node = divmod(key, _KEY_BASE)
            values = self.table(collective, count, on_node).read(flat[rows]) if count > 1 else ()
            for column, value in zip(columns.values(), values, strict=False):  # ``library`` stays 0
                column[rows] = value
        columns = {name: column.reshape(size.shape) for name, column in columns.items()}
        return Timing(**columns, limit_names=LIMITS, library_names=(str(self.calibration.backend),))

    def predict(self, frame: pd.DataFrame | Mapping[str, object]) -> pd.DataFrame:
        """The rows of ``frame`` with predicted times; columns in and out as of ``predict_collectives``."""
        import pandas as pd

        frame = pd.DataFrame(frame)
        lacking = [name for name in ("collective", "payload_bytes", "gpus") if name not in frame.columns]
        if lacking or frame["collective"].isna().any():
            fault = f"the frame lacks the column {lacking[0]!r}" if lacking else "a row names no collective"
            choices = f"it needs payload_bytes, gpus and collective: {', '.join(COLLECTIVES)}."
            raise BadInputError(f"{fault}.", choices)
        names = frame["collective"].astype(str).to_numpy()
        numbers = frame.reindex(columns=["payload_bytes", "gpus", "gpus_per_node"])
        numbers["gpus_per_node"] = numbers["gpus_per_node"].fillna(self.machine.gpus_per_node)
        size, ranks, node = numbers.apply(pd.to_numeric, errors="coerce").to_numpy(float).T
        short = np.isin(names, PER_PEER) & (size > 0) & (size < ranks)
        if short.any():
            row = int(np.argmax(short))
            sent = f"{size[row]:g} B of {names[row]} over {ranks[row]:g} ranks"
            fault = f"{sent} is less than one byte per peer: it would time an empty call."
            raise BadInputError(fault, f"the smallest size here is {ranks[row]:g} B.")
        columns = {name: np.zeros(len(frame)) for name in ("time_s", "low_s", "high_s")}
        ratio = np.ones(len(frame))
        ranked = np.zeros(len(frame), np.int8)
        for name in dict.fromkeys(names):
            rows = np.flatnonzero(names == name)
            timing = self.estimate(name, size[rows], ranks[rows], node[rows])
            for column in columns:
                columns[column][rows] = getattr(timing, column)
            ratio[rows] = compute_bus_factor(name, ranks[rows])
            ranked[rows] = timing.evidence
        result = frame.assign(**columns)
        with np.errstate(divide="ignore"):
            result["algbw_bytes_per_s"] = size / columns["time_s"]
            result["busbw_bytes_per_s"] = result["algbw_bytes_per_s"] * ratio
        return result.assign(evidence=np.array([str(e) for e in Evidence])[ranked], clock=str(self.clock))


@dataclass(frozen=True)
class Libraries:
    """The communication libraries of one machine, by name; each collective runs on the fastest of them."""

    libraries: Mapping[str, CollectiveModel]

    @property
    def clocks(self) -> tuple[Clock, ...]:
        """The clock of each library's times."""
        return tuple(times.clock for times in self.libraries.values())

    @property
    def calibrations(self) -> tuple[str, ...]:
        """The name of the calibration behind each library's times."""
        return tuple(times.calibration_id for times in self.libraries.values())

    def find_clock(self, library: str) -> Clock:
        """Clock of the times of a step that this library runs. Limits: a step of none -> the last one's"""
        return self.libraries.get(library, [*self.libraries.values()][-1]).clock

    def timing(self, collective: str, payload: Floats, gpus: Floats, gpus_per_node: int | None) -> Timing:
        """Time of a collective by the fastest library, element by element; 0 on one GPU, or without payload.

        Limits: equal times -> the first library;  a library does not know the collective -> the others';
        none knows it -> NoCalibrationError of the first library
        """
        sent = np.asarray(payload).astype(bool)
        timings, refused = [], []
        for name, times in self.libraries.items():
            try:
                timing = times.estimate(collective, np.maximum(payload, 1.0), gpus, gpus_per_node)
                timings.append(replace(timing, library_names=(name,)))
            except NoCalibrationError as error:
                refused.append(error)
        if not timings:
            raise refused[0]
        fastest = reduce(lambda a, b: select(a.time_s <= b.time_s, a, b), timings)
        return fastest if sent.all() else fastest.where(sent)


class Gate(NamedTuple):
    """The slow end of the 95 % band of a collective at one size, with what it rests on.

    basis  what the band comes from, in words;  a normal cluster is slower in at most one of 40 cases
    """

    machine: str
    calibration: str
    collective: str
    gpus: int
    gpus_per_node: int
    payload_bytes: float
    longest_time_s: float
    lowest_busbw_bytes_per_s: float
    evidence: str
    basis: str


def find_gates(groups: Iterable[tuple[CollectiveModel, str, int, int, Iterable[float]]]) -> list[Gate]:
    """Gates, longest times of a test, of (model, collective, GPUs, GPUs per node, printed sizes [bytes]).

    Limits: one rank sends nothing -> no gate;  a size that comes twice -> one gate
    """
    gates = []
    for model, name, gpus, node, sizes in groups:
        for size in map(float, sizes if gpus > 1 else ()):
            estimate = model.estimate(name, size, gpus, node)
            longest = float(estimate.high_s)
            evidence = str(Evidence.from_rank(int(estimate.evidence)))
            busbw = size * float(compute_bus_factor(name, gpus)) / longest
            basis = model.table(name, gpus, node).band[0].what
            where = model.machine.name, model.calibration_id
            gates.append(Gate(*where, name, gpus, node, size, longest, busbw, evidence, basis))
    return list(dict.fromkeys(gates))


def predict_collectives(
    frame: pd.DataFrame | Mapping[str, object],
    machine: str | Path | Machine = "h100-sxm-ib",
    backend: str | None = None,
    clock: str | None = None,
    calibration: str | Path | None = None,
    overrides: Mapping[str, float | str] | None = None,
) -> pd.DataFrame:
    """Predict many collectives at once.

    frame    columns collective, payload_bytes, gpus and optionally gpus_per_node (default: the machine's)
    machine      a shipped name, the path of a TOML file, or a Machine
    backend      communication library: nccl, nvshmem, rccl, gloo (None: the machine's default)
    clock        how calls were timed: device, graph, stream, eager (None: as the calibration prefers)
    calibration  an identifier or a file (None: the shipped one of the machine and library)
    overrides    values of the machine by their names, SI or text: ``{"nic_bytes_per_s": "25GB/s"}``
    Returns the frame with time_s, low_s, high_s (95 % interval), algbw_bytes_per_s, busbw_bytes_per_s,
    evidence and clock added; same rows, same order. Raises BadInputError for a missing column, an unknown
    collective, or a size below one byte per peer, and NoCalibrationError if there is no calibration.
    """
    where = machine if isinstance(machine, Machine) else load_machine(machine)
    model = CollectiveModel.load(where.with_overrides(overrides or {}), backend, clock, calibration)
    return model.predict(frame)


def _read_member(kind: type[Member], text: str, what: str) -> Member:
    """The Backend or Clock of this name. what  for messages. Limits: no such name -> BadInputError"""
    if text not in list(kind):
        raise unknown_name(what, str(text), list(kind))
    return kind(text)


def _check_laws(calibration: Calibration, name: str | Path) -> None:
    """Refuse laws whose unknowns are not the unknowns of this version of the program."""
    for law in calibration.laws:
        names = LINK_LAWS[law.law].names
        if tuple(law.names) != names:
            unlike = set(names) ^ set(law.names)
            raise BadInputError(
                f"calibration {name}: law {law.law} has the unknowns of another version of this program "
                f"({', '.join(sorted(unlike)) or 'in another order'}).",
                "fit it again from its samples: perfmodel import LOG… --out FILE, or perfmodel calibrate.",
            )


def _check_question(collective: str, size: Floats, ranks: Floats, node: Floats) -> None:
    """Raise BadInputError for a collective, sizes [bytes] or numbers of GPUs that no call has."""
    if collective not in COLLECTIVES:
        raise unknown_name("collective", collective, COLLECTIVES)
    for name, values, largest, limit in (
        ("payload_bytes", size, LARGEST_BYTES, "256 TiB"),
        ("gpus", ranks, MOST_GPUS, f"{MOST_GPUS} GPUs"),
        ("gpus_per_node", node, MOST_GPUS, f"{MOST_GPUS} GPUs"),
    ):
        counted = name != "payload_bytes"
        bad = ~((values > 0) & (values <= largest)) | (counted & (values != np.floor(values)))
        if bad.any():
            value = float(values[bad][0])
            typed = f"{value:g}" if counted else format_bytes(value)
            kind = "a whole number above 0" if counted else "above 0"
            fault = f"{name} must be {kind} and at most {limit}, not {typed}."
            raise BadInputError(fault, f"give a {name} in this range.")
