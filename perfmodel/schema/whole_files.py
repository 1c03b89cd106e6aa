"""Files that are written atomically, also in folders that others can write to.

A file is written under a random name in the same folder, synchronised, and renamed. Links are not followed: a
link at the target path is replaced by the file, and the linked file is not touched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from perfmodel.errors import BadInputError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_whole(path: Path, write: Callable[[Path], object], what: str = "") -> None:
    """Write a file in one step: ``write`` writes it at a temporary path, which is then renamed to ``path``.

    what   names the kind of file in a message ("machine file")
    Limits: nothing written, or an error of any kind -> the old file unchanged, and no other file
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:60]}.", suffix=path.suffix, dir=path.parent)
    except (OSError, ValueError) as error:
        raise cannot_write(path, error, what) from None
    draft = Path(name)
    try:
        os.close(handle)
        write(draft)
        _settle(draft)
        os.replace(draft, path)
    except OSError as error:
        raise cannot_write(path, error, what) from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def write_whole_bytes(path: Path, content: bytes, what: str = "") -> None:
    """Write a file of these bytes atomically."""
    write_whole(path, lambda draft: draft.write_bytes(content), what)


def write_whole_text(path: Path, text: str, what: str = "") -> None:
    """Write a file of this text in UTF-8 atomically."""
    write_whole_bytes(path, text.encode(), what)


def cannot_write(path: Path, error: Exception, what: str = "") -> BadInputError:
    """The error for a place that cannot be written: the system's reason, and what helps."""
    reason = (getattr(error, "strerror", None) or str(error)).lower()
    named = f"{what} {path}" if what else str(path)
    if getattr(error, "errno", None) in _FULL:
        return BadInputError(
            f"{named} cannot be written: {reason}.", "free some space there, and rerun the command."
        )
    return BadInputError(
        f"{named} cannot be written: {reason}.",
        "check the folder and its permissions, or name another.",
    )


def _settle(draft: Path) -> None:
    """Synchronise the draft to disk, with the access rights of a new file."""
    handle = os.open(draft, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot
            os.fsync(handle)
        with contextlib.suppress(OSError):
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(handle, 0o666 & ~mask)
    finally:
        os.close(handle)
