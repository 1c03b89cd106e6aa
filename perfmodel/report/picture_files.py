"""Writes figures to picture files, by plotly.js in a headless browser that kaleido starts.

Both are optional: ``pip install 'perfmodel[figures]'`` brings kaleido, the system a Chrome or Chromium.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfmodel.errors import BadInputError, NoHardwareError

"""Picture formats, by the endings of file names."""
SCALE = 2.0
"""Pixels of a PNG per pixel of the figure."""


def check_kaleido() -> None:
    """Limits: kaleido is not installed -> BadInputError that says what to install"""
    if importlib.util.find_spec("kaleido") is None:
        raise BadInputError(
            "a picture needs kaleido, which is not installed.",
            f"pip install 'kaleido>=1'\nand Chrome or Chromium. {_WITHOUT}",
        )


def write_pictures(pictures: Sequence[tuple[Any, Path]], scale: float = SCALE) -> None:
    """Write figures to files that end in one of ``PICTURES``, all with one browser.

    pictures  figures from ``printed``, each with its file;  scale  pixels of a PNG per pixel of the figure
    Limits: as ``check_kaleido``;  no browser -> NoHardwareError that says what to install
    """
    check_kaleido()
    import kaleido
    from kaleido.errors import ChromeNotFoundError

    wanted = []
    for figure, path in pictures:
        dots = scale if path.suffix.lower() == ".png" else 1
        size = {"width": figure.layout.width, "height": figure.layout.height, "scale": dots}
        wanted.append({"fig": figure, "path": str(path), "opts": size})
    try:
        failed = kaleido.write_fig_from_object_sync(wanted, kopts={"mathjax": False})
    except ChromeNotFoundError:
        raise NoHardwareError(
            "a picture needs Chrome or Chromium, and none was found.",
            f"install one (Debian: apt install chromium), or name it in BROWSER_PATH. {_WITHOUT}",
        ) from None
    except Exception as error:  # kaleido and the browser under it raise of many kinds: none has drawn
        raise _not_drawn(error) from error
    if failed:
        raise _not_drawn(failed[0])


_WITHOUT = "Files that end in .html, .json or .csv need neither."


def _not_drawn(error: Exception) -> NoHardwareError:
    first = error.args[0] if error.args else ""
    said = " ".join(str(first[0] if isinstance(first, tuple) else first).split())[:200]
    return NoHardwareError(
        f"the browser that draws pictures failed: {said or type(error).__name__}",
        f"try again, or name another Chrome or Chromium in BROWSER_PATH. {_WITHOUT}",
    )
