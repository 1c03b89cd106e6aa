"""The picture of README.md: the top of the page of ``perfmodel report`` in a browser.

    python benchmarks/report_picture.py

It needs Chromium or Chrome. The question is that of README; a test holds the file below 150 kB.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "report.png"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=20000",
    "--window-size=1280,1020", "--force-device-scale-factor=0.7", f"--screenshot={PICTURE}",
)  # fmt: skip


def main() -> None:
    """Write the picture. Limits: no browser -> the program ends, saying so"""
    browser = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        sys.exit("no Chromium on this machine: apt install chromium")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        command = [sys.executable, "-c", "from perfmodel.cli import main; main()", "report"]
        subprocess.run([*command, "--table-size", "10TB", "--out", str(page)], check=True)
        subprocess.run([browser, *_FLAGS, page.as_uri()], check=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
