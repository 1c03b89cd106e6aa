"""Calibrations and dense layers: numbers in files have ranges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfmodel.errors import BadInputError
from perfmodel.resources import data_path
from perfmodel.schema.calibration import read_calibration, shipped_calibration
from perfmodel.schema.priors import LEARNED, load_dense, load_priors, save_learned

NCCL = "h100-sxm-ib/nccl-2.29.2-stream"
KERNELS = {"values": {}, "fits": {}, "implementation": "torch", "clock": "eager"}


def calibration_with(folder: Path, **changes: Any) -> Path:
    """A shipped calibration in which the fields at these places (``curves__0__gpus``) have other values."""
    document = json.loads(shipped_calibration(NCCL).to_json())
    for place, value in changes.items():
        *outer, last = [int(word) if word.lstrip("-").isdigit() else word for word in place.split("__")]
        holder = document
        for word in outer:
            holder = holder[word]
        holder[last] = value
    path = folder / "mine.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("curves__0__anchor_times_s__-1", 1e20, "less than or equal to 100000"),
        ("curves__0__anchor_times_s__-1", 1e-12, "greater than or equal to 0.000000001"),
        ("curves__0__anchor_bytes__-1", 1e25, "less than or equal to 1000"),
        ("curves__0__anchor_times_s", [1e-5], "differ in length"),
        ("curves__0__gpus", 10**9, "less than or equal to 10000000"),
        ("curves__0__gpus", "16", "must be a valid integer"),
        ("curves__0__gpus", 16.5, "must be a valid integer"),
        ("curves__0__collective", "gather", "must match pattern '^(all_to_all|"),
        ("curves__0__beta_bytes_per_s", {"value": 1e25, "low": 1, "high": 1e26}, "value: must be less than"),
        ("curves__0__beta_bytes_per_s__high", 1e200, "high: must be less than"),
        ("curves__0__beta_bytes_per_s__low", 1e29, "does not hold its value"),
        ("laws__0__log_sd", [], "differ in length"),
        ("curves__0__anchor_log_sd", 1e5, "must be less than or equal to 30"),
        ("laws__0__log_sd__0", 1e6, "log_sd.0: must be less than or equal to 30"),
        ("laws__0__values__0", 1e20, "at most"),
        ("this_cluster", "yes", "this_cluster: must be a valid boolean"),
        ("complete", 1, "complete: must be a valid boolean"),
        ("sample_count", "21", "must be a valid integer"),
        ("handover_s", {"nap": {"value": 1, "low": 1, "high": 1}}, "must match pattern '^(all_to_all_"),
        ("schema_version", 1, "has schema_version 1; this program reads 2"),
        ("curves__1__gpus", 2, "2 curves of all_gather on 2 GPUs, 2 in a domain"),
        ("more_kernels", [KERNELS], "['torch'] are of other implementations"),
    ],
)
def test_a_calibration_holds_numbers_that_can_be(tmp_path: Path, field: str, value: Any, said: str) -> None:
    with pytest.raises(BadInputError) as refused:
        read_calibration(calibration_with(tmp_path, **{field: value}))
    assert said in refused.value.message, refused.value.message


def test_what_is_shipped_is_written_so_again(tmp_path: Path) -> None:
    shipped, learned = data_path("calibrations", f"{NCCL}.json"), data_path("priors", LEARNED)
    assert read_calibration(shipped).to_json() == shipped.read_text(encoding="utf-8")
    save_learned(dict(reversed(load_priors().learned.items())), tmp_path / LEARNED)
    assert (tmp_path / LEARNED).read_text(encoding="utf-8") == learned.read_text(encoding="utf-8")


def same(value: float) -> dict[str, float]:
    """An exact interval."""
    return dict.fromkeys(("value", "low", "high"), value)


@pytest.mark.parametrize(
    ("field", "most", "over"),
    [
        ("curves__0__alpha_s", same(1e5), same(1.01e5)),
        ("curves__0__p", same(100), same(101)),
        ("curves__0__anchor_bytes__1", 513, 512),
        ("curves__0__anchor_times_s__0", 5.38441e-06, 5.38442e-06),
        ("curves__0__left_out_log_sd", [], [0.1]),
        ("laws__0__values__0", 10.0, 10.1),  # launch_s
        ("laws__0__values__6", 1e15, 1.1e15),  # link_bytes_per_s
        ("laws__0__log_sd__0", 30, 31),
        ("laws__0__names__0", "floor_s", ["floor_s"]),
    ],
)
def test_what_is_just_inside_a_range_is_read(tmp_path: Path, field: str, most: Any, over: Any) -> None:
    assert read_calibration(calibration_with(tmp_path, **{field: most})).curves
    with pytest.raises(BadInputError):
        read_calibration(calibration_with(tmp_path, **{field: over}))


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("bottom", f"bottom = [13, {10**30}, 128]"),
        ("top", f"top = [{2**53 + 1}, 1]"),
        ("rank", f"rank = {10**30}"),
        ("layers", f"layers = {2**60}"),
    ],
)
def test_dense_layers_have_a_size(tmp_path: Path, field: str, line: str) -> None:
    rows = data_path("dense", "dlrm-dcnv2.toml").read_text().splitlines()
    path = tmp_path / "mine.toml"
    path.write_text("\n".join(line if row.startswith(field) else row for row in rows))
    with pytest.raises(BadInputError, match=field):
        load_dense(str(path))
