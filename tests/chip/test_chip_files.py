"""Chips as data: the shipped ones, overrides, and files that are wrong."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from perfmodel.chip.plan import plan_chip
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.resources import data_path
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import CHIP_KEYS, Chip, list_chips, load_chip
from perfmodel.schema.workload import UNIFORM, Table, TableSet


def text_of(name: str) -> str:
    return data_path("chips", f"{name}.toml").read_text(encoding="utf-8")


SIZED = [(key, value.unit) for key, value in CHIP_KEYS.items() if value.unit != "count"]


def own(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["a100-sxm", "ascend-910", "h100-sxm", "h200-sxm"])
def test_shipped_chips_have_every_value_with_a_source(name: str) -> None:
    chip = load_chip(name)
    assert name in list_chips() and chip.name == name
    assert set(chip.values) == set(CHIP_KEYS)
    for key in CHIP_KEYS:
        quantity = chip.quantity(key)
        guess = "no public figure" in quantity.source or "order of magnitude" in quantity.source
        assert quantity.evidence is Evidence.ASSUMED or not guess, key


def test_gpus_are_those_of_the_machines() -> None:
    from perfmodel.schema.machine import load_machine

    for chip, machine in (
        ("h100-sxm", "h100-sxm-ib"),
        ("h200-sxm", "h200-sxm-ib"),
        ("a100-sxm", "a100-sxm-ib"),
    ):
        for key, other in (
            ("cores", "sm_count"),
            ("gm_bytes_per_s", "hbm_bytes_per_s"),
            ("gm_size_bytes", "hbm_bytes"),
            ("cache_bytes", "l2_bytes"),
            ("cache_bytes_per_s", "l2_bytes_per_s"),
            ("access_bytes", "sector_bytes"),
        ):
            assert load_chip(chip).value(key) == load_machine(machine).value(other)


def test_a_value_can_be_replaced() -> None:
    chip = load_chip("ascend-910").with_overrides({"row_latency_s": "1us", "cores": 8})
    assert chip.value("row_latency_s") == pytest.approx(1e-6) and chip.cores == 8
    assert chip.quantity("cores").evidence is Evidence.ASSUMED
    assert chip.overrides == {"row_latency_s", "cores"}
    assert chip.with_overrides({}) is chip


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"cores": 0}, "must be more than 0"),
        ({"cores": 1e5}, "must be from 1 to 4 096, not 100 000"),
        ({"cache_slices": 0}, "must be more than 0"),
        ({"kores": 4}, "did you mean cores"),
        ({"cache_latency_s": 1e-6}, "answers no later than what it spares"),
        ({"core_bytes_per_s": 1e-300}, "must be from 1 kB/s to 1 EB/s"),
        ({"row_latency_s": 1e9}, "to 1.00 s, not 1.00e+09 s"),
        ({"local_bytes": -1}, "must be from 1 B to 1 EB, not -1 B"),
    ],
)
def test_impossible_overrides_are_refused(values: dict[str, float], said: str) -> None:
    with pytest.raises(BadInputError) as caught:
        load_chip("ascend-910").with_overrides(values)
    assert said in f"{caught.value} {caught.value.next_step}"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("key", "unit"), random.Random(5).sample(SIZED, 6))
def test_the_least_and_the_most_of_a_value_give_numbers(key: str, unit: str) -> None:
    """Whatever is accepted can be reckoned with: no warning, no bug."""
    some = (Table(name="some", rows=1000, dim=16, pooling=1.0),)
    tables = PlanTables.of(TableSet("some", some), UNIFORM)
    limit = Chip.limits[key]
    for value in (limit.least, limit.most):
        try:
            chip = load_chip("ascend-910").with_overrides({key: value})
        except BadInputError:
            continue  # a latency of a cache beyond that of the memory
        if not 0 < chip.value("gm_size_bytes") < tables.total_bytes:
            assert plan_chip(chip, tables, 64).time_s > 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda text: text.replace("[values.cores]", "[values.kores]"),
            "kores: not a chip value; known: cores,",
        ),
        (
            lambda text: text.replace("value = 32\n", "value = 0\n", 1),
            "values.cores.value: must be more than 0",
        ),
        (lambda text: text.replace('unit = "count"', 'unit = "byte"', 1), "values.cores.unit"),
        (lambda text: text.replace("[buffers]", "[bufers]"), "buffers: is missing"),
        (lambda text: text.replace("persist = true", "persist = 1"), "buffers.persist"),
        (lambda text: text.replace("value = 32\n", "", 1), "values.cores.value: is missing"),
        (lambda text: text + "\n[values.more]\nvalue = 1\n", "values.more"),
        (lambda text: text[:200], "chip file"),
        (lambda text: 'overrides = ["cores"]\n' + text, "overrides: is not a field"),
    ],
)
def test_wrong_files_are_refused_with_their_field(tmp_path: Path, change: object, said: str) -> None:
    with pytest.raises(BadInputError) as caught:
        load_chip(own(tmp_path, change(text_of("ascend-910"))))  # type: ignore[operator]
    assert said in str(caught.value)
