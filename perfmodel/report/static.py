"""Figures as pictures: the finding above, the source below, dark on white, for print.

Margins are computed from the lengths of labels, so that the layout needs no browser.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.errors import BadInputError
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.ends import REACH
from perfmodel.report.figures.words import safe
from perfmodel.report.terminal import wrapped

WIDTH = 960
"""Pixels of a picture's width."""

_INK, _SOFT = "#1d232b", "#4a5460"
_EDGE = 20  # pixels around everything
_TITLE, _LEGEND, _SOURCE, _TICK = 17, 13, 11, 13  # sizes of text in pixels
_WIDE = 0.56  # mean width of a letter over its size, a little more than in most fonts
_LINE = 1.3  # height of a line of text over its size
_RAISED = 12  # pixels by which plotly.js draws a title of several lines higher
_SYMBOL = 52  # pixels of a legend entry without its text
_UPPER_AXIS, _UPPER_WORDS, _NOTHING = 60, 28, 10  # pixels above the data, by content
_NARROW = 600
"""Width in pixels below which labels at the ends of lines are left out."""
_AXIS_TITLE, _RIGHT, _LEAST = 34, 24, 80  # pixels; the last is the least height of the data


def printed(block: Block, width: int = WIDTH, height: int | None = None) -> Any:
    """The figure for print, on white: finding as title, legend, data, and how to read it with its source.

    width, height  pixels; height None: its height on the page, and room for the words
    Returns plotly.graph_objects.Figure, a copy: the block is not changed
    Limits: a height with no room for the data -> BadInputError
    """
    figure = copy.deepcopy(block.figure)
    layout = figure.layout
    if width < _NARROW:
        _without_ends(figure)
    room = width - 2 * _EDGE
    title = _wrapped(block.title, room, _TITLE * 1.12)  # bold letters are wider
    words = [*_wrapped(block.how_to_read, room, _SOURCE), *_wrapped(block.source, room, _SOURCE)]
    names = _legend(figure)
    head = _EDGE + _high(len(title), _TITLE) + 8
    left, right = _left(figure), max(_RIGHT, layout.margin.r or 0)
    top = head + _legend_height(names, width - left - right) + _above(figure)
    below = _high(_tick_lines(figure), _TICK) + _AXIS_TITLE
    bottom = below + 10 + _high(len(words), _SOURCE) + _EDGE // 2
    plot = layout.height - (layout.margin.t or 0) - (layout.margin.b or 0)
    _thin(figure, width - left - right)
    least = top + bottom + _LEAST
    if height is not None and height < least:
        raise BadInputError(f"--height {height} leaves {block.name} no room.", f"at least {least} here.")
    figure.update_layout(
        width=width, height=height or plot + top + bottom, autosize=False,
        margin={"l": left, "r": right, "t": top, "b": bottom},
        paper_bgcolor="white", plot_bgcolor="white", font={"color": _INK},
        title={
            "text": f"<b>{'<br>'.join(title)}</b>", "font": {"size": _TITLE}, "automargin": False,
            "x": 0, "xref": "container", "xanchor": "left",
            "pad": {"l": _EDGE, "t": _EDGE + (_RAISED if len(title) > 1 else 0)},
            "y": 1, "yref": "container", "yanchor": "top",
        },
        showlegend=bool(names),
        legend={
            "orientation": "h", "font": {"size": _LEGEND}, "x": _EDGE / width, "xref": "container",
            "xanchor": "left", "y": 1 - head / (height or plot + top + bottom), "yref": "container",
            "yanchor": "top", "traceorder": "normal", "itemsizing": "trace",
        },
    )  # fmt: skip
    figure.add_annotation(
        text="<br>".join(words), align="left", showarrow=False, font={"size": _SOURCE, "color": _SOFT},
        x=0, xref="paper", xanchor="left", xshift=_EDGE - left,
        y=0, yref="paper", yanchor="top", yshift=-below - 10,
    )  # fmt: skip
    return figure


def _without_ends(figure: Any) -> None:
    """Remove the labels at the ends of lines: a narrow picture has the names in its legend only."""
    names = {trace.name for trace in figure.data if trace.name}
    kept = [words for words in figure.layout.annotations if words.name not in names or words.ax != REACH]
    if len(kept) < len(figure.layout.annotations):
        figure.layout.annotations = kept
        figure.layout.margin.r = 2 * _RIGHT


def _wrapped(text: str, room: float, size: float) -> list[str]:
    """The text in lines of at most ``room`` pixels at ``size`` pixels of type, escaped for a figure."""
    lines = wrapped(text, max(20, int(room / (_WIDE * size))))
    return [safe(line) for line in lines]


