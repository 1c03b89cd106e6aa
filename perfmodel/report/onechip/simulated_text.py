"""What is predicted beside what is simulated, as text, and where they disagree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.onechip.answer import ChipAnswer
from perfmodel.onechip.replay import MOST_REQUESTS, Replayed
from perfmodel.report.onechip.mapping_text import more_effort_words
from perfmodel.report.terminal import facts, paragraph, table
from perfmodel.units import format_bytes, format_count, format_fraction, format_time

_OFF = 0.25


def owned_words(answer: ChipAnswer) -> list[str]:
    """Why no mapping is simulated where cores own tables, and that more effort may find another one."""
    more = more_effort_words(answer)
    if not answer.symmetric:
        return [f"Cores own tables. {more}"] if more else []
    said = (
        "Cores own tables: not simulated, because none was found that is faster than the best symmetric "
        f"mapping ({format_time(answer.owned_s)}, not {format_time(answer.best_symmetric.time_s)})."
    )
    return [f"{said} {more}".strip()]


def off_words(found: Sequence[Replayed]) -> list[str]:
    """What the closed form and the simulator disagree on by more than ``_OFF``, the largest error first."""
    off = sorted((one for one in found if abs(one.error) > _OFF), key=lambda one: -abs(one.error))
    if not off:
        return []
    names = ", ".join(f"{one.what} {one.way}".strip() for one in off)
    return [
        f"The closed form is off by more than {format_fraction(_OFF)}: use the simulated time of {names}."
    ]


def simulated_text(head: Sequence[tuple[str, str]], found: Sequence[Replayed], notes: Sequence[str]) -> str:
    """Predicted beside simulated times."""
    rows = []
    for one in found:
        seen = one.simulated
        rows.append(
            [
                one.what,
                one.way,
                format_time(one.predicted_s) if np.isfinite(one.predicted_s) else "too large",
                format_time(seen.seconds) if seen else "not simulated",
                f"{100 * one.error:+.1f} %" if seen else "",
                format_bytes(seen.gm_bytes, binary=False) if seen else "",
                f"{100 * seen.hits / seen.requests:.0f} %" if seen and seen.requests else "",
            ]
        )
    headers = ["", "way", "predicted", "simulated", "error", "memory moved", "from cache"]
    text = table(headers, rows, left=(0, 1), drop=(6, 5))
    errors = np.array([abs(one.error) for one in found if one.simulated is not None])
    said = [*notes, *_why_not(found)]
    if errors.size > 1:
        said.insert(
            0,
            f"error: median {100 * np.median(errors):.1f} %, 90 % within "
            f"{100 * np.quantile(errors, 0.9):.1f} %, {errors.size} simulated.",
        )
    return "\n\n".join([facts(list(head)), text, *(paragraph(note) for note in said)])


def _why_not(found: Sequence[Replayed]) -> list[str]:
    """Why some were not simulated."""
    left = [one for one in found if one.simulated is None]
    said = []
    if any(np.isinf(one.predicted_s) for one in left):
        said.append("Too large: the rows that this way keeps do not fit in the buffers of a core.")
    if any(np.isfinite(one.predicted_s) for one in left):
        most = format_count(float(MOST_REQUESTS))
        said.append(f"Not simulated: more than {most} requests would be needed; give a smaller --batch.")
    return said
