"""Rows that a file or a log marks as doubtful are kept with their flag, and no fit sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibrate.importers import import_logs

HEAD = "backend,library_version,gpu,collective,payload_bytes,gpus,gpus_per_node,time_s,flag\n"
SIZES = tuple(2**k for k in range(10, 31))


def write_flagged(path: Path, flag: str, slower: float = 30.0) -> Path:
    """A CSV of an all-gather on 8 GPUs: good rows, and flagged rows of ``slower`` times their time."""
    rows = []
    for size in SIZES:
        time_s = (10.0 + size / 400e3) * 1e-6
        rows.append(f"nccl,2.29.7,NVIDIA H200,all_gather,{size},8,8,{time_s:.9g},ok\n")
        rows.append(f"nccl,2.29.7,NVIDIA H200,all_gather,{size},8,8,{slower * time_s:.9g},{flag}\n")
    path.write_text(HEAD + "".join(rows))
    return path


@pytest.mark.parametrize("flag", ["outlier", "single-process", "noisy", "overlapped", "small"])
def test_a_flagged_row_is_kept_with_its_flag_and_fitted_by_nothing(
    cli: Any, tmp_path: Path, flag: str
) -> None:
    log = write_flagged(tmp_path / "mixed.csv", flag)
    frame = import_logs([log]).samples
    assert list(frame.flag) == ["ok", flag] * len(SIZES)

    clean = tmp_path / "clean" / "mixed.csv"
    clean.parent.mkdir()
    clean.write_text(
        "".join(row for row in log.read_text().splitlines(keepends=True) if f",{flag}\n" not in row)
    )
    laws = []
    for path in (log, clean):
        out = path.with_suffix(".json")
        status, _text, errors = cli("import", str(path), "--machine", "h200-sxm-ib", "--out", str(out))
        assert status == 0, errors
        assert (f"{len(SIZES)} rows marked '{flag}'" in errors) == (path == log)
        laws.append({key: json.loads(out.read_text())[key] for key in ("curves", "laws", "sample_count")})
    assert laws[0] == laws[1]

    again = import_logs([tmp_path / "mixed.samples.csv"]).samples
    assert sorted(again.flag) == sorted(frame.flag)


def test_a_file_of_flagged_rows_alone_says_so(cli: Any, tmp_path: Path) -> None:
    log = write_flagged(tmp_path / "all.csv", "outlier")
    log.write_text(
        "".join(row for row in log.read_text().splitlines(keepends=True) if not row.endswith(",ok\n"))
    )
    status, _text, errors = cli("import", str(log), "--machine", "h200-sxm-ib")
    assert status == 2
    assert "21 rows marked 'outlier'" in errors


def test_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "twice.csv"
    log.write_text(
        "collective,payload_bytes,gpus,gpus_per_node,time_s,time_s\nall_gather,1024,8,8,1e-5,2e-5\n"
    )
    with pytest.raises(Exception, match="column time_s stands twice"):
        import_logs([log])


def test_nodes_are_part_of_the_cell_of_a_row(tmp_path: Path) -> None:
    """16 GPUs on 2 nodes and 16 GPUs on 4 nodes are two cells, also without ``gpus_per_node``."""
    log = tmp_path / "nodes.csv"
    log.write_text(
        "collective,payload_bytes,gpus,nodes,time_s\nall_gather,1024,16,2,1e-5\nall_gather,1024,16,4,2e-5\n"
        "all_gather,2048,16,2,1.1e-5\n"
    )
    frame = import_logs([log]).samples
    assert list(frame.nodes) == [2, 4, 2]
    assert list(frame.gpus_per_node) == [8, 4, 8]
