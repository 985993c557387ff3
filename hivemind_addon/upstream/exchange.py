"""One managed request and the way back to its client, in terms that know nothing of mitmproxy's proxy core."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mitmproxy import http

from hivemind_addon.upstream.messages import ResponseHead, has_body

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mitmproxy.connection import Server

TEE_BYTES = 1024 * 1024
"""At most this much of a streamed body is kept for people."""


@dataclass(frozen=True, slots=True)
class Head:
    """Push: the response headers; `ended` if no body follows."""

    response: http.Response
    ended: bool


@dataclass(frozen=True, slots=True)
class Data:
    """Push: body bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class End:
    """Push: the message is complete."""


@dataclass(frozen=True, slots=True)
class Break:
    """Push: the message will not be completed; `killed` if a person ended the flow."""

    message: str
    killed: bool = False


Push = Head | Data | End | Break


class Connection(Protocol):
    """The client connection that an exchange belongs to (`layer.PooledHttpLayer`)."""

    def open(self) -> bool:
        """Is there still somebody to push to?"""
        ...

    def answer(self, exchange: Exchange) -> None:
        """Have the exchange answered, in a task of its own."""
        ...

    async def push(self, exchange: Exchange, pushed: Sequence[Push]) -> None:
        """Send response parts down to the client's stream."""
        ...

    async def drain(self, stream_id: int) -> None:
        """Wait until the client has room for more."""
        ...

    def wake(self, stream_id: int) -> None:
        """Nobody needs room in this stream any more."""
        ...

    def wants_bodies(self) -> bool:
        """Does a view, a dump or a HAR export want to see streamed bodies?"""
        ...


class Exchange:
    """One managed request: what the client asked, and the way back to it.

    Not thread-safe; used from the event loop. After `cancelled` is set every push is a silent no-op that
    answers False.
    """

    def __init__(
        self, owner: Connection, flow: http.HTTPFlow, stream_id: int, server: Server
    ) -> None:
        self.flow = flow
        self.stream_id = stream_id
        self.server = server
        """The virtual server connection that the flow shows."""
        self.cancelled: str | None = None
        """Why nobody waits for the answer any more, or None."""
        self.finished = False
        self._owner = owner
        self._body: list[bytes] = []
        self._headers_passed = asyncio.Event()
        self._on_cancel: list[Callable[[str], None]] = []
        self._tee: bytearray | None = None
        """Copy of a streamed body for views, dumps and HAR; None if nobody wants it."""

    @property
    def body(self) -> bytes:
        """The request body; the same object as the flow's if that was not streamed."""
        return b"".join(self._body)

    def add_body(self, data: bytes) -> None:
        self._body.append(data)

    def drop_body(self) -> None:
        self._body.clear()

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
        """Answer with a complete message at once; a body that this kind of answer must not have is left out."""
        if has_body(self.flow.request.method, head.status):
            head = head.with_header("content-length", str(len(body)))
        else:
            body = b""
        pushed: list[Push] = [Head(self._response(head), ended=not body)]
        if body:
            pushed.append(Data(body))
        return await self._push(*pushed, End(), last=True)

    async def start(self, head: ResponseHead) -> bool:
        """Send the headers of a streamed answer; returns after the `responseheaders` hook did."""
        version = self.flow.request.http_version
        if version == "HTTP/1.1" and head.get("content-length") is None:
            head = head.adding("transfer-encoding", "chunked")
        response = self._response(head)
        response.stream = True
        self._tee = bytearray() if self._owner.wants_bodies() else None
        if not await self._push(Head(response, ended=False)):
            return False
        await self._headers_passed.wait()
        return self.cancelled is None

    async def write(self, data: bytes) -> bool:
        """Send body bytes; returns when the client has room for more."""
        if self._tee is not None and len(self._tee) < TEE_BYTES:
            self._tee += data[: TEE_BYTES - len(self._tee)]
        if not await self._push(Data(data)):
            return False
        await self._owner.drain(self.stream_id)
        return self.cancelled is None

    async def finish(self) -> bool:
        """End the message cleanly."""
        self._store_tee()
        return await self._push(End(), last=True)

    async def fail(self, message: str) -> None:
        """Break the transfer, or answer with an error page if nothing was sent yet."""
        self._store_tee()
        await self._push(Break(message), last=True)

    async def kill(self) -> None:
        """Carry out `flow.kill()` on a flow in transit: mitmproxy itself only marks it."""
        self._store_tee()
        if self._owner.open():
            await self._owner.push(self, [Break("", killed=True)])

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

    async def _push(self, *pushed: Push, last: bool = False) -> bool:
        if self.cancelled is not None or self.finished or not self._owner.open():
            return False
        # Set before the push: the stream's own end, which the last part brings, is no cancellation.
        self.finished = last
        await self._owner.push(self, pushed)
        return self.cancelled is None

    def headers_hook_done(self) -> None:
        """The `responseheaders` hook has returned: body bytes may follow."""
        self._headers_passed.set()
