"""Figures of the tables of a plan: the sharding of each, and the cost of its next best scheme."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np

from perfmodel.engine.placement import Scheme
from perfmodel.engine.schemes import DATA_PARALLEL, SHARDINGS
from perfmodel.plan.outcome import AlikeTables, Planned
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing, Switch
from perfmodel.report.figures.gpu_columns import Shown, colour_of, source, time_unit
from perfmodel.report.figures.marks import scatter
from perfmodel.report.figures.registry import OTHERS, TABLES
from perfmodel.report.figures.words import hover, safe, size_words
from perfmodel.report.plan_text import next_best, parts_text, ranks_text
from perfmodel.units import counted, format_count, format_fraction, format_number, format_time

MOST_GROUPS = 40
"""Most groups of equal tables in the figure of next best schemes; the costliest are drawn."""
_NOTHING = 1e-6  # of the time: no difference
_SMALL = 0.01  # of the time: another scheme costs next to nothing
_DODGE = 0.022  # of the axis: the shift of a marker from another at the same place
_NAMES = 6


def tables(shown: Shown) -> Block:
    """Markers of rows against look-ups per bag; equal tables of the same sharding share a marker."""
    groups = _by_shape(shown)
    rows, pooling = (np.array([key[at] for key in groups], dtype=float) for at in (0, 1))
    decades = np.log10(3.5 * rows.max() / rows.min())
    beside = _dodged(list(groups), _DODGE * float(decades))
    traces = []
    for name in dict.fromkeys(key[2] for key in sorted(groups, key=lambda key: _PLACES[key[2]])):
        mine = [(key, found) for key, found in groups.items() if key[2] == name]
        look = {
            "size": [11 + min(9, 3 * math.log2(sum(len(t) for _, t in found))) for _, found in mine],
            "opacity": 0.85,
            "line": {"color": "rgba(255,255,255,0.8)", "width": 1},
        }
        words = [_table_hover(shown, key[2], found) for key, found in mine]
        x, y = [beside[key] for key, _ in mine], [key[1] for key, _ in mine]
        traces.append(scatter(x, y, words, name, _marker(name) | look))
    least, most = float(rows.min()) / 1.6, float(rows.max()) * 2.2
    fewest, highest = float(pooling.min()) / 1.4, float(pooling.max()) * 1.4
    figure = style.new_figure(
        traces,
        height=420,
        meta={"min_width": 520},
        xaxis=style.log_axis(least, most, format_count, "rows of a table"),
        yaxis=style.log_axis(fewest, highest, lambda v: f"{v:g}", "look-ups of a bag"),
    )
    how = (
        "Each marker is a group of tables with equal rows, look-ups and sharding; larger markers are larger "
        "groups. Markers at the same place are moved to the right."
    )
    return TABLES.block(tables_title(shown), how, figure, source(shown), _rows(shown.answer))


def _marker(sharding: str) -> dict[str, Any]:
    return {"color": colour_of(sharding), "symbol": style.symbol(_PLACES[sharding])}


_PLACES = {name: at for at, name in enumerate(SHARDINGS)}
Key = tuple[float, float, str]  # rows, look-ups of a bag, sharding


def _by_shape(shown: Shown) -> dict[Key, list[tuple[AlikeTables, list[int]]]]:
    """Groups of tables, each with its table numbers, by rows, look-ups per bag and sharding."""
    t = shown.answer.evaluator.tables
    found: dict[Key, list[tuple[AlikeTables, list[int]]]] = defaultdict(list)
    for group in shown.answer.groups:
        places: dict[Key, list[int]] = defaultdict(list)
        for at in group.tables:
            places[float(t.rows[at]), float(t.pooling[at]), group.sharding].append(at)
        for key, mine in places.items():
            found[key].append((group, mine))
    return found


def _dodged(keys: list[Key], step: float) -> dict[Key, float]:
    """Where on the axis of rows each marker is drawn, shifted so that no marker hides another.

    step  the shift from marker to marker, in decades
    """
    count: dict[tuple[float, float], int] = defaultdict(int)
    found = {}
    for key in sorted(keys, key=lambda key: _PLACES[key[2]]):
        found[key] = key[0] * 10 ** (step * count[key[:2]])
        count[key[:2]] += 1
    return found


def tables_title(shown: Shown) -> str:
    """The title: which sharding has most of the bytes, and up to how many rows tables are replicated."""
    answer, t = shown.answer, shown.answer.evaluator.tables
    by: dict[str, list[int]] = defaultdict(list)
    for group in answer.groups:
        by[group.sharding] += group.tables
    looked = t.pooling / t.pooling.sum()
    size = t.count_bytes(training=answer.evaluator.memories.training)

    def words(name: str) -> str:
        mine = by[name]
        share = format_fraction(float(size[mine].sum() / size.sum()))
        ups = format_fraction(float(looked[mine].sum()))
        return f"{share} of the bytes and {ups} of the look-ups"

    most = sorted(by, key=lambda name: -float(size[by[name]].sum()))
    if len(most) == 1:
        return f"All tables are {most[0]}."
    first, second = most[:2]
    text = (
        f"The {_count(by[first], first)} {_are(by[first])} {words(first)}, "
        f"the {_count(by[second], second)} {words(second)}"
    )
    if DATA_PARALLEL in by:
        at = max(by[DATA_PARALLEL], key=lambda table: float(size[table]))
        text += f"; the largest that is copied has {counted(int(t.rows[at]), 'row')}"
    return text + "."


def _count(found: list[int], name: str) -> str:
    return f"{name} table" if len(found) == 1 else f"{format_count(len(found))} {name} tables"


def _are(found: list[int]) -> str:
    return "has" if len(found) == 1 else "have"


def _table_hover(shown: Shown, sharding: str, found: list[tuple[AlikeTables, list[int]]]) -> str:
    t = shown.answer.evaluator.tables
    every = [at for _, mine in found for at in mine]
    names = ", ".join(safe(t.names[at]) for at in every[:_NAMES])
    more = f" and {len(every) - _NAMES} more" if len(every) > _NAMES else ""
    dims = ", ".join(f"{dim:.0f}" for dim in sorted(set(t.dim[every].tolist())))
    first = every[0]
    lines = [
        f"<b>{names}{more}</b>: {sharding}",
        f"{format_count(float(t.rows[first]))} rows × {dims}, {format_number(float(t.pooling[first]))} "
        "look-ups per bag",
    ]
    for group, mine in found[:3]:
        where = _where(ranks_text(shown.answer.ranks(group), shown.answer.evaluator.gpus))
        parts = parts_text(group.scheme)
        many = f"{len(mine)} " if len(mine) > 1 else ""
        cut = "a copy" if parts == "-" else f"{parts} parts"
        other = next_best(shown.answer, group)
        held = f"{size_words(group.memory_bytes)} on each"
        lines.append(f"{many}{cut} on {where}, {held}")
        lines.append(f"next best: {other}" if other else "")
    return hover(lines)


def _where(ranks: str) -> str:
    """On which GPUs a table is, from ``ranks_text``: ``4 of 128 GPUs``, ``all GPUs``, ``ranks 0, 3``."""
    return (
        f"{ranks} GPUs"
        if " of " in ranks or ranks == "all"
        else f"{'rank' if ranks.isdecimal() else 'ranks'} {ranks}"
    )


def _rows(answer: Any) -> list[dict[str, Any]]:
    """The figure's data, a row for each table: its shape, sharding, parts, memory, ranks, next best."""
    e, found = answer.evaluator, []
    groups = {t: group for group in answer.groups for t in group.tables}
    for t, placement in enumerate(answer.plan.placements):
        group, scheme = groups[t], placement.scheme
        reason = group.reason
        found.append(
            {
                "table": e.tables.names[t],
                "rows": int(e.tables.rows[t]),
                "dim": int(e.tables.dim[t]),
                "look_ups": float(e.tables.pooling[t]),
                "sharding": group.sharding,
                "exchange": scheme.kind.name.lower(),
                "row_parts": scheme.row_parts,
                "column_parts": scheme.col_parts,
                "hot_rows": scheme.hot_rows,
                "shard_bytes": group.memory_bytes,
                "ranks": ranks_text(placement.ranks, e.gpus),
                "next_best": reason.sharding if reason and reason.scheme else "",
                "next_best_more_s": reason.more_s if reason and reason.scheme else None,
            }
        )
    return found


