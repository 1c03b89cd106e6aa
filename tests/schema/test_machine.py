"""Machines: what is shipped and its sources, overrides, limits of values, and files that are wrong."""

from __future__ import annotations

import csv
import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from cli_calls import called, is_an_error

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.question.groups import DEFAULT_MACHINE
from perfmodel.schema.evidence import Backend, Evidence
from perfmodel.schema.fields import FAR, limits_of
from perfmodel.schema.machine import KEYS, list_machines, load_machine, read_machine
from perfmodel.validate.verdicts import load_claims

SHIPPED = list_machines()
H100 = resources.data_path("machines", "h100-sxm-ib.toml").read_text(encoding="utf-8")
PAPERS = ("2512.05831", "fig. 9", "fig 9", "figure 9", "dissecting embedding bag", "2507.01676")
JUDGED = (*PAPERS, "embark", "mlperf")
"""Words of what ``validate --paper`` and ``benchmarks/mlperf_steps.py`` judge, in a source."""


@pytest.mark.parametrize("name", SHIPPED)
def test_every_value_has_source_why_and_evidence(name: str) -> None:
    machine = load_machine(name)
    required = {key for key in KEYS if KEYS[key].required}
    assert machine.name == name and required <= set(machine.values) <= set(KEYS)
    for key, quantity in machine.values.items():
        assert quantity.unit == KEYS[key].unit
        assert quantity.source and quantity.why
        measured = "data/measurements/kernels/" in quantity.source  # on an H200
        assert quantity.evidence.rank >= Evidence.TRANSFERRED.rank or (measured and "h200" in name)
    assert machine.value("gather_bytes_per_s") < machine.value("hbm_bytes_per_s")


@pytest.mark.parametrize(
    ("name", "per_node", "domain", "nodes"),
    [("h100-sxm-ib", 8, 8, 1), ("gb200-nvl72", 4, 72, 18), ("l40s-pcie", 8, 1, 1)],
)
def test_nodes_per_domain(name: str, per_node: int, domain: int, nodes: int) -> None:
    machine = load_machine(name)
    assert (machine.gpus_per_node, machine.nvlink_domain_gpus) == (per_node, domain)
    assert (machine.domain_gpus_of(1), machine.domain_gpus_of(2 * per_node)) == (nodes, 2 * per_node)


def test_of_several_machines_that_begin_alike_the_usual_one_comes_first() -> None:
    """The paper's, which nobody has to name, before h100-sxm-efa; else by name."""
    for text, meant in (("h100", DEFAULT_MACHINE), ("H100-SXM", DEFAULT_MACHINE), ("b200", "b200-sxm-ib")):
        with pytest.raises(BadInputError) as refused:
            load_machine(text)
        assert refused.value.next_step.startswith(f"did you mean {meant} or ")


def test_overrides_are_assumed_and_listed() -> None:
    machine = load_machine("h100-sxm-ib")
    changed = machine.with_overrides({"nic_bytes_per_s": "100GB/s", "nvlink_domain_gpus": 72})
    assert changed.value("nic_bytes_per_s") == 100e9
    assert changed.domain_gpus_of(1) == 9
    assert changed.overrides == {"nic_bytes_per_s", "nvlink_domain_gpus"}
    assert changed.quantity("nic_bytes_per_s").evidence is Evidence.ASSUMED
    assert changed.quantity("nic_bytes_per_s").source == "--set"
    assert changed.quantity("hbm_bytes").evidence is Evidence.TRANSFERRED
    assert machine.value("nic_bytes_per_s") == 50e9 and not machine.overrides
    assert machine.with_overrides({}) is machine
    assert changed.with_overrides({"hbm_bytes": "141GB"}).overrides == changed.overrides | {"hbm_bytes"}


