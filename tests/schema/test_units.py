"""units: spellings that are one thing, spellings that are two, and the way back."""

from __future__ import annotations

import contextlib
import math
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel import units
from perfmodel.errors import BadInputError

BYTES, RATE, TIME, COUNT = units.parse_bytes, units.parse_rate, units.parse_time, units.parse_count
READ = {
    BYTES: {
        **{"10TB": 10e12, "10TiB": 10 * 2**40, "64 KiB": 65536, "1kB": 1000, "1KB": 1000, "512": 512},
        **{"1.5 GB": 1.5e9, "10Tbit": 1.25e12, "1e9": 1e9, " 1_000 MB ": 1e9, "2GiB": 2**31},
    },
    RATE: {"100GB/s": 100e9, "400Gbit/s": 50e9, "3 TiB/s": 3 * 2**40},
    TIME: {"20us": 2e-5, "20µs": 2e-5, "20 μs": 2e-5, "1.5ms": 1.5e-3},
    COUNT: {"1_000_000": 1e6, "9007199254740993": 9007199254740993, "1e6": 1e6, "1 048 576": 2**20},
    units.parse_ratio: {"85 %": 0.85, "62.8×": 62.8, "20 200×": 20200, "2:1": 2},
}
REFUSED = {
    BYTES: (
        *("", " ", "1 0", "1\x00B", "1" * 100, "-1TB", "nan", "inf", "0", "0TB", "0.5B", "1e400", "1e308TB"),
        *("TB", "1..2GB", "1iB", "10XB", "1,000", "١TB", "10GB/s"),
    ),
    RATE: ("100", "100GB", "100G/s", "fast", "0"),
    TIME: ("20", "20 m", "20 hours", "-1s", "0"),
    COUNT: ("1k", "1.5", "-3", "many", "1e400", "1 04", "0"),
}
AMBIGUOUS = {
    BYTES: {
        "10Tb": "terabits or terabytes?", "10tb": "terabits or terabytes?", "10Gib": "gibibits or gibibytes?",
        "10Tbps": "terabits or terabytes per second?",
        "10b": "bits or bytes?", "10GBps": "gigabits or gigabytes per second?", "1k": "10³ or 2¹⁰ bytes?",
    },
    RATE: {"400Gbps": "gigabits or gigabytes per second?", "100gb/s": "gigabits or gigabytes per second?"},
    COUNT: {"4k": "4000 or 4096?", "1.5K": "1500 or 1536?", "2M": "2000000 or 2097152?"},
}  # fmt: skip


@pytest.mark.parametrize(("parse", "text"), [(p, text) for p, texts in READ.items() for text in texts])
def test_spellings_that_are_one_thing(parse: Any, text: str) -> None:
    assert parse(text) == pytest.approx(READ[parse][text], rel=1e-15)


@pytest.mark.parametrize(("parse", "text"), [(p, text) for p, texts in REFUSED.items() for text in texts])
def test_texts_that_are_nothing(parse: Any, text: str) -> None:
    with pytest.raises(BadInputError):
        parse(text)
    assert BYTES("0", allow_zero=True) == COUNT("0", allow_zero=True) == 0


@pytest.mark.parametrize(("parse", "text"), [(p, text) for p, texts in AMBIGUOUS.items() for text in texts])
def test_spellings_that_are_two_things_are_refused_with_both(parse: Any, text: str) -> None:
    with pytest.raises(BadInputError) as refused:
        parse(text, "--x")
    assert f"--x {text} is ambiguous" in refused.value.message
    assert AMBIGUOUS[parse][text] in refused.value.message and refused.value.next_step.startswith("write ")


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (BYTES, "10Tb", "write 10TB (10·10¹² bytes), 10TiB (10·2⁴⁰) or 10Tbit."),
        (BYTES, "10b", "write 10B or 10bit."),
        (RATE, "100", "write 100GB/s (100·10⁹ bytes/s), 100GiB/s (100·2³⁰) or 100Gbit/s."),
        (COUNT, "1.5", "1.5 is not a whole number. for example 2."),
        (COUNT, "9" * 61, f"{'9' * 60}… is not a whole number."),
        (COUNT, "0x10", "0x10 is not a whole number."),
        (COUNT, "x" * 60, f"{'x' * 60} is not a whole number."),
        (partial(units.parse_quantity, unit="byte/s"), "fast", "write a rate, for example 100GB/s."),
        (units.parse_number, "0", "0 is zero. a number is more than 0"),
        (units.parse_price, "0USD/GPU/h", "is zero."),
    ],
)
def test_what_is_refused_says_what_to_write(parse: Any, text: str, words: str) -> None:
    with pytest.raises(BadInputError) as refused:
        parse(text)
    assert words in f"{refused.value.message} {refused.value.next_step}"
    assert COUNT("9" * 60) == 10**60 - 1 and units.parse_price("2.5USD/GPU/h") == (2.5, "USD")


