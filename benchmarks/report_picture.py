"""The pictures of README.md: the pages of ``perfmodel report`` and ``perfmodel explore`` in a browser.

    python benchmarks/report_picture.py

It needs Chromium or Chrome. The question is that of README, and each file stays below 150 kB.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "report.png"
LIVE = PICTURE.with_name("explore.png")
QUESTION = ("--table-size", "10TB")
MOST_BYTES = 150_000
_SIZE, _SCALE, _LIVE_SCALE = (1280, 1100), 0.7, 0.6
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


_CALL = (sys.executable, "-c", "from perfmodel.cli import main; main()")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=20000",
    f"--window-size={_SIZE[0]},{_SIZE[1]}",
)  # fmt: skip


def take(path: Path) -> None:
    """Write the picture of the report. Limits: as ``shoot``"""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        words = [*_CALL, "report", *QUESTION, "--out", str(page)]
        subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        shoot(page.as_uri(), path, _SCALE)


def take_live(path: Path) -> None:
    """Write the picture of the live page. Limits: as ``shoot``"""
    words = [*_CALL, "explore", "--port", "0", "--no-browser"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            shoot(server.stdout.readline().split()[0], path, _LIVE_SCALE)
        finally:
            server.terminate()


def shoot(address: str, path: Path, scale: float) -> None:
    """The top of a page. Limits: no browser, or a larger file -> the program ends, saying so"""
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit("no Chromium on this machine: apt install chromium")
    with tempfile.TemporaryDirectory() as folder:
        taken = Path(folder) / path.name
        subprocess.run(
            [browser, *_FLAGS, f"--force-device-scale-factor={scale}", f"--screenshot={taken}", address],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if taken.stat().st_size > MOST_BYTES:
            sys.exit(f"{taken.stat().st_size} bytes are more than {MOST_BYTES}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(taken.read_bytes())


if __name__ == "__main__":
    take(PICTURE)
    take_live(LIVE)
    for one in (PICTURE, LIVE):
        print(f"{one.relative_to(ROOT)}: {one.stat().st_size} bytes")
