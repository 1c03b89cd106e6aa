"""How soon ``perfmodel explore`` answers: a slider is dragged through 50 values in a browser.

    python benchmarks/explore_latency.py

Of each value the time from the input event to the paint of its card, and to that of the figure below it [ms]:
p50 and p95 of each slider, and the CPU time of the server for an answer. The aim is a p95 of 150 ms for the
card on an idle machine. The next value follows the figure. It needs Chromium or Chrome.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "browser"), str(ROOT / "tests")]

from chromium import PROGRAM, Chromium  # noqa: E402

AIM_MS = 150
VALUES = 50
SLIDERS = ("table_size", "batch", "nic_bytes_per_s")
_CALL = [sys.executable, "-c", "from perfmodel.cli import main; main()"]
_ARM = """
addEventListener('input', (event) => { window.moved = event.timeStamp; }, {capture: true});
// What is on the page in a frame is painted when the first task after it runs: the page's own come later.
window.seen = () => new Promise((done) => {
  const root = document.documentElement.dataset, before = root.number, found = [];
  const look = () => {
    const {port1, port2} = new MessageChannel(), name = ['number', 'drawn'][found.length];
    const there = root[name] !== before && root[name] === root.number;
    port2.onmessage = () => {
      if (there) found.push(performance.now() - window.moved);
      if (found.length < 2) requestAnimationFrame(look); else done(found);
    };
    port1.postMessage(0);
  };
  requestAnimationFrame(look);
});
"""


def times(browser: Chromium, name: str) -> list[tuple[float, float]]:
    """Of each value that the mouse drags the slider to, the times until card and figure are painted [ms]."""
    slider = f"document.querySelector('[data-of={name}]')"
    browser.run(f"{slider}.scrollIntoView({{block: 'center'}})")
    box = browser.run(f"{slider}.getBoundingClientRect().toJSON()")
    last, at = (int(browser.run(f"{slider}.{word}")) for word in ("max", "value"))
    y = box["y"] + box["height"] / 2

    def x(place: int) -> float:
        return float(box["x"] + box["width"] * place / last)

    browser.mouse("mousePressed", x(at), y)
    browser.run(_ARM)
    found, step = [], 1 if at < last else -1
    while len(found) < VALUES:
        at += step
        browser.run("void (window.both = window.seen())")
        browser.mouse("mouseMoved", x(at), y)
        found.append(tuple(browser.run("window.both")))
        step = -step if at in (0, last) else step
    browser.mouse("mouseReleased", x(at), y)
    return found


def cpu_ms(server: subprocess.Popen[str] | None) -> float:
    """CPU time of the server [ms]. Limits: it was not started here -> nan"""
    if server is None:
        return math.nan
    words = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


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
            print(f"{VALUES} values a slider, times in ms; aim: p95 of the card {AIM_MS}")
            print(f"{'slider':18}{'card p50':>10}{'p95':>6}{'figure p50':>12}{'p95':>6}{'server CPU':>12}")
            for name in SLIDERS:
                browser.open(address, 1280)
                browser.wait("document.documentElement.dataset.later === 'yes'")
                began = cpu_ms(server)
                found = times(browser, name)
                line = f"{name:18}"
                for width, values in zip((10, 12), zip(*found, strict=True), strict=True):
                    cuts = statistics.quantiles(values, n=20, method="inclusive")
                    line += f"{cuts[9]:{width}.0f}{cuts[18]:6.0f}"
                print(f"{line}{(cpu_ms(server) - began) / VALUES:12.0f}")
        finally:
            browser.close()
            if server is not None:
                server.terminate()
                server.wait()


if __name__ == "__main__":
    main()
