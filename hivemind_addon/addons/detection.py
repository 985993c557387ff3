"""Recognises LLM calls: which provider, which dialect, what kind of request (design D6, profiles)."""

from __future__ import annotations

from mitmproxy import http
from mitmproxy.proxy.mode_specs import ReverseMode

from hivemind_addon.addons import state
from hivemind_addon.addresses import is_address
from hivemind_addon.call import Call
from hivemind_addon.hive import NOBODY
from hivemind_addon.intake import owner_mark, prepare
from hivemind_addon.policies.patience import patience
from hivemind_addon.profiles import Profile
from hivemind_addon.upstream.messages import split_base
from hivemind_addon.wire.registry import get_dialect


class ProviderDetection:
    """Opens a `Call` for every request to a matched host."""

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        if flow.response or flow.error:
            return
        if state.profile_of(flow) is None:
            _name_host(flow)
        profile = state.profile_of(flow)
        if profile is None:
            return
        if state.is_websocket(flow):
            _answer_websocket(flow)
            return
        state.set_call(flow, open_call(flow, profile))

    async def request(self, flow: http.HTTPFlow) -> None:
        call = state.call_of(flow)
        if call is not None and state.is_open(flow) and not flow.request.stream:
            await read_body(flow, call, flow.request.raw_content or b"")


def _name_host(flow: http.HTTPFlow) -> None:
    """A client that dials a bare address says by its TLS server name whom it means."""
    name = flow.client_conn.sni
    if not name or isinstance(flow.client_conn.proxy_mode, ReverseMode):
        return
    known = state.hive().profile_for(name, flow.request.port)
    if known is not None and is_address(flow.request.host):
        flow.request.host = name


def _answer_websocket(flow: http.HTTPFlow) -> None:
    """A socket would carry many calls past every gate. 426 makes Codex fall back to HTTPS at once."""
    if state.hive().settings.websocket == "refuse":
        flow.response = http.Response.make(
            426, b"HiveMind: use HTTPS, WebSocket is not scheduled.", {"connection": "close"}
        )
        return
    # mitmproxy's own upstream side carries it, so its own fields must say where to.
    base = state.base_of(flow)
    if base is not None:
        origin, prefix = split_base(base)
        flow.request.scheme, flow.request.host, flow.request.port = (
            origin.scheme,
            origin.host,
            origin.port,
        )
        flow.request.path = prefix + flow.request.path


def open_call(flow: http.HTTPFlow, profile: Profile) -> Call:
    """What is known from the request line and headers."""
    hive = state.hive()
    headers = state.caller_of(flow).headers
    path = flow.request.path.partition("?")[0]  # a query may hold a credential
    route = profile.route(flow.request.method, path, flow.request.host)
    now = hive.clock.monotonic()
    wait = patience(headers)
    if hive.settings.admission.max_wait is not None:
        wait = min(wait, hive.settings.admission.max_wait)
    return Call(
        request_id=flow.id,
        method=flow.request.method.upper(),
        path=path,
        identity=NOBODY,
        profile=profile,
        operation=route.operation,
        dialect=get_dialect(route.dialect),
        arrived_at=now,
        deadline=now + wait,
        # A replayed flow still shows its old connection, whose end means nothing to it.
        client_id="" if flow.is_replay else flow.client_conn.id,
        host=flow.request.host,
        owner_mark=owner_mark(profile, headers, flow.request.path),
    )


def snapshot(request: http.Request) -> tuple[object, ...]:
    """What decides where a request goes and what it says; unchanged parts are the same objects, so comparing is cheap."""
    data = request.data
    return data.host, data.port, data.method, data.path, data.headers.fields, data.content


async def read_body(flow: http.HTTPFlow, call: Call, body: bytes) -> None:
    """Complete the call once the body is there."""
    state.flows[call.request_id] = flow
    call.snapshot = snapshot(flow.request)
    await prepare(state.hive(), call, body, state.caller_of(flow))
