"""Who is calling (design D5): reads proxy credentials and our own headers, and strips both before upstream."""

from __future__ import annotations

import weakref

from mitmproxy import connection, http

from hivemind_addon.addons import state
from hivemind_addon.intake import Caller
from hivemind_addon.policies.identity import (
    PREFIX,
    Marks,
    from_own_headers,
    parse_grammar,
    parse_proxy_authorization,
)


class Identity:
    """Collects what is known of the caller before the body comes."""

    def __init__(self) -> None:
        self._proxy_marks: weakref.WeakKeyDictionary[connection.Client, Marks] = (
            weakref.WeakKeyDictionary()
        )
        self._processes: weakref.WeakKeyDictionary[connection.Client, Caller] = (
            weakref.WeakKeyDictionary()
        )

    def http_connect(self, flow: http.HTTPFlow) -> None:
        marks = _proxy_marks(flow)
        if marks is not None:
            self._proxy_marks[flow.client_conn] = marks

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        client = flow.client_conn
        marks = _proxy_marks(flow) or self._proxy_marks.get(client)
        own = from_own_headers(state.lowered(flow.request.headers))
        for name in [name for name in flow.request.headers if name.lower().startswith(PREFIX)]:
            flow.request.headers.pop(name, None)
        first = self._processes.get(client)
        caller = Caller(
            connection=f"conn-{client.id[:8]}",
            peer=(client.peername[0], client.peername[1]),
            proxy=marks,
            own=own,
        )
        if first is None:
            self._processes[client] = caller
        else:
            # One look-up per connection: the process at its other end does not change.
            caller.process, caller.process_asked = first.process, first.process_asked
        state.callers[flow] = caller


def _proxy_marks(flow: http.HTTPFlow) -> Marks | None:
    """From the header, or from mitmproxy's own ProxyAuth, which has removed it by now."""
    value = flow.request.headers.pop("proxy-authorization", None)
    if value is not None:
        return parse_proxy_authorization(value)
    checked = flow.metadata.get("proxyauth")
    return parse_grammar(*checked) if checked else None
