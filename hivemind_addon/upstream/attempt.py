"""One attempt of one call: send, read the answer, decide how much of it the client may see.

Response headers and bytes are held until the first content event of the dialect (or `prelude_hold` seconds):
until then the request can be repeated, after it never. A permit returns when upstream ends, not when the client
has read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hivemind_addon.model import Failure, FailureClass, Operation, Outcome
from hivemind_addon.upstream import collecting, decoding, faults
from hivemind_addon.upstream.connector import Lease
from hivemind_addon.upstream.forward import Forwarding
from hivemind_addon.upstream.messages import ResponseHead, end_to_end, has_body
from hivemind_addon.wire.tap import StreamTap

if TYPE_CHECKING:
    import aiohttp

    from hivemind_addon.call import Call
    from hivemind_addon.runtime import Clock
    from hivemind_addon.upstream.pool import UpstreamPool, UpstreamRequest
    from hivemind_addon.upstream.relay import ClientSide, RelaySettings
    from hivemind_addon.wire.dialect import EventDecoder

PRELUDE_BYTES = 1024 * 1024
"""A stream of which more has come without content is passed on: somebody sends comments without end."""


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
        call.refused = False
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
        if head.status < 200:
            # aiohttp has skipped those that only announce an answer. This one wants to leave HTTP.
            self._release(Outcome.IGNORED)
            text = f"{self._where}: the provider answered {head.status}, which nobody asked for"
            return Failed(Failure(FailureClass.TERMINAL, None, "bad_response", text))
        if head.status >= 400:
            return await self._read_error(response, head)
        if not has_body(self._request.method, head.status):
            return await self._answer(head, b"")
        content_type = (head.get("content-type") or "").partition(";")[0].strip().lower()
        if self._call.operation is not Operation.OTHER:
            events = self._call.dialect.stream_decoder(
                content_type, streamed=self._call.facts.stream
            )
            if events is not None:
                return await self._stream(response, head, events)
        if self._is_collected(content_type, head):
            return await self._read_json(response, head)
        return await self._pass_through(response, head, b"")

    def _is_collected(self, content_type: str, head: ResponseHead) -> bool:
        """Is this one JSON value that comes at once? What makes progress (an NDJSON of a download) must not be held."""
        if content_type != "application/json" and not content_type.endswith("+json"):
            return False
        if self._call.operation is not Operation.OTHER:
            return not self._call.facts.stream
        return self._call.replayable or head.get("content-length") is not None

    async def _read_error(
        self, response: aiohttp.ClientResponse, head: ResponseHead
    ) -> Answered | Failed:
        self._call.refused = True
        try:
            body, whole = await collecting.whole(response.content, self._settings.idle_timeout)
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
            body, whole = await collecting.whole(
                response.content, self._settings.idle_timeout, self._settings.prelude_hold
            )
        except faults.SEND_FAULTS as error:
            self._release(Outcome.DROPPED)
            return Failed(faults.failure_of(error, self._where))
        if not whole:
            waits = (
                len(body) <= collecting.MOST_BYTES and self._call.operation is not Operation.OTHER
            )
            return await self._pass_through(response, head, body, account=waits)
        if self._call.operation is not Operation.OTHER:
            self._account_json(body, head)
        return await self._answer(head, body)

    async def _answer(self, head: ResponseHead, body: bytes) -> Answered:
        self._release(Outcome.SUCCESS)
        self._call.status = head.status
        await self._client.respond(head, body)
        return Answered()

    async def _pass_through(
        self,
        response: aiohttp.ClientResponse,
        head: ResponseHead,
        first: bytes,
        *,
        account: bool = False,
    ) -> Answered:
        """Forward an answer that is not read: files, very large bodies, unknown streams.

        With `account` it is a JSON answer whose usage is read once it is whole.
        """
        self._call.status = head.status
        if await self._client.start(head):
            keep = bytearray() if account else None
            whole = await self._forwarding(head).run(response.content, first, keep)
            if whole and keep is not None:
                self._account_json(bytes(keep), head)
        return Answered()

    async def _stream(
        self, response: aiohttp.ClientResponse, head: ResponseHead, events: EventDecoder
    ) -> Answered | Failed:
        encoding = head.get("content-encoding")
        plain = (encoding or "identity").strip().lower() == "identity"
        decode = decoding.decoder_for(encoding)
        hide = self._call.ask_usage and decode is not None
        tap = StreamTap(
            self._call.dialect.stream_reader(),
            decode,
            decoding.ERRORS,
            events=events,
            hide_usage=hide,
        )
        self._call.tap = tap
        held = await self._prelude(response, tap)
        if isinstance(held, Failed):
            self._call.tap = None
            self._release(faults.outcome_of(held.failure))
            return replace(held, head=head) if held.body else held
        self._call.status = head.status
        if hide:
            # An event is cut out, and of a compressed answer (we asked for none) what is left goes on decoded.
            head = head.without("content-length", "content-encoding")
        if await self._client.start(head):
            forwarding = self._forwarding(head, tap, insertable=plain or hide)
            await forwarding.run(response.content, held)
        return Answered()

    def _forwarding(
        self, head: ResponseHead, tap: StreamTap | None = None, *, insertable: bool = False
    ) -> Forwarding:
        return Forwarding(
            call=self._call,
            client=self._client,
            where=self._where,
            idle=self._settings.idle_timeout,
            tap=tap,
            insertable=insertable,
            length_known=head.get("content-length") is not None,
        )

    async def _prelude(self, response: aiohttp.ClientResponse, tap: StreamTap) -> bytes | Failed:
        """Hold bytes until the answer has really begun."""
        held = bytearray()
        try:
            async with asyncio.timeout(self._settings.prelude_hold):
                while len(held) < PRELUDE_BYTES and not (
                    tap.content or tap.complete or tap.failure
                ):
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
            self._call.refused, self._call.tap = True, None
            held += await collecting.remainder(response.content)
            return Failed(tap.failure, None, bytes(held))
        if tap.content:
            self._call.first_content_at = self._clock.monotonic()
        return bytes(held)

    def _account_json(self, body: bytes, head: ResponseHead) -> None:
        plain = decoding.decode_all(body, head.get("content-encoding"))
        self._call.answer_bytes = len(body)
        if plain is not None and self._call.operation is not Operation.TOKEN_COUNT:
            self._call.usage = self._call.dialect.read_usage(plain)

    def _release(self, outcome: Outcome) -> None:
        if self._call.permit is not None:
            self._call.permit.release(outcome)
