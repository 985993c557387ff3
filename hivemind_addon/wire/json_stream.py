"""JSON that comes piece by piece: the elements of one array, or of lines and values in a row.

Only brackets and strings are followed, so nothing is parsed twice and memory is bounded: an element larger than
the limit is dropped and counted.
"""

from __future__ import annotations

import re

from hivemind_addon.wire.sse import MAX_EVENT_BYTES, SseDecoder, SseEvent

_PLAIN = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
"""Everything up to a bracket, or to a quote whose string does not end here."""
_STRING_MARK = re.compile(rb'["\\]')
_OPENING = b"{["
_QUOTE, _OPENING_BRACKET, _CLOSING_BRACKET = b'"[]'
_OPENINGS = (b"{", b"[")
_AT_LINE = (b"\n{", b"\n[", b"\r{", b"\r[")
_VALUE_AT_LINE = re.compile(rb"(?:\A|[\r\n])[\[{]")


class JsonArrayDecoder:
    """Cuts `[{...}, {...}]` into one event per element, its data the element's own bytes.

    Objects that follow each other without an array around them are cut the same way. What stands between two
    elements belongs to the second, the closing bracket is an event without data.
    """

    at_boundary = False
    """An event of ours would not fit: whether a comma is due is the provider's to say."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES, *, offset: int = 0) -> None:
        self.oversized = 0
        """Elements dropped because they were too large."""
        self._max = max_event_bytes
        self._offset = offset
        """Stream offset behind the bytes fed so far."""
        self._array = False
        """Inside the outer array."""
        self._depth = 0
        """Brackets open inside the element being read."""
        self._string = False
        self._escaped = False
        """The last chunk ended in a backslash inside a string."""
        self._element = bytearray()
        self._dropping = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Read a chunk; answers the elements that it completes."""
        events: list[SseEvent] = []
        at = begin = 0
        while at := self._next_bracket(chunk, at):
            byte = chunk[at - 1]
            if byte in _OPENING:
                if self._open(byte):
                    begin = at - 1
            elif self._depth:
                self._depth -= 1
                if self._depth == 0:
                    events.append(self._cut(chunk[begin:at], self._offset + at))
            elif self._array and byte == _CLOSING_BRACKET:
                self._array = False
                events.append(SseEvent("", b"", True, self._offset + at))
        if self._depth:
            self._keep(chunk[begin:])
        self._offset += len(chunk)
        return events

    def _next_bracket(self, chunk: bytes, at: int) -> int:
        """Where the next bracket outside a string ends; 0 if none is left."""
        while True:
            if self._string:
                at = self._skip_string(chunk, at)
            plain = _PLAIN.match(chunk, at)
            assert plain is not None  # it matches nothing, too
            at = plain.end() + 1
            if at > len(chunk):
                return 0
            if chunk[at - 1] != _QUOTE:
                return at
            self._string = True

    def _skip_string(self, chunk: bytes, at: int) -> int:
        """Where to go on after the string, or the end of the chunk."""
        if self._escaped:
            self._escaped = False
            at += 1
        while (mark := _STRING_MARK.search(chunk, at)) is not None:
            at = mark.end()
            if chunk[at - 1] == _QUOTE:
                self._string = False
                return at
            at += 1  # the escaped character
        self._escaped = at > len(chunk)
        return len(chunk)

    def _open(self, byte: int) -> bool:
        """True if an element begins here."""
        if self._depth == 0 and not self._array and byte == _OPENING_BRACKET:
            self._array = True
            return False
        self._depth += 1
        return self._depth == 1

    def _cut(self, rest: bytes, end: int) -> SseEvent:
        data = bytes(self._element) + rest if self._element else rest
        self._element.clear()
        dropped, self._dropping = self._dropping, False
        if len(data) > self._max and not dropped:
            self.oversized += 1
            dropped = True
        return SseEvent("", b"", True, end) if dropped else SseEvent("", data, False, end)

    def _keep(self, part: bytes) -> None:
        if self._dropping:
            return
        self._element += part
        if len(self._element) > self._max:
            self.oversized += 1
            self._dropping = True
            self._element.clear()


class GoogleSseDecoder:
    """Server-sent events in which a bare JSON value may follow: so Google tells an error in a stream.

    Such a value begins a line where an event would begin; from there on no event can follow any more.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._sse = SseDecoder(max_event_bytes)
        self._json: JsonArrayDecoder | None = None
        self._offset = 0

    @property
    def at_boundary(self) -> bool:
        return self._json is None and self._sse.at_boundary

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Read a chunk; answers the events that it completes."""
        if self._json is not None:
            return self._json.feed(chunk)
        if not (chunk.startswith(_OPENINGS) or any(mark in chunk for mark in _AT_LINE)):
            self._offset += len(chunk)
            return self._sse.feed(chunk)
        events: list[SseEvent] = []
        fed = 0
        for match in _VALUE_AT_LINE.finditer(chunk):
            at = match.end() - 1
            events += self._sse.feed(chunk[fed:at])
            fed = at
            if self._sse.at_boundary:
                self._json = JsonArrayDecoder(self._max, offset=self._offset + at)
                return events + self._json.feed(chunk[at:])
        self._offset += len(chunk)
        return events + self._sse.feed(chunk[fed:])


class NdjsonDecoder:
    """One JSON value per line (application/x-ndjson); blank lines carry nothing."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.oversized = 0
        """Lines dropped because they were too large."""
        self._max = max_event_bytes
        self._offset = 0
        self._line = bytearray()
        """Bytes of an unfinished line; while dropping, one byte stands for them all."""
        self._dropping = False

    @property
    def at_boundary(self) -> bool:
        """True between two lines."""
        return not self._line

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Read a chunk; answers the lines that it completes."""
        events: list[SseEvent] = []
        start = 0
        while (stop := chunk.find(b"\n", start)) >= 0:
            self._keep(chunk[start:stop])
            start = stop + 1
            events.append(self._dispatch(self._offset + start))
        if start < len(chunk):
            self._keep(chunk[start:])
        self._offset += len(chunk)
        return events

    def _keep(self, part: bytes) -> None:
        if not self._dropping and len(self._line) + len(part) > self._max:
            self.oversized += 1
            self._dropping = True
        if self._dropping:
            self._line[:] = b"x"
        else:
            self._line += part

    def _dispatch(self, end: int) -> SseEvent:
        line = b"" if self._dropping else bytes(self._line).strip()
        self._line.clear()
        self._dropping = False
        return SseEvent("", line, False, end) if line else SseEvent("", b"", True, end)
