"""aiohttp's connector as a shared proxy needs it: who gets a kept connection, and how many are kept."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp.client_reqrep import ClientRequest, ConnectionKey
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

KEEPALIVE = 55.0
"""Seconds an idle connection is kept: providers' front ends close theirs after 60 s or more."""
IDLE_FLOOR = 8
"""Idle connections kept per origin however little traffic was seen."""


@dataclass(slots=True)
class Lease:
    """What a request asks of the pool about its connection, and what it got."""

    fresh: bool = False
    """Ask for a new connection."""
    reused: bool = False
    """The connection had served another request before."""
    peername: tuple[str, int] | None = None


_lease: contextvars.ContextVar[Lease | None] = contextvars.ContextVar(
    "hivemind_lease", default=None
)


@contextlib.contextmanager
def leased(lease: Lease) -> Iterator[None]:
    """The request that is sent inside goes by this lease; aiohttp has no parameter that reaches its connector."""
    token = _lease.set(lease)
    try:
        yield
    finally:
        _lease.reset(token)


@dataclass(slots=True)
class PoolStatistics:
    """Counters of one origin since the session was made."""

    opened: int = 0
    reused: int = 0


class _Handler(ResponseHandler):
    """aiohttp's connection, which closes when bytes come that no request asked for.

    aiohttp would take them for the beginning of the next answer: each agent would get the answer of the one before.
    """

    idle = False

    def data_received(self, data: bytes) -> None:
        if data and self.idle:  # aiohttp itself calls this without data
            self.close()
        else:
            super().data_received(data)


class PooledConnector(aiohttp.TCPConnector):
    """aiohttp's connector with fresh connections on request and a bound on idle ones.

    The connector's own limit is off: a second queue behind the admission gate would defeat its order.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(limit=0, limit_per_host=0, keepalive_timeout=KEEPALIVE, **options)
        self._factory = cast("Any", functools.partial(_Handler, loop=self._loop))
        self.idle_limit = IDLE_FLOOR
        self.statistics = PoolStatistics()

    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        lease = _lease.get()
        if lease is not None and lease.fresh:
            return None
        while (connection := await super()._get(key, traces)) is not None:
            protocol = connection.protocol
            if isinstance(protocol, _Handler) and not protocol.should_close:
                protocol.idle = False
                break
            connection.close()
        if lease is not None:
            lease.reused = connection is not None
        return connection

    async def connect(
        self, req: ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        lease = _lease.get()
        if lease is not None:
            if lease.reused:
                self.statistics.reused += 1
            else:
                self.statistics.opened += 1
            if connection.transport is not None:
                lease.peername = connection.transport.get_extra_info("peername")
        return connection

    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        idle = self._conns.get(key)
        full = idle is not None and len(idle) >= self.idle_limit
        if isinstance(protocol, _Handler):
            protocol.idle = True
        super()._release(key, protocol, should_close=should_close or full)
