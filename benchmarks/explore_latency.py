"""How soon ``perfmodel explore`` answers: a slider is dragged through 50 values in a browser.

    python benchmarks/explore_latency.py

Of each value the time from the input event to the paint of its answer [ms]: p50 and p95 of each slider. The
aim is a p95 of 150 ms on an idle machine. It needs Chromium or Chrome.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "browser"), str(ROOT / "tests")]

from chromium import PROGRAM, Chromium  # noqa: E402

AIM_MS = 150
VALUES = 50
SLIDERS = ("table_size", "batch", "nic_bytes_per_s")
_CALL = [sys.executable, "-c", "from perfmodel.cli import main; main()"]
_ARM = """
window.armed = document.documentElement.dataset.number;
addEventListener('pointermove', () => { window.moved ??= performance.now(); }, {capture: true});
"""
_SEEN = """
new Promise((done) => {
  const look = () => document.documentElement.dataset.number === window.armed ? requestAnimationFrame(look)
    : requestAnimationFrame(() => setTimeout(() => {
      done(performance.now() - window.moved);
      window.armed = document.documentElement.dataset.number;
      window.moved = undefined;
    }));
  look();
})
"""


def times(browser: Chromium, name: str) -> list[float]:
    """Of each value that the mouse drags the slider to, the time until its answer is painted [ms]."""
    slider = f"document.querySelector('#field-{name} [role=slider]')"
    browser.run(f"{slider}.scrollIntoView({{block: 'center'}})")
    box = browser.run(f"{slider}.closest('.dash-slider-root').getBoundingClientRect().toJSON()")
    last, at = (int(browser.run(f"{slider}.ariaValue{word}")) for word in ("Max", "Now"))
    y = box["y"] + box["height"] / 2

    def x(place: int) -> float:
        return float(box["x"] + box["width"] * place / last)

    browser.mouse("mousePressed", x(at), y)
    browser.run(_ARM)
    found, step = [], 1 if at < last else -1
    while len(found) < VALUES:
        at += step
        browser.mouse("mouseMoved", x(at), y)
        found.append(float(browser.run(_SEEN)))
        step = -step if at in (0, last) else step
    browser.mouse("mouseReleased", x(at), y)
    return found


def main() -> None:
    """Print a line a slider."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--address", help="of a page that runs already (default: one is started)")
    given = parser.parse_args()
    if PROGRAM is None:
        sys.exit("no Chromium on this machine: apt install chromium")
    words = [*_CALL, "explore", "--port", "0", "--no-browser"]
    with tempfile.TemporaryDirectory() as folder:
        server = None if given.address else subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        browser = Chromium(Path(folder))
        try:
            address = given.address or server.stdout.readline().split()[0]  # type: ignore[union-attr]
            print(f"{'slider':18}{'p50':>8}{'p95':>8}{'most':>8}   ms, {VALUES} values; aim: p95 {AIM_MS} ms")
            for name in SLIDERS:
                browser.open(address, 1280)
                time.sleep(5)  # the figures of many answers
                found = times(browser, name)
                cuts = statistics.quantiles(found, n=20, method="inclusive")
                print(f"{name:18}{cuts[9]:8.0f}{cuts[18]:8.0f}{max(found):8.0f}")
        finally:
            browser.close()
            if server is not None:
                server.terminate()
                server.wait()


if __name__ == "__main__":
    main()
