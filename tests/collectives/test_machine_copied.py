"""A copied machine file that keeps a shipped name: its values count, and it is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cli_calls import Outcome

from perfmodel import resources
from perfmodel.answer import project_one
from perfmodel.collectives.estimate import predict_collectives
from perfmodel.schema.machine import beside_shipped, load_machine

NAME = "h100-sxm-ib"
SET = {"nic_bytes_per_s": 100e9, "hbm_bytes_per_s": 4.8e12}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The shipped file with a faster card and memory."""
    text = resources.data_path("machines", f"{NAME}.toml").read_text(encoding="utf-8")
    for key, value in SET.items():
        text, count = re.subn(rf"(\[values.{key}\]\nvalue = )\S+", rf"\g<1>{value}", text)
        assert count == 1
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_copy_is_answered_as_the_same_what_if(copied: Path) -> None:
    own = project_one(table_bytes=1e12, batch=8192, machine=str(copied))
    what_if = project_one(table_bytes=1e12, batch=8192, machine=NAME, overrides=SET)
    shipped = project_one(table_bytes=1e12, batch=8192, machine=NAME)
    assert own.time_s == what_if.time_s < shipped.time_s
    (said,) = [note for note in own.notes if "machine file" in note]
    assert "nic_bytes_per_s 100 GB/s and not 50 GB/s" in said and "rescaled" in said
    assert own.question is not None and "--set" not in own.question.list_arguments(str(copied))
    loaded = project_one(table_bytes=1e12, batch=8192, machine=load_machine(str(copied)))
    assert loaded.time_s == own.time_s


def test_more_what_ifs_come_on_top(copied: Path) -> None:
    own = project_one(table_bytes=1e12, machine=str(copied), overrides={"nvlink_bytes_per_s": 900e9})
    both = project_one(table_bytes=1e12, machine=NAME, overrides={**SET, "nvlink_bytes_per_s": 900e9})
    assert own.time_s == both.time_s
    assert own.question is not None
    assert own.question.list_arguments(str(copied))[-2:] == ["--set", "nvlink_bytes_per_s=900GB/s"]


def test_collectives_follow_the_copied_file(copied: Path, cli: Any) -> None:
    frame = pd.DataFrame({"collective": ["all_to_all"], "payload_bytes": [2**30], "gpus": [16]})
    own, shipped = (predict_collectives(frame, machine=name)["time_s"][0] for name in (str(copied), NAME))
    assert own < 0.6 * shipped
    words = ("collective", "--op", "all_to_all", "--size", "1GiB", "--gpus", "16", "--json")
    done: Outcome = cli(*words, "--machine", str(copied))
    assert f'"time_s": {own}' in done.out and "rescaled" in done.err


def test_an_unchanged_copy_and_another_name_are_as_before(tmp_path: Path) -> None:
    text = resources.data_path("machines", f"{NAME}.toml").read_text(encoding="utf-8")
    same, other = tmp_path / "same.toml", tmp_path / "other.toml"
    same.write_text(text, encoding="utf-8")
    other.write_text(
        text.replace(f'name = "{NAME}"', 'name = "mine"').replace("50e9", "100e9"), encoding="utf-8"
    )
    for path in (same, other):
        machine = load_machine(str(path))
        assert beside_shipped(machine) is machine
    found = project_one(table_bytes=1e12, machine=str(same))
    assert found.time_s == project_one(table_bytes=1e12, machine=NAME).time_s
    assert not any("machine file" in note for note in found.notes)


def test_an_own_calibration_was_measured_on_the_file_as_it_is(copied: Path, cli: Any, tmp_path: Path) -> None:
    """Samples of the very machine of the file are not rescaled from the shipped values."""
    log, out = tmp_path / "a2a.csv", tmp_path / "mine.json"
    rows = "\n".join(
        f"all_to_all,{gpus},{size},{20e-6 + size / 80e9}"
        for gpus in (2, 8, 16)
        for size in (2**16, 2**20, 2**24, 2**28)
    )
    log.write_text(f"collective,gpus,payload_bytes,time_s\n{rows}\n", encoding="utf-8")
    made = cli("import", str(log), "--machine", str(copied), "--set", "gpus_per_node=8", "--out", str(out))
    if made.code:
        pytest.fail(made.err)
    words = ("collective", "--op", "all_to_all", "--size", "256MiB", "--gpus", "16", "--json")
    done = cli(*words, "--machine", str(copied), "--calibration", str(out))
    assert done.code == 0 and "rescaled" not in done.err
    (time,) = re.findall(r'^ *"time_s": (\S+?),$', done.out, re.MULTILINE)[:1]
    assert float(time) == pytest.approx(20e-6 + 2**28 / 80e9, rel=0.02)
