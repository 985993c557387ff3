"""The mock's HTTP server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import socket
import struct
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import brotli
import zstandard
from aiohttp import web

from hivemind_addon.evaluation.mock import dialects
from hivemind_addon.evaluation.mock.limits import RateLimit, RefillBucket, StrictWindow
from hivemind_addon.evaluation.mock.plan import FAULTS, fate
from hivemind_addon.evaluation.mock.record import Record
from hivemind_addon.evaluation.mock.tls import make_certificates
from hivemind_addon.runtime import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hivemind_addon.evaluation.mock.options import MockOptions

STATUS_FAULTS = {
    "fault_429": 429,
    "fault_500": 500,
    "fault_502": 502,
    "fault_503": 503,
    "fault_529": 529,
}
PATHS = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "openai-chat",
    "/v1/responses": "openai-responses",
    "/backend-api/codex/responses": "openai-responses",
    "/v1/embeddings": "embeddings",
}
WRITES = ("POST", "PUT", "PATCH", "DELETE")


class MockProvider:
    """Serves until `stop`. One per test or process."""

    def __init__(self, options: MockOptions, clock: Clock | None = None) -> None:
        self.options = options
        self.record = Record()
        self.http_url = ""
        self.https_url: str | None = None
        self.ca_path: str | None = None
        self._clock = clock or SystemClock()
        self._limits: dict[str, RateLimit] = {}
        self._number = 0
        self._runner: web.AppRunner | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    async def __aenter__(self) -> MockProvider:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        app = web.Application(client_max_size=2**30)
        app.router.add_get("/__mock__/stats", self._stats)
        app.router.add_get("/__mock__/requests", self._requests)
        app.router.add_post("/__mock__/reset", self._reset)
        app.router.add_route("*", "/{tail:.*}", self._serve)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        options = self.options
        await web.TCPSite(self._runner, options.host, options.port, backlog=1024).start()
        self.http_url = f"http://{options.host}:{self._port(0)}"
        if options.https_port >= 0:
            folder = options.tls_dir
            if not folder:
                self._folder = tempfile.TemporaryDirectory(prefix="hivemind-mock-")
                folder = self._folder.name
            context, ca = make_certificates(Path(folder))
            site = web.TCPSite(
                self._runner, options.host, options.https_port, ssl_context=context, backlog=1024
            )
            await site.start()
            self.https_url = f"https://localhost:{self._port(1)}"
            self.ca_path = str(ca)

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._folder is not None:
            self._folder.cleanup()

    def _port(self, index: int) -> int:
        assert self._runner is not None
        return int(self._runner.addresses[index][1])

    async def _stats(self, _request: web.Request) -> web.Response:
        return web.json_response(self.record.snapshot())

    async def _requests(self, _request: web.Request) -> web.Response:
        return web.json_response({"requests": list(self.record.requests)})

    async def _reset(self, _request: web.Request) -> web.Response:
        self.record.reset()
        self._limits.clear()
        self._number = 0
        return web.json_response({})

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self._count_connection(request)
        self.record.begin()
        try:
            return await self._answer(request)
        except (asyncio.CancelledError, ConnectionError):
            self.record.aborted += 1
            raise
        finally:
            self.record.end()

    def _count_connection(self, request: web.Request) -> None:
        # Marked on the transport itself: an id may come again after its object is gone.
        transport: Any = request.transport
        if transport is not None and not getattr(transport, "counted_by_mock", False):
            transport.counted_by_mock = True
            self.record.connections += 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        path = request.path.rstrip("/")
        dialect = PATHS.get(path) if request.method == "POST" else None
        digest = hashlib.sha256(body).hexdigest()
        entry = self._note(request, path, digest, dialect)
        forced = self._header(request, "x-mock-status")
        if forced:
            return self._status(request, int(forced), entry)
        if dialect is None:
            return await self._other(request, path, body, entry)
        question = self._question(request, dialect, body)
        if question is None:
            return self._error(400, dialect, entry)
        number, self._number = self._number, self._number + 1
        chance = fate(self.options, number, stream=question.stream)
        fault = self._header(request, "x-mock-fault") or chance.fault
        refusal = self._refuse(request, dialect, entry)
        if refusal is not None:
            return refusal
        if fault:
            entry["fault"] = fault
            self.record.faults[fault] += 1
        early = await self._early_fault(request, fault, question, entry)
        if early is not None:
            return early
        await self._pause(self._seconds(request, "x-mock-latency", chance.latency))
        if question.stream:
            return await self._stream(request, question, fault, entry)
        return await self._json(request, question, fault, entry)

    def _note(
        self, request: web.Request, path: str, digest: str, dialect: str | None
    ) -> dict[str, Any]:
        record = self.record
        record.total += 1
        record.paths[f"{request.method} {path}"] += 1
        record.keys[_credential(request)] += 1
        if tag := request.headers.get("x-mock-tag"):
            record.tags[tag] += 1
        if dialect:
            record.dialects[dialect] += 1
        elif request.method in WRITES:
            record.writes[(request.method, path, digest)] += 1
        entry: dict[str, Any] = {
            "method": request.method,
            "path": request.path_qs,
            "headers": [[k, v] for k, v in request.headers.items()],
            "sha256": digest,
            "status": None,
            "fault": None,
        }
        record.requests.append(entry)
        return entry

    def _question(
        self, request: web.Request, dialect: str, body: bytes
    ) -> dialects.Question | None:
        try:
            plain = _decoded(body, request.headers.get("Content-Encoding", ""))
            tree = json.loads(plain)
        except (ValueError, zstandard.ZstdError):
            return None
        if not isinstance(tree, dict):
            return None
        given = self._header(request, "x-mock-tokens")
        tokens = int(given) if given else self.options.tokens
        for name in ("max_tokens", "max_output_tokens", "max_completion_tokens"):
            if isinstance(tree.get(name), int):
                tokens = max(1, min(tokens, tree[name]))
        inputs = tree.get("input")
        stream_options = tree.get("stream_options")
        wanted = int(self._header(request, "x-mock-bytes") or 0)
        return dialects.Question(
            dialect,
            tree.get("stream") is True and dialect != "embeddings",
            str(tree.get("model", "mock")),
            tokens,
            max(1, len(plain) // 4),
            # What the proxy adds to a request must not change the answer.
            hashlib.sha256(json.dumps(tree.get("messages", inputs)).encode()).hexdigest(),
            isinstance(stream_options, dict) and stream_options.get("include_usage") is True,
            len(inputs) if isinstance(inputs, list) else 1,
            -(-wanted // tokens),
        )

    def _refuse(
        self, request: web.Request, dialect: str, entry: dict[str, Any]
    ) -> web.Response | None:
        options = self.options
        if options.rpm:
            wait = self._limit_of(request).take(self._clock.monotonic())
            if wait is not None:
                entry["fault"] = "rate_limit"
                self.record.faults["rate_limit"] += 1
                return self._error(429, dialect, entry, wait)
        if options.concurrency and self.record.in_flight > options.concurrency:
            self.record.faults["concurrency"] += 1
            overload = 529 if dialect == "anthropic" or options.force_529 else 503
            return self._error(overload, dialect, entry)
        return None

    def _limit_of(self, request: web.Request) -> RateLimit:
        options = self.options
        key = _credential(request) if options.limit_scope == "key" else "*"
        if key not in self._limits:
            window = options.window * options.speed_scale
            kind = StrictWindow if options.limit_mode == "strict" else RefillBucket
            self._limits[key] = kind(options.rpm, window)
        return self._limits[key]

    async def _early_fault(
        self,
        request: web.Request,
        fault: str | None,
        question: dialects.Question,
        entry: dict[str, Any],
    ) -> web.StreamResponse | None:
        if fault is None:
            return None
        if fault in STATUS_FAULTS:
            wait = 0.01 if fault == "fault_429" else None
            return self._error(STATUS_FAULTS[fault], question.dialect, entry, wait)
        if fault == "fault_reset":
            _reset(request)
            return web.Response()
        if fault == "fault_disconnect":
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        assert fault in FAULTS, f"no fault {fault!r}"
        return None

    async def _json(
        self,
        request: web.Request,
        question: dialects.Question,
        fault: str | None,
        entry: dict[str, Any],
    ) -> web.StreamResponse:
        body = dialects.whole_answer(question, self.options.seed)
        headers = self._headers(request, question.dialect)
        headers["Content-Type"] = "application/json"
        encoding = self._encoding(request)
        if encoding:
            compressor = _compressor(encoding)
            body = compressor.add(body) + compressor.end()
            headers["Content-Encoding"] = encoding
        if fault == "fault_cut":
            answer = web.StreamResponse(headers={**headers, "Content-Length": str(len(body))})
            await answer.prepare(request)
            await answer.write(body[: len(body) // 2])
            _reset(request)
            return answer
        self._used(question, question.tokens)
        entry["status"] = 200
        self.record.statuses["200"] += 1
        return web.Response(body=body, headers=headers)

    async def _stream(
        self,
        request: web.Request,
        question: dialects.Question,
        fault: str | None,
        entry: dict[str, Any],
    ) -> web.StreamResponse:
        headers = self._headers(request, question.dialect)
        headers["Content-Type"] = "text/event-stream; charset=utf-8"
        encoding = self._encoding(request)
        if encoding:
            headers["Content-Encoding"] = encoding
        answer = web.StreamResponse(headers=headers)
        await answer.prepare(request)
        entry["status"] = 200
        self.record.statuses["200"] += 1
        compressor = _compressor(encoding) if encoding else None
        interval = self._seconds(
            request, "x-mock-event-interval", self.options.event_interval * self.options.speed_scale
        )
        content = 0
        cut_after = max(1, question.tokens // 2)
        for event in self._faulty(dialects.events(question, self.options.seed), question, fault):
            if dialects.is_content(event):
                content += 1
                if fault in ("fault_cut", "fault_fin_cut") and content > cut_after:
                    break
            data = compressor.add(event) if compressor else event
            if fault == "fault_split" and content == 1:
                await answer.write(data[: len(data) // 2])
                await self._clock.sleep(0.005)
                data = data[len(data) // 2 :]
            await answer.write(data)
            if interval:
                await self._clock.sleep(interval)
        if fault == "fault_cut":
            await self._clock.sleep(0.01)
            _reset(request)
            return answer
        if compressor and (rest := compressor.end()):
            await answer.write(rest)
        if fault not in ("fault_fin_cut", "fault_sse_error", "fault_sse_error_late"):
            self._used(question, question.tokens)
        await answer.write_eof()
        return answer

    def _faulty(
        self, events: Iterator[bytes], question: dialects.Question, fault: str | None
    ) -> Iterator[bytes]:
        content = 0
        for number, event in enumerate(events):
            early = fault == "fault_sse_error" and (
                number == (2 if question.dialect == "openai-responses" else 0)
            )
            if early or (fault == "fault_sse_error_late" and content > 2):
                yield dialects.error_event(question.dialect)
                return
            content += dialects.is_content(event)
            yield event

    async def _other(
        self, request: web.Request, path: str, body: bytes, entry: dict[str, Any]
    ) -> web.StreamResponse:
        fault = self._header(request, "x-mock-fault")
        if fault == "fault_reset":
            _reset(request)
            return web.Response()
        if fault in STATUS_FAULTS:
            return self._error(STATUS_FAULTS[fault], "openai-chat", entry)
        await self._pause(self._seconds(request, "x-mock-latency", 0.0))
        tree: dict[str, Any]
        if path == "/v1/messages/count_tokens":
            tree = {"input_tokens": max(1, len(body) // 4)}
        elif path == "/v1/models":
            tree = {"object": "list", "data": [{"id": "mock-model", "object": "model"}]}
        elif path.startswith("/v1/files"):
            tree = {"id": "file-mock", "object": "file", "bytes": len(body)}
        elif path == "/echo":
            return web.Response(body=body, headers=self._headers(request, "anthropic"))
        else:
            return self._error(404, "openai-chat", entry)
        entry["status"] = 200
        self.record.statuses["200"] += 1
        return web.json_response(tree, headers=self._headers(request, "openai-chat"))

    def _status(self, request: web.Request, status: int, entry: dict[str, Any]) -> web.Response:
        headers = self._headers(request, "anthropic")
        if location := self._header(request, "x-mock-location"):
            headers["Location"] = location
        entry["status"] = status
        self.record.statuses[str(status)] += 1
        return web.Response(status=status, headers=headers)

    def _error(
        self, status: int, dialect: str, entry: dict[str, Any], wait: float | None = None
    ) -> web.Response:
        headers = {"Content-Type": "application/json"}
        if wait is not None and self.options.retry_after != "none":
            headers["Retry-After"] = str(max(1, math.ceil(wait)) if wait >= 0.05 else 0)
            if self.options.retry_after == "ms":
                headers["retry-after-ms"] = str(round(wait * 1000, 3))
        entry["status"] = status
        self.record.statuses[str(status)] += 1
        return web.Response(
            status=status, body=dialects.error_answer(dialect, status), headers=headers
        )

    def _headers(self, request: web.Request, dialect: str) -> dict[str, str]:
        headers = {"request-id" if dialect == "anthropic" else "x-request-id": "req_mock"}
        if self.options.rpm:
            limit = self._limit_of(request)
            prefix = "anthropic-ratelimit-requests" if dialect == "anthropic" else "x-ratelimit"
            left = str(limit.remaining(self._clock.monotonic()))
            if dialect == "anthropic":
                headers |= {f"{prefix}-limit": str(self.options.rpm), f"{prefix}-remaining": left}
            else:
                headers |= {
                    f"{prefix}-limit-requests": str(self.options.rpm),
                    f"{prefix}-remaining-requests": left,
                    f"{prefix}-reset-requests": "1s",
                }
        if dialect != "anthropic":
            headers |= {"openai-processing-ms": "1", "openai-version": "2020-10-01"}
        if size := self._header(request, "x-mock-header-bytes"):
            headers["x-large"] = "h" * int(size)
        if cookie := self._header(request, "x-mock-set-cookie"):
            headers["Set-Cookie"] = cookie
        return headers

    def _header(self, request: web.Request, name: str) -> str | None:
        return request.headers.get(name) if self.options.test_headers else None

    def _seconds(self, request: web.Request, name: str, default: float) -> float:
        given = self._header(request, name)
        return float(given) if given else default

    def _encoding(self, request: web.Request) -> str | None:
        accepted = request.headers.get("Accept-Encoding", "")
        if not self.options.compress:
            return None
        return next((name for name in ("gzip", "br", "zstd") if name in accepted), None)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            await self._clock.sleep(seconds)

    def _used(self, question: dialects.Question, tokens: int) -> None:
        self.record.usage["input"] += question.prompt_tokens
        if question.dialect != "embeddings":
            self.record.usage["output"] += tokens


class _compressor:
    """Compresses so that each event leaves at once."""

    def __init__(self, encoding: str) -> None:
        self.add: Callable[[bytes], bytes]
        self.end: Callable[[], bytes]
        match encoding:
            case "gzip":
                gzip = zlib.compressobj(wbits=31)
                self.add = lambda data: gzip.compress(data) + gzip.flush(zlib.Z_SYNC_FLUSH)
                self.end = gzip.flush
            case "br":
                br = brotli.Compressor(quality=4)
                self.add = lambda data: br.process(data) + br.flush()
                self.end = br.finish
            case _:
                zstd = zstandard.ZstdCompressor().compressobj()
                flush = zstandard.COMPRESSOBJ_FLUSH_BLOCK
                self.add = lambda data: zstd.compress(data) + zstd.flush(flush)
                self.end = zstd.flush


def _decoded(body: bytes, encoding: str) -> bytes:
    if encoding == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return body


def _credential(request: web.Request) -> str:
    return request.headers.get("x-api-key") or request.headers.get("Authorization") or "anonymous"


def _reset(request: web.Request) -> None:
    """Send a real RST: close with SO_LINGER 0 below whatever TLS there is."""
    transport = request.transport
    if transport is None:
        return
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
