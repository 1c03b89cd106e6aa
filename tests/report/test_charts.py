"""Colours that can be read on both pages, dashes that differ, axes with units, lines by evidence."""

import pytest

from perfmodel.report.figures import chart, heat_maps
from perfmodel.report.figures.chart import (
    Axis,
    describe_dashes,
    draw_series,
    list_ticks,
    new_figure,
)
from perfmodel.schema.evidence import Evidence

WHITE, DARK = "#ffffff", "#14181d"  # backgrounds of the page


def luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(front: str, back: str) -> float:
    high, low = sorted((luminance(front), luminance(back)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_every_colour_is_read_on_the_light_and_the_dark_page() -> None:
    for colour in (*chart.PALETTE, *chart.EVIDENCE_COLOURS.values()):
        assert contrast(colour, WHITE) >= 3 and contrast(colour, DARK) >= 3, colour
    assert all(contrast(heat_maps.NUMBERS, colour) >= 4.5 for _, colour in heat_maps.SCALE)


def test_every_evidence_has_its_own_dash_and_colour() -> None:
    for looks in (chart.DASHES, chart.EVIDENCE_COLOURS):
        assert set(looks) == set(Evidence) and len(set(looks.values())) == len(Evidence)


@pytest.mark.parametrize(
    ("unit", "values", "ticks"),
    [
        ("s", [1e-5, 2e-4], ["10 µs", "20 µs", "50 µs", "100 µs", "200 µs"]),
        ("B", [1e11, 1e12], ["100 GB", "200 GB", "500 GB", "1 TB"]),
        ("B/s", [1e9, 1e10], ["1 GB/s", "2 GB/s", "5 GB/s", "10 GB/s"]),
        ("×", [1, 1e5], ["1×", "10×", "100×", "1000×"]),
        ("KiB", [2**10, 2**30], ["1 KiB", "1 MiB", "1 GiB"]),
        ("count", [8, 2000], ["10", "20", "50", "100", "200", "500", "1 000", "2 000"]),
    ],
)
def test_axes_write_units(unit: str, values: list[float], ticks: list[str]) -> None:
    settings = Axis("x", "an axis", unit).set_up(values)
    words = settings["ticktext"]
    assert words[words.index(ticks[0]) :][: len(ticks)] == ticks
    assert settings["type"] == "log" and len(words) == len(settings["tickvals"])


def test_ticks_are_as_many_as_have_room() -> None:
    """One a decade for more than three, seven for less than one; to the next power beyond the last value."""
    assert list_ticks(1, 100) == [1, 2, 5, 10, 20, 50, 100, 200, 500]
    assert list_ticks(1, 1000)[:4] == [1, 2, 5, 10] and list_ticks(1, 10)[:4] == [1, 2, 5, 10]
    assert list_ticks(1, 1e6) == [10.0**k for k in range(7)]
    assert list_ticks(2, 7) == [1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 40, 50, 70]
    assert list_ticks(3, 3)


def test_a_line_changes_its_dash_where_its_evidence_changes() -> None:
    kinds = ["measured", "measured", "interpolated", "assumed"]
    rows = [{"line": "<'a'>", "x": x, "y": x, "low": x - 1, "high": x + 1, "evidence": kind}
            for x, kind in enumerate(kinds, 1)]  # fmt: skip
    axes = Axis("x", "x", "count"), Axis("y", "y", "s", ("low", "high"))
    ribbon, *parts = draw_series(rows, axes, 0)
    assert ribbon["fill"] == "toself" and ribbon["line"]["width"] == 0  # no outline
    assert ribbon["y"] == [2, 3, 4, 5, 3, 2, 1, 0]
    assert [part["line"]["dash"] for part in parts] == ["solid", "dash", "longdashdot"]
    assert parts[0]["x"][-1] == 2 == parts[1]["x"][0]  # no gap
    assert parts[0]["hovertext"][0] == "&lt;'a'&gt;<br>1<br>1.00 s, band 0 s – 2.00 s<br>evidence: measured"
    shown = [trace["showlegend"] for trace in new_figure([ribbon, *parts])["data"]]
    assert shown == [False, True, False, False]
    said = "solid = measured, dash = interpolated, longdashdot = assumed"
    assert describe_dashes(rows).endswith(said)
    (marks,) = draw_series([{**rows[0], "main_evidence": "datasheet"}], axes, 0, marks=True)
    assert marks["hovertext"][0].endswith("evidence: datasheet; in part measured")
