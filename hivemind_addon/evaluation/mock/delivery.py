"""Writes answers to the wire, and breaks them off where a fault says so."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import WSMsgType, web

from hivemind_addon.evaluation.mock import chat, dialects, errors, faults
from hivemind_addon.evaluation.mock.encoding import Encoder, choose_encoding, make_encoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hivemind_addon.evaluation.mock.events import Event
    from hivemind_addon.evaluation.mock.question import Question
    from hivemind_addon.evaluation.mock.record import Entry, Record
    from hivemind_addon.runtime import Clock

SPLIT_PAUSE = 0.005
YIELD_EVERY = 64
"""Events after which a stream without pauses lets others run."""


@dataclass(slots=True)
class Delivery:
    """One request's way back."""

    request: web.BaseRequest
    clock: Clock
    record: Record
    entry: Entry
    fault: str | None
    compress: bool
    interval: float = 0.0
    """Seconds between events."""
    split_pause: float = SPLIT_PAUSE
    headers: dict[str, str] = field(default_factory=dict)

    async def json(
        self, body: bytes, status: int = 200, question: Question | None = None
    ) -> web.StreamResponse:
        """Send a whole body; its usage counts once it is written."""
        encoder = self._encoder()
        if encoder is not None:
            body = encoder.add(body) + encoder.end()
        self.headers["content-type"] = "application/json"
        self.record.note_status(self.entry, status)
        if self.fault == "fault_cut":
            return await self._half(body, status)
        response = web.Response(body=body, status=status, headers=self.headers)
        # Written here and not by aiohttp after our return, so that a client that leaves meanwhile is noticed.
        await response.prepare(self.request)
        await response.write_eof()
        if question is not None:
            self.record.note_usage(question)
        return response

    async def empty(self, status: int) -> web.StreamResponse:
        """Send a status without a body."""
        self.record.note_status(self.entry, status)
        response = web.Response(status=status, headers=self.headers)
        await response.prepare(self.request)
        await response.write_eof()
        return response

    async def echo(self) -> web.StreamResponse:
        """Accept a WebSocket and send its messages back until it ends."""
        socket = web.WebSocketResponse()
        self.record.note_status(self.entry, 101)
        await socket.prepare(self.request)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await socket.send_str(message.data)
            elif message.type is WSMsgType.BINARY:
                await socket.send_bytes(message.data)
        return socket

    def nothing(self) -> web.StreamResponse:
        """End without a byte, on a connection that was broken on purpose: aiohttp notices and says nothing."""
        return web.Response()

    async def stream(self, events: Iterable[Event], question: Question) -> web.StreamResponse:
        """Send events, one write each; writing waits while the client does not read."""
        encoder = self._encoder()
        self.headers["content-type"] = dialects.media_type(question)
        self.headers["cache-control"] = "no-cache"
        self.record.note_status(self.entry, 200)
        response = web.StreamResponse(headers=self.headers)
        await response.prepare(self.request)
        half = max(1, question.tokens // 2)
        await self._write_events(response, encoder, _broken(events, question, self.fault, half))
        if self.fault == "fault_cut":
            await faults.reset_after_flush(self.request, self.clock)
            return response
        if self.fault in (None, "fault_split"):
            await response.write_eof(encoder.end() if encoder else b"")
            self._note_stream_usage(question)
        else:
            await response.write_eof()
        return response

    async def _write_events(
        self, response: web.StreamResponse, encoder: Encoder | None, events: Iterator[Event]
    ) -> None:
        split = self.fault == "fault_split"
        interval, sleep, write = self.interval, self.clock.sleep, response.write
        number = 0
        for number, event in enumerate(events):
            if number:
                if interval:
                    await sleep(interval)
                elif number % YIELD_EVERY == 0:
                    await sleep(0)
            data = encoder.add(event.data) if encoder else event.data
            if split and event.content:
                split = False
                at = split_point(data)
                await write(data[:at])
                await sleep(self.split_pause)
                data = data[at:]
            await write(data)

    async def _half(self, body: bytes, status: int) -> web.StreamResponse:
        self.headers["content-length"] = str(len(body))
        response = web.StreamResponse(status=status, headers=self.headers)
        await response.prepare(self.request)
        await response.write(body[: len(body) // 2])
        await faults.reset_after_flush(self.request, self.clock)
        return response

    def _encoder(self) -> Encoder | None:
        if not self.compress:
            return None
        encoding = choose_encoding(self.request.headers.get("accept-encoding", ""))
        if encoding is None:
            return None
        self.headers["content-encoding"] = encoding
        self.headers["vary"] = "accept-encoding"
        return make_encoder(encoding)

    def _note_stream_usage(self, question: Question) -> None:
        """Chat streams report usage only if asked, but for some flavours."""
        asked = question.include_usage or chat.reports_unasked(question)
        if question.dialect != "openai-chat" or asked:
            self.record.note_usage(question)


def split_point(data: bytes) -> int:
    """Where an event is split: inside it, and elsewhere for each event."""
    return 1 + zlib.crc32(data) % max(1, len(data) - 1)


def _broken(
    events: Iterable[Event], question: Question, fault: str | None, half: int
) -> Iterator[Event]:
    """The events up to where the fault strikes: `half` content events, or none."""
    if fault == "fault_sse_error":
        yield from errors.overload_events(question)
        return
    breaks = fault in ("fault_cut", "fault_fin_cut", "fault_sse_error_late")
    content = 0
    for number, event in enumerate(events):
        if breaks and content == half:
            if fault == "fault_sse_error_late":
                yield from errors.overload_events(question, number)
            return
        content += event.content
        yield event
