"""The page of a mapping of tables to the cores of one chip: headline (card), figure, and sources."""

from __future__ import annotations

from html import escape

from perfmodel.onechip.answer import ChipAnswer, too_large
from perfmodel.onechip.batch import LIMIT_WORDS
from perfmodel.report.figures.registry import CHIP
from perfmodel.report.onechip.mapping_text import (
    bound_words,
    cut_words,
    ended,
    more_effort_words,
    waits_nowhere,
)
from perfmodel.report.page.parts import Card, Page, View
from perfmodel.report.page.sources import code, named, values, versions
from perfmodel.units import counted, format_bytes, format_ratio, format_time


def chip_page(answer: ChipAnswer, command: str) -> Page:
    """The page of a mapping of tables to cores: headline and figure; the reader has nothing to choose.

    command  searches again and writes the page
    """
    card = chip_card(answer)
    return Page(
        f"{answer.tables.model} on the cores of {answer.cost.chip.name}: {card.sentence}",
        provenance(answer, command),
        (View((), (card,), CHIP.blocks(answer=answer)),),
        command,
    )


def chip_card(answer: ChipAnswer) -> Card:
    """The headline: the speed-up, the resource that limits it, and how much faster a mapping could be."""
    time_s, chip = answer.time_s, answer.cost.chip
    gathered, fitting = answer.global_memory.time_s, answer.best_symmetric.time_s
    ratio, limit = format_ratio(gathered / time_s), LIMIT_WORDS[answer.limit]
    batch = counted(int(answer.cost.batch), "sample")
    sentence = f"{ratio} as fast as symmetric-GM on {chip.name}: {limit} limits the batch."
    times = f"{format_time(time_s)} for {batch}, instead of {format_time(gathered)}"
    best = f"{format_ratio(fitting / time_s)} as fast as the best symmetric mapping ({format_time(fitting)})"
    size = format_bytes(answer.tables.total_bytes, binary=False)
    where = f"{counted(chip.cores, 'core')}, ids {answer.ids.name}"
    tables = f"{counted(len(answer.tables), 'table')} of {size} on {where}"
    assumed = [f"{key} = {chip.quantity(key)}" for key in sorted(chip.overrides)]
    notes = [tables, *too_large(chip, answer.tables.total_bytes), "Modelled, not measured."]
    notes += [f"{counted(answer.searched.tried, 'mapping')} tried: {ended(answer)}."]
    notes += [words for words in [cut_words(answer), more_effort_words(answer)] if words]
    notes += [f"Changed for this page: {', '.join(assumed)}."] if assumed else []
    return Card(sentence, times, f"{best}{waits_nowhere(answer)}. {bound_words(answer)}", notes=notes)


def provenance(answer: ChipAnswer, command: str) -> str:
    """The end of the page as HTML: the chip, its values with their sources, and the command."""
    chip = answer.cost.chip
    return "\n".join(
        [
            f"<p>{named('Chip', chip)}. Tables: {escape(answer.tables.model)}. Modelled, not measured.</p>",
            f"<p>Buffers: {escape(chip.buffers.source)}. {versions()}</p>",
            values(chip, "chip"),
            f"<p>To repeat this page:</p>{code(command)}",
        ]
    )
