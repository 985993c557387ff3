"""A recorded request that is sent again (`replay.client`, mitmweb's Replay): its answer is collected.

mitmproxy builds a stock layer for it, in which no answer can be streamed, and nobody waits at the other end.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mitmproxy import http

from hivemind_addon.upstream.messages import ResponseHead

if TYPE_CHECKING:
    from collections.abc import Callable

BROKEN = "x-hivemind-error"
"""Header that marks an answer whose transfer did not end well; a stored flow has no other place for it."""


class Replay:
    """Takes the place of an `Exchange` for a replayed flow."""

    def __init__(self, flow: http.HTTPFlow) -> None:
        self.flow = flow
        self.cancelled: str | None = None
        """Always None: only `flow.kill()` ends a replay early, and that ends its call."""
        self._head: ResponseHead | None = None
        self._body = bytearray()

    @property
    def body(self) -> bytes:
        """The request body."""
        return self.flow.request.raw_content or b""

    def on_cancel(self, callback: Callable[[str], None]) -> None:
        del callback

    def reached(self, peername: tuple[str, int] | None) -> None:
        self.flow.server_conn.peername = peername

    async def respond(self, head: ResponseHead, body: bytes) -> bool:
        self._head, self._body = head, bytearray(body)
        return True

    async def start(self, head: ResponseHead) -> bool:
        self._head = head
        return True

    async def write(self, data: bytes) -> bool:
        self._body += data
        return True

    async def finish(self) -> bool:
        return True

    async def fail(self, message: str) -> None:
        """Keep what came, marked; without an answer, make one."""
        if self._head is None:
            self._head, self._body = ResponseHead(502, "", ()), bytearray(message.encode())
        self._head = self._head.with_header(BROKEN, "broken transfer")

    async def kill(self) -> None:
        self._head = None

    def store(self) -> None:
        """Give the flow its answer; without effect if it was killed."""
        if self._head is None:
            return
        now = time.time()  # noqa: TID251 - mitmproxy's own field for people
        self.flow.response = http.Response(
            b"HTTP/1.1",
            self._head.status,
            self._head.reason.encode("latin-1", "replace"),
            http.Headers(self._head.headers),
            bytes(self._body),
            None,
            now,
            now,
        )
