"""What people read, to the letter: screens, refusals, documents, figures, pages.

A command stands behind a ``$`` in ``screens.txt`` or ``refusals.txt``, and what it printed below. After a
change that is meant, or for a new command there: ``python tests/golden/test_layout.py`` writes all anew, and
the difference says what changed for whom.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from perfmodel.explore.page import write_page
from perfmodel.explore.texts import QuestionTexts
from perfmodel.plan.question import PlanQuestion, plan_quickly
from perfmodel.report.figures.chart import TEMPLATE, Block, Missing
from perfmodel.report.figures.placements import draw_placements
from perfmodel.report.figures.subject import Subject, find_subject
from perfmodel.report.page.assemble import render_block, render_head, render_rest, write_sources
from perfmodel.report.page.question_page import FIGURES, build_card, draw_figure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program it is not pytest that adds it
from golden.engine_cases import write_case

HERE = Path(__file__).resolve().parent
_FRACTION = re.compile(r"-?\d+\.\d+(?:e-?\d+)?|\d+e-?\d+")
_SAME = 1e-6  # of a fraction in a document: a fit may end that far from where it ends on another CPU
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
    """What a command prints; of a document its outline."""
    out, err, end = call(line)
    width = int(line[8:10]) if line.startswith("COLUMNS") else 100
    long = [text for text in out.splitlines() if len(text) > width and " " in text.strip(" \\")]
    assert not long or "--json" in line  # words longer than a line are paths to paste
    shown = "\n".join(outline(json.loads(out))) + "\n" if "--json" in line else out
    return f"{shown}{err}{end}"


def refusal(line: str) -> str:
    return "".join(call(line))


def outline(value: Any, name: str = "") -> Iterator[str]:
    """Lines for the values of a document: of a long list both ends and the sum."""
    if isinstance(value, Mapping):
        for key in value:
            yield from outline(value[key], f"{name}.{key}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        ends = value if len(value) <= _SHOWN else (value[0], value[-1])
        lines = [line for element in ends for line in outline(element, f"{name}[]")]
        yield from (f"{line} ×{len([*more])}".removesuffix(" ×1") for line, more in groupby(lines))
        yield f"{name}: of {len(value)}"
        rows = [row if isinstance(row, Mapping) else {"": row} for row in value if len(value) > _SHOWN]
        for key in dict.fromkeys(key for row in rows for key in row):
            numbers = [row[key] for row in rows if isinstance(row.get(key), int | float)]
            total = f"{name}[].{key}".rstrip(".") + f": {write_number(math.fsum(numbers))} in all"
            yield from [total] if numbers else []
    else:
        yield f"{name}: {write_number(value) if isinstance(value, float) else value}"


def write_number(value: float) -> str:
    """Twelve digits: a number that is whole but for its last digit is written as a whole one."""
    return f"{value:.12g}"


def is_alike(said: str, recorded: str) -> bool:
    """Whether two texts are equal, but for the last digits of fractions."""
    if said == recorded:
        return True
    pairs = zip(_FRACTION.findall(said), _FRACTION.findall(recorded), strict=False)
    close = all(math.isclose(float(a), float(b), rel_tol=_SAME, abs_tol=1e-12) for a, b in pairs)
    return close and _FRACTION.sub("#", said) == _FRACTION.sub("#", recorded)


@cache
def find_given(keywords: str = '{"table_bytes": 10e12}') -> Subject:
    """What a page is about, by the keywords of a question."""
    return find_subject(replace(Question.of(**json.loads(keywords)), planner=plan_quickly))


def figure(line: str) -> str:
    """A figure of the default question, or of one in JSON: words, traces, layout, the ends of its rows."""
    name, _, keywords = line.partition(" ")
    if name == "placements":
        question = PlanQuestion.build(find_given(keywords).base.question, effort="quick")
        block: Block | Missing = draw_placements(question.plan())
    else:
        block = draw_figure(name, find_given(*filter(None, [keywords])))
    assert isinstance(block, Block) and block.name == name and block.figure["layout"]["template"] is TEMPLATE
    assert go.Figure(block.figure).data and "calibration none" not in block.source  # checked by plotly
    words = (block.title, block.how_to_read, block.source)
    traces = ("; ".join(outline(trace)) for trace in block.figure["data"])
    layout = {key: value for key, value in block.figure["layout"].items() if key != "template"}
    lines = [*words, *traces, *outline(layout), *outline(list(block.data), "data")]
    return "\n".join(f"{line} ×{len([*more])}".removesuffix(" ×1") for line, more in groupby(lines))


def page(name: str) -> str:
    """What a page says beside its figures: headline, findings, how a figure stands there, sources."""
    on_top = find_given()
    card, block = build_card(on_top), draw_figure(name, on_top)
    parts = (
        render_head(card),
        render_rest(card),
        render_block(block),
        write_sources(on_top.answer, "perfmodel"),
    )
    words = re.sub(r"(perfmodel|plotly) \d[\w.]*", r"\1 VERSION", "".join(parts))
    return words.replace("><", ">\n<")


def live(search: str) -> str:
    """What the live page says of a question beside its figures; or its form."""
    known = list_controls(None, None)
    if search == "controls":
        return write_page(known, QuestionTexts.from_search("dim=48&objective=throughput", known))
    shown = show_answer(QuestionTexts.from_search(search, known))
    return "\n".join([*outline({**shown, "blocks": len(shown["blocks"])})])


def case(line: str) -> str:
    """Sums of the numbers of a random case, and its words, by their place in the document."""
    name, _, number = line.rpartition(" ")
    leaves: dict[str, list[Any]] = {}
    for place, value in list_leaves(json.loads(write_case(name, int(number)))):
        leaves.setdefault(place, []).append(value)
    return "\n".join(f"{place}: {join_leaves(values)}" for place, values in leaves.items())


def list_leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key in value:
            yield from list_leaves(value[key], f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for element in value:
            yield from list_leaves(element, place)
    else:
        yield place, value


def join_leaves(values: Sequence[Any]) -> str:
    """The sum of numbers, and how often each word stands there."""
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    words = Counter(str(value) for value in values if not isinstance(value, int | float))
    texts = (f"{word} ×{count}".removesuffix(" ×1") for word, count in words.items())
    return ", ".join([*([write_number(math.fsum(numbers))] if numbers else []), *texts])


WRITERS = {
    **{"screens.txt": screen, "refusals.txt": refusal, "figures.txt": figure, "pages.txt": page},
    **{"explore.txt": live, "numbers.txt": case},
}
CASES = [(file, line) for file in WRITERS for line in read_blocks(file)]


@pytest.mark.parametrize(("file", "line"), CASES)
def test_layout(file: str, line: str) -> None:
    said, recorded = WRITERS[file](line).rstrip("\n"), read_blocks(file)[line].rstrip("\n")
    document = file in ("figures.txt", "explore.txt", "numbers.txt") or "--json" in line
    assert said == recorded or (document and is_alike(said, recorded))


def test_every_figure_has_its_layout() -> None:
    names = dict.fromkeys(line.partition(" ")[0] for line in read_blocks("figures.txt"))
    assert [*names] == [*FIGURES, "placements"]


def test_fractions_are_alike_and_nothing_else_is() -> None:
    lines = ["a.b: 1", "a.c[]: 0.02", "a.c[]: 4.5", "a.c: of 4", "a.c[]: 9.52 in all", "d: None"]
    assert [*outline({"a": {"b": 1, "c": [0.02, 2, 3, 4.5]}, "d": None})] == lines
    assert is_alike("a 2.00000001 b 1e-13", "a 2.0 b 0.0") and not is_alike("a 2.001", "a 2.0")
    assert not is_alike("a 12", "a 13") and not is_alike("a 2.0 b", "a 2.0 c")


if __name__ == "__main__":
    for file, write in WRITERS.items():
        texts = (f"$ {line}\n{write(line)}".rstrip("\n") for line in read_blocks(file))
        (HERE / file).write_text("\n".join(texts) + "\n", encoding="utf-8")
