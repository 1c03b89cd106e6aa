"""machine: shipped machines, overrides, and files that are wrong in every way."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.question.groups import DEFAULT_MACHINE
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import KEYS, list_machines, load_machine

SHIPPED = {
    "a100-slingshot",
    "a100-sxm-ib",
    "b200-sxm-ib",
    "b200-sxm-roce",
    "gb200-nvl72",
    "gh200-slingshot",
    "h100-paper",
    "h100-sxm-efa",
    "h100-sxm-ib",
    "h200-sxm-ib",
    "h200-sxm-roce",
    "l40s-pcie",
    "mi355x-roce",
    "rtx-pro-6000-pcie",
}


def toml_of(name: str = "h100-sxm-ib") -> str:
    return resources.data_path("machines", f"{name}.toml").read_text(encoding="utf-8")


def test_the_machines_are_shipped() -> None:
    assert set(list_machines()) == SHIPPED


@pytest.mark.parametrize("name", sorted(SHIPPED))
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
    [
        ("h100-sxm-ib", 8, 8, 1),
        ("gb200-nvl72", 4, 72, 18),
        ("gh200-slingshot", 4, 4, 1),
        ("l40s-pcie", 8, 1, 1),
    ],
)
def test_nodes_per_domain(name: str, per_node: int, domain: int, nodes: int) -> None:
    machine = load_machine(name)
    assert (machine.gpus_per_node, machine.nvlink_domain_gpus) == (per_node, domain)
    assert machine.domain_gpus_of(1) == nodes


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
    fewer = load_machine("h100-sxm-ib").with_overrides({"gpus_per_node": 4})
    assert fewer.nvlink_domain_gpus == 4 and fewer.domain_gpus_of(1) == 1
    assert fewer.quantity("nvlink_domain_gpus").evidence is Evidence.ASSUMED
    assert load_machine("gb200-nvl72").with_overrides({"gpus_per_node": 2}).domain_gpus_of(1) == 36
    assert load_machine("l40s-pcie").with_overrides({"gpus_per_node": 4}).nvlink_domain_gpus == 1


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("h100-sxm-ib", {"nic_bytes_per_s": "400Gbps"}),
        ("h100-sxm-ib", {"nic_bytes_per_s": -1.0}),
        ("h100-sxm-ib", {"nic_bytes_per_s": float("nan")}),
        ("h100-sxm-ib", {"nic_bytes_per_s": float("inf")}),
        ("h100-sxm-ib", {"hbm_bytes": 0.0}),
        ("h100-sxm-ib", {"gpus_per_node": 2.5}),
        ("h100-sxm-ib", {"gpus_per_node": "0"}),
        ("h100-sxm-ib", {"nvlink_domain_gpus": 12}),
        ("h100-sxm-ib", {"row_access_bytes": 0.0}),
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
        ("value = 84.94e9", "value = nan", "values.hbm_bytes.value"),
        ("value = 84.94e9", 'value = "80GB"', "values.hbm_bytes.value"),
        ("value = 84.94e9", "value = true", "values.hbm_bytes.value"),
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
    path.write_text(toml_of().replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BadInputError) as caught:
        load_machine(path)
    assert field in caught.value.message and str(path) in caught.value.message
    assert "\n" not in caught.value.message and len(caught.value.message) < 1500


def test_missing_and_truncated_files(tmp_path: Path) -> None:
    cut = tmp_path / "cut.toml"
    cut.write_text(toml_of()[:2000], encoding="utf-8")
    for path in (tmp_path / "none.toml", tmp_path, cut, Path("\0.toml")):
        with pytest.raises(BadInputError):
            load_machine(path)


@settings(max_examples=60)
@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_any_bytes_are_bad_input(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "fuzz.toml"
    path.write_bytes(raw)
    with pytest.raises(BadInputError):
        load_machine(path)


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_file_is_bad_input_or_a_machine(tmp_path: Path, data: st.DataObject) -> None:
    text = toml_of()
    start = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 40))
    patch = data.draw(
        st.sampled_from(["", "e999", "9" * 400, "[[", "=", '"', "\n[values]\n", "nan", "-", "0x1"])
    )
    path = tmp_path / "damaged.toml"
    path.write_text(text[:start] + patch + text[start + length :], encoding="utf-8")
    with contextlib.suppress(BadInputError):
        assert load_machine(path).value("hbm_bytes") > 0


def test_deep_nesting_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("a = " + "[" * 50_000, encoding="utf-8")
    with pytest.raises(BadInputError):
        load_machine(path)


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
