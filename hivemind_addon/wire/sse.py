"""Server-sent events: bytes in, events out, by the rules of the HTML standard (section 9.2.6).

Line ends are LF, CR or CRLF, also split over chunks; no other line separator counts (U+2028 occurs raw inside
JSON). Memory is bounded: an event larger than the limit is dropped and counted.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT_BYTES = 16 * 1024 * 1024


class SseEvent(NamedTuple):
    """One event, or a block of comments (then `data` is empty and `comment_only` is set)."""

    event: str
    data: bytes
    comment_only: bool = False
    end: int = 0
    """Stream offset just behind the blank line that ended it: the raw bytes may be cut there."""


class SseDecoder:
    """Feed chunks of any size; events come out whole."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.oversized = 0
        """Events dropped because they were too large."""
        self._max = max_event_bytes
        self._pending = b""
        """Bytes of an unfinished line."""
        self._offset = 0
        """Stream offset behind `_pending`."""
        self._event = b""
        self._data: list[bytes] = []
        self._size = 0
        self._lines = 0
        """Lines of the block so far, comments included."""
        self._dropping = False
        self._after_cr = False
        """The last chunk ended in CR: an LF at the start of the next belongs to it."""
        self._start = True

    @property
    def at_boundary(self) -> bool:
        """True between two events."""
        return not self._pending and not self._lines and not self._dropping

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Read a chunk; answers the events that it completes."""
        if (
            not self._pending
            and not self._lines
            and not self._start
            and not self._after_cr
            and not self._dropping
            and b"\r" not in chunk
            and chunk.endswith(b"\n\n")
        ):
            return self._feed_whole(chunk)
        return self._feed_any(chunk)

    def _feed_whole(self, chunk: bytes) -> list[SseEvent]:
        """The common case: whole events with LF, nothing pending."""
        events = []
        offset = self._offset
        for block in chunk[:-2].split(b"\n\n"):
            offset += len(block) + 2
            # Stray blank lines in front of a block belong to it as far as cutting is concerned.
            name, data, seen = b"", None, False
            for line in block.split(b"\n"):
                if line.startswith(b"data:"):
                    value = line[6:] if line.startswith(b"data: ") else line[5:]
                    data = value if data is None else data + b"\n" + value
                elif line.startswith(b"event:"):
                    name = line[7:] if line.startswith(b"event: ") else line[6:]
                elif line == b"data":
                    data = b"" if data is None else data + b"\n"
                elif line:
                    seen = True
            if data is not None:
                events.append(SseEvent(name.decode("utf-8", "replace"), data, False, offset))
            elif seen or name or not block or block.strip(b"\n") == b"":
                events.append(SseEvent("", b"", True, offset))
        self._offset = offset
        return events

    def _feed_any(self, chunk: bytes) -> list[SseEvent]:
        events: list[SseEvent] = []
        if self._after_cr:
            chunk = self._finish_crlf(chunk, events)
        buffer = self._pending + chunk
        position = 0
        base = self._offset - len(self._pending)
        self._offset += len(chunk)
        while True:
            end, after = _line_end(buffer, position)
            if end < 0:
                break
            if after == len(buffer) and buffer[end:after] == b"\r":
                self._after_cr = True
            line = buffer[position:end]
            position = after
            event = self._line(line, base + after)
            if event is not None:
                events.append(event)
        self._pending = buffer[position:]
        if self._size + len(self._pending) > self._max:
            self._drop()
        return events

    def _finish_crlf(self, chunk: bytes, events: list[SseEvent]) -> bytes:
        """Swallow an LF that belongs to a CR at the end of the last chunk; answers the rest."""
        self._after_cr = not chunk
        if chunk[:1] != b"\n":
            return chunk
        self._offset += 1
        if self.at_boundary:
            # Nothing ended, but the place to cut is one byte further on.
            events.append(SseEvent("", b"", True, self._offset))
        return chunk[1:]

    def _line(self, line: bytes, end: int) -> SseEvent | None:
        if self._start:
            self._start = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._dispatch(end)
        self._lines += 1
        if self._dropping:
            return None
        self._size += len(line)
        if self._size > self._max:
            self._drop()
            return None
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value
        return None

    def _dispatch(self, end: int) -> SseEvent:
        name, data, dropped = self._event, self._data, self._dropping
        self._event, self._data, self._size, self._lines, self._dropping = b"", [], 0, 0, False
        if dropped:
            self.oversized += 1
        if dropped or not data:
            return SseEvent("", b"", True, end)
        return SseEvent(name.decode("utf-8", "replace"), b"\n".join(data), False, end)

    def _drop(self) -> None:
        self._dropping = True
        self._lines += 1
        self._event, self._data, self._size = b"", [], 0
        if len(self._pending) > self._max:
            # The rest of this line is not needed either, but the next line end must still be found.
            self._pending = b"x"


def _line_end(buffer: bytes, start: int) -> tuple[int, int]:
    """Where the line ends and where the next begins; (-1, -1) if it does not end here."""
    newline = buffer.find(b"\n", start)
    carriage = buffer.find(b"\r", start, newline if newline >= 0 else len(buffer))
    if carriage < 0:
        return (newline, newline + 1) if newline >= 0 else (-1, -1)
    if carriage + 1 == newline:
        return carriage, newline + 1
    return carriage, carriage + 1
