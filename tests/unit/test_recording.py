"""Recorded numbers: arithmetic is that of floats, units are checked, words have the numbers in them."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.model.curves import join_power
from perfmodel.model.recording import (
    BYTES,
    BYTES_PER_S,
    PLAIN,
    SECONDS,
    Recorded,
    larger,
    named,
    smaller,
    smallest,
    steps_of,
    unit_of,
)
from perfmodel.passes.recorded_words import recorded_terms, value_text, working_lines

SIZE = Recorded(6e9, BYTES, symbol="S")
RATE = Recorded(3e9, BYTES_PER_S, symbol="B")
TIME = Recorded(1.0, SECONDS, symbol="a")
COUNT = Recorded(4.0, symbol="n")


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6))
def test_arithmetic_is_that_of_floats(a: float, b: float) -> None:
    first, second = Recorded(a, symbol="a"), Recorded(b, symbol="b")
    for do in (operator.add, operator.sub, operator.mul, operator.truediv):
        for found in (do(first, second), do(a, second), do(first, b)):
            assert isinstance(found, Recorded) and found.value == do(a, b)
    for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq):
        assert compare(first, second) == compare(first, b) == compare(a, b)
    assert (first**0.5).value == a**0.5 and (-first).value == -a
    assert larger(first, b).value == max(a, b) == larger(a, b)
    assert smaller(first, b).value == min(a, b) == smaller(a, b)
    assert smallest([first, second]) == min(a, b)
    assert join_power(first, second, 2).value == join_power(a, b, 2) == pytest.approx(math.hypot(a, b))


def test_units_follow_the_arithmetic() -> None:
    assert (SIZE / RATE).unit == SECONDS and (RATE * TIME).unit == BYTES and (SIZE / SIZE).unit == PLAIN
    assert (TIME + SIZE / RATE).value == 3.0 and (2 * TIME).unit == SECONDS and (1 / RATE).unit == (-1, 1)
    assert (TIME**2).unit == (0, 2) and larger(TIME, SIZE / RATE).unit == SECONDS
    names = ("time_s", "nic_bytes_per_s", "payload_bytes", "ll_fraction")
    assert [unit_of(name) for name in names] == [SECONDS, BYTES_PER_S, BYTES, PLAIN]


def test_what_has_no_unit_in_common_is_refused() -> None:
    for do in (operator.add, operator.sub, larger, smaller, lambda a, b: join_power(a, b, 2)):
        with pytest.raises(TypeError, match="different units"):
            do(RATE, COUNT)
    with pytest.raises(TypeError, match="power"):
        TIME**0.5


def test_an_array_would_drop_the_record() -> None:
    with pytest.raises(TypeError, match="drop"):
        np.asarray(SIZE)
    for do in (operator.add, operator.sub, operator.mul, operator.truediv):
        for pair in ((SIZE, np.ones(2)), (np.ones(2), SIZE)):
            with pytest.raises(TypeError):
                do(*pair)


def test_a_step_without_a_record_stays_what_it_is() -> None:
    sizes = np.ones(3)
    assert named("x", sizes, "") is sizes and named("x", 2.0, "") == 2.0


def lines(number: Recorded) -> list[str]:
    return list(working_lines(named("t", number, "")))


def test_words_have_letters_and_numbers() -> None:
    assert lines(TIME + SIZE / RATE) == ["t = a + S / B = 1.00 s + 5.59 GiB / 3 GB/s = 3.00 s"]
    assert lines((COUNT - 1) * TIME) == ["t = (n - 1) × a = (4 - 1) × 1.00 s = 3.00 s"]
    assert lines(COUNT - (COUNT - 1)) == ["t = n - (n - 1) = 4 - (4 - 1) = 1"]
    assert lines(SIZE / (COUNT * RATE)) == ["t = S / (n × B) = 5.59 GiB / (4 × 3 GB/s) = 500 ms"]
    assert lines(SIZE / COUNT / RATE) == ["t = S / n / B = 5.59 GiB / 4 / 3 GB/s = 500 ms"]
    assert lines(2 * TIME) == ["t = 2 × a = 2 × 1.00 s = 2.00 s"]
    power = "((1.00 s)^2 + (5.59 GiB / 3 GB/s)^2)^(1/2)"
    assert lines(join_power(TIME, SIZE / RATE, 2)) == [f"t = (a^2 + (S / B)^2)^(1/2) = {power} = 2.24 s"]
    assert lines(TIME) == ["t = a = 1.00 s"]
    rows = Recorded(32767.98, symbol="U")  # of many things all are said: 32 800 would not give the bytes
    assert lines(rows * SIZE)[0].startswith("t = U × S = 32 768 × ")


def test_steps_come_before_what_is_made_of_them_and_once() -> None:
    hop = named("hop", COUNT * TIME, "hops")
    whole = named("t", hop + hop / COUNT, "time")
    assert [step.symbol for step in steps_of(whole)] == ["n", "a", "hop", "t"]
    assert next(iter(working_lines(whole))) == "hop = n × a = 4 × 1.00 s = 4.00 s"


def test_a_letter_says_its_interval_and_where_it_is_from() -> None:
    given = Recorded(
        2.0, SECONDS, symbol="a", meaning="floor", source="x", evidence="assumed", low=1.0, high=3.0
    )
    (term,) = recorded_terms(given)
    assert (term.symbol, term.value, term.text) == ("a", 2.0, "2.00 s (1.00 s – 3.00 s)")
    assert (term.source, term.evidence, term.meaning) == ("x", "assumed", "floor")
    assert value_text(Recorded(0.25)) == "0.250" and value_text(Recorded(1024.0)) == "1 024"
