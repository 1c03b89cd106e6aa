"""units: spellings that are one thing, spellings that are two, and the way back."""

from __future__ import annotations

import contextlib
import math
from functools import partial

import pytest
from cli_calls import called, is_an_error
from hypothesis import given
from hypothesis import strategies as st

from perfmodel import units
from perfmodel.errors import BadInputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10TB", 10e12),
        ("10TiB", 10 * 2**40),
        ("64 KiB", 65536),
        ("1kB", 1000),
        ("1KB", 1000),
        ("512", 512),
        ("512B", 512),
        ("1.5 GB", 1.5e9),
        ("10Tbit", 1.25e12),
        ("1e9", 1e9),
        (" 1_000 MB ", 1e9),
        ("2GiB", 2**31),
    ],
)
def test_parse_bytes(text: str, expected: float) -> None:
    assert units.parse_bytes(text) == expected


def test_ambiguous_size_spells_out_both_readings() -> None:
    with pytest.raises(BadInputError) as caught:
        units.parse_bytes("10Tb", "--table-size")
    assert caught.value.message == "--table-size 10Tb is ambiguous: terabits or terabytes?"
    assert caught.value.next_step == "write 10TB (10·10¹² bytes), 10TiB (10·2⁴⁰) or 10Tbit."
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["10Tb", "10tb", "10Gib", "10gb", "10Tbps", "10GBps", "10Tbyteps", "10b"])
def test_bits_or_bytes_is_refused_as_a_size(text: str) -> None:
    with pytest.raises(BadInputError, match=r"ambiguous.*bits or .*bytes"):
        units.parse_bytes(text)


@pytest.mark.parametrize("text", ["400Gbps", "100GBps", "100Gb/s", "100gb/s"])
def test_bits_or_bytes_is_refused_as_a_rate(text: str) -> None:
    with pytest.raises(BadInputError, match="gigabits or gigabytes per second") as caught:
        units.parse_rate(text)
    assert "GB/s" in caught.value.next_step and "Gbit/s" in caught.value.next_step


@pytest.mark.parametrize("text", ["1k", "1M", "1G"])
def test_a_bare_prefix_is_refused_with_both_powers(text: str) -> None:
    with pytest.raises(BadInputError, match=r"10.* or 2.* bytes"):
        units.parse_bytes(text)


NOT_SIZES = (
    *("", " ", "1 0", "1\x00B", "1" * 100, "-1", "-1TB", "nan", "inf", "0", "0TB", "0.5B", "1e400"),
    *("1e308TB", "TB", "1..2GB", "1iB", "10XB", "1,000", "١TB", "10GB/s"),
)


@pytest.mark.parametrize("text", NOT_SIZES)
def test_not_a_size(text: str) -> None:
    with pytest.raises(BadInputError):
        units.parse_bytes(text)


def test_zero_only_where_allowed() -> None:
    assert units.parse_bytes("0", allow_zero=True) == 0
    assert units.parse_count("0", allow_zero=True) == 0
    for parse in (units.parse_bytes, units.parse_rate, units.parse_time, units.parse_count):
        with pytest.raises(BadInputError):
            parse("0")


def test_parse_rate() -> None:
    assert units.parse_rate("100GB/s") == 100e9
    assert units.parse_rate("400Gbit/s") == 50e9
    assert units.parse_rate("3 TiB/s") == 3 * 2**40
    for text in ("100", "100GB", "100G/s", "fast"):
        with pytest.raises(BadInputError):
            units.parse_rate(text)


def test_parse_time() -> None:
    assert units.parse_time("20us") == pytest.approx(2e-5)
    assert units.parse_time("20µs") == units.parse_time("20us") == units.parse_time("20 μs")
    assert units.parse_time("1.5ms") == pytest.approx(1.5e-3)
    for text in ("20", "20 m", "20 hours", "-1s"):
        with pytest.raises(BadInputError):
            units.parse_time(text)


def test_parse_count() -> None:
    assert units.parse_count("1_000_000") == 1_000_000
    assert units.parse_count("9007199254740993") == 9007199254740993  # more than a float holds
    assert units.parse_count("1e6") == 1_000_000
    for text in ("1k", "1.5", "-3", "many", "1e400"):
        with pytest.raises(BadInputError):
            units.parse_count(text)


@pytest.mark.parametrize(("text", "both"), [("4k", "4000 or 4096"), ("1.5K", "1500 or 1536"), ("2M", "")])
def test_a_count_with_a_letter_has_two_readings(text: str, both: str) -> None:
    """4k samples may be 4000 or 4096: both are said, and a letter that means no number is not one."""
    both = both or "2000000 or 2097152"
    for parse in (units.parse_count, units.parse_number):
        with pytest.raises(BadInputError, match=rf"--batch {text} is ambiguous: {both}\?") as refused:
            parse(text, "--batch")
        assert refused.value.next_step == f"write {both}."
    with pytest.raises(BadInputError, match="3x is not a whole number"):
        units.parse_count("3x")


