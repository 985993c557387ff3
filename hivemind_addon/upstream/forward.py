"""The part of an answer that goes to the client as it comes: nothing of it can be taken back any more.

A permit returns when upstream ends, not when the client has read; but a client that does not read at all is given up,
for it keeps upstream waiting and so its permit.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hivemind_addon.model import Failure, FailureClass, Outcome
from hivemind_addon.upstream import faults

if TYPE_CHECKING:
    import aiohttp

    from hivemind_addon.call import Call
    from hivemind_addon.upstream.relay import ClientSide
    from hivemind_addon.wire.tap import StreamTap


STALL = 900.0
"""Seconds without room at the client after which its answer is broken: as long as a provider may be silent."""


class Forwarding:
    """Passes the bytes of one started answer on. Use `run` once.

    Args:
        call: whose answer it is.
        client: has got the response headers.
        where: the origin, for messages.
        idle: seconds without a byte from upstream after which the answer is broken; None for no limit.
        tap: reads the stream; None if it is not read.
        insertable: an event of ours may be inserted where the tap says so.
        length_known: the client was told how many bytes come.
    """

    def __init__(
        self,
        *,
        call: Call,
        client: ClientSide,
        where: str,
        idle: float | None,
        tap: StreamTap | None = None,
        insertable: bool = False,
        length_known: bool = False,
    ) -> None:
        self._call = call
        self._client = client
        self._where = where
        self._idle = idle
        self._tap = tap
        self._insertable = insertable
        self._length_known = length_known
        self._writing = False
        """Waiting for room at the client, and not for upstream."""

    async def run(
        self, content: aiohttp.StreamReader, first: bytes, keep: bytearray | None = None
    ) -> bool:
        """Forward until the end, a cut, or a client that left; answers whether the whole answer was passed on.

        Args:
            content: the rest of the body.
            first: what was read of it before.
            keep: gets a copy of what was forwarded.
        """
        tap = self._tap
        failure: Failure | None = None
        try:
            if not await self._pump(content, first, keep):
                return False
        except faults.SEND_FAULTS as error:
            failure = self._name(error)
        else:
            failure = self._cut()
        self._ended(failure)
        if failure is not None:
            await self._break(failure)
            return False
        if tap is not None and (rest := tap.rest()):
            await self._client.write(rest)
        if tap is not None and tap.failure is not None:
            # The provider's own error event has told the client.
            self._call.failures.append(tap.failure)
            self._call.broken = True
        return await self._client.finish()

    async def _pump(
        self, content: aiohttp.StreamReader, first: bytes, keep: bytearray | None
    ) -> bool:
        """Read and write until upstream ends; False if the client left. Raises what reading raises."""
        tap, write, idle = self._tap, self._client.write, self._idle
        loop = asyncio.get_running_loop()
        chunk = first
        async with asyncio.timeout(None) as limit:
            while True:
                self._call.answer_bytes += len(chunk)
                if content.at_eof() or (tap is not None and tap.complete):
                    self._ended(self._cut())
                if chunk:
                    if keep is not None:
                        keep += chunk
                    self._writing = True
                    limit.reschedule(loop.time() + STALL)
                    if not await write(chunk):
                        return False
                    self._writing = False
                limit.reschedule(None if idle is None else loop.time() + idle)
                chunk = await content.readany()
                if not chunk:
                    return True
                if tap is not None:
                    chunk = tap.feed(chunk)

    def _name(self, error: BaseException) -> Failure | None:
        """What broke the transfer; None if the client has all that matters."""
        if self._writing and isinstance(error, TimeoutError):
            text = f"the client has not read for {STALL:g} s"
            return Failure(FailureClass.TERMINAL, None, "client_stalled", text)
        if self._tap is not None and self._tap.ended_well and not self._length_known:
            return None
        return faults.failure_of(error, self._where)

    def _cut(self) -> Failure | None:
        """At the end of the upstream answer: did it stop before its dialect's last event?"""
        tap = self._tap
        if tap is None or tap.complete or tap.failure is not None:
            return None
        return faults.cut(self._where, "the stream ended without its last event")

    def _ended(self, failure: Failure | None) -> None:
        """Upstream is done: give the permit back, however long the client still reads."""
        failure = failure or (self._tap.failure if self._tap is not None else None)
        outcome = Outcome.SUCCESS if failure is None else faults.outcome_of(failure)
        if self._call.permit is not None:
            self._call.permit.release(outcome)

    async def _break(self, failure: Failure) -> None:
        """Say that the answer is cut: an error event where one fits, and a transfer that does not end well.

        Half an event that was held back is worth nothing to a reader. A client that does not read is told nothing:
        that, too, would wait for room.
        """
        call, tap = self._call, self._tap
        call.failures.append(failure)
        call.broken = True
        told = self._insertable and tap is not None and tap.at_boundary and not self._writing
        if told:
            message = f"HiveMind: {failure.message}"
            await self._client.write(call.dialect.error_event(502, message, failure.code))
        await self._client.fail(failure.message)
