"""One attempt of one call: send, read the answer, decide how much of it the client may see.

Response headers and bytes are held until the first content event of the dialect (or `prelude_hold` seconds):
until then the request can be repeated, after it never. A permit returns when upstream ends, not when the client
has read.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hivemind_addon.model import Failure, Operation, Outcome
from hivemind_addon.upstream import decoding, faults
from hivemind_addon.upstream.messages import ResponseHead, end_to_end, has_body
from hivemind_addon.upstream.pool import Lease
from hivemind_addon.wire.tap import StreamTap

if TYPE_CHECKING:
    import aiohttp

    from hivemind_addon.call import Call
    from hivemind_addon.runtime import Clock
    from hivemind_addon.upstream.pool import UpstreamPool, UpstreamRequest
    from hivemind_addon.upstream.relay import ClientSide, RelaySettings
    from hivemind_addon.wire.dialect import EventDecoder

COLLECT_BYTES = 8 * 1024 * 1024
"""A JSON answer up to this size is held whole: it can be repeated if it is cut, and views can read it."""

REMAINDER = 0.5
"""Seconds to wait for what follows an error inside a stream."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The client has (the beginning of) an answer; nothing is repeated any more."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing reached the client. `head` and `body` are the provider's own answer, if one came."""

    failure: Failure
    head: ResponseHead | None = None
    body: bytes = b""