def test_a_domain_that_is_one_node_follows_the_node() -> None:
    fewer = load_machine("h100-sxm-ib").with_overrides({"gpus_per_node": 2})
    fewer = fewer.with_overrides({"gpus_per_node": 4})
    assert fewer.nvlink_domain_gpus == 4 and fewer.domain_gpus_of(1) == 1
    assert fewer.quantity("nvlink_domain_gpus").evidence is Evidence.ASSUMED
    assert load_machine("gb200-nvl72").with_overrides({"gpus_per_node": 2}).domain_gpus_of(1) == 36
    single = load_machine("l40s-pcie").with_overrides({"gpus_per_node": 1})
    assert single.with_overrides({"gpus_per_node": 4}).nvlink_domain_gpus == 1


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("h100-sxm-ib", {"nic_bytes_per_s": "400Gbps"}),
        ("h100-sxm-ib", {"nic_bytes_per_s": -1.0}),
        ("h100-sxm-ib", {"nic_bytes_per_s": float("nan")}),
        ("h100-sxm-ib", {"hbm_bytes": 0.0}),
        ("h100-sxm-ib", {"gpus_per_node": 2.5}),
        ("h100-sxm-ib", {"nvlink_domain_gpus": 12}),
        ("h100-sxm-ib", {"nic_byte_per_s": 50e9}),
        ("l40s-pcie", {"nvlink_domain_gpus": 8}),
    ],
)
def test_impossible_overrides(name: str, values: dict[str, float | str]) -> None:
    with pytest.raises(BadInputError) as caught:
        load_machine(name).with_overrides(values)
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("value = 84.94e9", "value = -80e9", "values.hbm_bytes.value"),
        ("value = 84.94e9", 'value = "80GB"', "values.hbm_bytes.value"),
        ("value = 84.94e9", "value = true", "values.hbm_bytes.value"),
        ("log_sd = 0.33", "log_sd = 4.0", "log_sd"),
        ('evidence = "transferred"', 'evidence = "certain"', "values.hbm_bytes.evidence"),
        ('unit = "byte"', 'unit = "GB"', "values.hbm_bytes.unit"),
        ("[values.hbm_bytes]", "[values.hbm_size]", "hbm_bytes"),
        ("[values.hbm_bytes]", "[values.hbm_bytes]\ncolour = 1", "values.hbm_bytes.colour"),
        ('name = "h100-sxm-ib"', 'name = "../x"', "name"),
        ('title = "', 'overrides = ["a"]\ntitle = "', "overrides"),
    ],
)
def test_the_wrong_field_is_named(tmp_path: Path, old: str, new: str, field: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(H100.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BadInputError) as caught:
        load_machine(path)
    assert field in caught.value.message and str(path) in caught.value.message
    assert "\n" not in caught.value.message and len(caught.value.message) < 1500


def test_unchanged_undoes_what_followed_an_override() -> None:
    wide = load_machine("h100-sxm-ib").with_overrides({"gpus_per_node": 4.0})
    assert (wide.gpus_per_node, wide.nvlink_domain_gpus) == (4, 4)
    assert (wide.unchanged().gpus_per_node, wide.unchanged().nvlink_domain_gpus) == (8, 8)
    assert wide.overrides == {"gpus_per_node"}
    assert wide.unchanged() == load_machine("h100-sxm-ib")  # with the sources of its values


def test_the_file_of_a_shipped_machine(cli: Any, tmp_path: Path) -> None:
    """What is printed is a machine file: read back, it is the shipped machine, and borrows from it."""
    printed = cli("show", "machines", "b200-sxm-ib", "--toml")
    path = tmp_path / "mine.toml"
    path.write_text(printed.out, encoding="utf-8")
    shipped, links = load_machine("b200-sxm-ib"), load_machine(str(path)).links
    assert links == shipped.links.model_copy(update={"like": "b200-sxm-ib"})
    assert load_machine(str(path)).model_copy(update={"links": shipped.links}) == shipped
    path.write_text(printed.out.replace('name = "b200-sxm-ib"', 'name = "mine"'), encoding="utf-8")
    asked = ("collective", "--op", "all_reduce", "--size", "1GiB", "--gpus", "16", "--json")
    one, other = (json.loads(cli(*asked, "--machine", m).out) for m in ("b200-sxm-ib", str(path)))
    assert one["time_s"] == other["time_s"]
    for words in (("--toml",), ("b200", "--toml"), ("b200-sxm-ib", "--toml", "--json")):
        assert cli("show", "machines", *words).code == 2


# --- sources of values ----------------------------------------------------------------------------------


def published(key: str, source: str = "") -> list[tuple[float, float]]:
    with resources.data_path("kernels", "published_kernels.csv").open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["key"] == key and source in row["source"]]
    return [(float(row["low"]), float(row["high"])) for row in rows]


