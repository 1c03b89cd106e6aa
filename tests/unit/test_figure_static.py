"""A figure as it is printed: its words, its legend and its margins, without a browser."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.errors import BadInputError
from perfmodel.report import picture_files
from perfmodel.report.figures import Block, Switch, style
from perfmodel.report.figures.ends import LabelledEnd, PixelScale, end_labels
from perfmodel.report.static import WIDTH, drawn, printed


def block(title: str = "A finding.", *, names: tuple[str, ...] = ("one", "two"), **layout: Any) -> Block:
    import plotly.graph_objects as go

    figure = style.new_figure(**layout)
    for name in names:
        figure.add_trace(go.Scatter(x=[1, 2], y=[1, 2], name=name, legendgroup="g"))
    figure.add_trace(go.Scatter(x=[1], y=[1], showlegend=False))
    ways = (
        Switch("A × B", {}, {}),
        Switch("µs", {"y": [[5, 6]] * 2 + [[7]]}, {"yaxis": style.axis("time (µs)")}),
    )
    return Block("n", title, "h", figure, "The source.", ({"a": 1},), ways)


def test_words_stand_above_and_below_and_the_block_stays() -> None:
    one = block('Is a < b & "<script>"?')
    before = one.figure.to_json()
    figure = printed(one)
    assert 'Is a &lt; b &amp; "&lt;script&gt;"?' in figure.layout.title.text
    assert [a.text for a in figure.layout.annotations] == ["h<br>The source."]
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "white"
    assert figure.layout.width == WIDTH and one.figure.to_json() == before


def test_longer_words_take_room_from_the_paper_and_not_from_the_data() -> None:
    def plot(figure: Any) -> float:
        margin = figure.layout.margin
        return float(figure.layout.height - margin.t - margin.b)

    short, long = printed(block()), printed(block("Many words that say it. " * 12))
    assert long.layout.title.text.count("<br>") > 2
    assert plot(long) == plot(short) == plot(printed(block(), 480))
    assert long.layout.margin.t > short.layout.margin.t + 40
    fixed = printed(block(), height=500)
    assert fixed.layout.height == 500 and fixed.layout.margin.t == short.layout.margin.t
    with pytest.raises(BadInputError, match="no room"):
        printed(block("Many words that say it. " * 12), height=200)


def test_the_legend_has_what_the_page_has() -> None:
    two = printed(block())
    assert two.layout.showlegend and [t.showlegend for t in two.data] == [True, True, False]
    assert not printed(block(names=("one",))).layout.showlegend
    assert not printed(block(showlegend=False)).layout.showlegend
    many = printed(block(names=tuple(f"a long name of a series {k}" for k in range(9))))
    assert many.layout.margin.t > two.layout.margin.t + 30  # rows of their own


def test_labels_have_room_beside_and_below() -> None:
    plain = printed(block())
    label = "a label that is long"
    long = printed(block(yaxis=style.axis(tickvals=[1], ticktext=[label])))
    assert long.layout.margin.l > plain.layout.margin.l + 60
    two = printed(block(xaxis=style.axis(tickvals=[1], ticktext=["1 TB<br>16 GPUs<br>9 µs"])))
    assert two.layout.margin.b > plain.layout.margin.b + 25
    assert printed(block(margin={"r": 150, "t": 20, "b": 20})).layout.margin.r == 150  # words at line ends
    upper = printed(block(xaxis2=style.axis("GPUs", side="top", overlaying="x")))
    assert upper.layout.margin.t > plain.layout.margin.t + 30
    words = {"text": "above", "y": 1.01, "yanchor": "bottom"}
    tops = [printed(block(annotations=[{**words, "yref": yref}])).layout.margin.t for yref in ("paper", "y")]
    assert tops[0] > tops[1] == plain.layout.margin.t


def test_a_switch_is_drawn_by_its_label() -> None:
    one = block()
    other = drawn(one, "US")
    assert [list(t.y) for t in other.figure.data] == [[5, 6], [5, 6], [7]]
    assert other.figure.layout.yaxis.title.text == "time (µs)"
    assert [s.label for s in other.switches] == ["µs", "A × B"] and list(one.figure.data[0].y) == [1, 2]
    assert drawn(one, "axb").switches[0].label == "A × B"
    with pytest.raises(BadInputError, match="known: A×B, µs"):
        drawn(one, "linear")


def test_without_kaleido_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInputError, match=r"(?s)kaleido.*pip install.*\.html"):
        picture_files.write_pictures([])


def test_a_narrow_picture_has_fewer_labels() -> None:
    ticks = [float(k) for k in range(1, 11)]
    one = block(xaxis=style.axis(tickvals=ticks, ticktext=[f"{k:g} TB" for k in ticks]))
    assert len(printed(one).layout.xaxis.ticktext) == 10
    narrow = printed(one, 480).layout.xaxis
    assert list(narrow.tickvals) == [1, 3, 5, 7, 9] and narrow.ticktext[1] == "3 TB"
    assert list(one.figure.layout.xaxis.tickvals) == ticks


def test_a_narrow_picture_has_no_names_at_the_ends_of_lines() -> None:
    ends = end_labels([LabelledEnd("one", 2.0, 2.0, "#000")], PixelScale(1.0, 10.0, 300.0, log=True))
    one = block(annotations=[*ends, {"x": 1, "y": 1, "text": "a mark", "ax": 14, "ay": 0}], margin={"r": 190})
    kept = {width: printed(one, width) for width in (400, 960)}
    assert [a.text for a in kept[960].layout.annotations][:2] == ["one", "a mark"]
    assert kept[400].layout.annotations[0].text == "a mark" and kept[400].layout.margin.r < 60
