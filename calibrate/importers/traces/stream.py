"""Reads a Chrome trace of any size event by event: .json or .json.gz, in bounded memory."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perfmodel.errors import BadInputError
from perfmodel.schema.gate import MIB, MOST_EVENT_BYTES, Unpacked, decode_json, require_bounded
from perfmodel.units import format_count

_TAIL_BYTES, _PIECE_BYTES = 256 * 1024, 8 * 1024
_MOST_OPEN = 1_000
"""Most open brackets: the parser's memory grows with the square of their number."""
_EVENTS = "traceEvents"
_ENDED_EARLY = re.compile(r"premature EOF|incomplete", re.IGNORECASE)
_NEXT_KEY = re.compile(r"\]\s*,\s*(?=\")")

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes read so far, and its total bytes (on disk)."""


class TraceStream:
    """The events of one trace, and its metadata.

    is_trace  whether the beginning has the key of the events
    metadata  keys besides the events; keys after the events are there once all events were read
    events    number read so far
    cut       whether the file ends, or is damaged, before its trace ends: the events before are read
    """

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path, self.events, self.cut = path, 0, False
        self._progress, self._raw = progress, Unpacked(path)
        self._tail: deque[bytes] = deque(maxlen=_TAIL_BYTES // _PIECE_BYTES)
        self._since_event = self._open = 0
        try:
            head = self._read(MOST_EVENT_BYTES)
            self._head, start = io.BytesIO(head), head.find(f'"{_EVENTS}"'.encode())
            self.is_trace = start >= 0
            self.metadata = self._before_events(head[: max(start, 0)])
        except BaseException:
            self._raw.close()
            raise

    def starts_with(self, mark: bytes) -> bool:
        """Whether the file begins with the bytes ``mark``; to be called before reading."""
        return self._head.getvalue().startswith(mark)

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each event; raises BadInputError for invalid JSON in a complete file."""
        import ijson

        try:
            for event in ijson.items(self, f"{_EVENTS}.item", use_float=True, buf_size=_PIECE_BYTES):
                self.events += 1
                self._since_event = self._open = 0
                if isinstance(event, dict):
                    yield event
        except ijson.JSONError as error:
            if not self.cut and not _ENDED_EARLY.search(str(error)):
                raise self._not_json(error) from None
            self.cut = True
        self.metadata.update(self._bounded(_after_events(b"".join(self._tail))))

    def read(self, size: int = -1) -> bytes:
        """Bytes of the JSON text, for the parser; empty once the file has ended or is damaged."""
        if size == 0:
            return b""  # the parser tests whether it gets bytes or text
        block = self._head.read(size) or self._read(size)
        self._tail.append(block)
        self._since_event += len(block)
        if self._since_event > 2 * MOST_EVENT_BYTES:  # the metadata before the events, or one event
            raise self._too_much(f"no event in {MOST_EVENT_BYTES // MIB} MiB")
        self._require_flat(block)
        if self._progress is not None and block:
            self._progress(self.path.name, self._raw.read_bytes, self._raw.size_bytes)
        return block

    def _require_flat(self, block: bytes) -> None:
        """Raise BadInputError if an event has more than ``_MOST_OPEN`` open brackets."""
        self._open += block.count(b"[") + block.count(b"{") - block.count(b"]") - block.count(b"}")
        if self._open > _MOST_OPEN:
            raise self._too_much(f"more than {format_count(_MOST_OPEN)} brackets open")

    def _too_much(self, what: str) -> BadInputError:
        return BadInputError(
            f"{self.path.name}: {what} after event {format_count(self.events)}.",
            "an event has a name, numbers and short lists: copy the file again, or leave it out.",
        )

    def _before_events(self, text: bytes) -> dict[str, Any]:
        """Metadata that stands before the events in the file; empty for text that is no JSON object."""
        import ijson

        found: dict[str, Any] = {}
        for at in range(0, len(text), _PIECE_BYTES):
            self._require_flat(text[at : at + _PIECE_BYTES])
        self._open = 0
        try:
            whole = io.BytesIO(text.rstrip().rstrip(b",") + b"}")
            for key, value in ijson.kvitems(whole, "", use_float=True):
                found[key] = value
        except ijson.JSONError:
            pass
        return self._bounded(found)

    def _bounded(self, said: dict[str, Any]) -> dict[str, Any]:
        """The metadata ``said``, unless it is beyond the limits for files: then BadInputError."""
        try:
            require_bounded(said)
        except ValueError as error:
            raise self._not_json(error) from None
        return said

    def _read(self, size: int) -> bytes:
        """Up to ``size`` bytes; data before the damaged place of a compressed file is kept."""
        blocks, left = [], size
        while left > 0 and not self.cut:
            try:
                block = self._raw.read(left)
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


def _after_events(tail: bytes) -> dict[str, Any]:
    """Metadata that stands after the events in the file; ``tail`` are its last bytes.

    A list inside an event does not match: the text from it to the end of the file is no JSON object.
    """
    text = tail.decode(errors="replace")
    for match in _NEXT_KEY.finditer(text):
        try:
            found, _ = decode_json("{" + text[match.end() :])
        except ValueError:
            continue
        if isinstance(found, dict) and _EVENTS not in found:
            return found
    return {}
