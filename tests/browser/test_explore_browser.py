"""The live page in a real browser: drag, keys, links, errors."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from chromium import PROGRAM, Chromium
from cli_calls import EXPLORE
from waiting import PATIENCE_S, until

from perfmodel.explore import answers
from perfmodel.explore.controls import list_controls
from perfmodel.explore.texts import QuestionTexts

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine: apt install chromium")

SENTENCE = "document.querySelector('#headline h1')?.textContent"


@pytest.fixture(scope="module")
def live() -> Iterator[str]:
    """The printed address: its secret is part of it."""
    with subprocess.Popen(EXPLORE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[0]
        server.terminate()
        server.wait(PATIENCE_S)


def sentence(search: str) -> str:
    """What Python answers to an address."""
    found = answers.show_answer(QuestionTexts.from_search(search, list_controls(None, None)))
    return str(found["view"]["sentence"])


def says(browser: Chromium, words: str) -> None:
    browser.wait(f"{SENTENCE} === {json.dumps(words)}")


def box(name: str) -> str:
    return f"document.querySelector('#field-{name} input[type=text]')"


def thumb(name: str) -> str:
    return f"document.querySelector('#field-{name} input[type=range]')"


def focus_and_type(browser: Chromium, name: str, text: str) -> None:
    browser.run(f"{box(name)}.select()")
    browser.type(text)
    browser.press("Enter")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_it_opens_clean_at_every_width_and_asks_nobody_else(
    browser: Chromium, live: str, width: int, dark: bool
) -> None:
    browser.open(live, width, dark=dark)
    says(browser, sentence("table_size=10TB"))
    browser.wait("document.documentElement.dataset.later === 'yes'")
    assert browser.run("document.documentElement.scrollWidth") == width  # nothing sticks out
    assert browser.said == []
    assert {urlsplit(each).netloc for each in browser.left_for()} == {urlsplit(live).netloc}
    assert browser.run("document.querySelectorAll('#views .plot .main-svg').length") >= 5
    colour = browser.run("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")
    helps = "document.querySelector('#headline .findings li:last-child')"
    assert "→" in browser.run(f"{helps}.textContent")  # the times of the best change are seen
    assert browser.run(f"{helps}.getBoundingClientRect().right") < width


def test_a_slider_is_dragged_and_the_answer_follows(browser: Chromium, live: str) -> None:
    browser.open(live, 1280)
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


def test_keys_alone_reach_and_change_everything(browser: Chromium, live: str) -> None:
    browser.open(f"{live}&table_size=10TB", 1280)
    says(browser, sentence("table_size=10TB"))
    browser.run("document.getElementById('theme').focus()")
    reached = []
    while "copy-command" not in reached and len(reached) < 200:
        browser.press("Tab")
        at = "document.activeElement"
        reached.append(browser.run(f"{at}.id || {at}.dataset.of + ' ' + {at}.type"))
    controls_of = list_controls(None, None)
    assert {*controls_of, "copy-command"} <= {*reached}
    assert {f"{name} range" for name, each in controls_of.items() if not each.only} <= {*reached}
    browser.run(f"{thumb('batch')}.focus()")
    number = "Number(document.documentElement.dataset.number)"
    asked = browser.run(number)
    browser.press("ArrowRight")
    says(browser, sentence("table_size=10TB&batch=1536"))
    browser.wait(f"{box('batch')}.value === '1536' && document.documentElement.dataset.later === 'yes'")
    assert browser.run(number) == asked + 1  # by the slider, and not again by its box
    focus_and_type(browser, "pooling", "7")
    says(browser, sentence("table_size=10TB&batch=1536&pooling=7"))
    focus_and_type(browser, "pooling", "many")
    browser.wait("document.getElementById('refused').textContent.includes('many')")
    focus_and_type(browser, "pooling", "8")
    says(browser, sentence("table_size=10TB&batch=1536&pooling=8"))
    browser.wait("document.getElementById('refused').textContent === ''")
    stop = controls_of["pooling"].words.index("8")
    browser.wait(f"{thumb('pooling')}.value === '{stop}'")  # the slider follows what is typed


def test_a_link_asks_the_same_and_says_no_secret(browser: Chromium, live: str) -> None:
    search = "table_size=9TB&batch=4096&nic_bytes_per_s=100GB%2Fs"
    browser.open(f"{live}&{search}", 1280)
    says(browser, sentence(search))
    assert browser.run(f"{box('nic_bytes_per_s')}.value") == "100GB/s"
    assert browser.run("location.search") == f"?{search}"
    browser.open(browser.run("location.href"), 1280)
    says(browser, sentence(search))
    assert browser.said == []


def test_figures_of_an_earlier_question_are_marked_until_they_are_drawn_again(
    browser: Chromium, live: str
) -> None:
    browser.open(f"{live}&table_size=2TB&gpus=64", 1280)
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
    every = sorted(f"block-{name}" for name in ("breakdown", *answers.LATER))
    assert browser.run("seen[0]") == every and browser.run(old) == []
    focus_and_type(browser, "gpus", "4")
    browser.wait("document.getElementById('refused').textContent !== ''")
    assert browser.run(old) == every
    focus_and_type(browser, "gpus", "64")
    browser.wait("document.querySelectorAll('.old').length === 0")
    changed = "e.value = 'fp16'; e.dispatchEvent(new Event('input', {bubbles: true}))"
    seen = f"{{ {changed}; return document.querySelectorAll('.old').length; }}"
    assert browser.run(f"(e => {seen})(document.getElementById('payload'))") == len(every) + 1  # at once


def test_an_error_is_seen_at_its_box_and_wherever_the_page_is_scrolled(browser: Chromium, live: str) -> None:
    wrong = "[...document.querySelectorAll('[aria-invalid=true]')].map(each => each.closest('.field').id)"
    refused = "document.getElementById('refused')"
    browser.open(f"{live}&table_size=2TB&gpus=256&global_batch=65536", 390)
    says(browser, sentence("table_size=2TB&gpus=256&global_batch=65536"))
    assert browser.run(wrong) == []
    browser.run("scrollTo(0, 1000)")
    focus_and_type(browser, "gpus", "400")
    browser.wait(f"{refused}.textContent.includes('for each of 400 GPUs')")
    assert browser.run(wrong) == ["field-gpus", "field-global_batch"]
    assert browser.run(f"{refused}.offsetHeight > 0 && {refused}.getBoundingClientRect().top < innerHeight")
    focus_and_type(browser, "gpus", "512")
    says(browser, sentence("table_size=2TB&gpus=512&global_batch=65536"))
    assert browser.run(wrong) == [] and browser.run(f"{refused}.offsetHeight") == 0


def test_a_value_of_the_machine_is_seen_before_it_is_changed(browser: Chromium, live: str) -> None:
    browser.open(f"{live}&table_size=10TB", 1280)
    says(browser, sentence("table_size=10TB"))
    label = "document.querySelector('#field-nic_bytes_per_s label').dataset.own"
    assert browser.run(label) == "50 GB/s"
    browser.run(f"{thumb('nic_bytes_per_s')}.focus()")
    browser.press("ArrowRight")  # from where its knob stands
    browser.wait(f"{box('nic_bytes_per_s')}.value === '63GB/s'")
    focus_and_type(browser, "nic_bytes_per_s", "100GB/s")
    says(browser, sentence("table_size=10TB&nic_bytes_per_s=100GB/s"))
    assert browser.run(label) == "" and browser.said == []
