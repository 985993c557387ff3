"""Our layer inside mitmproxy's HTTP stack: the only file that touches mitmproxy's proxy core.

Stock mitmproxy opens an upstream connection per client connection. `PooledHttpLayer` hands the stock
`HttpStream` a virtual server connection instead. What the stream sends there becomes an `Exchange`, given to
`LayerServices.start`; what that answers goes back in as ordinary response events. The stock stream state machine does the rest, so hooks, views, dumps and HTTP/2 behave as always.

Rules kept here:

- Nothing is pushed before the `responseheaders` hook has returned (a paused stream queues without bound).
- Every push waits for the client: the socket's write buffer, and for HTTP/2 also the stream's own buffer.
- A client that leaves is noticed even while a hook is pending; the stream's entry and its virtual connection
  leave the tables on every end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mitmproxy import http
from mitmproxy.connection import ConnectionState, Server
from mitmproxy.flow import Error
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers import TCPLayer
from mitmproxy.proxy.layers.http import (
    ErrorCode,
    GetHttpConnection,
    GetHttpConnectionCompleted,
    HttpConnection,
    HttpLayer,
    HttpResponseHeadersHook,
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
)
from mitmproxy.proxy.layers.http._http2 import Http2Server
from mitmproxy.proxy.layers.http._upstream_proxy import HttpUpstreamProxy
from mitmproxy.utils import human

from hivemind_addon.runtime import spawn
from hivemind_addon.upstream.exchange import Break, Data, End, Exchange, Head, Push

if TYPE_CHECKING:
    from mitmproxy.connection import Client
    from mitmproxy.proxy.layers.http._base import HttpEvent
    from mitmproxy.proxy.server import ConnectionHandler

HTTP2_BUFFER_BYTES = 256 * 1024
"""A push to an HTTP/2 client waits while more than this is buffered for its stream."""

LEFT = "client left"


@dataclass(frozen=True, slots=True)
class LayerServices:
    """What the layer needs of the addons, as plain functions."""

    manages: Callable[[http.HTTPFlow], bool]
    """Does this request go through the pool? Asked with the final host and path."""
    tunnels: Callable[[str, int], bool]
    """Is CONNECT to this host and port a raw tunnel?"""
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


class ExchangeEvent(events.MessageInjected[Sequence[Push]]):
    """Response parts on their way down to the layer that owns the exchange."""

    def __init__(
        self,
        flow: http.HTTPFlow,
        message: Sequence[Push],
        target: PooledHttpLayer,
        stream: HttpStream,
    ) -> None:
        super().__init__(flow, message)
        self.target = target
        self.stream = stream


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

    def __init__(self, owner: PooledHttpLayer, exchange: Exchange, max_body_bytes: int) -> None:
        super().__init__(owner.context.fork(), exchange.server)
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
                f"request body exceeds HiveMind's limit of {human.pretty_size(self._max_body_bytes)} (max_body)",
                ErrorCode.REQUEST_TOO_LARGE,
            )
        )


class TunnelHttpStream(HttpStream):
    """A stock stream, but CONNECT to a host that is none of ours becomes a raw tunnel at once.

    Stock code with lazy connections would wait for the client's first bytes before it dials, so a protocol in
    which the server speaks first would hang, and a refused connection would look like an open one.
    """

    def handle_connect_regular(self) -> Generator[commands.Command, Any, None]:
        owner = self.context.layers[-2]
        assert isinstance(owner, PooledHttpLayer)
        host, port = self.flow.request.host, self.flow.request.port
        if self.flow.response or not owner.services.tunnels(host, port):
            yield from super().handle_connect_regular()  # type: ignore[no-untyped-call]
            return
        error = yield commands.OpenConnection(self.context.server)
        if error:
            where = human.format_address((host, port))
            self.flow.response = http.Response.make(502, f"Cannot connect to {where}: {error}")
        self.child_layer = TCPLayer(self.context, ignore=True)
        yield from self.handle_connect_finish()  # type: ignore[no-untyped-call]

    def handle_connect_upstream(self) -> Generator[commands.Command, Any, None]:
        owner = self.context.layers[-2]
        assert isinstance(owner, PooledHttpLayer)
        if self.flow.response or not owner.services.tunnels(
            self.flow.request.host, self.flow.request.port
        ):
            yield from super().handle_connect_upstream()  # type: ignore[no-untyped-call]
            return
        # The same tunnel, through the proxy that is upstream of us.
        stack = HttpUpstreamProxy.make(self.context, send_connect=True)
        cast("Any", stack[-1]).child_layer = TCPLayer(self.context, ignore=True)
        self.child_layer = stack[0]
        yield from self.handle_connect_finish()  # type: ignore[no-untyped-call]


class PooledHttpLayer(HttpLayer):
    """mitmproxy's HTTP layer with our pool in the place of its upstream connections."""

    def __init__(self, stock: HttpLayer, services: LayerServices) -> None:
        # The stock layer was just made by next_layer and has seen nothing: take its place in the stack.
        position = stock.context.layers.index(stock)
        super().__init__(stock.context, stock.mode)
        self.context.layers.pop()
        self.context.layers[position] = self
        self.services = services
        self._ports: dict[int, ExchangePort] = {}
        self._waiting_for_room: dict[int, asyncio.Future[None]] = {}
        self._handler = services.handler(self.context.client)

    def __repr__(self) -> str:
        return f"PooledHttpLayer({self.mode.name}, exchanges: {len(self._ports)})"

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Stock mitmproxy makes a system call for the headers of an answer and one for its body: make it one."""
        joined: list[bytes] = []
        for command in self._commands(event):
            if type(command) is commands.SendData and command.connection is self.context.client:
                joined.append(command.data)
                continue
            if joined:
                yield commands.SendData(self.context.client, b"".join(joined))
                joined.clear()
            yield command
        if joined:
            yield commands.SendData(self.context.client, b"".join(joined))

    # The two methods below answer generators without being ones: a frame less for each event and level.

    def _commands(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, ExchangeEvent):
            return self._handle_exchange_event(event)
        if self._waiting_for_room or (
            isinstance(event, events.HookCompleted)
            and isinstance(event.command, HttpResponseHeadersHook)
        ):
            return self._handle_and_wake(event)
        stock: layer.CommandGenerator[None] = super()._handle_event(event)
        return stock

    def event_to_child(
        self, child: layer.Layer | HttpStream, event: events.Event
    ) -> layer.CommandGenerator[None]:
        if isinstance(child, HttpStream):
            return self._event_to_stream(child, event)
        return super().event_to_child(child, event)

    def _handle_and_wake(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Handle an event after which somebody may go on: a passed hook, or room at the client."""
        passed: ExchangePort | None = None
        if isinstance(event, events.HookCompleted) and isinstance(
            event.command, HttpResponseHeadersHook
        ):
            source = self.command_sources.get(event.command)
            if isinstance(source, HttpStream):
                passed = self._ports.get(source.stream_id)
        yield from super()._handle_event(event)
        if passed is not None:
            passed.exchange.headers_hook_done()
        for stream_id in list(self._waiting_for_room):
            if self._buffered(stream_id) <= HTTP2_BUFFER_BYTES:
                self.wake(stream_id)

    def _handle_exchange_event(self, event: ExchangeEvent) -> layer.CommandGenerator[None]:
        if event.target is self:
            stream_id = event.stream.stream_id
            for pushed in event.message:
                if self.streams.get(stream_id) is event.stream:
                    yield from self.event_to_child(event.stream, translate(stream_id, pushed))
            return
        # We are an outer layer: pass it to the stream whose tunnel leads to the target. Its own stream ids
        # mean nothing here.
        for outer in event.target.context.layers:
            if isinstance(outer, HttpStream) and self.streams.get(outer.stream_id) is outer:
                yield from self.event_to_child(outer, event)
                return

    def _event_to_stream(
        self, stream: HttpStream, event: events.Event
    ) -> layer.CommandGenerator[None]:
        if isinstance(event, RequestProtocolError):
            # The stream itself may be paused in a hook and would not see this before the hook ends.
            self._left(stream)
        yield from super().event_to_child(stream, event)
        self._drop_if_ended(stream)

    def make_stream(self, stream_id: int) -> layer.CommandGenerator[None]:
        stream = TunnelHttpStream(self.context.fork(), stream_id)
        self.streams[stream_id] = stream
        yield from self.event_to_child(stream, events.Start())

    def get_connection(
        self, event: GetHttpConnection, *, reuse: bool = True
    ) -> layer.CommandGenerator[None]:
        stream = self.command_sources.get(event)
        if not isinstance(stream, HttpStream) or not self.services.manages(stream.flow):
            yield from super().get_connection(event, reuse=reuse)
            return
        del self.command_sources[event]
        server = Server(address=event.address, tls=event.tls)
        server.state = ConnectionState.OPEN
        server.timestamp_start = time.time()  # noqa: TID251 - mitmproxy's own field for people
        exchange = Exchange(self, stream.flow, stream.stream_id, server)
        port = ExchangePort(self, exchange, self.services.max_body_bytes())
        self.connections[server] = port
        self._ports[stream.stream_id] = port
        yield from self.event_to_child(stream, GetHttpConnectionCompleted(event, (server, None)))

    def _left(self, stream: HttpStream) -> None:
        flow = getattr(stream, "flow", None)
        port = self._ports.get(stream.stream_id)
        if port is not None:
            port.exchange.cancel(LEFT)
        if flow is not None:
            self.services.left(flow, LEFT)

    def _drop_if_ended(self, stream: HttpStream) -> None:
        """Forget a stream that is done; stock code keeps killed and refused ones for ever."""
        errored = stream.state_errored
        if stream.client_state == errored and stream.server_state == errored:
            self.streams.pop(stream.stream_id, None)
        elif self.streams.get(stream.stream_id) is stream:
            return
        port = self._ports.pop(stream.stream_id, None)
        if port is not None:
            self.connections.pop(port.exchange.server, None)
            port.exchange.cancel(LEFT)

    # What an exchange needs of its connection.

    def open(self) -> bool:
        """Is the client still connected?"""
        return self._handler is not None

    def wants_bodies(self) -> bool:
        """Does a view, a dump or a HAR export want to see streamed bodies?"""
        return self.services.wants_bodies()

    def answer(self, exchange: Exchange) -> None:
        """Have a complete request answered in a task of its own."""
        if self._handler is not None:
            _ = spawn(self._answer(self._handler, exchange), name="hivemind exchange")

    async def _answer(self, handler: ConnectionHandler, exchange: Exchange) -> None:
        # As for a hook: a client that waits for its answer is not inactive.
        with handler.timeout_watchdog.disarm():
            await self.services.start(exchange)

    async def push(self, exchange: Exchange, pushed: Sequence[Push]) -> None:
        """Send response parts down to the stream of an exchange."""
        port = self._ports.get(exchange.stream_id)
        stream = self.streams.get(exchange.stream_id)
        if self._handler is not None and stream is not None and port and port.exchange is exchange:
            await self._handler.server_event(ExchangeEvent(exchange.flow, pushed, self, stream))

    async def drain(self, stream_id: int) -> None:
        """Wait for the socket, and with HTTP/2 until the client has taken enough of what is buffered."""
        if self._handler is not None:
            await self._handler.drain_writers()
        while self._buffered(stream_id) > HTTP2_BUFFER_BYTES:
            future = self._waiting_for_room[stream_id] = asyncio.get_running_loop().create_future()
            try:
                await future
            finally:
                self._waiting_for_room.pop(stream_id, None)

    def wake(self, stream_id: int) -> None:
        """End a wait for room."""
        future = self._waiting_for_room.get(stream_id)
        if future is not None and not future.done():
            future.set_result(None)

    def _buffered(self, stream_id: int) -> int:
        connection = self.connections.get(self.context.client)
        if not isinstance(connection, Http2Server) or stream_id not in self.streams:
            return 0
        chunks = connection.h2_conn.stream_buffers.get(stream_id)
        return sum(len(chunk.data) for chunk in chunks) if chunks else 0

    def tables(self) -> dict[str, int]:
        """Sizes of everything that must be empty when nothing is in flight."""
        virtual = sum(isinstance(c, ExchangePort) for c in self.connections.values())
        return {
            "streams": len(self.streams),
            "ports": len(self._ports),
            "virtual_connections": virtual,
            "waiting_for_room": len(self._waiting_for_room),
        }


def install(top: layer.Layer | None, services: LayerServices) -> layer.Layer | None:
    """Replace the stock HTTP layer in a freshly chosen stack by ours; answers the new top.

    In `reverse:https` and TLS-to-proxy the chosen layer is a TLS layer: the HTTP layer is below it.
    """
    if type(top) is HttpLayer:
        return PooledHttpLayer(top, services)
    above = top
    while above is not None:
        child = getattr(above, "child_layer", None)
        if type(child) is HttpLayer:
            cast("Any", above).child_layer = PooledHttpLayer(child, services)
            break
        above = child
    return top
