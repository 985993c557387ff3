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
from mitmproxy.proxy.layers.http._base import HttpEvent
from mitmproxy.proxy.layers.http._http2 import Http2Server
from mitmproxy.utils import human

from hivemind_addon.runtime import spawn
from hivemind_addon.upstream.messages import ResponseHead, has_body

if TYPE_CHECKING:
    from mitmproxy.connection import Client
    from mitmproxy.proxy.context import Context
    from mitmproxy.proxy.server import ConnectionHandler

HTTP2_BUFFER_BYTES = 256 * 1024
"""A push to an HTTP/2 client waits while more than this is buffered for its stream."""

TEE_BYTES = 1024 * 1024
"""At most this much of a streamed body is kept for people."""

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


class Exchange:
    """One managed request: what the client asked, and the way back to it.

    Not thread-safe; used from the event loop. After `cancelled` is set every push is a silent no-op that
    answers False.
    """

    def __init__(self, owner: PooledHttpLayer, stream: HttpStream, server: Server) -> None:
        self.flow: http.HTTPFlow = stream.flow
        self.server = server
        self._body: list[bytes] = []
        self.cancelled: str | None = None
        """Why nobody waits for the answer any more, or None."""
        self.finished = False
        self._owner = owner
        self._stream = stream
        self._headers_passed = asyncio.Event()
        self._on_cancel: list[Callable[[str], None]] = []
        self._handler = owner.services.handler(owner.context.client)
        self._tee: bytearray | None = None
        """Copy of a streamed body for views, dumps and HAR; None if nobody wants it."""

    @property
    def stream_id(self) -> int:
        return self._stream.stream_id

    @property
    def body(self) -> bytes:
        """The request body; the same object as the flow's if that was not streamed."""
        return b"".join(self._body)

    def add_body(self, data: bytes) -> None:
        self._body.append(data)

    def drop_body(self) -> None:
        self._body.clear()

    def begin(self) -> None:
        """The request is complete: let it be answered in a task of its own."""
        if self._handler is None:
            return  # the client is gone already
        _ = spawn(self._answer(self._handler), name="hivemind exchange")

    async def _answer(self, handler: ConnectionHandler) -> None:
        # As for a hook: a client that waits for its answer is not inactive.
        with handler.timeout_watchdog.disarm():
            await self._owner.services.start(self)

    def on_cancel(self, callback: Callable[[str], None]) -> None:
        """Call back with the reason as soon as nobody waits for the answer (at once if so already)."""
        if self.cancelled is not None:
            callback(self.cancelled)
        else:
            self._on_cancel.append(callback)

    def cancel(self, reason: str) -> None:
        """Nobody waits any more. Idempotent; without effect on a finished exchange."""
        if self.cancelled is not None or self.finished:
            return
        self.cancelled = reason
        self._headers_passed.set()
        self._owner.wake(self.stream_id)
        callbacks, self._on_cancel = self._on_cancel, []
        for callback in callbacks:
            callback(reason)

    def reached(self, peername: tuple[str, int] | None) -> None:
        """Show the real upstream address of the current attempt in the flow."""
        self.server.peername = peername

    async def respond(self, head: ResponseHead, body: bytes) -> bool:
        """Answer with a complete message at once."""
        if has_body(self.flow.request.method, head.status):
            head = head.with_header("content-length", str(len(body)))
        response = self._response(head)
        pushed: list[HttpEvent] = [ResponseHeaders(self.stream_id, response, not body)]
        if body:
            pushed.append(ResponseData(self.stream_id, body))
        pushed.append(ResponseEndOfMessage(self.stream_id))
        return await self._push(pushed, last=True)

    async def start(self, head: ResponseHead) -> bool:
        """Send the headers of a streamed answer; returns after the `responseheaders` hook did."""
        version = self.flow.request.http_version
        if version == "HTTP/1.1" and head.get("content-length") is None:
            head = head.adding("transfer-encoding", "chunked")
        response = self._response(head)
        response.stream = True
        self._tee = bytearray() if self._owner.services.wants_bodies() else None
        if not await self._push([ResponseHeaders(self.stream_id, response, end_stream=False)]):
            return False
        await self._headers_passed.wait()
        return self.cancelled is None

    async def write(self, data: bytes) -> bool:
        """Send body bytes; returns when the client has room for more."""
        if self._tee is not None and len(self._tee) < TEE_BYTES:
            self._tee += data[: TEE_BYTES - len(self._tee)]
        if not await self._push([ResponseData(self.stream_id, data)]):
            return False
        assert self._handler is not None
        await self._handler.drain_writers()
        await self._owner.room(self.stream_id)
        return self.cancelled is None

    async def finish(self) -> bool:
        """End the message cleanly."""
        self._store_tee()
        return await self._push([ResponseEndOfMessage(self.stream_id)], last=True)

    async def fail(self, message: str) -> None:
        """Break the transfer, or answer with an error page if nothing was sent yet."""
        self._store_tee()
        error = ResponseProtocolError(self.stream_id, message, ErrorCode.GENERIC_SERVER_ERROR)
        await self._push([error], last=True)

    async def kill(self) -> None:
        """Carry out `flow.kill()` on a flow in transit: mitmproxy itself only marks it."""
        self._store_tee()
        if self._handler is not None:
            error = ResponseProtocolError(self.stream_id, Error.KILLED_MESSAGE, ErrorCode.KILL)
            await self._handler.server_event(
                ExchangeEvent(self.flow, [error], self._owner, self._stream)
            )

    def _response(self, head: ResponseHead) -> http.Response:
        version = b"HTTP/1.0" if self.flow.request.http_version == "HTTP/1.0" else b"HTTP/1.1"
        return http.Response(
            version,
            head.status,
            head.reason.encode("latin-1", "replace"),
            http.Headers(head.headers),
            None,
            None,
            time.time(),  # noqa: TID251 - mitmproxy's own field for people
            None,
        )

    def _store_tee(self) -> None:
        if self._tee is not None and self.flow.response is not None:
            self.flow.response.data.content = bytes(self._tee)

    async def _push(self, pushed: Sequence[HttpEvent], *, last: bool = False) -> bool:
        if self.cancelled is not None or self.finished or self._handler is None:
            return False
        # Set before the push: the stream's own end, which the last event brings, is no cancellation.
        self.finished = last
        await self._handler.server_event(
            ExchangeEvent(self.flow, pushed, self._owner, self._stream)
        )
        return self.cancelled is None

    def headers_hook_done(self) -> None:
        self._headers_passed.set()


