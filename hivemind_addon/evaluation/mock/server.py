"""The mock's listeners and its own endpoints."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

from hivemind_addon.evaluation.mock.events import dumps
from hivemind_addon.evaluation.mock.handler import Handler
from hivemind_addon.evaluation.mock.record import Record
from hivemind_addon.evaluation.mock.tls import server_context
from hivemind_addon.runtime import Clock, SystemClock

if TYPE_CHECKING:
    import asyncio
    import ssl

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader
    from aiohttp.web_protocol import RequestHandler

    from hivemind_addon.evaluation.mock.options import MockOptions

ADMIN = "/__mock__/"
MAX_BODY_BYTES = 2**30
BACKLOG = 1024
KEEPALIVE = 3600.0


class _Server(web.Server):
    """aiohttp's low-level server, which also counts connections (TLS ones once their handshake is done)."""

    def __init__(self, handler: Any, record: Record, **kwargs: Any) -> None:
        super().__init__(handler, **kwargs)
        self._record = record

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._record.connections += 1

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        return web.BaseRequest(
            message, payload, protocol, writer, task, self._loop, client_max_size=MAX_BODY_BYTES
        )


class MockProvider:
    """Serves from `start` to `stop`; one per test or process. It records credentials: send it none that is real."""

    def __init__(self, options: MockOptions, clock: Clock | None = None) -> None:
        self.options = options
        self._clock = clock or SystemClock()
        self._record = Record()
        self._handler = Handler(options, self._record, self._clock)
        self._runner: web.ServerRunner | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._ca_path: str | None = None

    def __repr__(self) -> str:
        record = self._record
        return f"<MockProvider total={record.total} in_flight={record.in_flight}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Open the listeners.

        Raises:
            OSError: if a port is taken.
        """
        options = self.options
        server = _Server(
            self._serve,
            self._record,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,  # bodies are recorded as they came
            keepalive_timeout=KEEPALIVE,
            max_field_size=2**20,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        try:
            await self._listen(options.port)
            if options.https_port >= 0:
                context, ca_path = server_context(self._tls_folder())
                self._ca_path = str(ca_path)
                await self._listen(options.https_port, context)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close everything, also what is being served; may be called twice."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    @property
    def http_url(self) -> str:
        return f"http://{self.options.host}:{self._port(0)}"

    @property
    def https_url(self) -> str | None:
        """None without an HTTPS listener."""
        if self.options.https_port < 0:
            return None
        host = "localhost" if self.options.host == "127.0.0.1" else self.options.host
        return f"https://{host}:{self._port(1)}"

    @property
    def ca_path(self) -> str | None:
        """PEM file of the authority that signed the HTTPS listener's certificate."""
        return self._ca_path

    def snapshot(self) -> dict[str, Any]:
        """What was seen so far; the same as `GET /__mock__/stats`."""
        return self._record.snapshot()

    def requests(self) -> list[dict[str, Any]]:
        """The last requests, oldest first; the same as `GET /__mock__/requests`."""
        return [entry.as_json() for entry in self._record.requests]

    def reset(self) -> None:
        """Forget what was seen, refill the limits and start the fault plan from its beginning."""
        self._record.reset()
        self._handler.reset()

    async def _listen(self, port: int, context: ssl.SSLContext | None = None) -> None:
        assert self._runner is not None
        host = self.options.host
        await web.TCPSite(self._runner, host, port, ssl_context=context, backlog=BACKLOG).start()

    def _tls_folder(self) -> Path:
        if self.options.tls_dir:
            return Path(self.options.tls_dir)
        self._folder = tempfile.TemporaryDirectory(prefix="hivemind-mock-")
        return Path(self._folder.name)

    def _port(self, index: int) -> int:
        if self._runner is None:
            raise RuntimeError("the mock is not running")
        return int(self._runner.addresses[index][1])

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.startswith(ADMIN):
            return self._administer(request)
        if request.headers.get("expect", "").lower() == "100-continue" and request.transport:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._record.begin()
        try:
            return await self._handler.serve(request)
        finally:
            self._record.end()

    def _administer(self, request: web.BaseRequest) -> web.Response:
        match request.method, request.path.removeprefix(ADMIN):
            case "GET", "stats":
                tree: dict[str, Any] = self.snapshot()
            case "GET", "requests":
                tree = {"requests": self.requests()}
            case "POST", "reset":
                self.reset()
                tree = {}
            case _:
                return web.Response(status=404)
        return web.Response(body=dumps(tree), content_type="application/json")
