"""The picture of README.md: the top of the page that ``perfmodel report`` writes, as a browser shows it.

    python benchmarks/report_picture.py

It needs Chromium or Chrome. The page is that of the README's own question, and the file stays below 150 kB.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "report.png"
QUESTION = ("--table-size", "10TB")
MOST_BYTES = 150_000
_SIZE, _SCALE = (1280, 1100), 0.7
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def take(path: Path) -> None:
    """Write the picture to ``path``. Limits: no browser, or a larger file -> the program ends, saying so"""
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit("no Chromium on this machine: apt install chromium")
    with tempfile.TemporaryDirectory() as folder:
        page, taken = Path(folder) / "report.html", Path(folder) / "report.png"
        call = "from perfmodel.cli import main; main()"
        words = [sys.executable, "-c", call, "report", *QUESTION, "--out", str(page)]
        subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--virtual-time-budget=20000",
        ]
        flags += [f"--window-size={_SIZE[0]},{_SIZE[1]}", f"--force-device-scale-factor={_SCALE}"]
        subprocess.run(
            [browser, *flags, f"--screenshot={taken}", page.as_uri()],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if taken.stat().st_size > MOST_BYTES:
            sys.exit(f"{taken.stat().st_size} bytes are more than {MOST_BYTES}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(taken.read_bytes())


if __name__ == "__main__":
    take(PICTURE)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size} bytes")