def drawn(block: Block, label: str) -> Block:
    """The block in the view that a button named ``label`` shows, or one of its alternative figures.

    label   of the button or of the alternative (8 GPUs), in any case; x for ×, u for µ, spaces left out
    Limits: an unknown label -> BadInputError
    """
    chosen = next(
        (one for one in (block, *block.others) if one.choice and _plain(one.choice) == _plain(label)), None
    )
    if chosen is not None:
        return replace(chosen, others=())
    switch = next((one for one in block.switches if _plain(one.label) == _plain(label)), None)
    if switch is None:
        labels = [one.label for one in block.switches] + [one.choice for one in block.others]
        known = ", ".join(one.replace(" ", "") for one in labels)
        raise BadInputError(
            f"{block.name} is not drawn as {label}.", f"known: {known or 'it is drawn in one way only'}."
        )
    figure = copy.deepcopy(block.figure)
    figure.update_layout(dict(switch.layout), overwrite=True)
    for name, value in switch.traces.items():
        for at, trace in enumerate(figure.data):
            trace[name] = value[at] if isinstance(value, list) else value
    rest = tuple(one for one in block.switches if one is not switch)
    return replace(block, title=switch.title or block.title, figure=figure, switches=(switch, *rest))


def _plain(label: str) -> str:
    return label.casefold().replace(" ", "").replace("×", "x").replace("µ", "u").replace("μ", "u")


def _above(figure: Any) -> int:
    """Height of an upper axis or of labels above the data [pixels]."""
    if any(axis.side == "top" for axis in figure.select_xaxes()):
        return _UPPER_AXIS
    for words in figure.layout.annotations:
        over = str(words.yref).endswith(("paper", "domain")) and (words.y or 0) >= 1
        if over and words.yanchor == "bottom":
            return _UPPER_WORDS
    return _NOTHING


def _high(lines: int, size: float) -> int:
    return math.ceil(lines * size * _LINE)


def _legend(figure: Any) -> list[str]:
    """Texts of the legend: names of traces, if there are two; other traces are removed from the legend."""
    shown = [t for t in figure.data if t.showlegend is not False and t.name and t.type != "heatmap"]
    if len(shown) < 2 or figure.layout.showlegend is False:
        shown = []
    for trace in figure.data:
        kept = any(trace is one for one in shown)
        if trace.type != "heatmap":
            trace.update(showlegend=kept, legendgroup=None)
    return [str(trace.name) for trace in shown]


def _legend_height(names: Sequence[str], room: float) -> int:
    """Height of the legend: a row if all entries fit, else columns as wide as the widest."""
    if not names:
        return 0
    widths = [_SYMBOL + _WIDE * _LEGEND * len(name) for name in names]
    columns = len(names) if sum(widths) <= room else max(1, int(room / max(widths)))
    return _high(math.ceil(len(names) / columns), 1.12 * _LEGEND) + 10


def _tick_lines(figure: Any) -> int:
    """How many lines of text the longest label below the data has."""
    words = [word for axis in figure.select_xaxes() if axis.side != "top" for word in axis.ticktext or ()]
    if any(axis.type == "category" for axis in figure.select_xaxes()):
        words += [word for trace in figure.data if trace.visible is not False for word in _words(trace.x)]
    return 1 + max((str(word).count("<br>") for word in words), default=0)


def _left(figure: Any) -> int:
    """Pixels that the labels and the title left of the data take."""
    found = _EDGE + 4
    for axis in figure.select_yaxes():
        if axis.showticklabels is False:
            continue
        words = [str(word) for word in axis.ticktext or ()] or ["00000"]
        if axis.type == "category":
            words = [str(w) for trace in figure.data if trace.visible is not False for w in _words(trace.y)]
        size = axis.tickfont.size or _TICK
        title = 28 if axis.title.text else 0
        found = max(found, _EDGE + title + math.ceil(_WIDE * size * max(map(len, words), default=0)) + 6)
    return found


def _thin(figure: Any, room: float) -> None:
    """Leave out every second label along the data until the labels fit horizontally."""
    for axis in figure.select_xaxes():
        axis.tickangle = 0
        words = list(axis.ticktext or ())
        widest = max((len(line) for word in words for line in str(word).split("<br>")), default=0)
        step = 1
        while words[::step][1:] and len(words[::step]) * (_WIDE * _TICK * widest + 8) > room:
            step *= 2
        if step > 1:
            axis.update(ticktext=words[::step], tickvals=list(axis.tickvals)[::step])


def _words(values: Any) -> Iterable[Any]:
    return [] if values is None else [value for value in values if isinstance(value, str)]
