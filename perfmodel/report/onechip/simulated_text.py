"""Text of ``perfmodel chip simulate``: predicted beside simulated times, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.onechip.answer import ChipAnswer
from perfmodel.onechip.replay import MOST_REQUESTS, Replayed
from perfmodel.report.onechip.mapping_text import more_effort_words
from perfmodel.report.terminal import facts, paragraph, table
from perfmodel.units import counted, format_bytes, format_count, format_fraction, format_ratio, format_time

_OFF = 0.25


def notes_of(answer: ChipAnswer, found: Sequence[Replayed]) -> list[str]:
    """Notes below the times: why mappings were not simulated, and which predictions are far off.

    found  the mappings, each with its predicted and its simulated time
    """
    more = more_effort_words(answer)
    said = [f"Cores own tables. {more}"] if more else []
    if answer.symmetric:
        own, best = format_time(answer.searched.seconds), format_time(answer.time_s)
        said = [
            "Cores own tables: not simulated, because none was found that is faster than the best symmetric "
            f"mapping ({own}, not {best}). {more}".strip()
        ]
    if found[0].simulated is None:
        most = format_count(float(MOST_REQUESTS))
        return [*said, f"Not simulated: more than {most} requests would be needed; give a smaller --batch."]
    off = sorted((one for one in found if abs(one.error) > _OFF), key=lambda one: -abs(one.error))
    if off:
        names = ", ".join(one.what for one in off)
        said.append(
            f"The closed form is off by more than {format_fraction(_OFF)}: use the simulated time of {names}."
        )
    return said


def simulated_text(answer: ChipAnswer, found: Sequence[Replayed], notes: Sequence[str]) -> str:
    """The text of ``perfmodel chip simulate``: a table of predicted and simulated times of mappings.

    found  the mappings with both times;  notes  from ``notes_of``
    """
    chip, tables = answer.cost.chip, answer.tables
    batch = counted(int(answer.cost.batch), "sample")
    head = [
        (tables.model, f"{counted(len(tables), 'table')}, {batch}, ids {answer.ids.name}"),
        (chip.name, f"{counted(chip.cores, 'core')}; {chip.title}"),
    ]
    rows = [_line(one) for one in found]
    headers = ["mapping", "predicted", "simulated", "error", "memory moved", "from cache"]
    said, first, last = list(notes), found[0], found[-1]
    if not answer.symmetric and first.simulated and last.simulated:
        told = format_ratio(first.predicted_s / last.predicted_s)
        seen = format_ratio(first.simulated.seconds / last.simulated.seconds)
        said.insert(0, f"{last.what} against {first.what}: {told} as fast predicted, {seen} simulated.")
    parts = [facts(head), table(headers, rows, left=(0,), drop=(5, 4))]
    return "\n\n".join([*parts, *(paragraph(note) for note in said)])


def _line(one: Replayed) -> list[str]:
    seen = one.simulated
    if seen is None:
        return [one.what, format_time(one.predicted_s), "not simulated", "", "", ""]
    return [
        one.what,
        format_time(one.predicted_s),
        format_time(seen.seconds),
        f"{100 * one.error:+.1f} %",
        format_bytes(seen.gm_bytes, binary=False),
        f"{100 * seen.hits / seen.requests:.0f} %" if seen.requests else "",
    ]
