"""One call as one plain function: permit, attempt, wait, again, until something reached the client.

The rules (design D4, D10): nobody holds a permit while sleeping; a request may be repeated until its first
content byte went to the client; a cut must never look like an end.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from hivemind_addon.model import FailureClass, Outcome
from hivemind_addon.policies.retry import Again, Progress, decide
from hivemind_addon.upstream.attempt import Answered, Attempt, Failed
from hivemind_addon.upstream.messages import ResponseHead

if TYPE_CHECKING:
    from hivemind_addon.call import Call
    from hivemind_addon.desk import Desk
    from hivemind_addon.policies.retry import RetryPolicy
    from hivemind_addon.runtime import Clock
    from hivemind_addon.upstream.messages import Origin
    from hivemind_addon.upstream.pool import UpstreamPool, UpstreamRequest

logger = logging.getLogger("hivemind.relay")

BUSY_RETRY_AFTER = 5
"""Seconds; below 60, because older SDKs ignore longer ones (provider-facts 3.4)."""


class ClientSide(Protocol):
    """The way back to the client. Methods answer False once nobody waits any more."""

    def reached(self, peername: tuple[str, int] | None) -> None:
        """The upstream address of the current attempt, for people."""
        ...

    async def respond(self, head: ResponseHead, body: bytes) -> bool: ...

    async def start(self, head: ResponseHead) -> bool: ...

    async def write(self, data: bytes) -> bool: ...

    async def finish(self) -> bool: ...

    async def fail(self, message: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """What the relay needs of the settings. Times in seconds."""

    retry: RetryPolicy
    prelude_hold: float
    connect_timeout: float
    first_byte_timeout: float | None
    idle_timeout: float | None


class Relay:
    """Carries one call. Use `run` once.

    `takes_usage` says of an origin whether it takes `stream_options` that the client did not send; it is learned here
    and shared by all calls.
    """

    def __init__(
        self,
        *,
        call: Call,
        request: UpstreamRequest,
        client: ClientSide,
        desk: Desk,
        pool: UpstreamPool,
        clock: Clock,
        settings: RelaySettings,
        takes_usage: dict[Origin, bool],
    ) -> None:
        self._call = call
        self._request = request
        self._takes_usage = takes_usage
        self._client = client
        self._desk = desk
        self._pool = pool
        self._clock = clock
        self._settings = settings
        self._taken_back = False
        """We asked for usage, were refused, and asked again without."""

    async def run(self) -> None:
        """Return once the client has its answer. A cancelled run gives its permit back and closes upstream."""
        call = self._call
        try:
            while await self._admitted():
                attempt = Attempt(
                    call=call,
                    request=self._request,
                    client=self._client,
                    pool=self._pool,
                    clock=self._clock,
                    settings=self._settings,
                )
                result = await attempt.run()
                if isinstance(result, Answered):
                    self._learn()
                    return
                call.failures.append(result.failure)
                if self._take_back(result):
                    continue
                if not await self._wait(result):
                    return
        finally:
            if call.permit is not None:
                call.permit.release(Outcome.IGNORED)

    def _take_back(self, result: Failed) -> bool:
        """Was our own wish for usage perhaps what the server refuses? Then ask again as the client did."""
        call = self._call
        refused = result.head is not None and result.head.status in (400, 422)
        if not (refused and call.ask_usage) or self._takes_usage.get(self._request.origin):
            return False
        assert call.body is not None
        self._request = replace(self._request, body=call.body)
        call.ask_usage = False
        self._taken_back = True
        return True

    def _learn(self) -> None:
        """Remember whether this server takes our wish, so that none of its plain refusals is asked twice."""
        call, origin = self._call, self._request.origin
        if call.status is not None and call.status < 400 and (call.ask_usage or self._taken_back):
            self._takes_usage[origin] = not self._taken_back

    async def _admitted(self) -> bool:
        """Hold a permit, or answer the client that there is none."""
        call = self._call
        assert call.ticket is not None, "the body was read before the exchange began"
        if call.bucket is None or (call.permit is not None and call.permit.use()):
            call.admitted_at = self._clock.monotonic()
            return True
        call.permit = await self._desk.acquire(call.bucket, call.ticket)
        if call.permit is None:
            if call.cancelled is None:
                await self._client.respond(*busy(call))
            return False
        call.admitted_at = self._clock.monotonic()
        return True

    async def _wait(self, result: Failed) -> bool:
        """Sleep before the next attempt; False if there is none and the client was told."""
        call, failure = self._call, result.failure
        progress = Progress(
            call.request_id, call.attempts, call.counted, call.replayable, call.deadline
        )
        verdict = decide(
            self._settings.retry,
            failure,
            progress,
            call.profile.retryable,
            self._clock.monotonic(),
        )
        if isinstance(verdict, Again):
            logger.info(
                "attempt.failed request_id=%s agent=%s bucket=%s attempt=%d status=%s code=%s next_in=%.2f",
                call.request_id,
                call.identity.agent,
                call.bucket,
                call.attempts,
                failure.status,
                failure.code,
                verdict.delay,
            )
            call.counted += verdict.counted
            await self._clock.sleep(verdict.delay)
            return True
        # A 404 on a path that is no LLM call is the provider's plain answer, not our surrender.
        plain = verdict.reason == "final" and result.head is not None
        logger.log(
            logging.INFO if plain else logging.WARNING,
            "request.given_up request_id=%s agent=%s bucket=%s attempt=%d status=%s code=%s reason=%s",
            call.request_id,
            call.identity.agent,
            call.bucket,
            call.attempts,
            failure.status,
            failure.code,
            verdict.reason,
        )
        await self._client.respond(*last_word(call, result, verdict.reason))
        return False


def busy(call: Call) -> tuple[ResponseHead, bytes]:
    """Our own answer when no permit came in time: try again, in the dialect of the path."""
    message = (
        f"HiveMind: no free slot for {call.bucket} within the time that this client waits. "
        f"Try again in {BUSY_RETRY_AFTER} s, or raise admission.max_concurrency."
    )
    head, body = made(call, 503, message, "hivemind_busy")
    return head.with_header("retry-after", str(BUSY_RETRY_AFTER)), body


def last_word(call: Call, result: Failed, reason: str) -> tuple[ResponseHead, bytes]:
    """The provider's own last error, untouched where it is final; ours if no answer came.

    Where repeating is hopeless, `x-should-retry: false` stops the SDKs from multiplying our attempts.
    """
    failure = result.failure
    hopeless = reason != "final" or failure.kind is FailureClass.QUOTA
    if result.head is not None:
        call.status = result.head.status
        call.broken = call.status < 400
        head = result.head.with_header("x-should-retry", "false") if hopeless else result.head
        return head, result.body
    status = 504 if failure.code in ("timeout", "connect_timeout") else 502
    attempts = "attempt" if call.attempts == 1 else "attempts"
    message = (
        f"HiveMind: {failure.message} (gave up after {call.attempts} {attempts}: {_WHY[reason]})"
    )
    head, body = made(call, status, message, failure.code)
    return head.with_header("x-should-retry", "false"), body


_WHY = {
    "final": "repeating cannot help",
    "write": "the request may have been processed and is not safe to repeat",
    "retries": "retries used up",
    "deadline": "the client's patience ends before the next attempt",
}


def made(call: Call, status: int, message: str, code: str) -> tuple[ResponseHead, bytes]:
    """An answer that the proxy makes itself; the call is settled with its status."""
    call.status = status
    body = call.dialect.error_body(status, message, code)
    headers = ((b"content-type", b"application/json"), (b"x-hivemind-error", code.encode()))
    return ResponseHead(status, "", headers), body