def test_parse_quantity_takes_the_unit_of_the_value() -> None:
    assert units.parse_quantity("100GB/s", "byte/s") == 100e9
    assert units.parse_quantity("100e9", "byte/s") == 100e9
    assert units.parse_quantity("20us", "s") == pytest.approx(2e-5)
    assert units.parse_quantity("5e-6", "s") == 5e-6
    assert units.parse_quantity("72", "count") == 72
    assert units.parse_quantity("80GB", "byte") == 80e9
    assert units.parse_quantity("85 %", "ratio") == 0.85
    for text, unit in [("100", "byte/s"), ("20", "s"), ("100GB", "byte/s"), ("1", "parsec"), ("-1", "ratio")]:
        with pytest.raises(BadInputError):
            units.parse_quantity(text, unit)


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (units.format_bytes, 0, "0 B"),
        (units.format_bytes, 1024, "1 KiB"),
        (units.format_bytes, 262144, "256 KiB"),
        (units.format_bytes, 1023, "0.999 KiB"),
        (units.format_bytes, 21_000_000, "20.0 MiB"),
        (units.format_time, 393.4e-6, "393 µs"),
        (units.format_time, 9e-6, "9.00 µs"),
        (units.format_time, 0.9996e-3, "1.00 ms"),
        (units.format_time, 0, "0 s"),
        (units.format_rate, 50e9, "50 GB/s"),
        (units.format_rate, 3.35e12, "3.35 TB/s"),
        (units.format_ratio, 62.81, "62.8×"),
        (units.format_ratio, 1, "1.00×"),
        (units.format_ratio, 1234, "1230×"),
        (units.format_fraction, 0.8169, "81.7 %"),
        (units.format_fraction, 1, "100 %"),
        (units.format_fraction, 0.0001, "<0.1 %"),
        (units.format_count, 1_000_000, "1 000 000"),
        (units.format_time, math.nan, "unknown"),
        (units.format_rate, math.inf, "∞ B/s"),
        (partial(units.format_bytes, binary=False), 10e12, "10 TB"),
        (partial(units.format_bytes, binary=False), 78.125e9, "78.1 GB"),
        (partial(units.format_quantity, unit="byte/s"), 50e9, "50 GB/s"),
        (partial(units.format_quantity, unit="byte"), 80e9, "80 GB"),
        (partial(units.format_quantity, unit="byte"), 32, "32 B"),
        (partial(units.format_quantity, unit="count"), 132, "132"),
        (partial(units.format_quantity, unit="ratio"), 1.55, "1.55"),
        (units.format_ratio, 20200, "20 200×"),
        (units.format_ratio, 2.02e9, "2.02e+09×"),
        (units.format_amount, 32_704.4, "32 704"),
        (units.format_amount, 12.345, "12.3"),
        (units.format_count, 14705882352941177127270923370496, "1.5e31"),
        (units.format_count, 999_999_999_999_999, "999 999 999 999 999"),
        (partial(units.format_per_second, noun="samples"), 33.6, "33.6 samples/s"),
        (partial(units.format_per_second, noun="samples"), 698e3, "698 k samples/s"),
        (partial(units.format_per_second, noun="samples"), 1.4e9, "1.40 G samples/s"),
    ],
)
def test_formats(function: object, value: float, text: str) -> None:
    assert function(value) == text  # type: ignore[operator]


@given(st.floats(1, 1e19))
def test_bytes_round_trip(value: float) -> None:
    assert units.parse_bytes(units.format_bytes(value)) == pytest.approx(value, rel=0.00502)
    assert units.parse_bytes(units.format_bytes(value, binary=False)) == pytest.approx(value, rel=0.00502)


@given(st.floats(1e-12, 1e5))
def test_time_round_trip(value: float) -> None:
    assert units.parse_time(units.format_time(value)) == pytest.approx(value, rel=0.00502)


@given(st.floats(1, 1e18))
def test_rate_and_ratio_round_trip(value: float) -> None:
    assert units.parse_rate(units.format_rate(value)) == pytest.approx(value, rel=0.00502)
    assert units.parse_ratio(units.format_ratio(value)) == pytest.approx(value, rel=0.00502)


@given(st.text(max_size=80), st.sampled_from([*units.QUANTITY_UNITS, "other"]))
def test_any_text_is_a_value_or_bad_input(text: str, unit: str) -> None:
    parsers = (units.parse_bytes, units.parse_rate, units.parse_time, units.parse_count, units.parse_ratio)
    for parse in parsers:
        try:
            assert parse(text) > 0
        except BadInputError as error:
            assert error.next_step and "\n" not in error.message
    with contextlib.suppress(BadInputError):
        assert units.parse_quantity(text, unit) >= 0


def test_grouped_numbers_are_read_back() -> None:
    assert units.parse_ratio("20 200×") == 20200
    assert units.parse_count("1 048 576") == 1048576
    with pytest.raises(BadInputError):
        units.parse_count("1 04")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("project --table-size 10 TB", "a value and its unit are one word: --table-size 10TB"),
        ("collective --op all_to_all --size 1 --gpus 8", "A number without a unit is bytes."),
        ("plan --model criteo-kaggle --gpus 8 --set max_hbm=60", "a number without a unit is bytes"),
    ],
)
def test_a_unit_that_is_apart_or_forgotten_is_said(words: str, said: str) -> None:
    is_an_error(called(*words.split()), 2, said)
