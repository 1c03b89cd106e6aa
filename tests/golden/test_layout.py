"""What people read: screens with digits masked, refusals to the letter, the shape of documents and figures.

A command stands behind a ``$`` in ``screens.txt`` or ``refusals.txt``, and what it printed below. After a
change that is meant, or for a new command there: ``python tests/golden/test_layout.py`` writes all anew.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from perfmodel.answer import Question
from perfmodel.cli import run
from perfmodel.explore.answers import show_answer
from perfmodel.explore.controls import list_controls
from perfmodel.explore.texts import QuestionTexts
from perfmodel.plan.question import plan_quickly
from perfmodel.report.figures.chart import TEMPLATE, Block
from perfmodel.report.figures.subject import Subject, find_subject
from perfmodel.report.page.assemble import render_block, render_head, render_rest, write_sources
from perfmodel.report.page.question_page import FIGURES, build_card, draw_figure

HERE = Path(__file__).resolve().parent
_NUMBER = re.compile(r"(?<![A-Za-z_0-9])\d(?:[\d .]*\d)?")
_SHOWN = 3  # elements of a list


def read_blocks(name: str) -> dict[str, str]:
    """The commands of a file, each with what it printed."""
    blocks = (HERE / name).read_text(encoding="utf-8").removeprefix("$ ").split("\n$ ")
    return {line: text for line, _, text in (block.partition("\n") for block in blocks)}


def call(line: str) -> tuple[str, str, str]:
    """(stdout, stderr, exit code) of ``[COLUMNS=60] perfmodel WORDS`` in the root of the checkout."""
    columns, _, words = line.partition("perfmodel ")
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", columns.strip().partition("=")[2])
        patch.chdir(HERE.parents[1])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(shlex.split(words))
    return out.getvalue(), err.getvalue(), f"exit {code}"


def screen(line: str) -> str:
    """What a command prints, digits masked; of a document its outline."""
    out, err, end = call(line)
    width = int(line[8:10]) if line.startswith("COLUMNS") else 100
    long = [text for text in out.splitlines() if len(text) > width and " " in text.strip(" \\")]
    assert not long or "--json" in line  # words longer than a line are paths to paste
    shown = "\n".join(outline(json.loads(out))) + "\n" if "--json" in line else hide_digits(out)
    return f"{shown}{hide_digits(err)}{end}"


def refusal(line: str) -> str:
    return "".join(call(line))


def hide_digits(line: str) -> str:
    """``393 µs`` becomes ``### µs``."""
    return _NUMBER.sub(lambda match: re.sub(r"\d", "#", match[0]), line)


def outline(value: Any, name: str = "") -> Iterator[str]:
    """Lines for the values of a document: of a fraction its power of ten, of a long list both ends."""
    if isinstance(value, Mapping):
        for key in value:
            yield from outline(value[key], f"{name}.{key}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        ends = value if len(value) <= _SHOWN else (value[0], value[-1])
        lines = [line for element in ends for line in outline(element, f"{name}[]")]
        yield from (f"{line} ×{len([*more])}".removesuffix(" ×1") for line, more in groupby(lines))
        yield f"{name}: of {len(value)}"
    elif isinstance(value, float):
        if abs(value - round(value)) <= 1e-12:  # the last digits are those of one machine
            yield f"{name}: {float(round(value))}"
        else:
            yield f"{name}: {'-' * (value < 0)}e{math.floor(math.log10(float(f'{abs(value):.9g}')))}"
    else:
        yield f"{name}: {hide_digits(value) if isinstance(value, str) else value}"


@cache
def default_subject() -> Subject:
    return find_subject(replace(Question.of(table_bytes=10e12), planner=plan_quickly))


def figure(name: str) -> str:
    """A figure of the default question: its sentences, each trace, the layout, and the ends of its rows."""
    block = draw_figure(name, default_subject())
    assert isinstance(block, Block) and block.name == name and block.figure["layout"]["template"] is TEMPLATE
    assert go.Figure(block.figure).data and "calibration none" not in block.source  # checked by plotly
    words = (block.title, block.how_to_read, block.source)
    traces = ("; ".join(outline(trace)) for trace in block.figure["data"])
    layout = {key: value for key, value in block.figure["layout"].items() if key != "template"}
    lines = [*map(hide_digits, words), *traces, *outline(layout), *outline(list(block.data), "data")]
    return "\n".join(f"{line} ×{len([*more])}".removesuffix(" ×1") for line, more in groupby(lines))


def page(name: str) -> str:
    """What a page says beside its figures: headline, findings, how a figure stands there, sources."""
    on_top = default_subject()
    card, block = build_card(on_top), draw_figure(name, on_top)
    parts = (
        render_head(card),
        render_rest(card),
        render_block(block),
        write_sources(on_top.answer, "perfmodel"),
    )
    words = re.sub(r"(perfmodel|plotly) \d[\w.]*", r"\1 VERSION", "".join(parts))
    return hide_digits(words.replace("><", ">\n<"))


def live(search: str) -> str:
    """What the live page says of a question beside its figures; of an empty one its controls."""
    known = list_controls(None, None)
    if search == "controls":
        return "\n".join(" | ".join(map(str, vars(control).values())) for control in known.values())
    shown = show_answer(QuestionTexts.from_search(search, known))
    return "\n".join([*outline({**shown, "blocks": len(shown["blocks"])})])


WRITERS = {
    **{"screens.txt": screen, "refusals.txt": refusal, "figures.txt": figure, "pages.txt": page},
    **{"explore.txt": live},
}
CASES = [(file, line) for file in WRITERS for line in read_blocks(file)]


@pytest.mark.parametrize(("file", "line"), CASES)
def test_layout(file: str, line: str) -> None:
    assert WRITERS[file](line).rstrip("\n") == read_blocks(file)[line].rstrip("\n")


def test_every_figure_has_its_layout() -> None:
    assert [*read_blocks("figures.txt")] == [*FIGURES]


def test_digits_are_hidden_and_nothing_else() -> None:
    assert hide_digits("a   393 µs  81.7 %  62.8×  measured\n") == "a   ### µs  ##.# %  ##.#×  measured\n"
    assert hide_digits("reduce-scatter (bags) of h100\n") == "reduce-scatter (bags) of h100\n"
    lines = ["a.b: 1", "a.c[]: e-2", "a.c[]: e0", "a.c: of 4", "d: None"]
    assert [*outline({"a": {"b": 1, "c": [0.02, 2, 3, 4.5]}, "d": None})] == lines


if __name__ == "__main__":
    for file, write in WRITERS.items():
        texts = (f"$ {line}\n{write(line)}".rstrip("\n") for line in read_blocks(file))
        (HERE / file).write_text("\n".join(texts) + "\n", encoding="utf-8")
