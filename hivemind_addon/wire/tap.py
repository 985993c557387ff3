"""A tap on one streamed answer: reads a side copy, never changes or delays what it is not asked to.

It tells when content began (the request is not replayable any more), whether the answer ended as its dialect
says it must, what it cost, and where the raw bytes may be cut between two events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hivemind_addon.model import Usage
from hivemind_addon.wire.dialect import EventKind
from hivemind_addon.wire.sse import MAX_EVENT_BYTES, SseDecoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from hivemind_addon.model import Failure
    from hivemind_addon.wire.dialect import EventDecoder, StreamReader
    from hivemind_addon.wire.sse import SseEvent

BYTES_PER_TOKEN = 4
"""The estimate used only where a provider reported nothing."""


def tokens_from_bytes(count: int) -> int:
    """Tokens in `count` bytes of text, rounded up."""
    return -(-count // BYTES_PER_TOKEN)


class StreamTap:
    """Follows one answer through any chunking.

    With `hide_usage` it also cuts the usage chunk out that the client did not ask for. Then it forwards whole
    events only, decoded.
    """

    def __init__(
        self,
        reader: StreamReader,
        decode: Callable[[bytes], bytes] | None,
        decode_errors: tuple[type[Exception], ...] = (),
        *,
        events: EventDecoder | None = None,
        hide_usage: bool = False,
    ) -> None:
        self.content = False
        """An event that a user sees has passed."""
        self.readable = decode is not None
        """False once the answer proved to be in an encoding that cannot be read."""
        self._reader = reader
        self._decode = decode
        self._decode_errors = decode_errors
        self._events = events or SseDecoder()
        self._hide = hide_usage
        self._ended = False
        """An event that the dialect defines as the last has passed."""
        self._held = bytearray()
        self._held_from = 0
        """Stream offset of the first held byte."""
        self._loose = False
        """Half an event was forwarded after all."""
        self._hidden = b""
        """Raw bytes of the event just hidden."""

    @property
    def complete(self) -> bool:
        """The dialect's own end was seen, or cannot be known."""
        return self._reader.complete or not self.readable

    @property
    def ended_well(self) -> bool:
        """Whatever becomes of the transfer now, the client has the whole answer."""
        return self._ended and self.at_boundary

    @property
    def failure(self) -> Failure | None:
        """The error that came inside the stream, if any."""
        return self._reader.failure

    @property
    def at_boundary(self) -> bool:
        """True if an event may be inserted after the bytes forwarded so far."""
        return self.readable and not self._loose and (self._hide or self._events.at_boundary)

    def feed(self, chunk: bytes) -> bytes:
        """Read a chunk; answers the bytes to forward now.

        Raises:
            Exception: one of `decode_errors`, if usage is hidden: what was forwarded so far is decoded, too.
        """
        if not self.readable:
            return chunk
        assert self._decode is not None
        try:
            plain = self._decode(chunk)
        except self._decode_errors:
            if self._hide:
                raise
            self.readable = False
            return chunk
        if not self._hide:
            for event in self._events.feed(plain):
                self._read(event)
            return chunk
        return self._feed_and_hide(plain)

    def _read(self, event: SseEvent) -> EventKind:
        kind = self._reader.feed(event)
        if kind is EventKind.CONTENT:
            self.content = True
        elif kind is EventKind.END:
            self._ended = True
        return kind

    def rest(self) -> bytes:
        """At the end of the stream: bytes of an unfinished event still held back."""
        held, self._held = bytes(self._held), bytearray()
        self._loose = self._loose or bool(held)
        return held

    def usage(self, prompt_bytes: int) -> Usage:
        """What the answer cost so far.

        Args:
            prompt_bytes: size of the request body, for an estimate where nothing was reported.
        """
        reported = self._reader.usage()
        generated = tokens_from_bytes(self._reader.content_bytes)
        if reported is None:
            return Usage(
                input_tokens=tokens_from_bytes(prompt_bytes),
                output_tokens=generated,
                estimated=True,
            )
        if self._reader.usage_final or reported.output_tokens >= generated:
            return reported if self._reader.usage_final else reported.as_estimate()
        return Usage(
            reported.input_tokens,
            reported.cache_read_tokens,
            reported.cache_write_tokens,
            generated,
            reported.reasoning_tokens,
            estimated=True,
        )

    def _feed_and_hide(self, chunk: bytes) -> bytes:
        self._held += chunk
        forward = bytearray()
        for event in self._events.feed(chunk):
            size = event.end - self._held_from
            raw = bytes(self._held[:size])
            del self._held[:size]
            self._held_from = event.end
            if self._read(event) is EventKind.USAGE and not self._loose:
                self._hidden = raw
                continue
            # The LF of a CRLF that ended the hidden event may come by itself.
            late = raw == b"\n" and self._hidden.endswith(b"\r")
            self._hidden = b""
            if not late:
                forward += raw
        if len(self._held) > MAX_EVENT_BYTES:
            # No event that a client could read: it passes, and so does what follows.
            self._held_from += len(self._held)
            forward += self.rest()
        return bytes(forward)
