"""Who is calling (design D5): reads proxy credentials and our own headers, and strips both before upstream."""

from __future__ import annotations

import asyncio
import weakref

from mitmproxy import connection, http
from mitmproxy.proxy.mode_specs import ReverseMode

from hivemind_addon.addons import state
from hivemind_addon.addresses import is_loopback
from hivemind_addon.intake import NO_MARKS, Caller
from hivemind_addon.policies.identity import (
    PREFIX,
    Marks,
    Process,
    from_own_headers,
    parse_grammar,
    parse_placeholder_key,
    parse_proxy_authorization,
)
from hivemind_addon.runtime import spawn

# Both outlive a reload of the script, as the connections do that they speak of.
_proxy_marks_of: weakref.WeakKeyDictionary[connection.Client, Marks] = weakref.WeakKeyDictionary()
_processes: weakref.WeakKeyDictionary[connection.Client, asyncio.Task[Process | None]] = (
    weakref.WeakKeyDictionary()
)
"""One look-up per connection: the process at its other end does not change."""


class Identity:
    """Collects what is known of the caller before the body comes."""

    def http_connect(self, flow: http.HTTPFlow) -> None:
        marks = _proxy_marks(flow, state.lowered(flow.request.headers))
        if marks is not None:
            _proxy_marks_of[flow.client_conn] = marks
        elif state.profile_of(flow) is not None:
            # Runs while the client shakes hands, so that its first request need not wait.
            self._process_of(flow)

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        client = flow.client_conn
        headers = state.lowered(flow.request.headers)
        # Inside a tunnel only CONNECT's credentials are meant for us; a header there is stripped all the same.
        marks = _proxy_marks(flow, headers)
        marks = _proxy_marks_of.get(client) or marks or _placeholder_marks(flow, headers)
        ours = [name for name in headers if name.startswith(PREFIX)]
        own = from_own_headers(headers) if ours else NO_MARKS
        if state.is_client_replay(flow):
            own = _recorded_marks(flow)
        for name in ours:
            del flow.request.headers[name], headers[name]
        caller = Caller(
            connection=f"conn-{client.id[:8]}",
            headers=headers,
            target=flow.request.path,
            proxy=marks,
            own=own,
            process=None if marks and marks.agent else self._process_of(flow),
        )
        state.set_caller(flow, caller)

    def _process_of(self, flow: http.HTTPFlow) -> asyncio.Task[Process | None] | None:
        client = flow.client_conn
        task = _processes.get(client)
        if task is None and not flow.is_replay and is_loopback(client.peername[0]):
            find = state.hive().processes.find((client.peername[0], client.peername[1]))
            task = _processes[client] = spawn(find, name="find client process")
        return task


def _placeholder_marks(flow: http.HTTPFlow, headers: dict[str, str]) -> Marks | None:
    """From a credential that only names the agent; it is removed from the request and from `headers`."""
    if not isinstance(flow.client_conn.proxy_mode, ReverseMode):
        return None
    for name in ("authorization", "x-api-key", "api-key"):
        marks = parse_placeholder_key(headers.get(name, ""))
        if marks is not None:
            del flow.request.headers[name], headers[name]
            return marks
    return None


def _recorded_marks(flow: http.HTTPFlow) -> Marks:
    """A replay is on the account of the agent that sent the request first."""
    recorded = flow.metadata.get("hivemind", {})
    return from_own_headers(
        {
            f"{PREFIX}{name}": str(recorded.get(key) or "")
            for name, key in (
                ("agent", "agent"),
                ("task", "task"),
                ("type", "task_type"),
                ("priority", "priority"),
            )
        }
    )


def _proxy_marks(flow: http.HTTPFlow, headers: dict[str, str]) -> Marks | None:
    """From the header, or from mitmproxy's own ProxyAuth, which has removed it by now.

    The header is removed from the request and from `headers`.
    """
    value = headers.pop("proxy-authorization", None)
    if value is not None:
        del flow.request.headers["proxy-authorization"]
        return parse_proxy_authorization(value)
    checked = flow.metadata.get("proxyauth")
    return parse_grammar(*checked) if checked else None
