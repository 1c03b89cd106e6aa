"""Numbers in files have ranges: a value that nothing can have is refused with its field, and never a bug."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfmodel.errors import BadInputError
from perfmodel.resources import data_path
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.priors import load_dense

HUGE = 10**30
SHIPPED = data_path("calibrations", "h200-sxm-ib")


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("bottom", f"bottom = [13, {HUGE}, 128]"),
        ("top", f"top = [{2**53 + 1}, 1]"),
        ("rank", f"rank = {HUGE}"),
        ("layers", f"layers = {2**60}"),
    ],
)
def test_dense_layers_have_a_size(tmp_path: Path, field: str, line: str) -> None:
    text = data_path("dense", "dlrm-dcnv2.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(
        "".join(f"{line}\n" if row.startswith(field) else row for row in text.splitlines(keepends=True))
    )
    with pytest.raises(BadInputError, match=field):
        load_dense(str(path))


def test_a_calibration_with_absurd_numbers_is_refused(tmp_path: Path) -> None:
    source = next(iter(sorted(SHIPPED.glob("nccl*.json"))))
    path = tmp_path / "mine.json"
    document = json.loads(source.read_text())
    path.write_text(json.dumps(document))
    load_calibration(str(path))
    log_sd = document["laws"][0]["log_sd"]
    before, log_sd[0] = log_sd[0], 1e6
    path.write_text(json.dumps(document))
    with pytest.raises(BadInputError, match="log_sd"):
        load_calibration(str(path))
    log_sd[0] = before
    document["curves"][0]["beta_bytes_per_s"]["high"] = 1e200
    path.write_text(json.dumps(document))
    with pytest.raises(BadInputError, match="high"):
        load_calibration(str(path))