def test_parse_quantity_takes_the_unit_of_the_value() -> None:
    read = {("100e9", "byte/s"): 100e9, ("20us", "s"): 2e-5, ("5e-6", "s"): 5e-6, ("72", "count"): 72}
    for (text, unit), value in {**read, ("80GB", "byte"): 80e9, ("85 %", "ratio"): 0.85}.items():
        assert units.parse_quantity(text, unit) == pytest.approx(value)
    for text, unit in [("100GB", "byte/s"), ("1", "parsec"), ("-1", "ratio")]:
        with pytest.raises(BadInputError):
            units.parse_quantity(text, unit)
    assert units.parse_quantity("0GB/s", "byte/s") == units.parse_quantity("0us", "s") == 0
    assert not any(units.parse_quantity("0", unit) for unit in units.QUANTITY_UNITS)


SI_BYTES, SAMPLES = (
    partial(units.format_bytes, binary=False),
    partial(units.format_per_second, noun="samples"),
)
AS_BYTES, AS_RATE, AS_COUNT, AS_RATIO = (
    partial(units.format_quantity, unit=unit) for unit in ("byte", "byte/s", "count", "ratio")
)
FORMATS: dict[Any, dict[float, str]] = {
    units.format_bytes: {
        **{0: "0 B", 262144: "256 KiB", 1023: "0.999 KiB", 21_000_000: "20.0 MiB", 999: "999 B"},
        **{999.5: "0.976 KiB", 2**70: "1 024 EiB", 1e22: "8670 EiB", -math.inf: "-∞ B"},
    },
    SI_BYTES: {10e12: "10 TB", 78.125e9: "78.1 GB"},
    units.format_time: {
        **{393.4e-6: "393 µs", 9e-6: "9.00 µs", 0.9996e-3: "1.00 ms", 0.9995: "1.00 s", 0: "0 s"},
        **{math.nan: "unknown", math.inf: "∞ s", 3600: "3600 s"},
    },
    units.format_rate: {50e9: "50 GB/s", math.inf: "∞ B/s", math.nan: "unknown"},
    units.format_ratio: {
        **{62.81: "62.8×", 1: "1.00×", 1234: "1230×", 20200: "20 200×", 2.02e9: "2.02e+09×", math.inf: "∞"},
        **{1e-7: "1.00e-07×", 1e-6: "0.00000100×", 9999: "10 000×"},
    },
    units.format_fraction: {
        **{0.8169: "81.7 %", 0.0001: "<0.1 %", 0.0005: "0.1 %", 0.01: "1.0 %", 0.9995: "100 %", 0: "0 %"},
    },
    units.format_count: {
        **{1_000_000: "1 000 000", 2**104: "2.0e31", 999_999_999_999_999: "999 999 999 999 999"},
        **{1e15: "1.0e15", math.inf: "∞"},
    },
    units.format_amount: {32_704.4: "32 704", 999.5: "1 000", 4.5: "4.50", 5: "5"},
    SAMPLES: {33.6: "33.6 samples/s", 698e3: "698 k samples/s", 1.4e9: "1.40 G samples/s"},
    AS_BYTES: {32: "32 B", 1e9: "1 GB"},
    AS_RATE: {50e9: "50 GB/s"}, AS_COUNT: {132: "132"}, AS_RATIO: {1.55: "1.55"},
}  # fmt: skip


@pytest.mark.parametrize("function", FORMATS)
def test_formats(function: Any) -> None:
    assert {value: function(value) for value in FORMATS[function]} == FORMATS[function]


@given(st.floats(1, 1e19))
def test_bytes_round_trip(value: float) -> None:
    assert units.parse_bytes(units.format_bytes(value)) == pytest.approx(value, rel=0.00502)
    assert units.parse_bytes(units.format_bytes(value, binary=False)) == pytest.approx(value, rel=0.00502)


@given(st.floats(1, 1e5))
def test_time_rate_and_ratio_round_trip(value: float) -> None:
    assert units.parse_time(units.format_time(value / 1e9)) == pytest.approx(value / 1e9, rel=0.00502)
    assert units.parse_rate(units.format_rate(value * 1e9)) == pytest.approx(value * 1e9, rel=0.00502)
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