def others(shown: Shown) -> Block | Missing:
    """Bars of how much longer the plan takes if a table has its next best scheme, for each table.

    Limits: no table has another scheme that fits, or none changes the time -> Missing
    """
    answer, time_s = shown.answer, shown.answer.found.cost.time_s
    tried = [group for group in answer.groups if group.reason and group.reason.scheme]
    if not tried:
        return OTHERS.missing("no other scheme of any table fits in memory.")
    if max(abs(_more(group)) for group in tried) < _NOTHING * time_s:
        return OTHERS.missing("no other scheme of any table changes the time of the plan.")
    drawn = sorted(tried, key=lambda group: -abs(_more(group)))[:MOST_GROUPS]
    factor, unit = time_unit(max(abs(_more(group)) for group in drawn))
    slow = [factor * _more(group) for group in drawn]
    labels = [_label(shown, group) for group in drawn]
    members = [(name, [k for k, group in enumerate(drawn) if group.sharding == name]) for name in SHARDINGS]
    members = [(name, at) for name, at in members if at]

    def beside(turn: float) -> list[list[str]]:
        """The side of each marker with room for its label: the left for values beyond ``turn``."""
        return [["middle left" if slow[k] > turn else "middle right" for k in at] for _, at in members]

    linear = style.axis(f"{_AXIS} ({unit})", rangemode="tozero")
    views = [Switch("linear", {"textposition": beside(_TURN * max(slow))}, {"xaxis": linear})]
    if min(slow) > 0:
        low, high = max(min(slow), max(slow) * 1e-5), max(slow)
        seconds = style.log_axis(low / 1.6, high * 1.6, lambda v: format_time(v / factor), _AXIS)
        turned = beside(low * (high / low) ** _TURN)
        views.insert(0, Switch("log", {"textposition": turned}, {"xaxis": seconds}))
    traces = [
        scatter(
            [slow[k] for k in at],
            at,
            [_other_hover(answer, labels[k], drawn[k], time_s) for k in at],
            name,
            _marker(name) | {"size": 11},
            mode="markers+text",
            text=[_scheme_words(drawn[k]) for k in at],
            textposition=side,
            textfont={"size": 11, "color": style.PALETTE[7]},
        )
        for (name, at), side in zip(members, views[0].traces["textposition"], strict=True)
    ]
    figure = style.new_figure(
        traces,
        height=110 + 20 * len(drawn),
        showlegend=len(members) > 1,
        meta={"min_width": 520},
        yaxis=style.axis(
            tickmode="array",
            tickvals=list(range(len(labels))),
            ticktext=labels,
            range=[len(drawn) - 0.3, -0.7],
        ),
        **views[0].layout,
    )
    left = len(tried) - len(drawn)
    how = (
        "Each row is a table, or a group of equal ones; its colour is its sharding. It shows how much "
        "longer the plan takes if only this table uses its next best scheme, which is named beside it"
        + (f"; the {len(drawn)} costliest of {len(tried)}." if left else ".")
    )
    if min(_more(group) for group in drawn) < -_NOTHING * time_s:
        how += " Below 0 the plan would be faster with it."
    rows = [_other_row(shown, group) for group in tried]
    return OTHERS.block(
        others_title(shown, tried), how, figure, source(shown), rows, views if len(views) > 1 else ()
    )