class Attempt:
    """Use `run` once."""

    def __init__(
        self,
        *,
        call: Call,
        request: UpstreamRequest,
        client: ClientSide,
        pool: UpstreamPool,
        clock: Clock,
        settings: RelaySettings,
    ) -> None:
        self._call = call
        self._request = request
        self._client = client
        self._pool = pool
        self._clock = clock
        self._settings = settings
        self._where = f"{request.origin.host}:{request.origin.port}"

    async def run(self) -> Answered | Failed:
        call = self._call
        call.attempts += 1
        started = self._clock.monotonic()
        try:
            response = await self._send()
        except faults.SEND_FAULTS as error:
            self._release(Outcome.DROPPED)
            return Failed(faults.failure_of(error, self._where))
        try:
            return await self._read(response)
        except BaseException:
            # Cancelled, or broken in a way nobody foresaw: the provider must stop generating now.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            raise
        finally:
            response.close()
            self._pool.ended(self._request, self._clock.monotonic() - started)

    async def _send(self) -> aiohttp.ClientResponse:
        """Send; once more at once if a kept connection turned out to be dead.

        A request that is not safe to repeat never goes over a kept connection, so a dead one cannot leave open
        whether it was processed.
        """
        call = self._call
        lease = Lease(fresh=not call.replayable)
        try:
            return await self._send_once(lease)
        except faults.SEND_FAULTS as error:
            if not (call.replayable and lease.reused and faults.lost_connection(error)):
                raise
            call.failures.append(faults.failure_of(error, self._where))
        call.attempts += 1
        return await self._send_once(Lease(fresh=True))

    async def _send_once(self, lease: Lease) -> aiohttp.ClientResponse:
        async with asyncio.timeout(self._settings.first_byte_timeout):
            response = await self._pool.send(self._request, lease, self._clock.monotonic())
        self._client.reached(lease.peername)
        return response

    async def _read(self, response: aiohttp.ClientResponse) -> Answered | Failed:
        head = ResponseHead(
            response.status, response.reason or "", end_to_end(response.raw_headers)
        )
        if not has_body(self._request.method, head.status):
            return await self._answer(head, b"")
        if head.status >= 400:
            return await self._read_error(response, head)
        content_type = (head.get("content-type") or "").partition(";")[0].strip().lower()
        if self._call.operation is not Operation.OTHER:
            events = self._call.dialect.stream_decoder(
                content_type, streamed=self._call.facts.stream
            )
            if events is not None:
                return await self._stream(response, head, events)
        if content_type.endswith("json") and not self._call.facts.stream:
            return await self._read_json(response, head)
        return await self._pass_through(response, head, b"")

    async def _read_error(
        self, response: aiohttp.ClientResponse, head: ResponseHead
    ) -> Answered | Failed:
        try:
            body, whole = await self._collect(response)
        except faults.SEND_FAULTS as error:
            self._release(Outcome.DROPPED)
            return Failed(replace(faults.failure_of(error, self._where), status=head.status))
        if not whole:
            return await self._pass_through(response, head, body)
        plain = decoding.decode_all(body, head.get("content-encoding"))
        failure = self._call.dialect.classify(
            head.status, head.lowered(), body if plain is None else plain, self._clock.epoch()
        )
        if failure is None:
            return await self._answer(head, body)
        self._release(faults.outcome_of(failure))
        return Failed(failure, head, body)

    async def _read_json(
        self, response: aiohttp.ClientResponse, head: ResponseHead
    ) -> Answered | Failed:
        try:
            body, whole = await self._collect(response)
        except faults.SEND_FAULTS as error:
            self._release(Outcome.DROPPED)
            return Failed(faults.failure_of(error, self._where))
        if not whole:
            return await self._pass_through(response, head, body)
        if self._call.operation is not Operation.OTHER:
            self._account_json(body, head)
        return await self._answer(head, body)

    async def _answer(self, head: ResponseHead, body: bytes) -> Answered:
        self._release(Outcome.SUCCESS)
        self._call.status = head.status
        await self._client.respond(head, body)
        return Answered()

    async def _pass_through(
        self, response: aiohttp.ClientResponse, head: ResponseHead, first: bytes
    ) -> Answered:
        """Forward an answer that is not read: files, very large bodies, unknown streams."""
        self._call.status = head.status
        if await self._client.start(head):
            await self._forward(response, first, None)
        return Answered()

    async def _stream(
        self, response: aiohttp.ClientResponse, head: ResponseHead, events: EventDecoder
    ) -> Answered | Failed:
        encoding = head.get("content-encoding")
        plain = (encoding or "identity").strip().lower() == "identity"
        tap = StreamTap(
            self._call.dialect.stream_reader(),
            decoding.decoder_for(encoding),
            decoding.ERRORS,
            events=events,
            hide_usage=self._call.ask_usage and plain,
        )
        self._call.tap = tap
        held = await self._prelude(response, tap)
        if isinstance(held, Failed):
            self._call.tap = None
            self._release(faults.outcome_of(held.failure))
            return replace(held, head=head) if held.body else held
        self._call.status = head.status
        if self._call.ask_usage:
            head = head.without("content-length")
        if await self._client.start(head):
            await self._forward(response, held, tap, insertable=plain)
        return Answered()

    async def _prelude(self, response: aiohttp.ClientResponse, tap: StreamTap) -> bytes | Failed:
        """Hold bytes until the answer has really begun."""
        held = bytearray()
        try:
            async with asyncio.timeout(self._settings.prelude_hold):
                while not (tap.content or tap.complete or tap.failure):
                    chunk = await response.content.readany()
                    if not chunk:
                        return Failed(
                            faults.cut(self._where, "the stream ended before any content")
                        )
                    held += tap.feed(chunk)
        except TimeoutError:
            pass
        except faults.SEND_FAULTS as error:
            return Failed(faults.failure_of(error, self._where))
        if tap.failure is not None and not tap.content:
            # What follows the error is wanted only in case it must be passed on; whether and how it comes changes
            # nothing about the failure.
            held += await self._remainder(response)
            return Failed(tap.failure, None, bytes(held))
        if tap.content:
            self._call.first_content_at = self._clock.monotonic()
        return bytes(held)

    async def _remainder(self, response: aiohttp.ClientResponse) -> bytes:
        rest = bytearray()
        with contextlib.suppress(*faults.SEND_FAULTS):
            async with asyncio.timeout(REMAINDER):
                while len(rest) < COLLECT_BYTES and (chunk := await response.content.readany()):
                    rest += chunk
        return bytes(rest)

    async def _forward(
        self,
        response: aiohttp.ClientResponse,
        first: bytes,
        tap: StreamTap | None,
        *,
        insertable: bool = False,
    ) -> None:
        """Pass bytes on as they come, until the end, a cut, or a client that left."""
        failure: Failure | None = None
        try:
            if not await self._pump(response.content, first, tap):
                return
        except faults.SEND_FAULTS as error:
            failure = faults.failure_of(error, self._where)
        failure = failure or self._cut(tap)
        self._ended(tap, failure)
        if failure is not None:
            # Half an event that was held back is worth nothing to a reader.
            await self._break(failure, tap if insertable else None)
            return
        if tap is not None and (rest := tap.rest()):
            await self._client.write(rest)
        if tap is not None and tap.failure is not None:
            # The provider's own error event has told the client.
            self._call.failures.append(tap.failure)
            self._call.broken = True
        await self._client.finish()

    async def _pump(
        self, content: aiohttp.StreamReader, first: bytes, tap: StreamTap | None
    ) -> bool:
        """Read and write until upstream ends; False if the client left. Raises what reading raises."""
        write, idle = self._client.write, self._settings.idle_timeout
        loop = asyncio.get_running_loop()
        chunk = first
        async with asyncio.timeout(idle) as limit:
            while True:
                limit.reschedule(None)  # a slow client is not an idle provider
                self._call.answer_bytes += len(chunk)
                if content.at_eof() or (tap is not None and tap.complete):
                    self._ended(tap, self._cut(tap))
                if chunk and not await write(chunk):
                    return False
                if idle is not None:
                    limit.reschedule(loop.time() + idle)
                chunk = await content.readany()
                if not chunk:
                    return True
                if tap is not None:
                    chunk = tap.feed(chunk)

    def _cut(self, tap: StreamTap | None) -> Failure | None:
        """At the end of the upstream answer: did it stop before its dialect's last event?"""
        if tap is None or tap.complete or tap.failure is not None:
            return None
        return faults.cut(self._where, "the stream ended without its last event")

    def _ended(self, tap: StreamTap | None, failure: Failure | None) -> None:
        """Upstream is done: give the permit back, however long the client still reads."""
        failure = failure or (tap.failure if tap is not None else None)
        self._release(Outcome.SUCCESS if failure is None else faults.outcome_of(failure))

    async def _break(self, failure: Failure, tap: StreamTap | None) -> None:
        """Say that the answer is cut: an error event where one fits, and a transfer that does not end well."""
        call = self._call
        call.failures.append(failure)
        call.broken = True
        if tap is not None and tap.at_boundary:
            message = f"HiveMind: {failure.message}"
            await self._client.write(call.dialect.error_event(502, message, failure.code))
        await self._client.fail(failure.message)

    async def _collect(self, response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
        """The body, and whether it is whole: beyond `COLLECT_BYTES` the rest stays unread."""
        parts = bytearray()
        idle = self._settings.idle_timeout
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(idle) as limit:
            while chunk := await response.content.readany():
                parts += chunk
                if len(parts) > COLLECT_BYTES:
                    return bytes(parts), False
                if idle is not None:
                    limit.reschedule(loop.time() + idle)
        return bytes(parts), True

    def _account_json(self, body: bytes, head: ResponseHead) -> None:
        plain = decoding.decode_all(body, head.get("content-encoding"))
        self._call.answer_bytes = len(body)
        if plain is not None and self._call.operation is not Operation.TOKEN_COUNT:
            self._call.usage = self._call.dialect.read_usage(plain)

    def _release(self, outcome: Outcome) -> None:
        if self._call.permit is not None:
            self._call.permit.release(outcome)
