"""The site builds without a warning, asks no network, and has every page, equation and option."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from chromium import PROGRAM, Chromium

import perfmodel
from perfmodel.cli.app import COMMANDS, app
from perfmodel.cli.lazy import CommandGroup

pytestmark = pytest.mark.skipif(find_spec("mkdocs") is None, reason="no MkDocs: pip install '.[docs]'")
ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
CUT = """(() => {
    const all = [...document.querySelectorAll(".equation")];
    const cut = all.filter(one => one.scrollWidth > one.clientWidth + 1);
    const shadow = one => getComputedStyle(one).backgroundImage.includes("radial-gradient");
    return [cut.map(one => 1), cut.filter(shadow).filter(one => one.matches(".scrolls")).map(one => 1)];
})()"""
"""Equations that are wider than their place, and those of them that show it."""
SEARCHED = "document.querySelector('.md-search-result__item a')"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pages, built by the command that CONTRIBUTING.md names."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    """HTML by the name of the page."""
    found = {path.relative_to(site).as_posix(): path for path in site.rglob("*.html")}
    return {name: path.read_text(encoding="utf-8") for name, path in found.items()}


def navigation(html: str) -> set[str]:
    """Addresses in the navigation of a page of the top folder."""
    inside = re.findall(r'<nav class="md-nav md-nav--primary.*?</nav>\s*</div>', html, re.DOTALL)
    return set(re.findall(r'href="([^"#]+)"', inside[0]))


def test_every_page_of_docs_is_in_the_navigation(pages: dict[str, str]) -> None:
    links = navigation(pages["index.html"])
    assert {f"{path.stem}.html" for path in DOCS} <= {*links, "index.html"}
    assert set(pages) - {"index.html"} <= links
    named = re.findall(
        r"^ +- (?:.*: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(DOCS) < len(named) == len(set(named)), "a page is named twice in mkdocs.yml"


def test_every_page_works_from_disk(pages: dict[str, str]) -> None:
    for name, html in pages.items():
        assert not re.findall(r"""(?:href|src)=["']?/""", html), name


def test_a_page_has_the_same_name_in_the_navigation(pages: dict[str, str]) -> None:
    for path in DOCS:
        heading = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        address = "index.html" if path.stem == "index" else f"{path.stem}.html"
        shown = re.findall(
            rf'href="{re.escape(address)}" class="md-nav__link">(.*?)</a>', pages["not-known.html"], re.S
        )
        shown = [" ".join(re.sub(r"<[^>]+>", "", unescape(each)).split()) for each in shown]
        assert path.stem == "not-known" or shown == [heading], path.name


def test_no_page_asks_a_network(site: Path, pages: dict[str, str]) -> None:
    for name, html in pages.items():
        loading = re.findall(r"<(?:script|link|img|iframe|source|object)\b[^>]*>", html)
        asked = [tag for tag in loading if re.search(r"""(?:src|href|data)=["']?(?:https?:)?//""", tag)]
        assert not asked, name
        assert 'class="mermaid"' not in html, f"{name}: the theme would load Mermaid from a network"
    for path in site.rglob("*.css"):
        assert not re.findall(
            r"""(?:url\(|@import )["']?(?:https?:)?//""", path.read_text(encoding="utf-8")
        ), path


def test_equations_are_rendered(pages: dict[str, str]) -> None:
    for path in DOCS:
        written = path.read_text(encoding="utf-8").count("```math\n")
        drawn = re.findall(r'<div class="equation"><math.*?</math></div>', pages[f"{path.stem}.html"])
        assert len(drawn) == written, path.name
        for one in drawn:
            text = unescape(re.sub(r"<[^>]+>", "", one))
            assert not re.search(r"[\\&]|aligned|cases", text), (
                f"{path.name}: LaTeX that was not read: {text}"
            )
    models = [page for name, page in pages.items() if name.startswith("model")]
    assert sum(page.count("<math") for page in models) > 20


def test_equations_of_docs_are_no_plain_text() -> None:
    """Indented by four blanks an equation would stay as it is typed."""
    models = [path.name for path in (ROOT / "docs").glob("model*.md")]
    for name in (*models, "torchrec.md", "accuracy.md"):
        page = re.sub(
            r"^```.*?^```$", "", (ROOT / "docs" / name).read_text(encoding="utf-8"), flags=re.M | re.S
        )
        plain = re.findall(r"\n\n {4}\S.* (?:=|<=|>=) .*", page)
        assert not plain, f"{name}: make it a math block"


def commands(of: Any = COMMANDS, group: Any = app, words: tuple[str, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """(words, command) of all that the help lists."""
    for name, one in of.items():
        if isinstance(one, CommandGroup):
            yield from commands(one.commands, group.commands[name], (*words, name))
        else:
            yield (*words, name), group.commands[name].load()


def test_the_reference_has_every_command_and_option(pages: dict[str, str]) -> None:
    listed = unescape(pages["reference/commands/index.html"])
    for words, command in commands():
        assert f"perfmodel {' '.join(words)}" in listed
        html = unescape(re.sub(r"<[^>]+>", "", pages[f"reference/commands/{'-'.join(words)}.html"]))
        assert "Examples" in html, words
        for parameter in command.params:
            shown = parameter.param_type_name == "option" and not parameter.hidden
            for spelling in parameter.opts if shown else []:
                assert re.search(rf"{re.escape(spelling)}(?![\w-])", html), (words, spelling)


def test_the_reference_has_the_public_functions(pages: dict[str, str]) -> None:
    door = pages["reference/python/perfmodel.html"]
    for name in set(perfmodel.__all__) - {"__version__"}:
        function = getattr(perfmodel, name)
        assert f'id="{function.__module__}.{name}"' in door
    order = ("project", "plan_tables", "scale_tables", "predict_collectives")
    at = [door.index(f'id="{getattr(perfmodel, name).__module__}.{name}"') for name in order]
    assert at == sorted(at)
    signature = unescape(re.sub(r"<[^>]+>", "", door)).partition("question_of(")[2].partition(")\n")[0]
    assert "\n    batch: int = 1024,\n" in signature, "one argument a line, with its default"
    modules = {path.stem for path in (ROOT / "perfmodel" / "model").glob("[a-z]*.py")}
    for module in modules:
        assert f'id="perfmodel.model.{module}"' in pages["reference/python/model.html"]


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine: apt install chromium")
def test_a_wide_equation_is_drawn_smaller_or_scrolls_visibly(site: Path, browser: Chromium) -> None:
    wide = {}
    for width in (1300, 400):
        browser.open(site / "model.html", width, ready="document.readyState === 'complete'")
        assert browser.run("document.documentElement.scrollWidth") == width
        cut, said = (len(found) for found in browser.run(CUT))
        assert cut == said
        wide[width] = cut
    assert wide[1300] < wide[400]


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine: apt install chromium")
def test_search_works_from_disk_without_a_network(site: Path, browser: Chromium) -> None:
    browser.open(site / "index.html", 1280, ready="typeof __index === 'object'")
    browser.run(
        "(field => { field.focus(); field.value = 'rendezvous';"
        " field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); })"
        "(document.querySelector('.md-search__input'))"
    )
    browser.wait(f"{SEARCHED} !== null")
    assert "model.html" in browser.run(f"{SEARCHED}.href")
    assert {address.partition(":")[0] for address in browser.left_for()} == {"file"}
    assert browser.said == []
