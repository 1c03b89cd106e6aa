"""Tables on the cores of one chip: cores as columns and tables as blocks, buffers, other ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.onechip.answer import ChipAnswer
from perfmodel.onechip.batch import LIMIT_WORDS
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.words import hover, safe
from perfmodel.report.onechip.cores_figure import chip_source, cores
from perfmodel.units import format_bytes, format_fraction, format_ratio, format_time

BUFFERS, IDS = "buffers", "ids"


def chip_blocks(answer: ChipAnswer) -> tuple[Block, ...]:
    """All figures of a mapping, in the order of the reader's questions."""
    return cores(answer), buffers(answer), other_ids(answer)


def buffers(answer: ChipAnswer) -> Block:
    """Bytes of rows in the buffer of each core, beside its size."""
    held, room = answer.held_bytes, answer.cost.chip.value("local_bytes")
    import plotly.graph_objects as go

    count = held.size
    figure = style.new_figure(
        bargap=0.2, height=340, showlegend=False, meta={"min_width": min(1100, max(600, 7 * count))}
    )
    words = [
        hover([f"<b>core {core}</b>", f"{format_bytes(float(size))} of {format_bytes(room)}"])
        for core, size in enumerate(held)
    ]
    figure.add_trace(
        go.Bar(
            x=list(range(count)),
            y=(100 * held / room).tolist(),
            hovertext=words,
            hoverinfo="text",
            marker={"color": style.colour(0)},
            name="rows kept",
        )
    )
    figure.update_xaxes(title={"text": "core"}, range=[-0.5, count - 0.5], showgrid=False, zeroline=False)
    figure.update_yaxes(title={"text": f"of {format_bytes(room)} (%)"}, range=[0, 104])
    full, at = int(np.sum(held >= 0.99 * room)), int(np.argmax(held))
    when = "copied once and stay there" if answer.cost.chip.buffers.persist else "copied again for each batch"
    if held.max(initial=0) == 0:
        title = "No core keeps rows in its buffer."
    else:
        title = (
            f"Rows take {format_fraction(float(held.mean()) / room)} of the cores' buffers; "
            f"{full} of {count} are full, the fullest (core {at}) has {format_bytes(float(held[at]))}."
        )
    how = f"Each bar is the share of a core's buffer that rows of tables take; they are {when}."
    rows = tuple(
        {"core": core, "held_bytes": float(size), "buffer_bytes": room} for core, size in enumerate(held)
    )
    return Block(BUFFERS, title, how, figure, chip_source(answer), rows)


_COLUMNS = (
    ("global_memory_s", "symmetric-GM"),
    ("best_symmetric_s", "best symmetric"),
    ("time_s", "this mapping"),
)


def other_ids(answer: ChipAnswer) -> Block:
    """The same mappings with other ids: the best case, the worst case, and how far they are apart."""
    import plotly.graph_objects as go

    sensed = answer.sensed
    times = {key: [float(getattr(each, key)) for each in sensed] for key, _ in _COLUMNS}
    every = [time for column in times.values() for time in column]
    figure = style.new_figure(height=360, meta={"min_width": 520})
    for number, (key, label) in enumerate(_COLUMNS):
        words = [
            hover(
                [
                    f"<b>{label}</b>, ids {safe(each.ids.name)}",
                    format_time(time),
                    f"symmetric-GM takes {format_ratio(each.global_memory_s / time)} as long",
                    f"limit: {LIMIT_WORDS[each.limit]}" if key == "time_s" else "",
                ]
            )
            for each, time in zip(sensed, times[key], strict=True)
        ]
        figure.add_trace(
            go.Scatter(
                x=[safe(each.ids.name) for each in sensed],
                y=times[key],
                mode="markers",
                name=label,
                hovertext=words,
                hoverinfo="text",
                marker={"color": style.colour(number), "symbol": style.symbol(number), "size": 13},
            )
        )
    figure.update_layout(
        xaxis=style.axis("distribution of the ids", type="category"),
        yaxis=style.time_axis(min(every) / 1.3, max(every) * 1.3, "time of a batch"),
    )
    own, gathered = (_spread(times[key]) for key in ("time_s", "global_memory_s"))
    worst = max(sensed, key=lambda each: each.time_s)
    title = (
        f"With this mapping, the worst of these ids take {format_ratio(own)} as long as the best, with "
        f"symmetric-GM {format_ratio(gathered)}; its worst are {worst.ids.name}, {format_time(worst.time_s)}."
    )
    made = "the worst of these ids" if answer.robust else f"ids {answer.ids.name}"
    how = f"Each column is a distribution of ids, each marker a mapping; this one was optimized for {made}. "
    how += f"Best symmetric: the best way of each table for ids {answer.ids.name}, the same in every column."
    rows = tuple(
        {
            "distribution": each.ids.name,
            **{key: float(getattr(each, key)) for key, _ in _COLUMNS},
            "limit": each.limit,
        }
        for each in sensed
    )
    source = chip_source(answer, [each.ids.name for each in sensed])
    return Block(IDS, title, how, figure, source, rows)


def _spread(times: Sequence[float]) -> float:
    return max(times) / min(times)
