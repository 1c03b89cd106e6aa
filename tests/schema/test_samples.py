"""samples: what is shipped is clean and sourced; what is wrong is named by line; nothing is silently lost."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.schema.fields import find_doubts
from perfmodel.schema.files import cell
from perfmodel.schema.machine import list_machines
from perfmodel.schema.samples import COLUMNS, SAMPLE_BACKENDS, load_samples, parse_samples, write_samples

HEADER = ",".join(COLUMNS)
GOOD = "mine,nccl,2.29.2,H100,h100-sxm-ib,all_to_all,stream,default,1048576,8,1,8,float,false,1.39e-05,ok,"


@pytest.fixture(scope="module")
def shipped() -> pd.DataFrame:
    return load_samples()


def changed(column: str, value: str) -> str:
    fields = GOOD.split(",")
    fields[COLUMNS.index(column)] = value
    return ",".join(fields)


def test_shipped_samples_are_clean_and_of_shipped_machines(shipped: pd.DataFrame) -> None:
    assert len(shipped) > 16_000
    roce = {"h200-sxm-roce", "b200-sxm-roce"}  # measured inside a node on the same GPUs
    assert set(shipped["machine"]) - {""} == set(list_machines()) - roce - {"h100-paper"}
    assert shipped["nodes"].max() == 540 and shipped["gpus"].max() == 2160
    assert not shipped.duplicated().any()
    assert tuple(shipped.columns) == COLUMNS


def test_every_shipped_file_is_one_source_that_is_listed(shipped: pd.DataFrame) -> None:
    with resources.data_path("measurements", "sources.csv").open(encoding="utf-8") as file:
        sources = {source["source_id"]: source for source in csv.DictReader(file)}
    assert set(shipped["source_id"]) == set(sources)
    page = resources.data_path("measurements", "SOURCES.md").read_text(encoding="utf-8")
    for name, source in sources.items():
        assert source["licence"] and source["where"] and source["date"]
        assert f"| {name} |" in page
    folders = [resources.data_path("measurements", name) for name in SAMPLE_BACKENDS]
    for path in (path for folder in folders for path in folder.glob("*.csv")):
        frame = parse_samples(path.read_text(encoding="utf-8"), str(path))
        assert set(frame["source_id"]) == {path.stem} and set(frame["backend"]) == {path.parent.name}


@pytest.mark.parametrize(
    ("source", "collective", "gpus", "payload_bytes", "time_s"),
    [
        ("aic_h100_nccl2.23", "all_gather", 2, 2048, 5.98e-6),  # first row of the transcription
        ("nccltests_issue309", "all_reduce", 16, 16, 24.96e-6),
        ("xxrjun_c00_pairs", "all_to_all", 16, 1073741824, 53554.7e-6),
    ],
)
def test_rows_say_what_their_source_says(
    shipped: pd.DataFrame, source: str, collective: str, gpus: int, payload_bytes: int, time_s: float
) -> None:
    row = shipped.query(
        "source_id == @source and collective == @collective and gpus == @gpus"
        " and payload_bytes == @payload_bytes and not in_place"
    )
    assert time_s in row["time_s"].round(9).to_list()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("time_s", "0"),
        ("time_s", "nan"),
        ("time_s", "soon"),
        ("payload_bytes", "0"),
        ("payload_bytes", "1.5"),
        ("gpus", "1"),
        ("nodes", "-1"),
        ("gpus", "9"),
        ("collective", "alltoall"),
        ("backend", "oneccl"),
        ("clock", "wall"),
        ("in_place", "maybe"),
        ("source_id", ""),
    ],
)
def test_a_row_that_cannot_be_used_is_named_by_line(column: str, value: str) -> None:
    text = "\n".join([HEADER, GOOD, changed(column, value), changed("payload_bytes", "2097152")])
    with pytest.raises(BadInputError, match=rf"mine\.csv.*line 3[:,] .*{column}"):
        parse_samples(text, "mine.csv")


def test_duplicates_are_reported_and_repeats_are_kept() -> None:
    repeated = "\n".join([HEADER, GOOD, changed("time_s", "1.40e-05")])
    assert len(parse_samples(repeated, "f")) == 2
    with pytest.raises(BadInputError, match=r"f, line 4: the same as an earlier line"):
        parse_samples(f"{repeated}\n{GOOD}\n{GOOD}", "f")


def test_columns_may_be_in_any_order_and_must_be_known() -> None:
    order = [*COLUMNS[1:], COLUMNS[0]]
    fields = dict(zip(COLUMNS, GOOD.split(","), strict=True))
    text = ",".join(order) + "\n" + ",".join(fields[name] for name in order)
    assert parse_samples(text, "f").equals(parse_samples(f"{HEADER}\n{GOOD}", "f"))
    for bad in (HEADER + ",colour", HEADER.replace("time_s", "time_us"), HEADER + ",time_s", "", "x"):
        with pytest.raises(BadInputError, match=r"column|is empty"):
            parse_samples(bad + "\n", "f")


def test_a_truncated_line_is_reported() -> None:
    with pytest.raises(BadInputError, match=r"cut\.csv, line 3: \d fields instead of 17"):
        parse_samples("\n".join([HEADER, GOOD, GOOD[:40]]), "cut.csv")


def test_written_samples_read_back_equal(tmp_path: Path, shipped: pd.DataFrame) -> None:
    part = shipped.query("source_id == 'xxrjun_c01_single'").reset_index(drop=True)
    write_samples(part, tmp_path / "out.csv")
    text = (tmp_path / "out.csv").read_text(encoding="utf-8")
    pd.testing.assert_frame_equal(parse_samples(text, "out.csv"), part)
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_bad_samples_are_not_written(tmp_path: Path, shipped: pd.DataFrame) -> None:
    part = shipped.head(3).assign(time_s=[1e-6, 0.0, 1e-6])
    for frame in (part, part.drop(columns="flag")):
        with pytest.raises(BadInputError):
            write_samples(frame, tmp_path / "out.csv")
    with pytest.raises(BadInputError, match="cannot be written"):
        write_samples(shipped.head(3), tmp_path / "no" / "out.csv")
    assert list(tmp_path.iterdir()) == []


def test_names_that_a_spreadsheet_would_run() -> None:
    names = ["=cmd|' /C calc'!A0", "@SUM(A1)", "+1+cmd|x", "-2+3", "-A1", "-", "plain", "x-1"]
    assert [cell(name) for name in names] == [f"'{name}" for name in names[:6]] + names[6:]
    for number in ("-12.5", "+3 %", "-1e-05", "+4.5 µs", "-∞ s", "-3 GB/s", "+1.5×"):
        assert cell(number) == number


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "bytes,n,seconds\n1024,8,1e-5\n", "no column collective, payload_bytes, gpus, time_s"),
        ("a.log", "collective,size,gpus,time_s\n", "no column payload_bytes; it has collective, size"),
    ],
)
def test_a_csv_of_other_columns_says_what_it_has(
    cli: Any, tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    refused = cli("import", str(tmp_path / name), "--machine", "h200-sxm-ib")
    assert refused.code == 2 and f"{name}: {said}" in " ".join(refused.err.split())


@pytest.mark.parametrize(
    ("payload_bytes", "time_s", "gpus", "doubted"),
    [
        ([1024, 1024], [50e-9, 6000], [2, 2_000_000], []),  # a tenth of the least, ten times the most
        ([1024, 1024], [1e-3, 49e-9], [2, 2], ["time_s"]),
        ([1024, 1024], [1e-3, 6001], [2, 2_000_001], ["gpus", "time_s"]),
        ([2**20, 2**20], [1e-3, 11], [2, 2], ["rate_bytes_per_s"]),
        ([2**20, 2**20], [1e-3, 5e-8], [2, 2], ["rate_bytes_per_s"]),
        ([2**20 - 1, 1], [5e-8, 11], [2, 2], []),  # too small to tell a rate
        ([1024, 321e12], [1e-3, 600], [2, 2], ["payload_bytes"]),
    ],
)
def test_samples_beyond_ten_times_every_product_are_doubted(
    payload_bytes: list[float], time_s: list[float], gpus: list[float], doubted: list[str]
) -> None:
    arrays = (np.array(values, dtype=float) for values in (payload_bytes, time_s, gpus))
    assert sorted(find_doubts(*arrays)) == doubted
