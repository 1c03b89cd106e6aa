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
