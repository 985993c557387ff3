"""One request and its answer inside mitmproxy's HTTP stack: the stream, and what stands behind it.

With `layer`, the only file that touches mitmproxy's proxy core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mitmproxy import http
from mitmproxy.flow import Error
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers import TCPLayer
from mitmproxy.proxy.layers.http import (
    ErrorCode,
    HttpConnection,
    HttpErrorHook,
    HTTPMode,
    HttpRequestHeadersHook,
    HttpStream,
    ReceiveHttp,
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    SendHttp,
)
from mitmproxy.proxy.layers.http._upstream_proxy import HttpUpstreamProxy
from mitmproxy.proxy.mode_specs import ReverseMode
from mitmproxy.utils import human

from hivemind_addon.upstream.exchange import Break, Connection, Data, End, Exchange, Head, Push

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from mitmproxy.connection import Client
    from mitmproxy.proxy.context import Context
    from mitmproxy.proxy.layers.http._base import HttpEvent
    from mitmproxy.proxy.server import ConnectionHandler

LEFT = "client left"


@dataclass(frozen=True, slots=True)
class LayerServices:
    """What the layer needs of the addons, as plain functions."""

    manages: Callable[[http.HTTPFlow], bool]
    """Does this request go through the pool? Asked with the final host and path."""
    tunnels: Callable[[str, int], bool]
    """Is CONNECT to this host and port a raw tunnel?"""
    is_foreign: Callable[[Client, str], bool]
    """Must a reverse listener refuse what this client sends under this Host header?"""
    left: Callable[[http.HTTPFlow, str], None]
    """The client of this flow left (or the flow ended otherwise); called at most a few times per flow."""
    handler: Callable[[Client], ConnectionHandler | None]
    """The connection handler that serves this client."""
    max_body_bytes: Callable[[], int]
    start: Callable[[Exchange], Coroutine[Any, Any, None]]
    """Answers a complete request. Called directly and not as a hook of its own: mitmproxy would ask some forty
    addons for a hook that one of them has, which is a ninth of what it spends on hooks per request."""
    wants_bodies: Callable[[], bool]
    """Does a view, a dump or a HAR export want to see streamed bodies?"""


def translate(stream_id: int, pushed: Push) -> HttpEvent:
    """A response part as the event that an upstream connection would have brought."""
    match pushed:
        case Data(data):
            return ResponseData(stream_id, data)
        case Head(response, ended):
            return ResponseHeaders(stream_id, response, ended)
        case End():
            return ResponseEndOfMessage(stream_id)
        case Break(message, killed):
            if killed:
                return ResponseProtocolError(stream_id, Error.KILLED_MESSAGE, ErrorCode.KILL)
            return ResponseProtocolError(stream_id, message, ErrorCode.GENERIC_SERVER_ERROR)


class ExchangePort(HttpConnection):
    """Stands where an upstream connection would: collects a request and starts its exchange."""

    def __init__(
        self, owner: Connection, context: Context, exchange: Exchange, max_body_bytes: int
    ) -> None:
        super().__init__(context, exchange.server)
        self.exchange = exchange
        self._owner = owner
        self._max_body_bytes = max_body_bytes
        self._body_bytes = 0
        self._refused = False

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, RequestData):
            if not self._refused:
                self.exchange.add_body(event.data)
                self._body_bytes += len(event.data)
                if self._body_bytes > self._max_body_bytes:
                    yield from self._refuse()
        elif isinstance(event, RequestEndOfMessage):
            if not self._refused:
                self._owner.answer(self.exchange)
        elif isinstance(event, RequestProtocolError):
            self.exchange.cancel(LEFT)
        elif isinstance(event, RequestHeaders):
            pass  # the exchange reads the flow's request when it starts
        # Request trailers are dropped: the upstream side is HTTP/1.1 with a known body length.

    def _refuse(self) -> layer.CommandGenerator[None]:
        self._refused = True
        self.exchange.drop_body()
        yield ReceiveHttp(
            ResponseProtocolError(
                self.exchange.stream_id,
                too_large(self._max_body_bytes),
                ErrorCode.REQUEST_TOO_LARGE,
            )
        )


def too_large(limit: int) -> str:
    """What a client is told whose request body exceeds the setting."""
    return f"request body exceeds HiveMind's limit of {human.pretty_size(limit)} (max_body)"


class TunnelHttpStream(HttpStream):
    """A stock stream with three differences.

    - CONNECT to a host that is none of ours becomes a raw tunnel at once. Stock code with lazy connections would wait
      for the client's first bytes before it dials, so a protocol in which the server speaks first would hang, and a
      refused connection would look like an open one.
    - A request that was not meant for this listener is refused. To a forward proxy that is one without a host in its
      target: stock code would go by the Host header, and any name that leads back to us would have us call ourselves
      until no descriptor is left; one `<img>` in a web page is enough.
    - A request body is refused as soon as it exceeds `max_body`, and not once all of it is in memory.
    """

    def __init__(self, context: Context, stream_id: int, services: LayerServices) -> None:
        super().__init__(context, stream_id)
        self._services = services

    def state_wait_for_request_headers(self, event: RequestHeaders) -> layer.CommandGenerator[None]:
        message = None if event.replay_flow else self._misled(event.request)
        if message is None:
            yield from super().state_wait_for_request_headers(event)
            return
        self.flow = http.HTTPFlow(self.context.client, self.context.server)
        self.flow.request = event.request
        yield from self._refuse(message, ErrorCode.DESTINATION_UNKNOWN)

    def _misled(self, request: http.Request) -> str | None:
        """Why this request was not meant for this listener; None if it was."""
        client, host = self.context.client, request.host_header or ""
        if isinstance(client.proxy_mode, ReverseMode):
            if self._services.is_foreign(client, host):
                return f"The Host header must name this machine or an address, got {host!r}."
            return None
        if request.host or request.method == "CONNECT" or self.mode is HTTPMode.transparent:
            return None
        return (
            "This is HiveMind, a forward proxy: set HTTPS_PROXY to this address and leave base URLs as they are. "
            "A request to the proxy itself has no destination."
        )

    def check_body_size(self, request: bool) -> layer.CommandGenerator[bool]:
        if request and self._exceeds_limit():
            if not self.request_body_buf:
                yield HttpRequestHeadersHook(self.flow)
            self.request_body_buf.clear()
            message = too_large(self._services.max_body_bytes())
            self.flow.error = Error(message)
            yield HttpErrorHook(self.flow)
            yield from self._refuse(message, ErrorCode.REQUEST_TOO_LARGE)
            return True
        answer: bool = yield from super().check_body_size(request)
        return answer

    def _exceeds_limit(self) -> bool:
        """Judged by what has come, and before that by what is announced."""
        size = len(self.request_body_buf)
        if not size:
            announced = self.flow.request.headers.get("content-length", "")
            size = int(announced) if announced.isdecimal() else 0
        return size > self._services.max_body_bytes() and self._services.manages(self.flow)

    def _refuse(self, message: str, code: ErrorCode) -> layer.CommandGenerator[None]:
        yield SendHttp(ResponseProtocolError(self.stream_id, message, code), self.context.client)
        self.client_state = self.state_errored
        self.flow.live = False

    def handle_connect_regular(self) -> Generator[commands.Command, Any, None]:
        if not self._is_tunnel():
            yield from super().handle_connect_regular()  # type: ignore[no-untyped-call]
            return
        error = yield commands.OpenConnection(self.context.server)
        if error:
            where = human.format_address((self.flow.request.host, self.flow.request.port))
            self.flow.response = http.Response.make(502, f"Cannot connect to {where}: {error}")
        self.child_layer = TCPLayer(self.context, ignore=True)
        yield from self.handle_connect_finish()  # type: ignore[no-untyped-call]

    def handle_connect_upstream(self) -> Generator[commands.Command, Any, None]:
        if not self._is_tunnel():
            yield from super().handle_connect_upstream()  # type: ignore[no-untyped-call]
            return
        # The same tunnel, through the proxy that is upstream of us.
        stack = HttpUpstreamProxy.make(self.context, send_connect=True)
        cast("Any", stack[-1]).child_layer = TCPLayer(self.context, ignore=True)
        self.child_layer = stack[0]
        yield from self.handle_connect_finish()  # type: ignore[no-untyped-call]

    def _is_tunnel(self) -> bool:
        """Does this CONNECT, if no addon has answered it, lead to a host that is none of ours?"""
        request = self.flow.request
        return not self.flow.response and self._services.tunnels(request.host, request.port)
