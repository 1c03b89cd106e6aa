"""Samples: one timed collective per row, in one CSV format for public and own measurements.

``payload_bytes`` is the bytes of one rank's buffer as nccl-tests prints it: the send buffer of an all-to-all
and a reduce-scatter, the receive buffer of an all-gather, the buffer of an all-reduce and a broadcast.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import FailFast, Field

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import SAMPLE_OPERATIONS, Backend, Clock
from perfmodel.schema.fields import Ranks, Seconds, Strict, allow_names, limits_of, validated
from perfmodel.schema.files import cell, expected, shown, write_whole
from perfmodel.schema.gate import read_csv, split_csv

if TYPE_CHECKING:
    import pandas as pd

SAMPLE_BACKENDS = (*(str(backend) for backend in Backend), "custom_allreduce")
"""Libraries that a sample may come from; only ``Backend`` names can be used in projections."""

_FREE_TEXT = ("source_id", "library_version", "gpu", "machine", "variant", "datatype", "flag", "note")
_WHOLE = ("payload_bytes", "gpus", "nodes", "gpus_per_node")
_WHAT = "sample file"
_Filled = Annotated[str, Field(min_length=1)]


class _Sample(NamedTuple):
    """A row of a file; the fields are its columns, in the order in which they are written."""

    source_id: _Filled
    backend: Annotated[str, allow_names(*SAMPLE_BACKENDS)]
    library_version: str
    gpu: str
    machine: str
    collective: Annotated[str, allow_names(*SAMPLE_OPERATIONS)]
    clock: Annotated[str, allow_names(*Clock)]
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


COLUMNS: tuple[str, ...] = _Sample._fields  # columns of a sample file, in the order in which they are written


class _SampleFile(Strict):
    rows: Annotated[list[_Sample], FailFast()]


def load_samples() -> pd.DataFrame:
    """The shipped samples, validated."""
    root = resources.data_path("measurements")  # where kernels/ has files of other columns
    files = sorted(file for name in SAMPLE_BACKENDS for file in root.glob(f"{name}/*.csv"))
    return _build_frame([row for file in files for row in _read_rows(*read_csv(file, _WHAT), str(file))])


def parse_samples(text: str, where: str) -> pd.DataFrame:
    """Validated samples of CSV text; ``where`` names it in messages."""
    return _build_frame(_read_rows(*split_csv(text, f"{_WHAT} {where}"), where))


def write_samples(frame: pd.DataFrame, path: str | Path) -> None:
    """Write samples in the canonical columns, if they can be read back; formulas get an apostrophe."""
    if missing := [column for column in COLUMNS if column not in frame.columns]:
        raise BadInputError(f"samples have no column {', '.join(missing)}.", expected(_WHAT))
    ordered = frame[list(COLUMNS)].copy()
    ordered["in_place"] = [str(bool(value)).lower() for value in ordered["in_place"]]
    ordered["time_s"] = [f"{value:.9g}" for value in ordered["time_s"]]
    for name in _FREE_TEXT:
        ordered[name] = [cell(str(value)) for value in ordered[name]]
    text = ordered.to_csv(index=False, lineterminator="\n")
    parse_samples(text, str(path))
    write_whole(Path(path), text, _WHAT)


def _read_rows(names: list[str], rows: list[list[str]], numbers: list[int], where: str) -> list[_Sample]:
    """Validated rows. names, rows, numbers  as of ``split_csv``;  where  names the file

    Limits: an unusable line -> BadInputError that names the first
    """
    if sorted(names) != sorted(COLUMNS):
        wrong = [f"missing column {name}" for name in COLUMNS if name not in names]
        wrong += [f"unknown column {shown(name)}" for name in names if name not in COLUMNS]
        words = "; ".join(wrong[:5]) or "a column appears twice"
        raise BadInputError(f"{_WHAT} {where}: {words}.", expected(_WHAT))
    document = {"rows": [dict(zip(names, row, strict=True)) for row in rows]}
    samples = validated(_SampleFile, document, _WHAT, where, numbers).rows
    earlier: set[_Sample] = set()
    for number, sample in zip(numbers, samples, strict=True):
        if not sample.nodes <= sample.gpus <= sample.nodes * sample.gpus_per_node:
            raise _refuse_row(where, number, "gpus do not fit nodes x gpus_per_node")
        if sample in earlier:
            raise _refuse_row(where, number, "the same as an earlier line")
        earlier.add(sample)
    return samples


def _refuse_row(where: str, number: int, reason: str) -> BadInputError:
    """The error for line ``number`` of the sample file ``where``, with the reason."""
    return BadInputError(f"{_WHAT} {where}, line {number}: {reason}.", expected(_WHAT))


def _build_frame(rows: list[_Sample]) -> pd.DataFrame:
    """The rows as a data frame: numbers as such, ``in_place`` as bool, all else as text."""
    import pandas as pd

    kinds = dict.fromkeys(COLUMNS, "str") | dict.fromkeys(_WHOLE, "int64") | {"time_s": "float64"}
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype(kinds)
    return frame.assign(in_place=frame["in_place"] == "true")
