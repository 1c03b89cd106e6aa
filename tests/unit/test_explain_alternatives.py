"""``explain alternatives``: every number of the comparison has its equation, with the same value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfmodel.errors import BadInputError
from perfmodel.plan.other_ways import winner_map as maps
from perfmodel.plan.other_ways.one_alternative import Alternative
from perfmodel.schema.prices import read_prices

LINE = ("alternatives", "--table-size", "10TB", "--alpha", "1.2")
PRICES = """[machine_hour]
h100-sxm-ib = "80 EUR/h"
[tb_month]
memory = "3000 EUR/TB/month"
ssd = "60 EUR/TB/month"
"""


def test_each_number_is_the_printed_one(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "SKEWS", ("zipf:1.2",))
    monkeypatch.setattr(maps, "SIZE_FACTORS", (10.0,))
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    words = (*LINE, "--prices", str(path), "--json")
    document, explained = json.loads(cli(*words).out), json.loads(cli("explain", *words).out)
    numbers = explained["numbers"]
    rows = {each["name"]: each for each in document["alternatives"]}
    seen = set()
    for each in numbers:
        name, *keys = each["key"].split(".")
        value: Any = rows.get(name)
        for key in keys if value else ():
            value = value[key]
        if value is not None:
            assert each["value"] == value, each["key"]
            seen.add(each["key"])
    for name, row in rows.items():
        assert {f"{name}.samples_per_s", f"{name}.gpu_hours", f"{name}.machine_hours"} <= seen
        for key in ("cost", "energy_kwh_at_most", "least_bytes_per_s", "needed"):
            known = row[key] is not None
            assert known == any(each.startswith(f"{name}.{key}") for each in seen), (name, key)
    crossings = [each for each in numbers if each["key"] == "crossings.batch"]
    assert [each["value"] for each in crossings] == [each["batch"] for each in document["crossings"]] != []
    for each in document["crossings"]:
        (a, b), (a2, b2) = each["lines"]
        assert (a2 - a) / (b - b2) == pytest.approx(each["batch"], rel=5e-3)


def test_the_screen_and_what_cannot_be_asked(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "SKEWS", ())
    outcome = cli("explain", *LINE)
    assert outcome.code == 0 and max(map(len, outcome.out.splitlines())) <= 100
    assert "N t n / (3600 S)" in outcome.out and "serving_cost.speedup_to_match" in outcome.out
    refused = cli("explain", *LINE, "--tier", "uvm")
    assert refused.code == 2 and "--tier says nothing about alternatives" in refused.err
    assert cli("explain", "alternatives").code == 2


def test_machines_of_unknown_power_have_no_energy(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "SKEWS", ("zipf:1.2",))
    monkeypatch.setattr(maps, "SIZE_FACTORS", (1.0,))
    monkeypatch.setattr(Alternative, "energy_kwh", None)
    keys = [each["key"] for each in json.loads(cli("explain", *LINE, "--json").out)["numbers"]]
    assert any(key.endswith("gpu_hours") for key in keys)
    assert not any("energy" in key for key in keys)


def test_a_machine_of_ones_own_has_a_price_by_its_name(cli: Any, tmp_path: Path) -> None:
    box = tmp_path / "mine.toml"
    text = cli("machines", "h100-sxm-ib", "--toml").out
    box.write_text(text.replace('"h100-sxm-ib"', '"acme-x1"', 1), encoding="utf-8")
    path = tmp_path / "prices.toml"
    path.write_text('[machine_hour]\nacme-x1 = "8 EUR/h"\n', encoding="utf-8")
    asked = ("alternatives", "--table-size", "10GB", "--no-map", "--prices", str(path))
    found = json.loads(cli(*asked, "--machine", str(box), "--json").out)["alternatives"][0]
    assert found["copies"] == 8 and found["cost"] == pytest.approx(found["gpu_hours"])
    assert cli(*asked).code == 2  # nobody asks about it: a slip of the pen
    path.write_text('[machine_hour]\nacme-x2 = "8 EUR/h"\n', encoding="utf-8")
    done = cli(*asked, "--machine", str(box))
    assert done.code == 2 and "acme-x2" in done.err and "acme-x1" in done.err
    with pytest.raises(BadInputError, match="acme-x2"):
        read_prices(path, "acme-x1")
