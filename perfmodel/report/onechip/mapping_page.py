"""The page of a mapping of tables to the cores of one chip: its card, figures, and sources."""

from __future__ import annotations

from html import escape

from perfmodel.onechip.answer import ChipAnswer, too_large
from perfmodel.onechip.batch import LIMIT_WORDS
from perfmodel.report.onechip.mapping_figures import chip_blocks
from perfmodel.report.onechip.mapping_text import (
    any_mapping,
    cut_words,
    ended,
    more_effort_words,
    no_bound,
    not_looked_at,
    waits_nowhere,
)
from perfmodel.report.page.parts import Card, Page, View
from perfmodel.report.page.sources import code, named, values, versions
from perfmodel.units import counted, format_bytes, format_fraction, format_ratio, format_time


def chip_page(answer: ChipAnswer, command: str) -> Page:
    """One card and its figures, nothing to choose.

    command  searches again and writes the page
    """
    card = chip_card(answer)
    return Page(
        f"{answer.tables.model} on the cores of {answer.cost.chip.name}: {card.sentence}",
        provenance(answer, command),
        (View((), (card,), chip_blocks(answer)),),
        command,
    )


def chip_card(answer: ChipAnswer) -> Card:
    """The speed-up, what limits, what could be left to gain."""
    time_s, chip = answer.time_s, answer.cost.chip
    gathered, fitting = answer.global_memory.time_s, answer.best_symmetric.time_s
    ratio, limit = format_ratio(gathered / time_s), LIMIT_WORDS[answer.limit]
    batch = counted(int(answer.cost.batch), "sample")
    sentence = f"{ratio} as fast as symmetric-GM on {chip.name}: {limit} limits the batch."
    times = f"{format_time(time_s)} for {batch}, instead of {format_time(gathered)}"
    sure = (
        f"{format_ratio(fitting / time_s)} as fast as the best symmetric mapping ({format_time(fitting)})"
        f"{waits_nowhere(answer)}; "
        f"{_left(answer)}"
    )
    size = format_bytes(answer.tables.total_bytes, binary=False)
    where = f"{counted(chip.cores, 'core')}, ids {answer.ids.name}"
    tables = f"{counted(len(answer.tables), 'table')} of {size} on {where}"
    assumed = [f"{key} = {chip.quantity(key)}" for key in sorted(chip.overrides)]
    notes = [tables, *too_large(chip, answer.tables.total_bytes), "Modelled, not measured."]
    notes += [f"{counted(answer.tried, 'mapping')} tried: {ended(answer)}."]
    notes += [words for words in [cut_words(answer), more_effort_words(answer)] if words]
    notes += [f"{line}." for line in not_looked_at(answer)]
    notes += [f"Changed for this page: {', '.join(assumed)}."] if assumed else []
    return Card(sentence, times, sure, notes=notes)


def _left(answer: ChipAnswer) -> str:
    least, gap = answer.bound_s, answer.gap
    if answer.symmetric:
        own = (
            "it is that one: with its own tables on each core, a batch would take "
            f"{format_time(answer.owned_s)}"
        )
        return f"{own}; {_no_bound(answer) if least is None else any_mapping(answer, least)}"
    if least is None or gap is None:
        return (
            f"it is optimized for the worst of several ids; {_no_bound(answer)}"
            if answer.robust
            else _no_bound(answer)
        )
    bound = format_time(least)
    if answer.robust:
        return (
            f"it is optimized for the worst of several ids; one for these alone would take at least {bound}"
        )
    return f"no mapping of these cuts is faster than {bound}: at most {format_fraction(gap)} can be gained"


def _no_bound(answer: ChipAnswer) -> str:
    words = no_bound(answer).rstrip(".")
    return words[0].lower() + words[1:]


def provenance(answer: ChipAnswer, command: str) -> str:
    """HTML of the chip, its values with their sources, and the command."""
    chip = answer.cost.chip
    return "\n".join(
        [
            f"<p>{named('Chip', chip)}. Tables: {escape(answer.tables.model)}. Modelled, not measured.</p>",
            f"<p>Buffers: {escape(chip.buffers.source)}. {versions()}</p>",
            values(chip, "chip"),
            f"<p>To repeat this page:</p>{code(command)}",
        ]
    )
