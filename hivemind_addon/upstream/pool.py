"""The shared upstream connections: one aiohttp session per origin, each with its own keep-alive pool.

aiohttp's defaults are unsafe for a proxy and are switched off here: redirects (it would resend keys to the
target), cookies (its jar would mix agents), its hidden second send of idempotent methods on a dead connection,
proxies from the environment, decompression, header limits of 8 KiB.
"""

from __future__ import annotations

import functools
import io
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from hivemind_addon.upstream import verbatim
from hivemind_addon.upstream.connector import (
    IDLE_FLOOR,
    Lease,
    PooledConnector,
    PoolStatistics,
    leased,
)
from hivemind_addon.upstream.tls import TlsSettings, ssl_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hivemind_addon.upstream.messages import Origin

HEADER_LIMIT_BYTES = 64 * 1024
HEADER_LIMIT = 1024
"""Header lines of an answer; aiohttp's own limit is 128."""
READ_BUFFER_BYTES = 64 * 1024
LARGE_BODY_BYTES = 1024 * 1024
"""Above this a request body is fed in pieces: one huge write would hold the event loop."""

verbatim.install()

_AUTOMATIC = frozenset({"Accept", "Accept-Encoding", "User-Agent", "Content-Type"})


@dataclass(frozen=True, slots=True)
class ViaProxy:
    """A further proxy that upstream connections go through (mitmproxy's upstream mode)."""

    url: str
    """`http://HOST:PORT` or `https://HOST:PORT`."""
    authorization: str | None = field(default=None, repr=False)
    """Value of `Proxy-Authorization`, if the proxy wants one."""


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request ready to be sent; headers are end-to-end only."""

    origin: Origin
    method: str
    target: str
    """Path and query, exactly as they go on the wire."""
    headers: Sequence[tuple[str, str]]
    body: bytes
    connect_timeout: float = 5.0
    via: ViaProxy | None = None


@dataclass(slots=True)
class _Member:
    session: aiohttp.ClientSession
    connector: PooledConnector
    in_flight: int = 0
    rate: _Rate = field(default_factory=lambda: _Rate())


@dataclass(slots=True)
class _Rate:
    """Peak requests per second and mean response time, for the number of idle connections to keep."""

    second: int = 0
    count: int = 0
    peak: float = 0.0
    mean: float = 0.0

    def started(self, now: float) -> None:
        if int(now) != self.second:
            # The peak fades by 1 % per busy second, so that a past burst is forgotten.
            self.peak = max(self.peak * 0.99, float(self.count))
            self.second, self.count = int(now), 0
        self.count += 1

    def ended(self, duration: float) -> None:
        self.mean += 0.05 * (duration - self.mean)


def idle_connections(peak_qps: float, mean_response_time: float) -> int:
    """How many idle connections are worth keeping: `peak QPS x mean response time x 1.3` (design D1)."""
    return max(IDLE_FLOOR, math.ceil(peak_qps * mean_response_time * 1.3))


type Place = tuple[Origin, ViaProxy | None]
"""Where connections can be shared: an origin, by the way that leads there."""


class UpstreamPool:
    """Sends requests over shared connections.

    Settings may change at any time: new requests use new sessions, running ones end on the old.
    """

    def __init__(self) -> None:
        self._tls = TlsSettings()
        self._local_address: str | None = None
        self._members: dict[Place, _Member] = {}
        self._retired: list[_Member] = []

    async def configure(self, tls: TlsSettings, local_address: str | None) -> None:
        """Use other TLS settings or another local address from now on."""
        if (tls, local_address) == (self._tls, self._local_address):
            return
        self._tls, self._local_address = tls, local_address
        self._retired += self._members.values()
        self._members = {}
        await self._close_retired()

    async def send(
        self, request: UpstreamRequest, lease: Lease, now: float
    ) -> aiohttp.ClientResponse:
        """Send and return once response headers are there.

        The caller closes or releases the response, then calls `ended`.

        Raises:
            aiohttp.ClientError, OSError, TimeoutError: as aiohttp does; no redirect, no resend.
        """
        member = self._member((request.origin, request.via))
        member.rate.started(now)
        member.connector.idle_limit = idle_connections(member.rate.peak, member.rate.mean)
        member.in_flight += 1
        try:
            with leased(lease):
                return await member.session.request(
                    request.method,
                    _url(request.origin, request.target),
                    headers=CIMultiDict(request.headers),
                    data=_payload(request.body),
                    allow_redirects=False,
                    timeout=_timeout(request.connect_timeout),
                    **_proxy_options(request.via),
                )
        finally:
            member.in_flight -= 1

    def ended(self, request: UpstreamRequest, duration: float) -> None:
        """Learn how long the answer to a request took, in seconds."""
        member = self._members.get((request.origin, request.via))
        if member is not None:
            member.rate.ended(duration)

    def statistics(self) -> dict[Origin, PoolStatistics]:
        total: dict[Origin, PoolStatistics] = {}
        for (origin, _), member in self._members.items():
            counts = total.setdefault(origin, PoolStatistics())
            counts.opened += member.connector.statistics.opened
            counts.reused += member.connector.statistics.reused
        return total

    async def close(self) -> None:
        self._retired += self._members.values()
        self._members = {}
        for member in self._retired:
            await member.session.close()
        self._retired = []

    async def _close_retired(self) -> None:
        # Closing a session closes connections in use, so only idle members go; the rest at the next change.
        still_busy = []
        for member in self._retired:
            if member.in_flight or member.connector._acquired:  # noqa: SLF001 - no public count of busy ones
                still_busy.append(member)
            else:
                await member.session.close()
        self._retired = still_busy

    def _member(self, place: Place) -> _Member:
        member = self._members.get(place)
        if member is None:
            member = self._members[place] = self._make_member(place[0])
        return member

    def _make_member(self, origin: Origin) -> _Member:
        context = ssl_context(self._tls, origin.host) if origin.scheme == "https" else False
        connector = PooledConnector(
            ssl=context,
            local_addr=(self._local_address, 0) if self._local_address else None,
        )
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            requote_redirect_url=False,
            skip_auto_headers=_AUTOMATIC,
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=HEADER_LIMIT_BYTES,
            max_field_size=HEADER_LIMIT_BYTES,
            max_headers=HEADER_LIMIT,
        )
        session._retry_connection = False  # noqa: SLF001 - the only switch for the hidden resend of PUT, DELETE
        return _Member(session, connector)


@functools.lru_cache(maxsize=1024)
def _url(origin: Origin, target: str) -> URL:
    """A fleet asks for few URLs again and again, and building one costs more than looking it up.

    The whole target is the URL's path: read as a URL, it could name another host (`@host/`), and an empty query or
    what follows a `#` would be lost.
    """
    if not target.startswith("/") and target != "*":
        raise aiohttp.InvalidURL(target, "the request target must begin with /")
    return URL.build(
        scheme=origin.scheme, host=origin.host, port=origin.port, path=target, encoded=True
    )


@functools.lru_cache(maxsize=64)
def _timeout(connect: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=connect)


def _proxy_options(via: ViaProxy | None) -> dict[str, Any]:
    if via is None:
        return {}
    headers = {"Proxy-Authorization": via.authorization} if via.authorization else None
    return {"proxy": URL(via.url), "proxy_headers": headers}


def _payload(body: bytes) -> bytes | io.BytesIO | None:
    if not body:
        return None
    return body if len(body) <= LARGE_BODY_BYTES else io.BytesIO(body)
