"""What an hour of a service takes, by hand: machines, machine-hours, money; and who asks for it how."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.errors import BadInputError
from perfmodel.model.serving_cost import copies_in_machine, machines_in_use, of_requests
from perfmodel.schema.prices import read_prices

PRICES = """[machine_hour]
h100-sxm-ib = "80 EUR/h"
[tb_month]
ssd = "73 EUR/TB/month"
"""
LINE = (
    *("--p99", "10ms", "--requests", "10000", "--batch", "64", "--wait", "0s"),
    *("--no-overlap", "--no-stragglers", "--sharding", "row-wise"),
)
IN_HBM = ("--table-size", "10TB", "--qps", "500k", *LINE)


@pytest.fixture
def prices(tmp_path: Path) -> str:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES, encoding="utf-8")
    return str(path)


def test_limits_of_the_equations() -> None:
    assert machines_in_use(2, 16, 8, True) == machines_in_use(2, 16, 8, False) == 4
    assert (machines_in_use(10, 1, 8, True), machines_in_use(10, 1, 8, False)) == (10, 2)
    assert (copies_in_machine(3, 8, False), machines_in_use(5, 3, 8, False)) == (2, 3)  # 2 GPUs stay idle
    assert (copies_in_machine(1, 8, True), copies_in_machine(12, 8, False)) == (1, 1)
    assert machines_in_use(2, 12, 8, False) == 4
    assert of_requests(5.0, 1e9 / 3600, 1e9) == pytest.approx(5.0)


def test_a_service_in_hbm_pays_its_gpus(cli: Any, prices: str) -> None:
    """152 GPUs are 19 machines of 8: 1520 EUR per hour, and 10⁹ requests take 2000 s."""
    found = json.loads(cli("load", *IN_HBM, "--prices", prices, "--json").out)["cost"]
    assert (found["machines"], found["whole_machines"], found["currency"]) == (19, False, "EUR")
    assert found["per_hour"] == pytest.approx(19 * 80)
    assert found["per_1e9_requests"] == pytest.approx(19 * 80 * 2000 / 3600)
    assert found["machine_hours_per_1e9_requests"] == pytest.approx(19 * 2000 / 3600)
    text = " ".join(cli("load", *IN_HBM, "--prices", prices).out.split())
    assert "19 nodes of 8 GPUs (h100-sxm-ib); 10.6 machine-hours per 10⁹ requests" in text
    assert "1520 EUR per hour; 844 EUR per 10⁹ requests at this load" in text


def test_a_node_of_which_a_service_uses_a_part_is_paid_whole(cli: Any, prices: str) -> None:
    """3 replicas of 1 GPU: 3 of 8 GPUs work, and the node is paid."""
    line = ("--table-size", "10GB", "--replicas", "3", *LINE, "--prices", prices)
    found = json.loads(cli("load", *line, "--json").out)["cost"]
    assert (found["machines"], found["per_hour"]) == (1, pytest.approx(80))
    text = " ".join(cli("load", *line).out.split())
    assert "1 node of 8 GPUs (h100-sxm-ib), 3 of whose 8 GPUs are in use" in text


def test_a_replica_pays_the_nodes_whose_ssds_it_has_to_itself(cli: Any, prices: str, tmp_path: Path) -> None:
    """A replica of 1 GPU takes a node of 8, and 10 TB of SSDs at 0.1 EUR per TB and hour."""
    line = ("--table-size", "10TB", "--replicas", "3", "--tier", "ssd", *LINE, "--prices", prices)
    page = tmp_path / "load.html"
    found = json.loads(cli("load", *line, "--json", "--report", str(page)).out)
    assert (found["gpus"], found["cost"]["machines"], found["cost"]["whole_machines"]) == (3, 3, True)
    assert found["cost"]["per_hour"] == pytest.approx(3 * (80 + 10 * 0.1))
    text = " ".join(cli("load", *line).out.split())
    assert "3 nodes of 8 GPUs (h100-sxm-ib), 1 for each replica: a replica has" in text
    assert "243 EUR per hour, 3.00 of it for the memory or the SSDs" in text
    html = page.read_text(encoding="utf-8")
    assert "3 nodes of 8 GPUs" in html and "243 EUR per hour" in html


def test_a_missing_price_is_named_and_a_slip_refused(cli: Any, prices: str, tmp_path: Path) -> None:
    gh200 = ("--machine", "gh200-slingshot", "--table-size", "1TB", *LINE)
    text = " ".join(cli("load", *gh200, "--prices", prices).out.split())
    assert "the file has no price: machine_hour.gh200-slingshot" in text and "EUR" not in text
    slip = tmp_path / "slip.toml"
    slip.write_text('[machine_hour]\nh100-sxm-lb = "80 EUR/h"\n', encoding="utf-8")
    done = cli("load", *IN_HBM, "--prices", str(slip))
    assert done.code == 2 and "h100-sxm-ib" in done.err


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


@pytest.mark.parametrize(
    "more", [(), ("--tier", "uvm"), ("--remote-memory", "1TB@3TB/s,shared:16,latency:3us")]
)
def test_what_is_typed_for_a_step_gives_its_number(cli: Any, more: tuple[str, ...]) -> None:
    line = ("explain", "load", "--table-size", "1TB", "--qps", "50k", *LINE, *more)
    steps = {
        step["name"].replace("_", "-"): step["full_s"]
        for step in json.loads(cli(*line, "--json").out)["steps"]
    }
    text = cli(*line).out.replace("\\\n", " ")
    typed = [shlex.split(each) for each in text.splitlines() if each.strip().startswith("perfmodel explain ")]
    assert [words[2] for words in typed] == list(steps)
    for words in typed:
        step = json.loads(cli(*words[1:], "--json").out)["step"]
        assert np.isclose(step["time_s"], steps[words[2]], rtol=1e-9), words


def test_costs_are_explained_with_the_printed_numbers(cli: Any, prices: str) -> None:
    line = (*IN_HBM, "--prices", prices, "--json")
    printed = json.loads(cli("load", *line).out)["cost"]
    found = {each["key"]: each for each in json.loads(cli("explain", "load", *line).out)["numbers"]}
    for key in ("machines", "machine_hours_per_1e9_requests", "per_hour", "per_1e9_requests"):
        assert found[f"cost.{key}"]["value"] == printed[key]
    assert "19.0 machines × 80.0 EUR = 1520 EUR" in found["cost.per_hour"]["working"]


def test_a_limit_that_may_not_hold_says_who_and_what_to_do(cli: Any) -> None:
    line = ("--table-size", "10TB", "--qps", "500k", *LINE, "--host", "eager", "--p99", "2ms")
    text = " ".join(cli("load", *line).out.split())
    assert text.startswith("Cannot tell how many GPUs 500 k requests/s within 2.00 ms (p99) take: 152 or ")
    assert "The limit of 2.00 ms may not be kept at any load" in text and "Ask for a longer --p99" in text
    assert "slowest: what the slowest rank of each collective adds" in text
    assert "no limit: what it serves if requests may wait" in text


def test_rows_of_the_shorter_simulation_say_so_and_the_band_of_one_replica_is_a_load(cli: Any) -> None:
    line = ("--table-size", "10TB", "--p99", "10ms", "--requests", "10000", "--no-stragglers")
    line += ("--sharding", "row-wise")
    screen = cli("load", *line, "--qps", "500G").out
    rows = screen.split(" batch/GPU ")[1].split("Steps:")[0].splitlines()[1:]
    rough = [row for row in rows if row.strip() and "chosen" not in row]
    assert rough and all(row.count("~") == 2 for row in rough)
    assert all("~" not in row for row in rows if "chosen" in row)
    text = " ".join(screen.split())
    assert "not confirmed; only the chosen row is confirmed by the longer one" in text
    assert "what needs the fewest GPUs" in text
    given = " ".join(cli("load", *line, "--qps", "500M", "--replicas", "1").out.split())
    assert re.search(r"band [\d.]+ [MG] – [\d.]+ G requests/s carried", given), given


def test_one_gpu_is_not_each_of_one(cli: Any) -> None:
    text = cli("explain", "gather", "--table-size", "10GB", "--gpus", "1").out
    assert "on 1 GPU of" in text and "1 GPUs" not in text