class ExchangeEvent(events.MessageInjected[Sequence[HttpEvent]]):
    """Response events on their way down to the layer that owns the exchange."""

    def __init__(
        self,
        flow: http.HTTPFlow,
        message: Sequence[HttpEvent],
        target: PooledHttpLayer,
        stream: HttpStream,
    ) -> None:
        super().__init__(flow, message)
        self.target = target
        self.stream = stream


class ExchangePort(HttpConnection):
    """Stands where an upstream connection would: collects a request and starts its exchange."""

    def __init__(self, context: Context, exchange: Exchange, max_body_bytes: int) -> None:
        super().__init__(context, exchange.server)
        self.exchange = exchange
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
                self.exchange.begin()
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

    def __repr__(self) -> str:
        return f"PooledHttpLayer({self.mode.name}, exchanges: {len(self._ports)})"

    # The two methods below answer generators without being ones: a frame less for each event and level.

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
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
            for message in event.message:
                if self.streams.get(event.stream.stream_id) is event.stream:
                    yield from self.event_to_child(event.stream, message)
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
        exchange = Exchange(self, stream, server)
        port = ExchangePort(self.context.fork(), exchange, self.services.max_body_bytes())
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

    async def room(self, stream_id: int) -> None:
        """Wait until an HTTP/2 client has taken enough of what is buffered for this stream."""
        while self._buffered(stream_id) > HTTP2_BUFFER_BYTES:
            future = self._waiting_for_room[stream_id] = asyncio.get_running_loop().create_future()
            try:
                await future
            finally:
                self._waiting_for_room.pop(stream_id, None)

    def wake(self, stream_id: int) -> None:
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
