"""Server-sent events: bytes in, events out, by the rules of the HTML standard (section 9.2.6).

Line ends are LF, CR or CRLF, also split over chunks; no other line separator counts (U+2028 occurs raw
inside JSON). Every byte belongs to exactly one reported event, so a caller can cut the raw bytes at
`SseEvent.end`. Memory is bounded: an event larger than the limit is dropped and counted.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SSE = "text/event-stream"
"""The media type."""
MAX_EVENT_BYTES = 16 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\r|\n")
_LF = 10


class SseEvent(NamedTuple):
    """One event, or a block that a client never sees as one (comments, stray blank lines).

    A named tuple because it is built for every event of every stream: a frozen dataclass takes more than
    twice as long.
    """

    event: str
    data: bytes
    comment_only: bool = False
    """True if nothing is dispatched; then `event` and `data` are empty."""
    end: int = 0
    """Stream offset just behind the blank line that ended it: the raw bytes may be cut there."""


class SseDecoder:
    """Feed chunks of any size; events come out whole.

    An event is dispatched as soon as its blank line is seen. If that line ended in CR at the end of a
    chunk, the LF that may follow is reported on its own, as a stray blank line.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.oversized = 0
        """Events dropped because they were too large."""
        self._max = max_event_bytes
        self._offset = 0
        """Bytes fed so far."""
        self._clean = False
        """True if the next byte begins a line of a new event and no half line end is open."""
        self._begin = 0
        """Stream offset of the event being read."""
        self._line = bytearray()
        """Bytes of an unfinished line; while dropping, one byte stands for them all."""
        self._event = b""
        self._data: list[bytes] = []
        self._open = False
        """True if the event has at least one finished line."""
        self._dropping = False
        self._after_cr = False
        """The last chunk ended in CR: an LF at the start of the next belongs to it."""
        self._start = True
        """True until the first line ended: it may carry a byte order mark."""

    @property
    def at_boundary(self) -> bool:
        """True between two events."""
        return self._clean or not (self._line or self._open)

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Read a chunk; answers the events that it completes."""
        if self._clean and chunk.endswith(b"\n\n") and b"\r" not in chunk:
            return self._feed_whole(chunk)
        return self._feed_any(chunk) if chunk else []

    def _feed_whole(self, chunk: bytes) -> list[SseEvent]:
        """The common case: whole events with LF, nothing pending."""
        base, start, size = self._offset, 0, len(chunk)
        events = []
        while start < size:
            if chunk[start] == _LF:
                start += 1
                events.append(SseEvent("", b"", True, base + start))
                continue
            stop = chunk.find(b"\n\n", start)
            end, at, name = base + stop + 2, start, ""
            if chunk.startswith(b"event: ", start):
                at = chunk.find(b"\n", start) + 1
                name = chunk[start + 7 : at - 1].decode("utf-8", "replace")
            if (
                chunk.startswith(b"data: ", at)
                and chunk.find(b"\n", at) == stop
                and stop - start <= self._max
            ):
                # The form of by far most events: a name or none, then one data line.
                events.append(SseEvent(name, chunk[at + 6 : stop], False, end))
            else:
                events.append(self._block(chunk[start:stop], end))
            start = stop + 2
        self._offset = self._begin = base + size
        return events

    def _block(self, lines: bytes, end: int) -> SseEvent:
        """One whole event of any other form."""
        if len(lines) > self._max:
            self._drop()
        else:
            for line in lines.split(b"\n"):
                self._field(line)
        return self._dispatch(end)

    def _feed_any(self, chunk: bytes) -> list[SseEvent]:
        """Any chunk: line by line."""
        events: list[SseEvent] = []
        base, start = self._offset, 0
        if self._after_cr and chunk[0] == _LF:
            start = 1
            if not self._open:
                self._begin = base + 1
                events.append(SseEvent("", b"", True, base + 1))
        for match in _LINE_END.finditer(chunk, start):
            part, start = chunk[start : match.start()], match.end()
            event = self._end_line(part, base + match.start(), base + start)
            if event is not None:
                events.append(event)
        self._offset = base + len(chunk)
        self._after_cr = start == len(chunk) and chunk.endswith(b"\r")
        if start < len(chunk):
            self._keep(chunk[start:] if start else chunk)
        self._clean = not (self._line or self._open or self._after_cr or self._start)
        return events

    def _end_line(self, part: bytes, stop: int, end: int) -> SseEvent | None:
        """A line ended at offset `stop`, its line end at `end`; answers the event that it ends."""
        line = bytes(self._line) + part if self._line else part
        self._line.clear()
        if self._start:
            self._start = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch(end)
        self._open = True
        if stop - self._begin > self._max:
            self._drop()
        if not self._dropping:
            self._field(line)
        return None

    def _keep(self, part: bytes) -> None:
        """Remember the beginning of an unfinished line."""
        if self._offset - self._begin > self._max:
            self._drop()
        if self._dropping:
            self._line[:] = b"x"
        else:
            self._line += part

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name == b"event":
            self._event = value.removeprefix(b" ")

    def _dispatch(self, end: int) -> SseEvent:
        name, data = self._event, self._data
        self._event, self._data, self._begin = b"", [], end
        self._open = self._dropping = False
        if not data:
            return SseEvent("", b"", True, end)
        return SseEvent(name.decode("utf-8", "replace"), b"\n".join(data), False, end)

    def _drop(self) -> None:
        """Forget what was read of an event that is too large; its end is still looked for."""
        if not self._dropping:
            self.oversized += 1
        self._dropping = True
        self._event, self._data = b"", []
