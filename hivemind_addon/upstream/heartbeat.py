"""Keeps a client of short patience alive while its streaming request waits (queue, backoff, outage).

An early 200 gives up the right to send a status: what fails after it is told by an error event of the dialect and a
transfer that does not end well. So it goes out late, shortly before the client would leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from hivemind_addon.upstream import decoding
from hivemind_addon.upstream.messages import ResponseHead

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from hivemind_addon.call import Call
    from hivemind_addon.policies.patience import Heartbeat
    from hivemind_addon.runtime import Clock
    from hivemind_addon.upstream.relay import ClientSide

logger = logging.getLogger("hivemind.relay")


class HeartbeatClient:
    """A `ClientSide` that beats until the relay has something to say."""

    def __init__(
        self, client: ClientSide, call: Call, clock: Clock, beat: Heartbeat, media_type: str
    ) -> None:
        self._client = client
        self._call = call
        self._clock = clock
        self._beat = beat
        self._media_type = media_type
        self._early = False
        """The early 200 is out."""
        self._settled = False
        """The relay speaks: no beat any more."""
        self._turn = asyncio.Lock()
        """A beat and the relay's first words must not mix."""
        self._decode: Callable[[bytes], bytes] | None = None

    @contextlib.asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Beat while the block runs, from the first silence that is too long."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._run(), name="hivemind heartbeat")
            try:
                yield
            finally:
                task.cancel()

    async def _run(self) -> None:
        await self._clock.sleep(self._beat.first)
        alive = True
        while alive:
            async with self._turn:
                alive = not self._settled and await self._send()
            await self._clock.sleep(self._beat.interval)

    async def _send(self) -> bool:
        if not self._early:
            self._early = True
            self._call.status = 200
            logger.info("heartbeat.started request_id=%s", self._call.request_id)
            headers = (
                (b"content-type", self._media_type.encode()),
                (b"cache-control", b"no-cache"),
                (b"x-hivemind-heartbeat", b"1"),
            )
            if not await self._client.start(ResponseHead(200, "OK", headers)):
                return False
        return await self._client.write(self._beat.beat)

    async def _settle(self) -> None:
        async with self._turn:
            self._settled = True

    # The side that the relay sees.

    def reached(self, peername: tuple[str, int] | None) -> None:
        self._client.reached(peername)

    async def respond(self, head: ResponseHead, body: bytes) -> bool:
        await self._settle()
        if not self._early:
            return await self._client.respond(head, body)
        plain = decoding.decode_all(body, head.get("content-encoding"))
        failure = self._call.dialect.classify(
            head.status, head.lowered(), body if plain is None else plain, self._clock.epoch()
        )
        if failure is None:
            await self._tell(502, f"HiveMind: the provider answered {head.status}, no stream", None)
        else:
            message = failure.message or f"the provider answered {head.status}"
            await self._tell(head.status, message, failure.code)
        return False

    async def start(self, head: ResponseHead) -> bool:
        await self._settle()
        if not self._early:
            return await self._client.start(head)
        content_type = (head.get("content-type") or "").partition(";")[0].strip().lower()
        if content_type != self._media_type:
            kind = content_type or "no content type"
            await self._tell(502, f"HiveMind: the provider answered {kind}, no stream", None)
            return False
        encoding = head.get("content-encoding")
        if encoding is not None:
            # Not asked for; the early headers said that nothing is compressed.
            self._decode = decoding.decoder_for(encoding)
        return True

    async def write(self, data: bytes) -> bool:
        return await self._client.write(self._decode(data) if self._decode else data)

    async def finish(self) -> bool:
        return await self._client.finish()

    async def fail(self, message: str) -> None:
        await self._settle()
        await self._client.fail(message)

    async def _tell(self, status: int, message: str, code: str | None) -> None:
        """The failure, as the dialect says it inside a stream."""
        self._call.status, self._call.broken = 200, True
        event = self._call.dialect.error_event(status, message, code)
        if await self._client.write(event):
            await self._client.fail(message)
