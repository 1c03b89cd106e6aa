"""Colours that can be read on both pages, dashes that differ, ticks with units."""

import itertools

import pytest

from perfmodel.report.figures import heat_maps, style
from perfmodel.schema.evidence import Evidence

WHITE, DARK = "#ffffff", "#14181d"  # backgrounds of the page


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", [*style.PALETTE, *style.EVIDENCE_COLOURS.values(), style.RULE])
def test_every_colour_is_read_on_the_light_and_the_dark_page(colour: str) -> None:
    assert contrast(WHITE, "#000000") == pytest.approx(21)
    assert contrast(colour, WHITE) >= 3 and contrast(colour, DARK) >= 3


def test_numbers_in_cells_are_read_on_every_colour() -> None:
    for _, colour in heat_maps.SCALE:
        assert contrast(heat_maps.NUMBERS, colour) >= 4.5


def test_every_evidence_has_its_own_dash_and_colour() -> None:
    assert set(style.DASHES) == set(style.EVIDENCE_COLOURS) == set(Evidence)
    assert len(set(style.DASHES.values())) == len(set(style.EVIDENCE_COLOURS.values())) == len(Evidence)
    assert all(a != b for a, b in itertools.pairwise(style.SYMBOLS))


def test_ticks_are_round_and_inside() -> None:
    assert style.log_ticks(1, 100) == [1, 2, 5, 10, 20, 50, 100]
    assert style.log_ticks(80e9, 100e12)[0] == 1e11
    assert style.log_ticks(1, 1e6) == [1, 10, 100, 1e3, 1e4, 1e5, 1e6]


def test_logarithmic_axes_have_marks_between_their_labels() -> None:
    """2 to 9 of each decade; tenths on a short axis, decades alone on a long one; octaves of messages."""
    between = style.time_axis(1e-5, 1e-3)["minor"]
    assert between["ticks"] == "outside" and between["ticklen"] < style.time_axis(1e-5, 1e-3)["ticklen"]
    marks = [round(1e6 * value) for value in between["tickvals"]]
    assert marks == [*range(10, 100, 10), *range(100, 1001, 100)]
    assert style.log_minor(1, 2) == pytest.approx([k / 10 for k in range(10, 21)])
    assert style.log_minor(1, 1e9) == [10.0**k for k in range(10)]
    octaves = style.binary_bytes_axis(2**10, 2**20)["minor"]["tickvals"]
    assert octaves == [2.0**k for k in range(10, 21)]
    assert "minor" not in style.axis("linear")


def test_axes_write_units() -> None:
    assert style.bytes_axis(1e11, 1e12)["ticktext"] == ["100 GB", "200 GB", "500 GB", "1 TB"]
    assert style.time_axis(1e-5, 2e-4)["ticktext"] == ["10 µs", "20 µs", "50 µs", "100 µs", "200 µs"]
    assert style.ratio_axis(1, 100)["ticktext"][-1] == "100×"
    assert style.rate_axis(1e9, 1e10)["ticktext"] == ["1 GB/s", "2 GB/s", "5 GB/s", "10 GB/s"]
    assert style.ratio_axis(1, 1)["range"][0] < 0 < style.ratio_axis(1, 1)["range"][1]
