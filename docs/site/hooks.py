"""What the site has beyond the files of docs/: pages made at build time, and pages from elsewhere.

MkDocs calls the functions (``hooks`` of mkdocs.yml). Nothing that they make is written into the checkout.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import command_pages
import equations
import python_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
FROM_CHECKOUT = (
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "kernels/README.md",
    "data/measurements/SOURCES.md",
)
"""Pages outside docs/ that the site has too, at the same place below its top."""
_RANKED = {"reference/python/": 0.2, "tutorial.md": 2, "commands.md": 2}
"""How much more a page counts in a search than others: tasks come before functions of their names."""
_LINK = re.compile(r"\]\((?P<target>[^)\s#:]+)(?P<anchor>#[\w-]+)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Equations as MathML, the navigation with the pages that are made, no page that needs a server."""
    config.theme.static_templates.discard("404.html")
    fences = [{"name": "math", "class": "equation", "format": equations.fence}]
    config["mdx_configs"].setdefault("pymdownx.superfences", {})["custom_fences"] = fences
    made = {"reference/commands": command_pages.pages(), "reference/python": python_pages.pages()}
    for section in config["nav"]:
        for title, entries in section.items() if isinstance(section, dict) else ():
            if isinstance(entries, list):
                section[title] = [_filled(entry, made) for entry in entries]
    return config


def _filled(entry: dict[str, object] | str, made: dict[str, dict[str, str]]) -> dict[str, object] | str:
    """An entry of the navigation, with the pages of a folder that is made instead of its name."""
    if isinstance(entry, str):
        return entry
    ((title, place),) = entry.items()
    return {title: list(made[place])} if isinstance(place, str) and place in made else entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """All files of docs/, and the pages that are made."""
    for name in FROM_CHECKOUT:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    for name, content in {**command_pages.pages(), **python_pages.pages()}.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between files of the checkout become links between pages of the site; search is ranked."""
    here = page.file.src_uri
    for beginning, boost in _RANKED.items():
        if here.startswith(beginning):
            page.meta["search"] = {"boost": boost}
    outside = here in FROM_CHECKOUT
    folder = posixpath.dirname(here if outside else f"docs/{here}")

    def moved(found: re.Match[str]) -> str:
        if here.startswith("reference/"):
            return found[0]
        target = posixpath.normpath(posixpath.join(folder, found["target"]))
        place = target.removeprefix("docs/")
        link = posixpath.relpath(place, posixpath.dirname(here) or ".")
        return f"]({link}{found['anchor'] or ''})"

    return _LINK.sub(moved, markdown)
