"""A page that was written, read again: every page holds the data of its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from perfmodel.errors import BadInputError
from perfmodel.report.figures.block import Block, Missing, Switch
from perfmodel.report.page.parts import Card, Page, Selector, View
from perfmodel.schema.files import expected, first_line, invalid_fields, load_json, read_text, unknown_name

WHAT = "page"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class _Selector(_Part):
    name: str
    label: str
    words: list[str]
    start: int = Field(ge=0)
    option: str = ""
    texts: list[str] = []
    typed: bool = False


class _Switch(_Part):
    label: str
    traces: dict[str, Any]
    layout: dict[str, Any]
    title: str = ""


class _Block(_Part):
    """A figure, or why it is left out."""

    name: str
    missing: str | None = None
    title: str = ""
    how: str = ""
    source: str = ""
    figure: dict[str, Any] = {}
    columns: list[str] = []
    rows: list[list[Any]] = []
    switches: list[_Switch] = []
    choice: str = ""
    others: list[_Block] = []


class _View(_Part):
    heads: list[Card]
    blocks: list[_Block]
    titles: dict[str, list[str]] = {}


class _Shown(_Part):
    """What the script of a page shows."""

    selectors: list[_Selector]
    views: dict[str, _View]
    fixed: list[_Block]
    question: str = ""
    alerts: list[str] = []

    @model_validator(mode="after")
    def _whole(self) -> _Shown:
        """A card and a sentence for each value of the first selector."""
        sizes = len(self.selectors[0].words) if self.selectors else 1
        if any(one.start >= len(one.words) for one in self.selectors):
            raise ValueError("a selector starts beyond its words")
        said = [n for v in self.views.values() for n in (len(v.heads), *map(len, v.titles.values()))]
        if any(count != sizes for count in said):
            raise ValueError("a view has cards or sentences that do not belong to the first selector")
        return self


class _Markup(HTMLParser):
    """The elements of a page that its figures are taken from: title, sources, and the data of its script."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.title, self.provenance, self.data = "", "", ""
        self._at = ""  # the element that is read

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = dict(attrs).get("id")
        if tag == "title" or (tag, name) in (("section", "provenance"), ("script", "data")):
            self._at = name or tag
        else:
            self._add(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        if (tag, self._at) in (("title", "title"), ("section", "provenance"), ("script", "data")):
            self._at = ""
        else:
            self._add(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self._add(data)

    def handle_entityref(self, name: str) -> None:
        self._add(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self._add(f"&#{name};")

    def _add(self, text: str) -> None:
        if self._at:
            setattr(self, self._at, getattr(self, self._at) + text)


@dataclass(frozen=True, eq=False)
class WrittenPage:
    """A page as its file has it."""

    where: str
    title: str
    provenance: str  # HTML
    shown: _Shown
    chosen: tuple[int, ...]  # places of the selectors

    @staticmethod
    def read(path: Path) -> WrittenPage:
        """Of a file. Limits: not a page that this program wrote -> BadInputError"""
        found, where = _Markup(), str(path)
        found.feed(read_text(path, WHAT))
        try:
            shown = _Shown.model_validate(load_json(found.data, f"{WHAT} {where}"))
        except ValidationError as error:
            raise invalid_fields(error, WHAT, where) from None
        except (ValueError, RecursionError) as error:
            why = (
                f"its data are not JSON: {first_line(str(error))}"
                if found.data
                else "it has no data of figures"
            )
            raise BadInputError(
                f"{WHAT} {where} was not written by perfmodel: {why}.", expected(WHAT)
            ) from None
        start = tuple(selector.start for selector in shown.selectors)
        page = WrittenPage(where, unescape(found.title), _sources(found.provenance), shown, start)
        return page if page._key in shown.views else page._without_view()

    def choose(self, typed: Mapping[str, str]) -> WrittenPage:
        """The page as it is when its reader has chosen.

        typed  words of selectors by ``batch``, ``table-size`` …
        Limits: no such selector, no such word, a choice that the page lacks -> BadInputError
        """
        chosen = list(self.chosen)
        named = {_NAMES.get(one.name, one.name): at for at, one in enumerate(self.shown.selectors)}
        for name, text in typed.items():
            selector = self.shown.selectors[named[name]] if name in named else None
            if selector is None or len(selector.words) < 2:
                several = [f"--{n}" for n, at in named.items() if len(self.shown.selectors[at].words) > 1]
                raise BadInputError(
                    f"{WHAT} {self.where} has only one value of --{name}.",
                    f"options with a choice: {', '.join(several) or 'nothing'}; or run it again without "
                    "--page.",
                )
            words = [*map(_plain, selector.words)]
            texts = [*map(_plain, selector.texts)]
            at = next((known.index(_plain(text)) for known in (texts, words) if _plain(text) in known), None)
            if at is None:
                raise unknown_name(f"--{name}", text, selector.texts or selector.words)
            chosen[named[name]] = at
        page = replace(self, chosen=tuple(chosen))
        return page if page._key in self.shown.views else page._without_view()

    @property
    def _key(self) -> str:
        return "|".join(map(str, self.chosen[1:]))

    def _without_view(self) -> WrittenPage:
        words = [f"{s.label} {s.words[at]}" for s, at in zip(self.shown.selectors, self.chosen, strict=True)]
        raise BadInputError(
            f"{WHAT} {self.where} lacks {', '.join(words) or 'its view'}.",
            "change one option at a time, or write a page with this combination.",
        )

    @cached_property
    def names(self) -> list[str]:
        """Of its figures, in their order, those with a reason instead too."""
        return [block.name for block in self._blocks]

    @property
    def _view(self) -> _View:
        return self.shown.views[self._key]

    @property
    def _blocks(self) -> list[_Block]:
        return [*self._view.blocks, *self.shown.fixed]

    @property
    def _as_asked(self) -> bool:
        return self.chosen == tuple(selector.start for selector in self.shown.selectors)

    def blocks(self) -> tuple[Block | Missing, ...]:
        """All of its figures; of another choice than what was asked those that follow it.

        Limits: a drawing that is none -> BadInputError
        """
        return tuple(self._block(one) for one in (self._blocks if self._as_asked else self._view.blocks))

    def block(self, name: str) -> Block | Missing:
        """One of ``names``; another one -> StopIteration.

        Limits: as ``blocks``;  one that stays, of another choice -> BadInputError
        """
        if not self._as_asked and all(found.name != name for found in self._view.blocks):
            raise BadInputError(
                f"{name} in {self.where} always shows the question as it was asked: it has no choices.",
                "leave those options out, or run it again without --page.",
            )
        return self._block(next(found for found in self._blocks if found.name == name))

    def _block(self, found: _Block) -> Block | Missing:
        """With the sentence of the size that is chosen."""
        if found.missing is not None:
            return Missing(found.name, found.missing)
        titles = self._view.titles.get(found.name)
        title = titles[self.chosen[0]] if titles else found.title
        return replace(self._drawing(found), title=title)

    def _drawing(self, found: _Block) -> Block:
        import plotly.graph_objects as go

        try:
            layout = {**found.figure["layout"], "template": "none"}
            figure = go.Figure({"data": found.figure["data"], "layout": layout})
        except (KeyError, TypeError, ValueError) as error:
            why = f"the drawing of {found.name}: {first_line(str(error).strip())}"
            raise BadInputError(f"{WHAT} {self.where} is not valid: {why}.", expected(WHAT)) from None
        return Block(
            found.name,
            found.title,
            found.how,
            figure,
            found.source,
            tuple(dict(zip(found.columns, row, strict=False)) for row in found.rows),
            tuple(Switch(one.label, one.traces, one.layout, one.title) for one in found.switches),
            found.choice,
            tuple(self._drawing(other) for other in found.others),
        )

    def alone(self, block: Block, command: str) -> Page:
        """A page with the card and this figure alone. command  makes it again"""
        selectors = tuple(
            Selector(one.name, one.label, (), tuple(one.words), at, one.option, tuple(one.texts), one.typed)
            for one, at in zip(self.shown.selectors, self.chosen, strict=True)
        )
        view = View(self.chosen[1:], tuple(self._view.heads), ())
        alerts, question = tuple(self.shown.alerts), self.shown.question
        page = Page(self.title, self.provenance, (view,), "", selectors, question=question, alerts=alerts)
        return page.alone(block, command)


def _sources(section: str) -> str:
    """Without its heading and its button."""
    return section.partition("</h2>\n")[2].rpartition("\n<p><button")[0]


_NAMES = {"table-bytes": "table-size"}
"""Options whose selectors have another name."""


def _plain(text: str) -> str:
    """Without case and spaces: ``4 096`` as it is typed."""
    return "".join(text.split()).casefold()
