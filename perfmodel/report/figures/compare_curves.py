"""The collectives of two libraries or machines in one figure each, with their ratio below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.estimate import CollectiveEstimate, CollectiveModel
from perfmodel.errors import NoCalibrationError
from perfmodel.model.differences import apart, ratio_band
from perfmodel.passes.settings import BEST, Setting
from perfmodel.project.comparison import VERDICTS, DifferenceVerdict
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.collective_curves import MeasuredLibrary, measured, medians
from perfmodel.report.figures.compare import INDEPENDENT, PAD, Pair, letters, verdict_traces
from perfmodel.report.figures.words import collective_name, hover, interval_end, library_name, safe, sentence
from perfmodel.schema.calibration import Curve
from perfmodel.schema.evidence import COLLECTIVES, Backend, Evidence
from perfmodel.units import counted, format_bytes, format_ratio, format_time

Floats = npt.NDArray[np.float64]

_PER_OCTAVE = 1
_USED = ("all_to_all", "reduce_scatter")  # of a row-wise pass: shown even where one side lacks them


@dataclass(frozen=True, eq=False)
class _Cell:
    """One collective on one group of ranks, of both sides on one grid of sizes."""

    collective: str
    curves: tuple[Curve, Curve]
    sources: tuple[MeasuredLibrary, MeasuredLibrary]
    sizes: Floats
    times: tuple[CollectiveEstimate, CollectiveEstimate]

    @property
    def gpus(self) -> int:
        return self.curves[0].gpus

    @property
    def spans(self) -> tuple[tuple[Floats, Floats, Floats], tuple[Floats, Floats, Floats]]:
        a, b = ((t.low_s, t.time_s, t.high_s) for t in self.times)
        return a, b

    @property
    def verdicts(self) -> list[DifferenceVerdict]:
        return [VERDICTS[int(code)] for code in apart(*self.spans)]


def model_of(setting: Setting) -> CollectiveModel | None:
    """The library of an answer; of two, NCCL. Limits: nothing known -> None"""
    library = str(Backend.NCCL) if setting.backend == BEST else setting.backend
    try:
        return CollectiveModel.load(setting.machine, library, setting.clock, setting.calibration)
    except NoCalibrationError:
        return None


def _source_of(setting: Setting) -> MeasuredLibrary | None:
    """As ``model_of``, with the samples. Limits: nothing known -> None"""
    library = str(Backend.NCCL) if setting.backend == BEST else setting.backend
    return measured(setting.machine, library, setting.clock, setting.calibration)


def curve_blocks(pair: Pair) -> Iterator[Block | Missing]:
    """A block a collective: the times of both over bytes with their bands, medians, and A over B.

    On the most ranks that both measured it on. Limits: a collective of the pass that they did not measure on
    the same ranks -> Missing;  another one -> no block
    """
    sources = tuple(_source_of(answer.setting) for _, _, answer in pair.sides)
    models = tuple(one.model if one else None for one in sources)
    for collective in COLLECTIVES:
        name = f"compare-{collective_name(collective)}"
        found = [m.calibration.curves if m else [] for m in models]
        curves = common_curves(collective, *found)
        if sources[0] is None or sources[1] is None or curves is None:
            if collective in _USED:
                yield Missing(name, _why(collective, models, *found))
            continue
        yield _block(name, pair, _cell(collective, curves, (sources[0], sources[1])))


def common_curves(collective: str, a: list[Curve], b: list[Curve]) -> tuple[Curve, Curve] | None:
    """The curves of both on the most ranks that both have, those of one domain first; else None."""
    first, second = (
        {(c.gpus, min(c.gpus, c.domain_gpus)): c for c in curves if c.collective == collective}
        for curves in (a, b)
    )
    both = sorted(set(first) & set(second), key=lambda cell: (cell[0] == cell[1], cell[0]))
    return (first[both[-1]], second[both[-1]]) if both else None


def _why(collective: str, models: tuple[CollectiveModel | None, ...], a: list[Curve], b: list[Curve]) -> str:
    """What each side measured it on, and how B can be measured like A (or A like B)."""
    words, ranks = [], []
    for letter, curves in (("A", a), ("B", b)):
        known = sorted({c.gpus for c in curves if c.collective == collective})
        ranks.append(",".join(map(str, known)))
        words.append(
            f"for {letter} " + (f"on {' and '.join(map(str, known))} GPUs" if known else "not at all")
        )
    said = f"{collective_name(collective)} was measured {', '.join(words)}"
    other, like = (models[1], ranks[0]) if ranks[0] else (models[0], ranks[1])
    if other is None or not like:
        return f"{said}."
    line = f"perfmodel calibrate --only {other.calibration.backend}:{collective} --ranks {like}"
    return f"{said}; on {'B' if ranks[0] else 'A'}'s machine: {line}"


def _cell(
    collective: str, curves: tuple[Curve, Curve], sources: tuple[MeasuredLibrary, MeasuredLibrary]
) -> _Cell:
    low = min(curve.anchor_bytes[0] for curve in curves)
    high = max(curve.anchor_bytes[-1] for curve in curves)
    steps = max(round(float(np.log2(high / low)) * _PER_OCTAVE), 1)
    sizes = np.rint(np.geomspace(low, high, steps + 1))
    models = (one.model for one in sources)
    a, b = (
        model.estimate(collective, sizes, curve.gpus, min(curve.domain_gpus, model.machine.gpus_per_node))
        for model, curve in zip(models, curves, strict=True)
    )
    return _Cell(collective, curves, sources, sizes, (a, b))


def _block(name: str, pair: Pair, cell: _Cell) -> Block:
    low, ratio, high = ratio_band(*cell.spans)
    rows = tuple(_rows(cell, low, ratio, high))
    return Block(
        name,
        _title(cell, ratio),
        "Lines are the times that a projection uses, with 95 % bands: dashed inside the measured sizes, "
        f"dotted outside. {_marks_words(cell)} Below: A's time divided by B's with its 95 % interval, in "
        "the colour of the faster one where the interval excludes 1, grey where it includes 1. "
        f"{INDEPENDENT}",
        _figure(pair, cell, (low, ratio, high), rows),
        _source(cell),
        rows,
    )


def _marks_words(cell: _Cell) -> str:
    """What the marks are, and why lines do not pass through all of them."""
    if all(one.model.borrowed for one in cell.sources):
        return "There are no marks: both were measured on other machines."
    words = (
        "Marks are medians of samples, and lines go through them. Where a larger message took less time, the "
        "line goes through the geometric mean of the two."
    )
    lacking = [
        letter
        for letter, one in zip("AB", cell.sources, strict=True)
        if one.samples is None and not one.model.borrowed
    ]
    if not lacking:
        return words
    return (
        f"{words} The samples of {' and '.join(lacking)} are not available: its marks are taken from the "
        "line."
    )


def _title(cell: _Cell, ratio: Floats) -> str:
    """From which sizes which side is the faster, and what cannot be said."""
    what = f"{collective_name(cell.collective)} on {counted(cell.gpus, 'GPU')}"
    parts = []
    for side in dict.fromkeys(v for v in cell.verdicts if v in (DifferenceVerdict.A, DifferenceVerdict.B)):
        at = [i for i, verdict in enumerate(cell.verdicts) if verdict is side]
        gains = [float(ratio[i] if side is DifferenceVerdict.B else 1 / ratio[i]) for i in at]
        where = _where(at, cell.sizes)
        least, most = format_ratio(min(gains)), format_ratio(max(gains))
        span = most if least == most else f"{least} to {most}"
        parts.append(f"{side.value[0]} is faster {where} ({span})")
    unsaid = sum(v is DifferenceVerdict.CANNOT_SAY for v in cell.verdicts)
    if not parts:
        middle = float(np.median(ratio))
        near = f"the median of A's time divided by B's is {format_ratio(middle)}"
        return sentence(
            f"{what}: the interval of their ratio includes 1 at every size, so neither is faster for "
            f"certain; {near}"
        )
    if unsaid:
        parts.append(f"at {unsaid} of {len(cell.verdicts)} sizes neither is faster for certain")
    return sentence(f"{what}: {', '.join(parts)}")


def _where(at: list[int], sizes: Floats) -> str:
    """``up to 1 MiB``, ``from 1 MiB on``, ``at 1 MiB``; several spans: ``at 7 of 20 sizes``."""
    if len(at) == len(sizes):
        return "at every size"
    if at[-1] - at[0] + 1 != len(at):
        return f"at {len(at)} of {len(sizes)} sizes"
    first, last = (format_bytes(float(sizes[i])) for i in (at[0], at[-1]))
    if at[0] == 0 or at[0] == at[-1]:
        return f"up to {last}" if at[0] == 0 else f"at {last}"
    return f"from {first} on" if at[-1] == len(sizes) - 1 else f"from {first} to {last}"


def _figure(
    pair: Pair,
    cell: _Cell,
    ratios: tuple[Floats, Floats, Floats],
    rows: tuple[dict[str, Any], ...],
) -> Any:
    figure = style.new_figure(height=620)
    figure.set_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06, row_heights=[0.62, 0.38])
    for index, (_, label, _) in enumerate(pair.sides):
        for trace in _traces(cell, index, label):
            figure.add_trace(trace, row=1, col=1)
    bands = [(float(low), float(middle), float(high)) for low, middle, high in zip(*ratios, strict=True)]
    texts = [_ratio_text(row) for row in rows]
    for trace in verdict_traces(cell.sizes.tolist(), bands, [str(v) for v in cell.verdicts], texts):
        figure.add_trace(trace, row=2, col=1)
    letters(figure, [(float(cell.sizes[-1]), float(t.time_s[-1])) for t in cell.times])
    first, last = float(cell.sizes[0]), float(cell.sizes[-1])
    pad = (last / first) ** PAD
    ends = first / pad, last * pad
    figure.update_xaxes(style.binary_bytes_axis(*ends, ""), showticklabels=False, row=1, col=1)
    figure.update_xaxes(style.binary_bytes_axis(*ends, "payload of one GPU"), row=2, col=1)
    times = np.concatenate([np.concatenate([t.low_s, t.high_s]) for t in cell.times])
    figure.update_yaxes(style.time_axis(times.min() / 1.3, times.max() * 1.3), row=1, col=1)
    low, high = min(1.0, float(ratios[0].min())), max(1.0, float(ratios[2].max()))
    figure.update_yaxes(style.ratio_axis(low / 1.1, high * 1.1, "A over B (×)"), row=2, col=1)
    figure.add_hline(y=1, line={"color": style.RULE, "width": 1}, row=2, col=1)
    return figure


def _traces(cell: _Cell, index: int, label: str) -> Iterator[Any]:
    """Ribbon, line in parts of one evidence, and medians of samples where they are of this machine."""
    import plotly.graph_objects as go

    colour, curve, t = style.colour(index), cell.curves[index], cell.times[index]
    same = {"name": label, "legendgroup": label}  # the page takes names for plain text
    x = cell.sizes.tolist()
    yield go.Scatter(
        x=[*x, *reversed(x)], y=[*t.high_s.tolist(), *reversed(t.low_s.tolist())], fill="toself",
        fillcolor=style.faded(colour, 0.12), line={"width": 0}, mode="lines", hoverinfo="skip",
        showlegend=False, **same,
    )  # fmt: skip
    ranks = [max(int(rank), Evidence.INTERPOLATED.rank) for rank in t.evidence]  # marks are what was measured
    texts = [_line_text(label, float(s), cell, index, i) for i, s in enumerate(cell.sizes)]
    for at, rank in enumerate(ranks):
        if at and ranks[at - 1] == rank:
            continue
        end = next((i for i in range(at, len(ranks)) if ranks[i] != rank), len(ranks))
        part = slice(max(at - 1, 0), end)
        line = {"color": colour, "width": 2.5, "dash": style.DASHES[Evidence.from_rank(rank)]}
        yield go.Scatter(
            x=x[part], y=t.time_s[part].tolist(), mode="lines", line=line, hovertext=texts[part],
            hoverinfo="text", showlegend=at == 0, **same,
        )  # fmt: skip
    if not cell.sources[index].model.borrowed:
        marks = {"color": colour, "symbol": style.symbol(index), "size": 6}
        points = medians(cell.sources[index], curve).to_dict(orient="list")
        yield go.Scatter(
            x=points["payload_bytes"], y=points["time_s"], mode="markers", marker=marks, showlegend=False,
            hovertext=list(_mark_texts(label, curve, points)), hoverinfo="text", **same,
        )  # fmt: skip


def _mark_texts(label: str, curve: Curve, points: Mapping[Any, Any]) -> Iterator[str]:
    for size, time, count in zip(points["payload_bytes"], points["time_s"], points["n"], strict=True):
        of = f"median of {counted(int(count), 'sample')}" if count else "its samples are not here"
        lines = [f"{format_bytes(size)}: {format_time(time)}", of]
        yield hover([f"<b>{safe(label)}</b>", *lines, f"measured: {safe(', '.join(curve.sources))}"])


def _line_text(label: str, size: float, cell: _Cell, index: int, at: int) -> str:
    t = cell.times[index]
    low, high = format_time(float(t.low_s[at])), format_time(float(t.high_s[at]))
    return hover(
        [
            f"<b>{safe(label)}</b>",
            f"{format_bytes(size)}: {format_time(float(t.time_s[at]))}, band {low} – {high}",
            f"evidence: {Evidence.from_rank(int(t.evidence[at]))}",
        ]
    )


def _rows(cell: _Cell, low: Floats, ratio: Floats, high: Floats) -> Iterator[dict[str, Any]]:
    a, b = cell.times
    for i, size in enumerate(cell.sizes):
        yield {
            "collective": cell.collective,
            "gpus": cell.gpus,
            "payload_bytes": float(size),
            "a_s": float(a.time_s[i]),
            "a_low_s": float(a.low_s[i]),
            "a_high_s": float(a.high_s[i]),
            "b_s": float(b.time_s[i]),
            "b_low_s": float(b.low_s[i]),
            "b_high_s": float(b.high_s[i]),
            "ratio": float(ratio[i]),
            "ratio_low": float(low[i]),
            "ratio_high": float(high[i]),
            "verdict": str(cell.verdicts[i]),
        }


def _ratio_text(row: Mapping[str, Any]) -> str:
    low, high = (interval_end(row[name]) for name in ("ratio_low", "ratio_high"))
    return hover(
        [
            f"<b>{format_bytes(row['payload_bytes'])}</b>",
            f"A over B {format_ratio(row['ratio'])}, interval {low} – {high}",
            f"{format_time(row['a_s'])} and {format_time(row['b_s'])}",
            row["verdict"],
        ]
    )


def _source(cell: _Cell) -> str:
    parts = []
    for letter, source, curve in zip("AB", cell.sources, cell.curves, strict=True):
        model, c = source.model, source.model.calibration
        many = counted(len(curve.anchor_bytes), "size")
        library = f"{library_name(str(c.backend))} {c.library_version}, {c.clock} clock"
        what = f"{letter}: {c.calibration_id}, {library}"
        parts.append(
            f"{what}, {many}" + (f", carried over to {model.machine.name}" if model.borrowed else "")
        )
    return "; ".join(parts) + "."
