"""``perfmodel plan --out plan.html``: one page beside the answer, and nothing overwritten."""

from __future__ import annotations

import json
import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from cli_calls import planned as asked

from perfmodel.plan.searching.search import Search

ROOT = Path(__file__).resolve().parents[2]
TABLES = "rows,dim,pooling,name\n1000000,64,10,big\n1000,64,2,small\n1000000,64,5,other\n"
FITS = ("--gpus", "16", "--set", "max_hbm=300MB", "--effort", "quick")


pytestmark = pytest.mark.usefixtures("once")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text(TABLES, encoding="utf-8")
    return "mine.csv"


def data_of(page: Path) -> dict[str, Any]:
    """What the script of a page shows."""
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', page.read_text("utf-8"), re.S
    )
    assert found
    return dict(json.loads(found[1]))


def test_the_page_has_the_numbers_of_the_document(model: str) -> None:
    code, out, err = asked("--model", model, *FITS, "--out", "plan.html", "--json")
    told, page = json.loads(out), data_of(Path("plan.html"))
    assert (code, err) == (0, "wrote plan.html\n")
    assert page["plan"] == told["plan"]


def test_a_given_plan_has_a_page_without_a_search(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked("--model", model, *FITS, "--out", "plan.json")[0] == 0

    def never(search: Search) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr(Search, "run", never)
    words = ("--model", model, "--plan", "plan.json", "--set", "max_hbm=300MB", "--dense", "dlrm-dcnv2")
    code, out, _ = asked(*words, "--out", "given.html")
    page = data_of(Path("given.html"))
    assert code == 0 and "per forward pass" in out
    kept = json.loads(Path("plan.json").read_text("utf-8"))
    assert page["plan"] == {**kept, "made_for": {**kept["made_for"], "dense": "dlrm-dcnv2"}}
    assert [block["name"] for block in page["blocks"]] == ["placements", "steps"]


def test_the_command_of_the_page_makes_it_again(model: str) -> None:
    assert asked("--model", model, *FITS, "--out", "plan.json")[0] == 0
    words = ("--model", model, "--plan", "plan.json", "--set", "max_hbm=300MB", "--json")
    assert asked(*words, "--out", "given.html")[0] == 0
    first = Path("given.html").read_text("utf-8")
    line = shlex.split(unescape(re.findall(r"<pre><code>(.*?)</code></pre>", first, re.S)[-1]))
    assert line[:2] == ["perfmodel", "plan"] and "--json" not in line
    Path("given.html").unlink()
    assert asked(*line[2:])[0] == 0
    assert Path("given.html").read_text("utf-8") == first


@pytest.mark.parametrize("more", [(), ("--distribution", "zipf:1.05", "--set", "nic_bytes_per_s=100GB/s")])
def test_the_page_has_the_equations_of_every_step(model: str, more: tuple[str, ...]) -> None:
    assert asked("--model", model, *FITS, *more, "--batch", "512", "--out", "plan.html")[0] == 0
    page = unescape(Path("plan.html").read_text("utf-8"))
    assert "Equations of gather + pool: " in page and "gather + pool on 16 GPUs" in page
    assert "= launches t0 + max(dram_bytes / dram_rate, l2_bytes / l2_rate)" in page


def test_an_incomplete_calibration_is_an_alert(model: str, tmp_path: Path) -> None:
    """A copy of a shipped calibration that says that points are missing."""
    shipped = ROOT / "data" / "calibrations" / "h100-sxm-ib" / "nccl-2.29.2-stream.json"
    found = json.loads(shipped.read_text("utf-8"))
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps(found | {"complete": False}), encoding="utf-8")
    words = ("--model", model, "--gpus", "16", "--effort", "quick", "--calibration", str(mine))
    assert asked(*words, "--out", "plan.html")[0] == 0
    assert "is incomplete" in Path("plan.html").read_text()


def test_a_file_is_not_overwritten_and_nothing_is_searched(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(search: Search) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr(Search, "run", never)
    Path("plan.html").write_text("mine", encoding="utf-8")
    code, out, err = asked("--model", model, *FITS, "--out", "plan.html")
    assert (code, out) == (2, "") and "exists already" in err and "--out plan-2.html" in err
    assert Path("plan.html").read_text("utf-8") == "mine"


def test_ctrl_c_writes_the_page_of_the_best_so_far(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(search: Search, *_: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "_anneal", stop)
    code, out, _ = asked("--model", model, *FITS[:-1], "thorough", "--out", "plan.html")
    assert code == 130 and "stopped by Ctrl-C after" in " ".join(out.split())
    assert "<p class=soft>Note: Stopped by Ctrl-C" in Path("plan.html").read_text()
