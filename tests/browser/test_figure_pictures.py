"""Pictures of figures, drawn for real: their words are in them, and nothing lies over the data."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from chromium import PROGRAM

from perfmodel.projections import project_one
from perfmodel.report.figures import Block
from perfmodel.report.figures.breakdown import breakdown
from perfmodel.report.figures.validation import claims
from perfmodel.report.figures.what_if import tornado
from perfmodel.report.picture_files import write_pictures
from perfmodel.report.static import printed
from perfmodel.validate.kept import claims_found

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine: apt install chromium"),
    pytest.mark.skipif(importlib.util.find_spec("kaleido") is None, reason="pip install 'kaleido>=1'"),
]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Block, Path]]:
    """All by one browser, which takes most of the time (4 s)."""
    folder = tmp_path_factory.mktemp("pictures")
    asked = [project_one(table_bytes=size) for size in (1e12, 10e12, 100e12)]
    blocks = [breakdown(asked), tornado(asked[1]), claims(claims_found())]
    found = {b.name: (b, folder / f"{b.name}.svg") for b in blocks if isinstance(b, Block)}
    pictures = [(printed(block), path) for block, path in found.values()]
    write_pictures([*pictures, (pictures[0][0], folder / "small.png"), (pictures[0][0], folder / "a.pdf")], 1)
    return found


def test_words_are_in_the_picture(drawn: dict[str, tuple[Block, Path]]) -> None:
    assert len(drawn) == 3
    for block, path in drawn.values():
        words = set(re.sub(r"<[^>]*>", " ", path.read_text(encoding="utf-8")).split())
        names = [trace.name for trace in printed(block).data if trace.showlegend]
        assert len(names) > 1 and {word for name in names for word in name.split()} <= words
        assert {*block.title.split(), *block.source.split()} <= words


def test_the_legend_is_above_the_data_and_inside_the_picture(drawn: dict[str, tuple[Block, Path]]) -> None:
    box = (
        r'<g class="legend"[^>]*translate\(([\d.]+),([\d.]+)\)'
        r'.*?<rect class="bg"[^>]*width="([\d.]+)" height="([\d.]+)"'
    )
    for name, (block, path) in drawn.items():
        text, layout = path.read_text(encoding="utf-8"), printed(block).layout
        assert f'viewBox="0 0 {layout.width} {layout.height}"' in text
        (found,) = re.findall(box, text)
        left, top, wide, high = map(float, found)
        assert left + wide <= layout.width and top > 20 and top + high <= layout.margin.t, name


def test_other_kinds_are_what_they_say(drawn: dict[str, tuple[Block, Path]]) -> None:
    block, path = drawn["breakdown"]
    png = (path.parent / "small.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") == printed(block).layout.width
    assert (path.parent / "a.pdf").read_bytes().startswith(b"%PDF")


def test_the_example_of_the_docs_draws_its_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "figures.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", page, flags=re.S):
        exec(code, names)
    assert {"changes.svg", "slowdown.png", "roofline.pdf"} <= {path.name for path in tmp_path.iterdir()}
