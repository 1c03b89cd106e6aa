"""Sizes are written in the unit family in which they were typed, by every command."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.cli.size_family import sizes_of
from perfmodel.report.figures.gpu_columns import bytes_unit
from perfmodel.report.figures.style import bytes_axis
from perfmodel.typed_sizes import is_binary, typed_sizes
from perfmodel.units import format_bytes, parse_bytes

_DECIMAL = re.compile(r"[\d.] ?[kMGTP]B(?!/s)\b")
_BINARY = re.compile(r"[\d.] ?[KMGTP]iB\b")
_UNIT = st.sampled_from([f"{letter}{mark}" for letter in "MGT" for mark in ("B", "iB")])


@given(st.integers(1, 998), _UNIT, st.sampled_from(["--size", "--table-size", "--max-hbm"]), st.booleans())
def test_a_typed_size_is_written_as_it_was_typed(number: int, unit: str, option: str, memory: bool) -> None:
    value = parse_bytes(f"{number}{unit}")
    with typed_sizes(sizes_of(["plan", option, f"{number}{unit}"])):
        assert format_bytes(value, binary=not memory) == f"{number} {unit}"
    assert format_bytes(2.0**30, binary=False) == "1.07 GB"  # and nothing of it is left


@given(st.lists(st.tuples(st.integers(1, 998), _UNIT), min_size=1, max_size=4, unique=True))
def test_each_of_several_sizes_keeps_its_family(typed: list[tuple[int, str]]) -> None:
    words = ["project", "--table-size=" + ",".join(f"{number}{unit}" for number, unit in typed)]
    with typed_sizes(sizes_of(words)):
        for number, unit in typed:
            assert format_bytes(parse_bytes(f"{number}{unit}")) == f"{number} {unit}"


@pytest.mark.parametrize(
    ("words", "memory", "message"),
    [
        ("project --table-size 10TB", False, True),
        ("project --table-size 10TiB", True, True),
        ("project --table-size 1TiB..4TiB --set nic_bytes_per_s=100GB/s", True, True),
        ("project --table-size 10TiB --set hbm_bytes=80GB", False, True),
        ("project --local-memory 10TiB@3TB/s", True, True),
        ("collective --size 1MB", False, False),
        ("collective --size 1MB,1MiB", False, True),
        ("project --model 10TiB.csv", False, True),
        ("project --batch 1024", False, True),
    ],
)
def test_other_sizes_follow_the_typed_ones_of_their_kind(words: str, memory: bool, message: bool) -> None:
    with typed_sizes(sizes_of(words.split())):
        assert (is_binary(12345.0, False), is_binary(12345.0, True)) == (memory, message)


@pytest.mark.parametrize(
    "words",
    [
        "project --table-size 10TiB",
        "project --table-size 10TiB --sharding all",
        "project --table-size 10TiB --gpus 4",
        "project --table-size 900000TiB",
        "project --table-size 1TiB --tier uvm --gpus 4",
        "sweep --table-size 1TiB,2TiB",
        "explain reduce-scatter --table-size 10TiB",
        "plan --model criteo-kaggle --gpus 2 --max-hbm 1GiB",
        "plan --model criteo-kaggle --gpus 8 --max-hbm 400GiB",
        "explain collective --op all_to_all --size 1MiB --gpus 16",
    ],
)
def test_no_size_is_decimal_where_binary_ones_were_typed(cli: Any, words: str) -> None:
    outcome = cli(*words.split())
    text = outcome.out + outcome.err
    assert _BINARY.search(text)
    assert not _DECIMAL.findall(text), text


def test_axes_have_round_values_of_the_typed_family() -> None:
    with typed_sizes(sizes_of(["--table-size", "10TiB"])):
        axis = bytes_axis(100e9, 20e12)
        assert bytes_unit(3e12) == (2.0**-40, "TiB")
    assert {"200 GiB", "1 TiB", "10 TiB"} <= set(axis["ticktext"])
    assert [parse_bytes(text) for text in axis["ticktext"]] == pytest.approx(axis["tickvals"])
    assert all(100e9 <= value <= 20e12 for value in axis["tickvals"])
    assert bytes_unit(3e12) == (1e-12, "TB")
