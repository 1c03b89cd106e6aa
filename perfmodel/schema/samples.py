"""Samples: one timed collective per row, in one CSV format for public and own measurements.

``payload_bytes`` is the bytes of one rank's buffer as nccl-tests prints it: the send buffer of an all-to-all
and a reduce-scatter, the receive buffer of an all-gather, the buffer of an all-reduce and a broadcast.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import FailFast, Field

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import SAMPLE_OPERATIONS, Backend, Clock
from perfmodel.schema.fields import Ranks, Seconds, Strict, limits_of, require_one_of, validated
from perfmodel.schema.files import cell, expected, shown, unknown_name, write_whole_text
from perfmodel.schema.gate import read_csv_lines, split_csv

if TYPE_CHECKING:
    import pandas as pd

SAMPLE_BACKENDS = (*(str(backend) for backend in Backend), "custom_allreduce")
"""Libraries that a sample may come from; only ``Backend`` names can be used in projections."""

_FREE_TEXT = ("source_id", "library_version", "gpu", "machine", "variant", "datatype", "flag", "note")
_WHOLE = ("payload_bytes", "gpus", "nodes", "gpus_per_node")
_FOLDER = "measurements"
_WHAT = "sample file"
_Filled = Annotated[str, Field(min_length=1)]


class _Sample(NamedTuple):
    """A row of a file; the fields are its columns, in the order in which they are written."""

    source_id: _Filled
    backend: Annotated[str, require_one_of("backend", SAMPLE_BACKENDS)]
    library_version: str
    gpu: str
    machine: str
    collective: Annotated[str, require_one_of("collective", SAMPLE_OPERATIONS)]
    clock: Annotated[str, require_one_of("clock", tuple(Clock))]
    variant: _Filled
    payload_bytes: Annotated[int, Field(ge=1, le=int(limits_of("sample")["payload_bytes"].most))]
    gpus: Annotated[Ranks, Field(ge=2)]
    nodes: Ranks
    gpus_per_node: Ranks
    datatype: str
    in_place: Literal["true", "false"]
    time_s: Seconds
    flag: _Filled
    note: str


COLUMNS: tuple[str, ...] = _Sample._fields
"""Columns of a sample file, in the order in which they are written."""


class _SampleFile(Strict):
    rows: Annotated[list[_Sample], FailFast()]


def load_samples(path: str | Path | None = None, *, backend: str | None = None) -> pd.DataFrame:
    """Validated samples of a file, of a folder (``*.csv`` at any depth), or the shipped ones for ``None``.

    backend  keep only its rows
    Limits: unknown backend, missing or malformed file, an unusable line -> BadInputError; no matching row
            -> an empty frame
    """
    if backend is not None and backend not in SAMPLE_BACKENDS:
        raise unknown_name("backend", backend, SAMPLE_BACKENDS)
    files = _list_files(path, backend)
    frame = _build_frame(
        [row for file in files for row in _read_rows(read_csv_lines(file, _WHAT), str(file))]
    )
    return frame if backend is None else frame[frame["backend"] == backend].reset_index(drop=True)


def parse_samples(text: str, where: str) -> pd.DataFrame:
    """Validated samples of CSV text; ``where`` names it in messages."""
    return _build_frame(_read_rows(split_csv(text, f"{_WHAT} {where}"), where))


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


def _list_files(path: str | Path | None, backend: str | None) -> list[Path]:
    if path is None:
        root = resources.data_path(_FOLDER)
        folders = [backend] if backend else SAMPLE_BACKENDS  # kernels/ has files of other columns
        return sorted(file for name in folders for file in root.glob(f"{name}/*.csv"))
    folder = Path(path)
    if not os.path.isdir(folder):  # reading says what is wrong with a file
        return [folder]
    if files := sorted(folder.rglob("*.csv")):
        return files
    raise BadInputError(f"folder {folder} holds no sample file (*.csv).", expected(_WHAT))


def _read_rows(lines: list[tuple[int, list[str]]], where: str) -> list[_Sample]:
    """Validated rows. Limits: an unusable line -> BadInputError that names the first"""
    names = [name.strip() for name in lines[0][1]]
    missing = [name for name in COLUMNS if name not in names]
    unknown = [shown(name) for name in names if name not in COLUMNS]
    if missing or unknown or len(names) != len(set(names)):
        problem = [f"missing column {', '.join(missing)}"] if missing else []
        problem += [f"unknown column {', '.join(unknown[:5])}"] if unknown else []
        problem += [] if problem else ["a column appears twice"]
        raise BadInputError(f"{_WHAT} {where}: {'; '.join(problem)}.", expected(_WHAT))
    for number, row in lines[1:]:
        if len(row) != len(names):
            raise _refuse_row(where, number, f"{len(row)} fields instead of {len(names)}")
    numbers = [number for number, _ in lines[1:]]
    records = [{name: text.strip() for name, text in zip(names, row, strict=True)} for _, row in lines[1:]]
    rows = validated(_SampleFile, {"rows": records}, _WHAT, where, numbers).rows
    earlier: set[_Sample] = set()
    for number, sample in zip(numbers, rows, strict=True):
        if not sample.nodes <= sample.gpus <= sample.nodes * sample.gpus_per_node:
            raise _refuse_row(where, number, "gpus do not fit nodes x gpus_per_node")
        if sample in earlier:
            raise _refuse_row(where, number, "the same as an earlier line")
        earlier.add(sample)
    return rows


def _refuse_row(where: str, number: int, reason: str) -> BadInputError:
    return BadInputError(f"{_WHAT} {where}, line {number}: {reason}.", expected(_WHAT))


def _build_frame(rows: list[_Sample]) -> pd.DataFrame:
    import pandas as pd

    columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    data: dict[str, Any] = {}
    for name, values in zip(COLUMNS, columns, strict=True):
        if name == "in_place":
            data[name] = np.array([value == "true" for value in values], dtype=bool)
        elif name in _WHOLE or name == "time_s":
            data[name] = np.array(values, dtype=np.int64 if name in _WHOLE else np.float64)
        else:
            data[name] = pd.array(list(values), dtype="str")
    return pd.DataFrame(data)
