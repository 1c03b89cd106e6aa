"""The live page in a real browser: drag, keys, dropped files, links, a plan that is stopped."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from chromium import PROGRAM, Chromium
from cli_calls import EXPLORE
from waiting import PATIENCE_S, alive, gone, until

from perfmodel.explore import answers
from perfmodel.explore.asked import Said, texts_of
from perfmodel.explore.controls import controls
from perfmodel.schema.table_files import read_tables

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine: apt install chromium")

SENTENCE = "document.querySelector('#headline h1')?.textContent"
TABLES = "name,rows,dim,pooling\n<img src=x onerror=alert(1)>,1000000,64,20\nb,20000000,128,1\n"


@dataclass
class Live:
    address: str
    process: int

    def children(self) -> list[int]:
        """Processes that it started and that run."""
        found = Path(f"/proc/{self.process}/task").glob("*/children")
        return [int(each) for path in found for each in path.read_text().split() if alive(int(each))]


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with subprocess.Popen(EXPLORE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield Live(server.stdout.readline().split()[0], server.pid)
        server.terminate()
        server.wait(PATIENCE_S)


def sentence(search: str) -> str:
    """What Python answers to an address."""
    found = answers.shown(Said.of(texts_of(search), controls(None, None)), None)
    return str(found["view"]["heads"][0]["sentence"])


def says(browser: Chromium, words: str) -> None:
    browser.wait(f"{SENTENCE} === {json.dumps(words)}")


def box(name: str) -> str:
    return f"document.querySelector('#field-{name} input[type=text]')"


def thumb(name: str) -> str:
    return f"document.querySelector('#field-{name} [role=slider]')"


def answers_asked(browser: Chromium) -> int:
    return sum(each.endswith("/own/answer") for each in browser.asked)


def focus_and_type(browser: Chromium, name: str, text: str) -> None:
    browser.run(f"{box(name)}.select()")
    browser.type(text)
    browser.press("Enter")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_it_opens_clean_at_every_width_and_asks_nobody_else(
    browser: Chromium, live: Live, width: int, dark: bool
) -> None:
    browser.open(live.address, width, dark=dark)
    says(browser, sentence("table_size=10TB"))
    browser.wait("document.documentElement.dataset.later === 'yes'")
    assert browser.run("document.documentElement.scrollWidth") == width  # nothing sticks out
    assert browser.said == []
    assert {urlsplit(each).netloc for each in browser.left_for()} == {urlsplit(live.address).netloc}
    assert browser.run("document.querySelectorAll('#views .plot .main-svg').length") >= 5
    colour = browser.run("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")
    cells = "[...document.querySelectorAll('#headline table')].at(-1).querySelector('tbody tr').children"
    assert "→" in browser.run(f"{cells}[1].textContent")  # the times of changes are seen
    assert browser.run(f"{cells}[1].getBoundingClientRect().right") < width


def test_a_slider_is_dragged_and_the_answer_follows(browser: Chromium, live: Live) -> None:
    browser.open(live.address, 1280)
    place = f"{thumb('table_size')}.getBoundingClientRect()"
    x, y = (
        browser.run(f"{place}.{side} + {place}.{size} / 2")
        for side, size in (("x", "width"), ("y", "height"))
    )
    browser.mouse("mousePressed", x, y)
    value, seen = f"{box('table_size')}.value", ["10TB"]
    for step in range(1, 5):
        browser.mouse("mouseMoved", x - 14 * step, y)
        until(lambda: browser.run(value) not in seen)
        seen.append(browser.run(value))
    browser.mouse("mouseReleased", x - 56, y)
    until(lambda: browser.run(SENTENCE) == sentence(f"table_size={browser.run(value)}"))
    text = browser.run(value)
    browser.wait(f"new URLSearchParams(location.search).get('table_size') === '{text}'")
    browser.wait(
        f"document.getElementById('command').textContent === 'perfmodel project --table-size {text}'"
    )
    assert browser.said == []


def test_keys_alone_reach_and_change_everything(browser: Chromium, live: Live) -> None:
    browser.open(f"{live.address}?table_size=10TB", 1280)
    says(browser, sentence("table_size=10TB"))
    browser.run("document.getElementById('theme').focus()")
    reached = set()
    for _ in range(200):
        browser.press("Tab")
        at = "document.activeElement"
        kind = f"{at}.getAttribute('role') || {at}.tagName"
        reached.add(browser.run(f"({at}.closest('.field') || {at}).id + ' ' + ({kind})"))
        if any(each.startswith("plan-start ") for each in reached):
            break
    for name, control in controls(None, None).items():
        own = {each.split()[1] for each in reached if each.startswith(f"field-{name} ")}
        assert ({"combobox", "BUTTON"} & own) if control.only else {"INPUT", "slider"} <= own, (
            name,
            own,
            reached,
        )
    buttons = {"pin", "copy-link", "copy-command", "save-json", "save-csv", "save-page", "plan-start"}
    assert buttons <= {each.split()[0] for each in reached}
    browser.run(f"{thumb('batch')}.focus()")
    asked = answers_asked(browser)
    browser.press("ArrowRight")
    says(browser, sentence("table_size=10TB&batch=1536"))
    browser.wait(f"{box('batch')}.value === '1536' && document.documentElement.dataset.later === 'yes'")
    assert answers_asked(browser) == asked + 1  # by the slider, and not again by its box
    focus_and_type(browser, "pooling", "7")
    says(browser, sentence("table_size=10TB&batch=1536&pooling=7"))
    near = controls(None, None)["tables"].words.index("384")
    focus_and_type(browser, "tables", "400")
    browser.wait(f"{thumb('tables')}.ariaValueNow === '{near}' && {box('tables')}.value === '400'")
    focus_and_type(browser, "tables", "1")
    focus_and_type(browser, "pooling", "many")
    browser.wait("document.getElementById('refused').textContent.includes('many')")
    focus_and_type(browser, "pooling", "8")
    says(browser, sentence("table_size=10TB&batch=1536&pooling=8&tables=1"))
    browser.wait("document.getElementById('refused').textContent === ''")
    stop = controls(None, None)["pooling"].words.index("8")
    browser.wait(f"{thumb('pooling')}.ariaValueNow === '{stop}'")  # the slider follows what is typed


def test_what_a_question_does_not_have_is_hidden_and_the_card_grows(browser: Chromium, live: Live) -> None:
    """The batch of each GPU where that of all is given; what would change it when nothing moves."""
    shown = "document.getElementById('field-batch').offsetHeight > 0"
    for said, seen in (("table_size=10TB&global_batch=147456", False), ("table_size=10TB", True)):
        browser.open(f"{live.address}?{said}", 1280)
        says(browser, sentence(said))
        assert browser.run(shown) == seen
    browser.wait("document.getElementById('headline').textContent.includes('What would change it most')")
    assert browser.said == []


def test_a_link_asks_the_same_and_a_pin_stays_beside(browser: Chromium, live: Live) -> None:
    search = "?table_size=9TB&batch=4096&nic_bytes_per_s=100GB%2Fs"
    browser.open(f"{live.address}{search}", 1280)
    says(browser, sentence(search))
    assert browser.run(f"{box('nic_bytes_per_s')}.value") == "100GB/s"
    assert browser.run("location.search") == search
    browser.run("document.getElementById('pin').click()")
    browser.wait("document.querySelector('#pinned-card h1') !== null")
    focus_and_type(browser, "batch", "1024")
    says(browser, sentence(search.replace("4096", "1024")))
    browser.wait("document.getElementById('against').textContent.startsWith('A, pinned: ')")
    browser.wait("document.documentElement.dataset.later === 'yes'")
    link, words = browser.run("location.href"), browser.run("document.getElementById('cards').textContent")
    browser.open(link, 1280)
    browser.wait(f"document.getElementById('cards').textContent === {json.dumps(words)}")
    browser.wait("document.getElementById('against').textContent.includes('B takes ')")
    assert browser.said == []


def test_a_dropped_file_is_asked_about_and_its_names_stay_text(
    browser: Chromium, live: Live, tmp_path: Path
) -> None:
    name = "<b>odd & 'name'.csv"
    (tmp_path / name).write_text(TABLES, encoding="utf-8")
    browser.open(live.address, 1280)
    says(browser, sentence("table_size=10TB"))
    browser.give("#upload input[type=file]", tmp_path / name)
    browser.wait("document.getElementById('file-words').textContent.startsWith('2 tables of ')")
    browser.wait(f"{SENTENCE}.includes('10.5 GB')")
    assert len(read_tables(tmp_path / name).tables) == 2
    assert browser.run("document.querySelectorAll('img, main b').length") == 0
    assert name in browser.run("document.getElementById('command').textContent.replaceAll(`'\"'\"'`, `'`)")
    assert browser.said == []


def test_figures_of_an_earlier_question_are_marked_until_they_are_drawn_again(
    browser: Chromium, live: Live
) -> None:
    browser.open(f"{live.address}?table_size=2TB&gpus=64", 1280)
    browser.wait("document.documentElement.dataset.later === 'yes'")
    old = "[...document.querySelectorAll('#views > .old')].map(each => each.id).sort()"
    assert browser.run(old) == []
    browser.run(
        f"seen = []; new MutationObserver(() => seen.push({old}))"
        ".observe(document.getElementById('headline'), {childList: true})"
    )
    focus_and_type(browser, "gpus", "128")
    says(browser, sentence("table_size=2TB&gpus=128"))
    browser.wait("document.documentElement.dataset.later === 'yes'")
    every = sorted(f"block-{each.name}" for each in (answers.BREAKDOWN, *answers.LATER))
    assert browser.run("seen[0]") == every and browser.run(old) == []
    focus_and_type(browser, "gpus", "4")
    browser.wait("document.getElementById('refused').textContent !== ''")
    assert browser.run(old) == every


def test_an_error_is_seen_at_its_box_and_wherever_the_page_is_scrolled(browser: Chromium, live: Live) -> None:
    wrong = "[...document.querySelectorAll('[aria-invalid=true]')].map(each => each.closest('.field').id)"
    short = "document.getElementById('short')"
    browser.open(f"{live.address}?table_size=2TB&gpus=256&global_batch=65536", 390)
    says(browser, sentence("table_size=2TB&gpus=256&global_batch=65536"))
    assert browser.run(wrong) == []
    browser.run("scrollTo(0, 1000)")
    focus_and_type(browser, "gpus", "400")
    browser.wait(f"{short}.textContent.includes('no whole number of samples for each of 400 GPUs')")
    assert browser.run(wrong) == ["field-gpus", "field-global_batch"]
    assert browser.run(f"{short}.offsetHeight > 0 && {short}.getBoundingClientRect().bottom < 300")
    focus_and_type(browser, "gpus", "512")
    says(browser, sentence("table_size=2TB&gpus=512&global_batch=65536"))
    assert browser.run(wrong) == [] and browser.run(f"{short}.className") == ""


def test_a_pin_of_a_dropped_file_comes_back_with_the_file(
    browser: Chromium, live: Live, tmp_path: Path
) -> None:
    (tmp_path / "mine.csv").write_text(TABLES, encoding="utf-8")
    browser.open(f"{live.address}?model=file%3Amine.csv&gpus=8#model=file%3Amine.csv&gpus=16", 1280)
    browser.wait("document.getElementById('pinned-card').textContent.includes('drop it here too')")
    browser.give("#upload input[type=file]", tmp_path / "mine.csv")
    browser.wait(f"{SENTENCE}?.includes('on 8 GPUs')")
    browser.wait("document.querySelector('#pinned-card h1')?.textContent.includes('on 16 GPUs')")
    browser.wait("document.getElementById('against').textContent.includes('B takes ')")
    browser.wait("document.documentElement.dataset.later === 'yes'")
    top = "document.getElementById('{}').getBoundingClientRect().top"
    assert browser.run(f"{top.format('against')} < {top.format('cards')}")
    mark = "getComputedStyle(document.getElementById('{}'), '::before').content"
    assert [browser.run(mark.format(name)) for name in ("pinned-card", "headline")] == [
        '"A, pinned"', '"B, now"',
    ]  # fmt: skip
    assert browser.said == []


def test_a_value_of_the_machine_is_seen_before_it_is_changed(browser: Chromium, live: Live) -> None:
    browser.open(f"{live.address}?table_size=10TB", 1280)
    says(browser, sentence("table_size=10TB"))
    label = "document.querySelector('#field-nic_bytes_per_s label').dataset.own"
    assert browser.run(label) == "50 GB/s"
    focus_and_type(browser, "nic_bytes_per_s", "100GB/s")
    says(browser, sentence("table_size=10TB&nic_bytes_per_s=100GB/s"))
    assert browser.run(label) == "" and browser.said == []


def test_a_bad_file_is_refused_and_the_answer_stays(browser: Chromium, live: Live, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("rows\n1\n", encoding="utf-8")
    browser.open(live.address, 1280)
    says(browser, sentence("table_size=10TB"))
    browser.give("#upload input[type=file]", tmp_path / "bad.csv")
    browser.wait("document.getElementById('file-words').textContent.includes('missing column dim')")
    says(browser, sentence("table_size=10TB"))
    (tmp_path / "huge.csv").write_bytes(b"rows,dim,pooling\n" + b"10,4,1\n" * 1_000_000)
    browser.give("#upload input[type=file]", tmp_path / "huge.csv")  # it stays in the browser
    browser.wait("document.getElementById('file-words').textContent.includes('at most 1000000 bytes')")
    says(browser, sentence("table_size=10TB"))


def test_a_plan_is_searched_for_and_stopped(browser: Chromium, live: Live) -> None:
    browser.open(f"{live.address}?model=criteo-kaggle&gpus=8", 1280)
    browser.run("document.getElementById('plan-start').click()")
    browser.wait("document.getElementById('plan-words').textContent.includes('search is running')")
    started = until(live.children)
    browser.run("document.getElementById('plan-stop').click()")
    browser.wait("document.getElementById('plan-words').textContent.startsWith('Stopped.')")
    assert gone(started) and live.children() == []
    browser.wait("document.getElementById('plan-stop').disabled")
    browser.wait("!document.getElementById('plan-start').disabled")