def middle_and_spread(key: str) -> tuple[float, float]:
    logs = [math.log(low * high) / 2 for low, high in published(key)]
    return math.exp(statistics.mean(logs)), statistics.stdev(logs)


@pytest.mark.parametrize("name", SHIPPED)
def test_no_value_has_a_source_that_is_judged(name: str) -> None:
    ids = {claim.id for claim in load_claims()}
    for key, quantity in load_machine(name).values.items():
        if (name, key) == ("h100-paper", "nvlink_domain_gpus"):  # the paper's question, not its result
            continue
        text = f"{quantity.source} {quantity.why}".lower()
        assert not [word for word in JUDGED if word in text], (name, key)
        assert not [claim for claim in ids if f"claim {claim}" in text or f"row {claim}" in text], (name, key)


@pytest.mark.parametrize("name", SHIPPED)
def test_kernel_constants_are_the_middle_of_what_was_published(name: str) -> None:
    machine = load_machine(name)
    share, share_sd = middle_and_spread("gather_fraction")
    floor, floor_sd = middle_and_spread("launch_floor_us")
    ((few, many),) = published("bucketize_kernels")
    kernels_sd = math.log(many / few) / math.sqrt(2)
    rate = machine.value("hbm_bytes_per_s")
    for key, value, log_sd in (
        ("gather_bytes_per_s", share * rate, share_sd),
        ("launch_floor_s", floor * 1e-6, floor_sd),
        ("bucketize_floor_s", math.sqrt(few * many) * floor * 1e-6, math.hypot(floor_sd, kernels_sd)),
    ):
        assert machine.value(key) == pytest.approx(value, rel=0.02), key
        stated = machine.quantity(key).log_sd
        if machine.ring_backend is Backend.NCCL:
            assert stated == pytest.approx(log_sd, abs=0.01), key
        else:  # of other GPUs than these
            assert stated is not None and stated > log_sd + 0.1, key


# --- limits of values -----------------------------------------------------------------------------------

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


def machine_file(folder: Path, key: str, value: str, accepted: str = "") -> Path:
    """The shipped H100 machine with another value, and what it accepts."""
    head, _, tail = H100.replace('name = "h100-sxm-ib"', 'name = "mine"').partition(f"[values.{key}]\n")
    rest = tail.partition("\n")[2]
    path = folder / "mine.toml"
    path.write_text(f"{accepted}\n{head}[values.{key}]\nvalue = {value}\n{rest}", encoding="utf-8")
    return path


@pytest.mark.parametrize(("key", "value"), [("gather_bytes_per_s", "1e-3"), ("gpus_per_node", "1e9")])
def test_an_absurd_machine_value_is_refused(tmp_path: Path, key: str, value: str) -> None:
    path = machine_file(tmp_path, key, value, f'accepted = ["{key}"]')
    with pytest.raises(BadInputError, match=rf"values\.{key}\.value: must be from .* to .*, not "):
        read_machine(path)


@pytest.mark.parametrize(
    ("key", "value"), [("hbm_bytes_per_s", "1e14"), ("nic_bytes_per_s", "1e6"), ("gather_bytes_per_s", "1e6")]
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
    near = called(*ASKED, "--set", "nic_bytes_per_s=900GB/s")
    assert near.code == 0
