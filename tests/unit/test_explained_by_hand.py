"""What ``explain`` prints of a ring is enough to get its number and its band by hand."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from cli_calls import called

from perfmodel.units import parse_bytes, parse_time

_TIME = r"[\d.]+ (?:ns|µs|ms|s)"
_ROUNDED = 0.015  # three digits of each operand

ASKED = {
    "a step": ("reduce-scatter", "--sharding", "row-wise"),
    "a step of skewed bytes": ("reduce-scatter", "--gpus", "200", "--batch", "512", "--sharding", "row-wise"),
    "a gather": ("collective", "--op", "all_gather", "--size", "3MiB", "--gpus", "96"),
    "close protocols": ("collective", "--op", "reduce_scatter", "--size", "10MiB", "--gpus", "128"),
}


class Printed:
    """The text alone."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.flat = " ".join(text.split())

    def found(self, pattern: str) -> tuple[str, ...]:
        match = re.search(pattern, self.flat)
        assert match is not None, pattern
        return match.groups()

    def share(self, label: str) -> float:
        (line,) = [each for each in self.lines if each.startswith(f" {label} ")]
        return float(line.split()[-2]) / 100

    def named(self, pattern: str) -> dict[str, float]:
        """``ring LL 1.69 ms, ring Simple 1.30 ms``, by name [s]."""
        (listed,) = self.found(pattern)
        return {name: parse_time(time) for name, time in re.findall(rf"([a-z]+ \w+) ({_TIME})", listed)}


def law_of(page: Printed) -> float:
    """From hops and bytes of the protocol that is taken, and the times and weights of all [s]."""
    moved = r"(\S+ \w+) × ([\d.]+) / ([\d.]+) GB/s"
    sharp = rf"\(\(({_TIME})\)\^2 \+ \({moved}\)\^2\)\^\(1/2\)"
    plain = rf"({_TIME}) \+ {moved}"  # of LL hops and bytes add up
    q = int(page.found(r" q (\d) ")[0])
    form = {1: plain, 2: sharp}[q]
    taken, base, hops, size, factor, rate, said = page.found(
        rf"t\((ring \w+)\) = base_k \+ [^=]*? = ({_TIME}) \+ {form} = ({_TIME})"
    )
    bytes_s = parse_bytes(size.replace(" ", "")) * float(factor) / (float(rate) * 1e9)
    own = parse_time(base) + (parse_time(hops) ** q + bytes_s**q) ** (1 / q)
    assert own == pytest.approx(parse_time(said), rel=_ROUNDED)
    times = page.named(r"\(against (.*?)\)") | {taken: own}
    expected = page.named(r"even if it is not: (.*?) (?:these are close|latency without)")
    assert set(times) == set(expected)
    power = float(page.found(r"n_choice (\d+) ")[0])
    weights = {name: time**-power for name, time in expected.items()}
    return sum(weights[name] * times[name] for name in times) / sum(weights.values())


@pytest.mark.parametrize("name", ASKED)
def test_the_number_is_made_by_hand(name: str) -> None:
    done: Any = called("explain", *ASKED[name])
    assert done.code == 0, done.err
    page = Printed(done.out)
    (time,) = page.found(rf": ({_TIME}) 95 % band")
    carry, res = page.found(r"corr = e\^\(([-\d.]+) × ([-\d.]+)\)")
    found = law_of(page) * math.exp(float(carry) * float(res))
    if rest := re.search(r"of the correction × ([\d.]+) is", page.flat):
        found *= float(rest.group(1))
    assert found == pytest.approx(parse_time(time), rel=2 * _ROUNDED)


@pytest.mark.parametrize("name", ASKED)
def test_the_band_is_made_by_hand(name: str) -> None:
    page = Printed(called("explain", *ASKED[name]).out)
    start = next(i for i, line in enumerate(page.lines) if line.startswith(" standard deviation of ln t"))
    end = next(i for i, line in enumerate(page.lines) if line.startswith(" all, in quadrature"))
    labels = [re.split(r"  +", line.strip())[0] for line in page.lines[start + 1 : end]]
    parts = [page.share(label) for label in labels]
    assert len(parts) >= 3
    total = math.hypot(*parts)
    assert total == pytest.approx(page.share("all, in quadrature"), abs=2e-3)
    (time,) = page.found(rf": ({_TIME}) 95 % band")
    low, high = (parse_time(time) * math.exp(sign * 1.96 * total) for sign in (-1, 1))
    made = page.found(rf"% ?\) = ([\d.]+(?: [nµm]?s)?) – ({_TIME})")
    assert high == pytest.approx(parse_time(made[1]), rel=_ROUNDED)
    said = page.found(rf"95 % band ([\d.]+(?: [nµm]?s)?) – ({_TIME})")
    ends = [text if text.endswith("s") else f"{text} {said[1].split()[1]}" for text in said]
    assert parse_time(ends[1]) == pytest.approx(high, rel=_ROUNDED)
    if parse_time(ends[0]) != pytest.approx(low, rel=_ROUNDED):
        assert "no end is below that of a smaller message or the speed of light" in page.flat
        assert parse_time(ends[0]) > low
