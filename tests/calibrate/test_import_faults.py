"""``import`` of logs that cannot be believed: each is refused or doubted in words, none ends as a bug."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_calls import called
from oracles.made_logs import line, new_log, write

from calibrate.importers import import_logs
from perfmodel.schema.calibration import read_calibration

LOGS = Path(__file__).parent / "fault_logs"
H200 = ("--machine", "h200-sxm-ib")
ROWS = [line(2**k, 10.0 + 2**k / 350e3) for k in range(10, 27)]
"""Times of an H200 node: 10 us, and 350 GB/s."""


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("infinite_time.csv", H200, "the time is not a finite number"),
        (
            "bus_above_algorithm.log",
            (*H200, "--op", "all_gather", "--gpus", "8", "--set", "gpus_per_node=8"),
            "busbw/algbw is 1.13",
        ),
        ("huge_times.csv", H200, "the time must be from 1.00 ns to 100 000 s, not 1e+300 s"),
        ("short_time.csv", ("--machine", "a100-sxm-ib"), "the time must be from 1.00 ns"),
        ("short_time_of_large.csv", ("--machine", "a100-sxm-ib"), "the time must be from 1.00 ns"),
    ],
)
def test_a_log_that_ended_as_a_bug(name: str, options: tuple[str, ...], said: str) -> None:
    found = called("import", str(LOGS / name), *options)
    assert found.code == 0, found.err
    assert said in " ".join(found.err.split())
    assert "RuntimeWarning" not in found.err


def test_samples_that_no_law_fits_are_refused_in_words(tmp_path: Path) -> None:
    rows = "".join(f"all_to_all,{2**k},8,8,{1e4 * 1.2**k}\n" for k in range(1, 10))
    log = write(tmp_path, "slow.csv", "collective,payload_bytes,gpus,gpus_per_node,time_s\n" + rows)
    refused = called("import", str(log), *H200)
    assert refused.code == 2 and "no curve or law fits these samples" in refused.err
    assert "pydantic" not in refused.err and "errors.pydantic.dev" not in refused.err


def test_a_rate_that_nothing_sold_has_is_doubted(tmp_path: Path) -> None:
    """1 GiB in 10 us is 107 TB/s: sixty times the fastest links."""
    rows = [f"all_gather,{2**k},8,8,{1e-5}\n" for k in range(20, 31)]
    log = write(tmp_path, "fast.csv", "collective,payload_bytes,gpus,gpus_per_node,time_s\n" + "".join(rows))
    out = tmp_path / "fast.json"
    taken = called("import", str(log), *H200, "--out", str(out))
    words = " ".join(taken.err.split())
    assert taken.code == 0 and "107 TB/s is more than ten times any product's value" in words
    assert read_calibration(out).sample_count == 11


def test_a_cut_log_is_no_complete_calibration(tmp_path: Path) -> None:
    whole = new_log(ROWS)
    cut = whole[: whole.index("# Out of bounds")]
    assert import_logs([write(tmp_path, "whole.log", whole)]).cut == []
    found = import_logs([write(tmp_path, "cut.log", cut)])
    assert found.cut == ["cut.log"]
    assert any("cut before the end of the run" in text for text in found.warnings)
    in_a_row = whole[: whole.index(ROWS[-1]) + 60] + "\n"
    assert import_logs([write(tmp_path, "row.log", in_a_row)]).cut == ["row.log"]
    shown = called("import", str(tmp_path / "cut.log"), *H200)
    assert ", partial" in shown.out and ", complete" not in shown.out


def test_escapes_of_a_log_reach_nothing() -> None:
    found = called("import", str(LOGS / "escapes.log"), *H200)
    assert found.code == 2 and "the ranks run on different GPUs" in found.err
    assert "\x1b" not in found.err + found.out
