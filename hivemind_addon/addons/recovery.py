"""Carries out exchanges: attempts, backoff, the way back to the client (design D1, D10)."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from mitmproxy import ctx, http
from mitmproxy.addons.upstream_auth import parse_upstream_auth
from mitmproxy.flow import Error
from mitmproxy.proxy.mode_specs import UpstreamMode
from mitmproxy.utils import human

from hivemind_addon.addons import state
from hivemind_addon.addons.detection import open_call, read_body, snapshot
from hivemind_addon.addresses import is_loopback
from hivemind_addon.call import Call
from hivemind_addon.model import Outcome
from hivemind_addon.runtime import spawn
from hivemind_addon.upstream.exchange import Exchange
from hivemind_addon.upstream.heartbeat import HeartbeatClient
from hivemind_addon.upstream.messages import Origin, ResponseHead, end_to_end, split_base
from hivemind_addon.upstream.pool import UpstreamRequest, ViaProxy
from hivemind_addon.upstream.relay import ClientSide, Relay, made
from hivemind_addon.upstream.replay import Replay

logger = logging.getLogger("hivemind.relay")

KILLED = "killed"
SWEEP = 0.25
"""Seconds between looks for flows that were killed: mitmproxy only marks them and calls no hook."""


class RetryReplay:
    """Answers exchanges (`answer`) and replays, and carries out `flow.kill()` on flows in transit."""

    def __init__(self) -> None:
        self._sweeper: asyncio.Task[None] | None = None

    def running(self) -> None:
        self._sweeper = spawn(self._sweep(), name="sweep killed flows")

    async def request(self, flow: http.HTTPFlow) -> None:
        """A replayed flow has no layer of ours: it gets its answer here, by the same way as any other."""
        if state.is_client_replay(flow) and state.is_open(flow) and state.call_of(flow):
            replay = Replay(flow)
            await answer(replay)
            replay.store()

    def done(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _sweep(self) -> None:
        clock = state.hive().clock
        while True:
            await clock.sleep(SWEEP)
            for call in list(state.hive().calls.values()):
                flow = state.flows.get(call.request_id)
                if flow is not None and flow.error and flow.error.msg == Error.KILLED_MESSAGE:
                    call.cancel(KILLED)


async def answer(exchange: Exchange | Replay) -> None:
    """Run until the client has its answer or has left. Never raises."""
    task = asyncio.current_task()
    assert task is not None
    call: Call | None = None
    try:
        call = await _current_call(exchange)
        exchange.on_cancel(call.cancel)

        def stop(_reason: str) -> None:
            task.cancel()

        call.on_cancel(stop)
        await _relay(exchange, call)
    except asyncio.CancelledError:
        if call is None or call.cancelled is None:
            raise
        task.uncancel()
        if call.cancelled == KILLED:
            await exchange.kill()
    except Exception:
        # Whatever broke in us must not leave a client waiting.
        logger.exception("exchange.crashed request_id=%s", call.request_id if call else "-")
        await exchange.fail("HiveMind: internal error, see the proxy's log")
    finally:
        if call is not None:
            state.hive().end(call)


async def _relay(exchange: Exchange | Replay, call: Call) -> None:
    hive = state.hive()
    origin, prefix = _destination(exchange.flow)
    target = prefix + exchange.flow.request.path
    if refusal := await _refusal(exchange.flow, call, origin, target):
        await exchange.respond(*refusal)
        return
    beating: contextlib.AbstractAsyncContextManager[None] = contextlib.nullcontext()
    client: ClientSide = exchange
    if call.heartbeat is not None and isinstance(exchange, Exchange):
        media_type = call.dialect.heartbeat_type(exchange.flow.request.path)
        if media_type is not None:
            client = patient = HeartbeatClient(
                exchange, call, hive.clock, call.heartbeat, media_type
            )
            beating = patient.beating()
    relay = Relay(
        call=call,
        request=_upstream_request(exchange, call, origin, target),
        client=client,
        desk=hive.desk,
        pool=hive.pool,
        clock=hive.clock,
        settings=hive.relay_settings(call),
        takes_usage=hive.takes_usage,
    )
    async with beating:
        await relay.run()


async def _refusal(
    flow: http.HTTPFlow, call: Call, origin: Origin, target: str
) -> tuple[ResponseHead, bytes] | None:
    """Our answer to a request that must not be sent on; None if it may."""
    mode = _upstream_mode(flow, origin)
    host, port = mode.address[:2] if mode else (origin.host, origin.port)
    if await state.is_ourselves(host, port):
        message = f"HiveMind: {human.format_address((host, port))} is this proxy itself; check upstreams and base URLs"
        return made(call, 502, message, "self_connect")
    if not target.startswith("/") and (target != "*" or flow.request.method != "OPTIONS"):
        # HTTP/2 leaves it open what a path may be; glued behind a host, it would name another.
        message = f"HiveMind: the request target must begin with /, got {target[:80]!r}"
        return made(call, 400, message, "bad_request")
    return None


async def _current_call(exchange: Exchange | Replay) -> Call:
    """The call as the final request is: other addons may have changed it after our `request` hook."""
    flow = exchange.flow
    before = state.call_of(flow)
    if before is not None and before.body is None:
        await read_body(flow, before, exchange.body)
        return before
    if before is not None and before.snapshot == snapshot(flow.request):
        return before
    profile = state.profile_of(flow)
    assert profile is not None, "the layer asks for matched hosts only"
    now = open_call(flow, profile)
    state.set_call(flow, now)
    if before is not None:
        # Same place in line, other bucket: the permit for the old one goes back.
        now.request_id, now.arrived_at = before.request_id, before.arrived_at
        now.deadline = before.deadline
        if before.permit is not None:
            before.permit.release(Outcome.IGNORED)
        state.hive().withdraw(before)
    await read_body(flow, now, exchange.body)
    if before is not None and before.ticket is not None:
        now.ticket = before.ticket
    return now


def _destination(flow: http.HTTPFlow) -> tuple[Origin, str]:
    """Where the request goes: the configured base URL of its host, or the host itself."""
    base = state.base_of(flow)
    if base is None:
        return Origin(flow.request.scheme, flow.request.host, flow.request.port), ""
    return split_base(base)


def _upstream_mode(flow: http.HTTPFlow, origin: Origin) -> UpstreamMode | None:
    """Mitmproxy's upstream mode, if it holds: a proxy is never asked for what is on this machine."""
    mode = flow.client_conn.proxy_mode
    return mode if isinstance(mode, UpstreamMode) and not is_loopback(origin.host) else None


