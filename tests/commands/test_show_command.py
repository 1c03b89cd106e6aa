"""``perfmodel show`` and ``perfmodel validate``: lists, a calibration, verdicts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_calls import WIDTH, is_an_error

from perfmodel.cli import validate as cli_validate
from perfmodel.errors import BadInputError
from perfmodel.report.validation_text import verdicts_text
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import load_machine
from perfmodel.validate import Outcome, Verdict


def test_machines_and_models_list_what_is_shipped(cli: Any) -> None:
    listed = json.loads(cli("show", "machines", "--json").out)
    assert listed["schema_version"] == 4
    names = [machine["name"] for machine in listed["machines"]]
    assert "h100-sxm-ib" in names
    text = cli("show", "machines").out
    assert all(name in text for name in names)
    one = cli("show", "machines", "h100-sxm-ib").out
    assert "nic_bytes_per_s" in one and "datasheet" in one and cli("show", "h100-sxm-ib").out == one
    assert "mlperf-dlrm-dcnv2" in cli("show", "models").out
    twofeat = str(Path(__file__).parents[1] / "schema" / "foreign_tables" / "twofeat.yaml")
    assert cli("show", twofeat).out == cli("show", "models", twofeat).out
    assert re.search(r"features\n shared .* 2$", cli("show", twofeat).out, re.MULTILINE)
    full = json.loads(cli("show", "models", "mlperf-dlrm-dcnv2", "--json").out)
    assert len(full["models"][0]["table_list"]) == full["models"][0]["tables"] == 26


SHIPPED = "h100-sxm-ib/nccl-2.29.2-stream"


def test_calibrations_and_show(cli: Any) -> None:
    assert SHIPPED in cli("show", "calibrations").out
    listed = json.loads(cli("show", "calibrations", "h200-sxm-ib", "--json").out)["calibrations"]
    assert {item["machine"] for item in listed} == {"h200-sxm-ib"}
    for name in ("calibrations", SHIPPED):
        outcome = cli("show", name)
        assert outcome.code == 0 and max(len(line) for line in outcome.out.splitlines()) <= WIDTH, name
    assert "t = (α^p" in cli("show", SHIPPED).out


def test_show_refuses_what_is_no_calibration(cli: Any, tmp_path: Path) -> None:
    from perfmodel.resources import data_path

    good = data_path("calibrations", SHIPPED + ".json").read_text(encoding="utf-8")
    path = tmp_path / "c.json"
    for text, part in (
        (good[: len(good) // 2], "not valid JSON"),
        (good.replace('"schema_version": 2', '"schema_version": 99'), "schema_version 99"),
        ("{}", "it has no calibration_id"),
        ('{"schema_version": 2, "calibration_id": "a/b"}', "is missing"),
    ):
        path.write_text(text, encoding="utf-8")
        is_an_error(cli("show", str(path)), 2, part)


@pytest.mark.parametrize("regression", [False, True])
def test_validate_prints_verdicts_and_exits_6_outside_a_band(
    cli: Any, monkeypatch: pytest.MonkeyPatch, regression: bool
) -> None:
    verdict = Outcome.FAILS if regression else Outcome.HOLDS
    made = Verdict("size", "a claim", "2", "3", "1 to 2", verdict, "because", regression)
    monkeypatch.setattr(cli_validate, "judge", lambda **_: [made])
    plain, document = cli("validate"), cli("validate", "--json")
    assert plain.code == document.code == 6 * regression
    assert json.loads(document.out)["outside"] == ["size"] * regression
    if regression:
        assert json.loads(document.err)["error"]["what"] == "1 band left: size."
        assert "! size: fails" in plain.out
    else:
        assert plain.out == (
            "1 band: 1 holds, 0 fail, 0 cannot say\n\nsize: holds\n   a claim\n"
            "   expected  2\n   band      1.00 to 2.00\n   got       3\n   why       because\n"
        )
        same = verdicts_text([replace(made, expected="1 to 2", verdict=Outcome.COMPARED)] * 2, "claims")
        assert same.startswith("0 claims: 0 hold, 0 fail, 0 cannot say; 2 comparisons, not judged")
        assert "expected" not in same


def test_a_close_name_is_suggested_and_a_far_one_is_not() -> None:
    known = ["h100-sxm-ib", "l40s-pcie", "nccl"]
    for text, meant in (
        ("H100-SXM-IB", "h100-sxm-ib"),
        ("h100", "h100-sxm-ib"),
        ("ncl", "nccl"),
        ("NCCL", "nccl"),
    ):
        assert f"did you mean {meant}?" in unknown_name("name", text, known).next_step
    for text in ("mpi", "tpu-v5", "", "x"):
        assert "did you mean" not in unknown_name("name", text, known).next_step
    with pytest.raises(BadInputError, match="did you mean latest"):
        load_calibration("latset")
    with pytest.raises(BadInputError, match="did you mean h100-sxm-ib or h100-paper"):
        load_machine("h100")
