"""What the addons share. This module is imported once per process and so survives a script reload."""

from __future__ import annotations

import asyncio
import socket
import weakref

import psutil
from mitmproxy import http
from mitmproxy.proxy.mode_specs import ReverseMode

from hivemind_addon.addresses import is_loopback
from hivemind_addon.call import Call
from hivemind_addon.config import load_all
from hivemind_addon.hive import Hive
from hivemind_addon.intake import Caller
from hivemind_addon.profiles import Profile

flows: weakref.WeakValueDictionary[str, http.HTTPFlow] = weakref.WeakValueDictionary()
"""Flows of running calls by request id."""

listening: list[tuple[str, int]] = []
"""Where this proxy listens, kept up to date by `Passthrough`."""

_CALL, _CALLER = "_hivemind_call", "_hivemind_caller"
# Attributes of the flow object: they live as long as it does, and mitmproxy neither copies nor stores them.


def call_of(flow: http.HTTPFlow) -> Call | None:
    """The live call of a managed flow."""
    return flow.__dict__.get(_CALL)


def set_call(flow: http.HTTPFlow, call: Call) -> None:
    """Make `call` the flow's live call."""
    flow.__dict__[_CALL] = call


def caller_of(flow: http.HTTPFlow) -> Caller:
    """What headers told of the caller of a flow."""
    caller: Caller | None = flow.__dict__.get(_CALLER)
    return caller or Caller(f"conn-{flow.client_conn.id[:8]}", lowered(flow.request.headers))


def set_caller(flow: http.HTTPFlow, caller: Caller) -> None:
    """Remember what headers told."""
    flow.__dict__[_CALLER] = caller


def profile_of(flow: http.HTTPFlow) -> Profile | None:
    """The profile that serves this request's (final) host; None if it is no LLM call."""
    reverse = isinstance(flow.client_conn.proxy_mode, ReverseMode)
    return hive().profile_for(flow.request.host, flow.request.port, listener=reverse)


def base_of(flow: http.HTTPFlow) -> str | None:
    """The base URL that the settings give for this request's host, if they give one."""
    return hive().settings.upstreams.get(flow.request.host.lower().removesuffix("."))


def is_websocket(flow: http.HTTPFlow) -> bool:
    """Does this request open a WebSocket (RFC 6455 section 4.1)? Others that carry `Upgrade` are ordinary calls."""
    if flow.request.method != "GET":
        return False
    headers = caller_of(flow).headers
    return headers.get("upgrade", "").lower() == "websocket" and "sec-websocket-key" in headers


async def is_ourselves(host: str, port: int) -> bool:
    """Would a connection to this host come back to one of our own listeners, by whatever name?"""
    places = [listener for listener, taken in listening if taken == port]
    if not places:
        return False
    if host in places:
        return True
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False  # the connection will fail by itself
    mine = {each.address for interface in psutil.net_if_addrs().values() for each in interface}
    addresses = {str(entry[4][0]) for entry in found}
    return bool(addresses & mine) or any(map(is_loopback, addresses))


def is_client_replay(flow: http.HTTPFlow) -> bool:
    """Is this a recorded request that is sent again (`replay.client`, mitmweb's Replay)?"""
    return flow.is_replay == "request"


_hive: list[Hive] = []


def hive() -> Hive:
    """The process's one `Hive`; made with default settings at first use."""
    if not _hive:
        _hive.append(Hive(*load_all(None)))
    return _hive[0]


def is_open(flow: http.HTTPFlow) -> bool:
    """Is this flow still waiting for an answer that nobody has given?"""
    return flow.live and flow.response is None and flow.error is None


def lowered(headers: http.Headers) -> dict[str, str]:
    """Headers by lower-cased name; of repeated ones the first."""
    result: dict[str, str] = {}
    for key, value in headers.fields:
        result.setdefault(key.decode("latin-1").lower(), value.decode("utf-8", "replace"))
    return result
