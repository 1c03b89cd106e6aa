"""Samples: one timed collective per row, in one CSV format for public and own measurements.

``payload_bytes`` is the bytes of one rank's buffer as nccl-tests prints it: the send buffer of an all-to-all
and a reduce-scatter, the receive buffer of an all-gather, the buffer of an all-reduce and a broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import SAMPLE_OPERATIONS, Backend, Clock
from perfmodel.schema.fields import limits_of
from perfmodel.schema.files import cell, expected, first_line, shown, unknown_name, write_whole_text
from perfmodel.schema.gate import csv_lines, read_csv_lines

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

SAMPLE_BACKENDS = (*(str(backend) for backend in Backend), "custom_allreduce")
"""Libraries that a sample may come from; only ``Backend`` names can be used in projections."""

COLUMNS = (
    "source_id",
    "backend",
    "library_version",
    "gpu",
    "machine",
    "collective",
    "clock",
    "variant",
    "payload_bytes",
    "gpus",
    "nodes",
    "gpus_per_node",
    "datatype",
    "in_place",
    "time_s",
    "flag",
    "note",
)
"""Columns of a sample file, in the order in which they are written."""

_WHOLE = {"payload_bytes": 1, "gpus": 2, "nodes": 1, "gpus_per_node": 1}
_NAMES = {
    "backend": SAMPLE_BACKENDS,
    "collective": SAMPLE_OPERATIONS,
    "clock": tuple(str(clock) for clock in Clock),
    "in_place": ("true", "false"),
}
_REQUIRED_TEXT = ("source_id", "variant", "flag")
_FREE_TEXT = ("source_id", "library_version", "gpu", "machine", "variant", "datatype", "flag", "note")
_LARGEST_WHOLE = 2**53
_LIMITED = {"payload_bytes": "payload_bytes", "gpus": "gpus", "nodes": "gpus", "gpus_per_node": "gpus"}
"""Integer columns, with the limit of each."""
_FOLDER = "measurements"
_WHAT = "sample file"


def load_samples(path: str | Path | None = None, *, backend: str | None = None) -> pd.DataFrame:
    """Validated samples of a file, of a folder (``*.csv`` at any depth), or the shipped ones for ``None``.

    backend  keep only its rows
    Limits: unknown backend, missing or malformed file, an unusable line -> BadInputError; no matching row
            -> an empty frame
    """
    if backend is not None and backend not in SAMPLE_BACKENDS:
        raise unknown_name("backend", backend, SAMPLE_BACKENDS)
    files = _files(path, backend)
    frame = _frame([row for file in files for row in _rows(read_csv_lines(file, _WHAT), str(file))])
    return frame if backend is None else frame[frame["backend"] == backend].reset_index(drop=True)


def parse_samples(text: str, where: str) -> pd.DataFrame:
    """Validated samples of CSV text; ``where`` names it in messages."""
    return _frame(_rows(csv_lines(text, f"{_WHAT} {where}"), where))


def write_samples(frame: pd.DataFrame, path: str | Path) -> None:
    """Write samples in the canonical columns; the file is written atomically.

    Texts that a spreadsheet would run as formulas get an apostrophe (``files.cell``).
    Limits: a file that cannot be read back -> BadInputError before anything is written
    """
    missing = [column for column in COLUMNS if column not in frame.columns]
    if missing:
        raise BadInputError(f"samples have no column {', '.join(missing)}.", expected(_WHAT))
    ordered = frame[list(COLUMNS)].copy()
    ordered["in_place"] = [str(bool(value)).lower() for value in ordered["in_place"]]
    ordered["time_s"] = [f"{value:.9g}" for value in ordered["time_s"]]
    for name in _FREE_TEXT:
        ordered[name] = [cell(str(value)) for value in ordered[name]]
    text = ordered.to_csv(index=False, lineterminator="\n")
    parse_samples(text, str(path))
    write_whole_text(Path(path), text, _WHAT)


def _files(path: str | Path | None, backend: str | None) -> list[Path]:
    if path is None:
        root = resources.data_path(_FOLDER)
        kept = [backend] if backend else SAMPLE_BACKENDS  # kernels/ has files of other columns
        return sorted(file for name in kept for file in root.glob(f"{name}/*.csv"))
    folder = Path(path)
    try:
        if not folder.is_dir():
            return [folder]
        files = sorted(folder.rglob("*.csv"))
    except (OSError, ValueError) as error:
        raise BadInputError(
            f"{_WHAT} {path!s} cannot be read: {first_line(str(error))}.", "check the path."
        ) from None
    if not files:
        raise BadInputError(f"folder {folder} holds no sample file (*.csv).", expected(_WHAT))
    return files


def _rows(lines: list[tuple[int, list[str]]], where: str) -> list[list[str]]:
    """Rows in canonical column order. Limits: an unusable line -> BadInputError that names the first"""
    order = _column_order(lines[0][1], where)
    wanted = len(order)
    cut = {line: f"{len(row)} fields instead of {wanted}" for line, row in lines[1:] if len(row) != wanted}
    whole = [(line, [row[i].strip() for i in order]) for line, row in lines[1:] if line not in cut]
    rows = [row for _, row in whole]
    reasons = cut | {whole[i][0]: reason for i, reason in _reasons(rows).items()}
    if reasons:
        line, reason = min(reasons.items())
        more = f" (and {len(reasons) - 1} more lines)" if len(reasons) > 1 else ""
        raise BadInputError(f"{_WHAT} {where}, line {line}: {reason}{more}.", expected(_WHAT))
    return rows


def _column_order(header: Sequence[str], where: str) -> list[int]:
    names = [name.strip() for name in header]
    missing = [name for name in COLUMNS if name not in names]
    unknown = [name for name in names if name not in COLUMNS]
    if missing or unknown or len(names) != len(set(names)):
        problem = [f"missing column {', '.join(missing)}"] if missing else []
        problem += [f"unknown column {', '.join(shown(name) for name in unknown[:5])}"] if unknown else []
        problem += [] if problem else ["a column appears twice"]
        raise BadInputError(f"{_WHAT} {where}: {'; '.join(problem)}.", expected(_WHAT))
    return [names.index(name) for name in COLUMNS]


def _reasons(rows: list[list[str]]) -> dict[int, str]:
    """Index of each unusable row, with the first reason why it is unusable."""
    reasons: dict[int, str] = {}
    if not rows:
        return reasons
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))

    def mark(bad: NDArray[np.bool_], text: Callable[[int], str]) -> None:
        for i in np.flatnonzero(bad):
            reasons.setdefault(int(i), text(int(i)))

    for name, known in _NAMES.items():
        bad = np.array([value not in known for value in columns[name]], dtype=bool)
        mark(bad, lambda i, name=name: f"{name} {shown(columns[name][i])} is not known")  # type: ignore[misc]
    for name in _REQUIRED_TEXT:
        bad = np.array([not value for value in columns[name]], dtype=bool)
        mark(bad, lambda i, name=name: f"{name} is empty")  # type: ignore[misc]
    numbers = {name: _numbers(columns[name]) for name in (*_WHOLE, "time_s")}
    for name, least in _WHOLE.items():
        value = numbers[name]
        bad = ~((value >= least) & (value <= _LARGEST_WHOLE) & (value == np.floor(value)))
        wanted = f"must be a whole number of at least {least}"
        mark(bad, lambda i, name=name, wanted=wanted: f"{name} {wanted}, not {shown(columns[name][i])}")  # type: ignore[misc]
    time_s = numbers["time_s"]
    for name, limited in (*_LIMITED.items(), ("time_s", "time_s")):
        limit, value = limits_of("sample")[limited], numbers[name]
        bad = (value > limit.most) & np.isfinite(value) | (value > 0) & (value < limit.least)
        mark(bad, lambda i, n=name, v=value, k=limit: f"{n} {k.refusal(float(v[i]))}")  # type: ignore[misc]
    mark(
        ~(np.isfinite(time_s) & (time_s > 0)),
        lambda i: f"time_s must be a positive number, not {shown(columns['time_s'][i])}",
    )
    most = np.minimum(numbers["nodes"], _LARGEST_WHOLE) * np.minimum(numbers["gpus_per_node"], _LARGEST_WHOLE)
    mark(
        (numbers["gpus"] > most) | (numbers["nodes"] > numbers["gpus"]),
        lambda i: "gpus do not fit nodes x gpus_per_node",
    )
    first: dict[tuple[str, ...], int] = {}
    for i, row in enumerate(rows):
        if i not in reasons and first.setdefault(tuple(row), i) != i:
            reasons[i] = "the same as an earlier line"
    return reasons


def _numbers(texts: Sequence[str]) -> NDArray[np.float64]:
    """Numbers from texts; NaN for texts that are not numbers."""
    try:
        return np.array([float(text) for text in texts], dtype=np.float64)
    except ValueError:
        return np.array([_number(text) for text in texts], dtype=np.float64)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _frame(rows: list[list[str]]) -> pd.DataFrame:
    import pandas as pd

    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    data: dict[str, Any] = dict(zip(COLUMNS, columns, strict=True))
    for name in COLUMNS:
        if name in _WHOLE:
            data[name] = _numbers(data[name]).astype(np.int64)
        elif name == "time_s":
            data[name] = _numbers(data[name])
        elif name == "in_place":
            data[name] = np.array([value == "true" for value in data[name]], dtype=bool)
        else:
            data[name] = pd.array(list(data[name]), dtype="str")
    return pd.DataFrame(data)