def _via(flow: http.HTTPFlow, origin: Origin) -> ViaProxy | None:
    """The further proxy that upstream mode names."""
    mode = _upstream_mode(flow, origin)
    if mode is None:
        return None
    auth = ctx.options.upstream_auth
    return ViaProxy(
        f"{mode.scheme}://{human.format_address(mode.address)}",
        parse_upstream_auth(auth).decode() if auth else None,
    )


def _upstream_request(
    exchange: Exchange | Replay, call: Call, origin: Origin, target: str
) -> UpstreamRequest:
    request, body = exchange.flow.request, exchange.body
    headers: list[tuple[str, str]] = []
    cookies: list[str] = []
    spelling: dict[str, str] = {}
    host: str | None = None
    for key, value in end_to_end(request.headers.fields):
        name, text = key.decode("latin-1"), value.decode("utf-8", "surrogateescape")
        match name.lower():
            case "content-length" | "expect":
                continue
            case "host":
                host = text
            case "cookie":
                cookies.append(text)  # HTTP/2 may split it (RFC 9113 section 8.2.3)
            case lowered:
                # aiohttp keeps repeated headers only if they are spelled alike.
                headers.append((spelling.setdefault(lowered, name), text))
    if cookies:
        headers.append(("Cookie", "; ".join(cookies)))
    # HTTP/2 has no Host header; another base URL is addressed by its own name.
    same_host = origin.host == request.host
    host = (host or request.host_header) if same_host else None
    headers.insert(0, ("Host", host or origin.netloc))
    if state.hive().takes_usage.get(origin) is False:
        call.ask_usage = False
    if call.ask_usage:
        changed = call.dialect.request_usage(body)
        if changed is None:
            call.ask_usage = False
        else:
            body = changed
    if call.ask_usage or call.heartbeat is not None:
        # Events are cut out, or headers went out that promise an answer without encoding.
        headers = [h for h in headers if h[0].lower() != "accept-encoding"]
        headers.append(("Accept-Encoding", "identity"))
    return UpstreamRequest(
        origin,
        request.method,
        target,
        headers,
        body,
        call.profile.timeouts.connect,
        _via(exchange.flow, origin),
    )
