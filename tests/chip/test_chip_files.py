"""Chips as data: the shipped ones, what ``show chips`` prints, overrides, and files that are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfmodel.errors import BadInputError
from perfmodel.resources import data_path
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import CHIP_KEYS, list_chips, load_chip, load_machine

ASCEND = data_path("chips", "ascend-910.toml").read_text(encoding="utf-8")


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
    keys = {"cores": "sm_count", "gm_bytes_per_s": "hbm_bytes_per_s", "gm_size_bytes": "hbm_bytes"}
    keys |= {"cache_bytes": "l2_bytes", "cache_bytes_per_s": "l2_bytes_per_s", "access_bytes": "sector_bytes"}
    for chip in ("h100-sxm", "h200-sxm", "a100-sxm"):
        for key, other in keys.items():
            assert load_chip(chip).value(key) == load_machine(f"{chip}-ib").value(other)


def test_chips_are_listed_and_shown(cli: Any, tmp_path: Path) -> None:
    """A shipped file is a start for one of one's own."""
    text = cli("show", "chips").out
    assert "ascend-910 " in text and "h100-sxm" in text and max(map(len, text.splitlines())) <= 100
    shown = cli("show", "chips", "ascend-910").out
    assert "row_latency_s" in shown and "assumed" in shown and "ddr_rate" in shown
    mine = tmp_path / "mine.toml"
    mine.write_text(cli("show", "chips", "h100-sxm", "--toml").out, encoding="utf-8")
    assert load_chip(mine) == load_chip("h100-sxm")
    mine.write_text('name = "mine"\n', encoding="utf-8")
    said = {str(mine): "perfmodel show chips ascend-910 --toml", "--toml": "the file of a machine or a chip"}
    for word, words in said.items():
        refused = cli("show", "chips", word)
        assert refused.code == 2 and words in refused.err


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"cores": 0}, "must be more than 0"),
        ({"cores": 1e5}, "must be from 1 to 4 096, not 100 000"),
        ({"cores": 2.5}, "must be a whole number"),
        ({"cache_latency_s": 1e-6}, "answers no later than what it spares"),
        ({"core_bytes_per_s": 1e-300}, "must be from 1 kB/s to 1 EB/s"),
    ],
)
def test_impossible_overrides_are_refused(values: dict[str, float], said: str) -> None:
    with pytest.raises(BadInputError) as caught:
        load_chip("ascend-910").with_overrides(values)
    assert said in f"{caught.value} {caught.value.next_step}"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[values.cores]", "[values.kores]", "kores: not a chip value; known: cores,"),
        ("value = 32\n", "value = 0\n", "values.cores.value: must be more than 0"),
        ('unit = "count"', 'unit = "byte"', "values.cores.unit"),
        ("persist = true", "persist = 1", "buffers.persist"),
        ("value = 32\n", "", "values.cores.value: is missing"),
    ],
)
def test_wrong_files_are_refused_with_their_field(tmp_path: Path, old: str, new: str, said: str) -> None:
    (tmp_path / "mine.toml").write_text(ASCEND.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BadInputError) as caught:
        load_chip(tmp_path / "mine.toml")
    assert said in str(caught.value)
