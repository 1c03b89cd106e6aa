"""What a physical value may be: absurd ones are refused, those far from anything sold are asked about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import called, is_an_error

from perfmodel.errors import BadInputError
from perfmodel.resources import data_path
from perfmodel.schema.calibration import list_calibrations, read_calibration, shipped_calibration
from perfmodel.schema.fields import FAR, limits_of
from perfmodel.schema.machine import KEYS, list_machines, load_machine, read_machine

ASKED = ("project", "--table-size", "10TB")


@pytest.mark.parametrize("group", ["machine", "sample"])
def test_ranges_hold_what_is_sold_and_have_two_sources(group: Any) -> None:
    for key, limit in limits_of(group).items():
        assert 0 < limit.least <= limit.sold_least <= limit.sold_most <= limit.most, key
        assert limit.source.count("; ") == 1, f"{key}: one source for either end"
        assert limit.refusal(limit.least) == limit.refusal(limit.most) == "", key
        assert limit.refusal(limit.least / 1.01) and limit.refusal(limit.most * 1.01), key
        assert limit.refusal(float("nan")) and limit.refusal(float("inf")), key
        for value in (limit.sold_least / FAR, limit.sold_most * FAR, limit.sold_least, limit.sold_most):
            assert limit.doubt(value) == "", key
        assert "is less than a tenth" in limit.doubt(limit.sold_least / FAR / 1.01), key
        assert "is more than ten times" in limit.doubt(limit.sold_most * FAR * 1.01), key


def test_every_machine_value_has_a_limit_and_every_shipped_machine_is_sold() -> None:
    assert set(limits_of("machine")) == set(KEYS)
    for name in list_machines():
        machine = load_machine(name)
        assert machine.doubts() == {}
        for key, quantity in machine.values.items():
            limit, value = limits_of("machine")[key], quantity.value
            sold = value == 0 or limit.sold_least <= value <= limit.sold_most
            assert sold or (machine.hypothetical and key == "nvlink_domain_gpus"), (name, key)
    assert all(shipped_calibration(name).doubts() == {} for name in list_calibrations())


def machine_file(folder: Path, key: str, value: str, accepted: str = "") -> Path:
    """The shipped H100 machine with another value, and what it accepts."""
    text = data_path("machines", "h100-sxm-ib.toml").read_text(encoding="utf-8")
    head, _, tail = text.partition(f"[values.{key}]\n")
    rest = tail.partition("\n")[2]
    path = folder / "mine.toml"
    path.write_text(f"{accepted}\n{head}[values.{key}]\nvalue = {value}\n{rest}", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gather_bytes_per_s", "1e-3"),
        ("hbm_bytes_per_s", "6.4e60"),
        ("nvlink_domain_gpus", "4e300"),
        ("hbm_bytes", "1e30"),
        ("launch_floor_s", "1e9"),
        ("nic_bytes_per_s", "1e-300"),
        ("gpus_per_node", "1e9"),
        ("row_access_bytes", "1e6"),
        ("bucketize_floor_s", "1e-18"),
    ],
)
def test_an_absurd_machine_value_is_refused(tmp_path: Path, key: str, value: str) -> None:
    path = machine_file(tmp_path, key, value, f'accepted = ["{key}"]')
    with pytest.raises(BadInputError, match=rf"values\.{key}\.value: must be from .* to .*, not "):
        read_machine(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("hbm_bytes_per_s", "1e14"), ("nic_bytes_per_s", "1e6"), ("gather_bytes_per_s", "1e6")],
)
def test_a_value_far_from_anything_sold_is_asked_about(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(BadInputError, match=f"mine.toml: {key}: .* any product's value") as asked:
        read_machine(machine_file(tmp_path, key, value))
    step = asked.value.next_step
    assert f'accepted = ["{key}"]' in step
    taken = read_machine(machine_file(tmp_path, key, value, step.partition("write ")[2]))
    assert taken.value(key) == float(value) and taken.accepted == (key,)
    with pytest.raises(BadInputError, match="accepted: hbm: not a machine value"):
        read_machine(machine_file(tmp_path, key, value, 'accepted = ["hbm"]'))


def test_a_what_if_far_from_anything_sold_needs_a_word_more() -> None:
    far = ("--set", "nic_bytes_per_s=2TB/s")
    said = "--set nic_bytes_per_s: 2 TB/s is more than ten times any product's value"
    is_an_error(called(*ASKED, *far), 2, said, "--set accepted=nic_bytes_per_s")
    taken = called(*ASKED, *far, "--set", "accepted=nic_bytes_per_s")
    assert taken.code == 0, taken.err
    absurd = called(*ASKED, "--set", "nic_bytes_per_s=1e30B/s", "--set", "accepted=nic_bytes_per_s")
    is_an_error(absurd, 2, "must be from 1 kB/s to 100 TB/s")
    is_an_error(called(*ASKED, "--set", "accepted=nic_bytes_per_s"), 2, "nic_bytes_per_s is not set")
    near = called(*ASKED, "--set", "nic_bytes_per_s=900GB/s")
    assert near.code == 0


def calibration_with(folder: Path, **changes: Any) -> Path:
    """A shipped calibration whose first curve, or itself, has other values."""
    item = json.loads(shipped_calibration("h100-sxm-ib/nccl-2.29.2-stream").to_json())
    curve = item["curves"][0]
    for name, value in changes.items():
        owner = curve if name in curve else item
        if isinstance(owner.get(name), dict):
            owner[name]["value"] = owner[name]["high"] = value
        elif isinstance(owner.get(name), list) and name != "accepted":
            owner[name][-1] = value
        else:
            owner[name] = value
    path = folder / "mine.json"
    path.write_text(json.dumps(item), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("anchor_times_s", 1e20, "must be at most 100 000"),
        ("anchor_times_s", 1e-12, "must be at least 1e-09"),
        ("anchor_bytes", 1e25, "must be at most 1 000"),
        ("gpus", 10**9, "must be at most 10 000 000"),
        ("gpus", "16", "must be a whole number"),
        ("gpus", 16.5, "must be a whole number"),
        ("this_cluster", "yes", "this_cluster: must be true or false"),
        ("complete", 1, "complete: must be true or false"),
        ("alpha_s", 1e20, "alpha_s: value: at most 100000"),
        ("beta_bytes_per_s", 1e25, "beta_bytes_per_s: value: at most 1e"),
        ("anchor_log_sd", 1e5, "must be at most 30"),
        ("sample_count", "21", "must be a whole number"),
    ],
)
def test_a_calibration_holds_numbers_that_can_be(tmp_path: Path, field: str, value: Any, said: str) -> None:
    with pytest.raises(BadInputError) as refused:
        read_calibration(calibration_with(tmp_path, **{field: value}))
    assert said in refused.value.message, refused.value.message


def test_a_calibration_far_from_anything_sold_is_asked_about(tmp_path: Path) -> None:
    """Its slowest anchor takes two hours."""
    path = calibration_with(tmp_path, anchor_times_s=7200.0)
    with pytest.raises(
        BadInputError, match="time_s: 7200 s is more than ten times any product's value"
    ) as asked:
        read_calibration(path)
    assert '"accepted": ["time_s"' in asked.value.next_step
    names = json.loads(asked.value.next_step.partition('"accepted": ')[2].rstrip("."))
    assert (
        read_calibration(calibration_with(tmp_path, anchor_times_s=7200.0, accepted=names)).accepted == names
    )
    with pytest.raises(BadInputError, match="unknown limit"):
        read_calibration(calibration_with(tmp_path, accepted=["time"]))
