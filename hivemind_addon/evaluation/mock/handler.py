"""Decides what each request gets: test wishes, limits, faults, then the answer."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from typing import TYPE_CHECKING

from hivemind_addon.evaluation.mock import dialects, faults
from hivemind_addon.evaluation.mock.delivery import SPLIT_PAUSE, Delivery
from hivemind_addon.evaluation.mock.encoding import decode_body
from hivemind_addon.evaluation.mock.errors import bedrock_error, error_body
from hivemind_addon.evaluation.mock.events import dumps
from hivemind_addon.evaluation.mock.headers import provider_headers, retry_headers
from hivemind_addon.evaluation.mock.knobs import NO_KNOBS, Knobs, read_knobs
from hivemind_addon.evaluation.mock.limits import RateLimit, RefillBucket, StrictWindow
from hivemind_addon.evaluation.mock.plan import FAILURES, REFUSALS, Fate, applies, draw
from hivemind_addon.evaluation.mock.question import Question, Wishes, read_question
from hivemind_addon.evaluation.mock.record import Entry, Record
from hivemind_addon.evaluation.mock.routes import (
    WRITES,
    Kind,
    Route,
    count_answer,
    credential,
    find_route,
    other_answer,
)

if TYPE_CHECKING:
    from aiohttp import web

    from hivemind_addon.evaluation.mock.options import MockOptions
    from hivemind_addon.runtime import Clock

BODYLESS = (204, 304)


class Handler:
    """Serves every path outside `/__mock__/`."""

    def __init__(self, options: MockOptions, record: Record, clock: Clock) -> None:
        self._options = options
        self._record = record
        self._clock = clock
        self._generating = 0
        self.reset()

    def reset(self) -> None:
        """Start anew with full limits and the first draw of the plan."""
        self._limits: dict[str, RateLimit] = {}
        self._line = asyncio.Semaphore(max(1, self._options.concurrency))
        self._numbers = itertools.count()
        self._ids = itertools.count(1)

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer; a client that leaves before the end cancels this and is counted."""
        body = await request.read()
        headers = request.headers
        entry = Entry(
            request.method, request.path_qs, headers, hashlib.sha256(body).hexdigest(), len(body)
        )
        route = find_route(request.method, request.path, headers)
        self._record.note(entry, route.dialect, credential(headers), headers.get("x-mock-tag"))
        try:
            return await self._answer(request, route, entry, body)
        except (asyncio.CancelledError, ConnectionError):
            self._record.note_abort(entry)
            raise

    async def _answer(
        self, request: web.BaseRequest, route: Route, entry: Entry, body: bytes
    ) -> web.StreamResponse:
        delivery = Delivery(request, self._clock, self._record, entry, None, self._options.compress)
        question = None
        try:
            knobs = read_knobs(request.headers) if self._options.test_headers else NO_KNOBS
            self._dress(delivery, route, knobs)
            if knobs.status is not None:
                return await self._forced_status(delivery, route, knobs.status)
            if route.kind is not Kind.OTHER:
                body = decode_body(body, request.headers.get("content-encoding", ""))
            if route.kind in (Kind.GENERATION, Kind.EMBEDDINGS):
                wishes = self._wishes(route, knobs)
                question = read_question(route.dialect, body, wishes, request.path_qs)
        except ValueError as error:
            return await self._error(delivery, route, 400, message=str(error))
        fate = self._fate(knobs, stream=question is not None and question.stream)
        if route.kind is not Kind.GENERATION:
            return await self._attempt(delivery, route, question, body, fate, knobs)
        refusal = await self._refuse(delivery, route)
        if refusal is not None:
            return refusal
        if self._options.queue and self._options.concurrency:
            async with self._line:
                return await self._attempt(delivery, route, question, body, fate, knobs)
        self._generating += 1
        try:
            return await self._attempt(delivery, route, question, body, fate, knobs)
        finally:
            self._generating -= 1

    def _wishes(self, route: Route, knobs: Knobs) -> Wishes:
        options = self._options
        chosen = route.flavour if options.flavour == "auto" else options.flavour
        return Wishes(
            options.tokens,
            knobs.tokens,
            knobs.size,
            options.cached_tokens if knobs.cached is None else knobs.cached,
            options.reasoning_tokens if knobs.reasoning is None else knobs.reasoning,
            knobs.flavour or chosen,
        )

    def _fate(self, knobs: Knobs, *, stream: bool) -> Fate:
        fate = draw(self._options, next(self._numbers), stream=stream)
        fault, latency = fate.fault, fate.latency
        if knobs.fault is not None and applies(knobs.fault, stream=stream):
            fault = knobs.fault
        if knobs.latency is not None:
            latency = knobs.latency * self._options.speed_scale
        return Fate(fault, latency)

    async def _refuse(self, delivery: Delivery, route: Route) -> web.StreamResponse | None:
        """A 429 or an overload, if the limits say so; nothing is processed then."""
        options, record = self._options, self._record
        if options.rpm:
            limit = self._limit_of(delivery.request)
            wait = limit.take(self._clock.monotonic())
            delivery.headers |= self._provider_headers(delivery, route)
            if wait is not None:
                record.note_refusal(delivery.entry, "rate_limit")
                return await self._error(delivery, route, 429, wait=wait)
        if options.concurrency and not options.queue and self._generating >= options.concurrency:
            record.note_refusal(delivery.entry, "concurrency")
            return await self._error(delivery, route, self._overload_status(route))
        return None

    async def _attempt(
        self,
        delivery: Delivery,
        route: Route,
        question: Question | None,
        body: bytes,
        fate: Fate,
        knobs: Knobs,
    ) -> web.StreamResponse:
        """Take the fault's way, or answer."""
        options, fault = self._options, fate.fault
        if fault is not None:
            self._record.note_fault(delivery.entry, fault)
        if fault in REFUSALS:
            overload = fault == "fault_529"
            status = self._overload_status(route) if overload else REFUSALS[fault]
            wait = options.fault_retry_after if status == 429 else None
            return await self._error(delivery, route, status, wait=wait)
        if route.kind is Kind.OTHER and delivery.request.method in WRITES:
            self._record.note_write(delivery.entry)
        if fate.latency:
            await self._clock.sleep(fate.latency)
        if fault in FAILURES:
            return await self._error(delivery, route, FAILURES[fault])
        if fault in ("fault_reset", "fault_disconnect"):
            (faults.reset if fault == "fault_reset" else faults.disconnect)(delivery.request)
            return delivery.nothing()
        delivery.fault = fault
        if question is None:
            return await self._other(delivery, route, body)
        if not question.stream:
            whole = dialects.whole_answer(question, options.seed)
            return await delivery.json(whole, question=question)
        interval = options.event_interval if knobs.event_interval is None else knobs.event_interval
        delivery.interval = interval * options.speed_scale
        delivery.split_pause = SPLIT_PAUSE * options.speed_scale
        return await delivery.stream(dialects.stream_events(question, options.seed), question)

    async def _other(self, delivery: Delivery, route: Route, body: bytes) -> web.StreamResponse:
        request = delivery.request
        if request.headers.get("upgrade", "").lower() == "websocket":
            if self._options.websocket:
                return await delivery.echo()
            # Codex falls back to HTTP on exactly this status (provider-facts 6.7).
            return await self._error(delivery, route, 426)
        if route.kind is Kind.COUNT:
            return await delivery.json(dumps(count_answer(route.dialect, body)))
        tree = other_answer(route.dialect, request.method, request.path, body)
        if tree is None:
            return await self._error(delivery, route, 404)
        return await delivery.json(dumps(tree))

    async def _forced_status(
        self, delivery: Delivery, route: Route, status: int
    ) -> web.StreamResponse:
        if status >= 400:
            return await self._error(delivery, route, status)
        if status in BODYLESS or status >= 300:
            return await delivery.empty(status)
        return await delivery.json(b"{}", status)

    async def _error(
        self,
        delivery: Delivery,
        route: Route,
        status: int,
        *,
        message: str | None = None,
        wait: float | None = None,
    ) -> web.StreamResponse:
        if wait is not None:
            delivery.headers |= retry_headers(wait, self._options.retry_after)
            if self._options.retry_after == "none":
                wait = None
        request_id = delivery.headers.get("request-id", "")
        if route.dialect == "bedrock":
            delivery.headers["x-amzn-errortype"] = bedrock_error(status)
        body = error_body(route.dialect, status, request_id, message=message, wait=wait)
        return await delivery.json(body, status)

    def _dress(self, delivery: Delivery, route: Route, knobs: Knobs) -> None:
        """Put on the headers that every answer has."""
        headers = self._provider_headers(delivery, route)
        if knobs.header_bytes:
            headers["x-mock-padding"] = "h" * knobs.header_bytes
        if knobs.set_cookie is not None:
            headers["set-cookie"] = knobs.set_cookie
        if knobs.location is not None:
            headers["location"] = knobs.location
        delivery.headers = headers

    def _provider_headers(self, delivery: Delivery, route: Route) -> dict[str, str]:
        name = "request-id" if route.dialect == "anthropic" else "x-request-id"
        request_id = delivery.headers.get(name) or f"req_mock_{next(self._ids)}"
        view = None
        if self._options.rpm and route.kind is Kind.GENERATION:
            view = self._limit_of(delivery.request).view(self._clock.monotonic())
        family = self._options.header_family
        return provider_headers(route, family, request_id, view, self._clock.epoch())

    def _limit_of(self, request: web.BaseRequest) -> RateLimit:
        options = self._options
        key = credential(request.headers) if options.limit_scope == "key" else ""
        limit = self._limits.get(key)
        if limit is None:
            kind = StrictWindow if options.limit_mode == "strict" else RefillBucket
            limit = self._limits[key] = kind(options.rpm, options.window)
        return limit

    def _overload_status(self, route: Route) -> int:
        return 529 if self._options.force_529 or route.dialect == "anthropic" else 503
