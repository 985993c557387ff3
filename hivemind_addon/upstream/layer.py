"""Our layer inside mitmproxy's HTTP stack; with `stream`, the only file that touches mitmproxy's proxy core.

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
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from mitmproxy.connection import ConnectionState, Server
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http import (
    GetHttpConnection,
    GetHttpConnectionCompleted,
    HttpLayer,
    HttpResponseHeadersHook,
    HttpStream,
    RequestProtocolError,
)
from mitmproxy.proxy.layers.http._http2 import Http2Server

from hivemind_addon.runtime import spawn
from hivemind_addon.upstream.exchange import Exchange, Push
from hivemind_addon.upstream.stream import (
    LEFT,
    ExchangePort,
    LayerServices,
    TunnelHttpStream,
    translate,
)

if TYPE_CHECKING:
    from mitmproxy import http
    from mitmproxy.proxy.server import ConnectionHandler

HTTP2_BUFFER_BYTES = 256 * 1024
"""A push to an HTTP/2 client waits while more than this is buffered for its stream."""


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
        stream = TunnelHttpStream(self.context.fork(), stream_id, self.services)
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
        if self._is_reset(stream.stream_id):
            self._left(stream)
            failed = GetHttpConnectionCompleted(event, (None, LEFT))
            yield from self.event_to_child(stream, failed)
            return
        server = Server(address=event.address, tls=event.tls)
        server.state = ConnectionState.OPEN
        server.timestamp_start = time.time()  # noqa: TID251 - mitmproxy's own field for people
        exchange = Exchange(self, stream.flow, stream.stream_id, server)
        port = ExchangePort(self, self.context.fork(), exchange, self.services.max_body_bytes())
        self.connections[server] = port
        self._ports[stream.stream_id] = port
        yield from self.event_to_child(stream, GetHttpConnectionCompleted(event, (server, None)))

    def _is_reset(self, stream_id: int) -> bool:
        """Did an HTTP/2 client take its request back in the very packet that brought it?

        Then mitmproxy has no stream any more to which it would report the reset.
        """
        connection = self.connections.get(self.context.client)
        return isinstance(connection, Http2Server) and connection.is_closed(stream_id)

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
