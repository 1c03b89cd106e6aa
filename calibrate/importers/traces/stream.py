"""A Chrome trace of any size, one event after the other: .json or .json.gz, in bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from perfmodel.errors import BadInputError

HEAD_BYTES = 4 * 1024 * 1024
"""Before the events: what the trace says of itself. Kineto writes kilobytes."""

_TAIL_BYTES = 256 * 1024
_EVENTS = "traceEvents"
_GZIP = b"\x1f\x8b"
_ENDED_EARLY = re.compile(r"premature EOF|incomplete", re.IGNORECASE)
_NEXT_KEY = re.compile(rb"\]\s*,\s*(?=\")")

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that were read of it, and all its bytes (as they are on the disk)."""


class _Readable(Protocol):
    def read1(self, size: int = -1, /) -> bytes: ...


class TraceStream:
    """The events of one trace, and what it says of itself.

    is_trace  the head has the key of the events
    metadata  keys beside the events; those behind them are there once the events were read
    events    read so far
    cut       the file ends, or is damaged, before its trace ends: the events before are read
    """

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path, self.events, self.cut = path, 0, False
        self._progress, self._size = progress, path.stat().st_size
        self._raw = path.open("rb")
        try:
            self._plain: _Readable = gzip.GzipFile(fileobj=self._raw) if self._starts_gzip() else self._raw
            self._head = self._read(HEAD_BYTES)
        except BaseException:
            self._raw.close()
            raise
        self._tail = b""
        self.is_trace = f'"{_EVENTS}"'.encode() in self._head
        self.metadata = _before_events(self._head)

    def starts_with(self, mark: bytes) -> bool:
        """Whether the file begins so; asked before it is read."""
        return self._head.startswith(mark)

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each event; raises BadInputError for what is no JSON though the file is whole."""
        import ijson

        try:
            for event in ijson.items(self, f"{_EVENTS}.item", use_float=True):
                self.events += 1
                if isinstance(event, dict):
                    yield event
        except ijson.JSONError as error:
            if not self.cut and not _ENDED_EARLY.search(str(error)):
                raise self._not_json(error) from None
            self.cut = True
        self.metadata.update(_after_events(self._tail))

    def read(self, size: int = -1) -> bytes:
        """Bytes of the JSON text, for the parser; none once the file has ended or is damaged."""
        if size == 0:
            return b""  # the parser asks whether bytes or text comes
        head, self._head = self._head, b""
        block = head or self._read(size)
        self._tail = (self._tail + block)[-_TAIL_BYTES:]
        if self._progress is not None and block:
            self._progress(self.path.name, min(self._raw.tell(), self._size), self._size)
        return block

    def _starts_gzip(self) -> bool:
        start = self._raw.read(2)
        self._raw.seek(0, io.SEEK_SET)
        return start == _GZIP

    def _read(self, size: int) -> bytes:
        """Up to ``size`` bytes; what stands before the place where a compressed file is damaged is kept."""
        blocks, left = [], size
        while left > 0 and not self.cut:
            try:
                block = self._plain.read1(left)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                self.cut = True
                break
            if not block:
                break
            blocks.append(block)
            left -= len(block)
        return b"".join(blocks)

    def _not_json(self, error: Exception) -> BadInputError:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "not JSON"
        return BadInputError(
            f"{self.path.name} is not JSON after event {self.events}: {reason}.",
            "copy it again from where it was written, or leave it out.",
        )


def _before_events(head: bytes) -> dict[str, Any]:
    """What stands before the events in the first bytes of a trace; nothing of text that is no JSON object."""
    import ijson

    found: dict[str, Any] = {}
    start = head.find(f'"{_EVENTS}"'.encode())
    text = head[:start].rstrip().rstrip(b",") + b"}" if start >= 0 else head
    try:
        for key, value in ijson.kvitems(io.BytesIO(text), "", use_float=True):
            found[key] = value
    except ijson.JSONError:
        return found
    return found


def _after_events(tail: bytes) -> dict[str, Any]:
    """What stands behind the events in the last bytes of a trace.

    An event's own lists do not end so: what follows them, up to the end of the file, is no JSON object.
    """
    for match in _NEXT_KEY.finditer(tail):
        try:
            found = json.loads(b"{" + tail[match.end() :])
        except ValueError:
            continue
        if isinstance(found, dict) and _EVENTS not in found:
            return found
    return {}