_TURN = 0.6
"""Share of an axis beyond which labels are left of their markers."""
_AXIS = "how much longer the plan takes"


def others_title(shown: Shown, tried: list[AlikeTables]) -> str:
    """The title: for which table another scheme costs most, and for how many it costs next to nothing.

    tried  groups of tables that have another scheme
    """
    time_s = shown.answer.found.cost.time_s
    dearest = max(tried, key=_more)
    little = sum(len(g.tables) for g in tried if abs(_more(g)) < _SMALL * time_s)
    total = sum(len(group.tables) for group in tried)
    name = shown.answer.evaluator.tables.names[dearest.tables[0]]
    text = (
        f"Another scheme would cost {name} the most: +{format_time(_more(dearest))} with "
        f"{_scheme_words(dearest)} instead of {_words(dearest.sharding, dearest.scheme)}, "
        f"{format_fraction(abs(_more(dearest)) / time_s)} of the {shown.step_words}"
    )
    if _more(dearest) <= 0:
        shortest = min(tried, key=_more)
        name = shown.answer.evaluator.tables.names[shortest.tables[0]]
        text = (
            f"No other scheme makes this plan slower; one of {name} makes it faster: "
            f"−{format_time(-_more(shortest))} with {_scheme_words(shortest)}"
        )
    if little:
        text += f"; for {little} of {counted(total, 'table')} it is less than {format_fraction(_SMALL)}"
    return text + "."


def _scheme_words(group: AlikeTables) -> str:
    """The next best scheme in words."""
    reason = group.reason
    return _words(reason.sharding, reason.scheme) if reason and reason.scheme else ""


def _words(sharding: str, scheme: Scheme) -> str:
    """A sharding and its exchange in words: ``row-wise, unique 128×1``."""
    return f"{sharding}, {scheme.kind.facts.word} {parts_text(scheme)}" if scheme.parts else sharding


def _more(group: AlikeTables) -> float:
    return group.reason.more_s if group.reason else 0.0


def _label(shown: Shown, group: AlikeTables) -> str:
    name = safe(shown.answer.evaluator.tables.names[group.tables[0]])
    return name + (f" +{len(group.tables) - 1}" if len(group.tables) > 1 else "")


def _other_hover(answer: Planned, label: str, group: AlikeTables, time_s: float) -> str:
    reason = group.reason
    other = f"next best: {reason.sharding}, {next_best(answer, group)}" if reason else ""
    share = f"{format_fraction(abs(_more(group)) / time_s)} of the time"
    alike = "" if len(group.tables) == 1 else "one of them changed, the others as they are"
    return hover([f"<b>{label}</b>: {group.sharding}, {parts_text(group.scheme)}", other, share, alike])


def _other_row(shown: Shown, group: AlikeTables) -> dict[str, Any]:
    reason = group.reason
    assert reason is not None and reason.scheme is not None
    return {
        "table": shown.answer.evaluator.tables.names[group.tables[0]],
        "tables_alike": len(group.tables),
        "sharding": group.sharding,
        "exchange": group.scheme.kind.name.lower(),
        "next_best": reason.sharding,
        "next_best_exchange": reason.scheme.kind.name.lower(),
        "next_best_row_parts": reason.scheme.row_parts,
        "next_best_column_parts": reason.scheme.col_parts,
        "more_s": reason.more_s,
    }
