"""Raw HTTP clients over real sockets, for what no SDK does: half requests, resets, clients that stop reading."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from typing import Any

import h2.config
import h2.connection
import h2.events

HOST = "api.anthropic.com"


def tls(ca, *alpn: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


async def connect(proxy, host: str = HOST, *alpn: str, credentials: str = ""):
    """Open a tunnel through the proxy and do TLS inside it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, limit=2**20)
    extra = f"Proxy-Authorization: {credentials}\r\n" if credentials else ""
    writer.write(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n{extra}\r\n".encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in answer.split(b"\r\n")[0], answer
    await writer.start_tls(tls(proxy.ca, *alpn), server_hostname=host)
    return reader, writer


def request_bytes(
    body: bytes | dict[str, Any] | None,
    *,
    method: str = "POST",
    path: str = "/v1/messages",
    host: str = HOST,
    version: str = "HTTP/1.1",
    headers: dict[str, str] | None = None,
) -> bytes:
    raw = json.dumps(body).encode() if isinstance(body, dict) else body
    lines = [f"{method} {path} {version}", f"Host: {host}", "x-api-key: test-key"]
    lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
    if raw is not None:
        lines.append(f"content-length: {len(raw)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (raw or b"")


def message(*, stream: bool = False, **more) -> dict[str, Any]:
    return {
        "model": "claude-sonnet-5",
        "max_tokens": 1000,
        "stream": stream,
        "messages": [{"role": "user", "content": "hello"}],
        **more,
    }


async def read_head(reader) -> tuple[int, dict[str, str]]:
    raw = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = raw.split("\r\n")
    headers = {}
    for line in lines:
        if ":" in line:
            name, value = line.split(":", 1)
            headers[name.lower()] = value.strip()
    return int(first.split()[1]), headers


async def read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    """Read a body to its proper end; raises IncompleteReadError if it is cut."""
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b""
        while True:
            size = int(await reader.readuntil(b"\r\n"), 16)
            chunk = await reader.readexactly(size + 2)
            if size == 0:
                return body
            body += chunk[:-2]
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    return await reader.read()


async def exchange(proxy, raw: bytes, host: str = HOST) -> tuple[int, dict[str, str], bytes]:
    """One request on a connection of its own."""
    reader, writer = await connect(proxy, host)
    try:
        writer.write(raw)
        status, headers = await read_head(reader)
        if raw.startswith(b"HEAD") or status in (204, 304):
            return status, headers, b""
        return status, headers, await read_body(reader, headers)
    finally:
        writer.transport.abort()


class H2Client:
    """A small HTTP/2 client that can reset streams and withhold flow control."""

    def __init__(self, reader, writer, *, auto_window: bool = True):
        self.reader, self.writer = reader, writer
        self.auto_window = auto_window
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=False))
        self.data: dict[int, bytes] = {}
        self.status: dict[int, int] = {}
        self.ended: set[int] = set()
        self.reset: set[int] = set()
        self.progress = asyncio.Event()
        self.h2.initiate_connection()
        self.flush()
        self.pump = asyncio.create_task(self._pump())

    @classmethod
    async def open(cls, proxy, host: str = HOST, **options):
        reader, writer = await connect(proxy, host, "h2")
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        return cls(reader, writer, **options)

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    def send(
        self, body: dict[str, Any], *, path: str = "/v1/messages", host: str = HOST, **headers
    ) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        raw = json.dumps(body).encode()
        fields = [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", host),
            (":path", path),
            ("x-api-key", "test-key"),
            ("content-length", str(len(raw))),
            *((k.replace("_", "-"), str(v)) for k, v in headers.items()),
        ]
        self.h2.send_headers(stream_id, fields)
        self.h2.send_data(stream_id, raw, end_stream=True)
        self.flush()
        return stream_id

    def cancel(self, stream_id: int) -> None:
        with contextlib.suppress(Exception):
            self.h2.reset_stream(stream_id, 8)
            self.flush()

    async def finished(self, stream_id: int) -> bytes:
        while stream_id not in self.ended and stream_id not in self.reset:
            self.progress.clear()
            await self.progress.wait()
        return self.data.get(stream_id, b"")

    async def _pump(self) -> None:
        while data := await self.reader.read(65536):
            for event in self.h2.receive_data(data):
                match event:
                    case h2.events.ResponseReceived():
                        self.status[event.stream_id] = int(dict(event.headers)[b":status"])
                    case h2.events.DataReceived():
                        stored = self.data.get(event.stream_id, b"")
                        self.data[event.stream_id] = stored + event.data
                        if self.auto_window:
                            self.h2.acknowledge_received_data(
                                event.flow_controlled_length, event.stream_id
                            )
                    case h2.events.StreamEnded():
                        self.ended.add(event.stream_id)
                    case h2.events.StreamReset():
                        self.reset.add(event.stream_id)
                    case h2.events.ConnectionTerminated():
                        self.reset.update(self.h2.streams)
            self.flush()
            self.progress.set()

    def close(self) -> None:
        self.pump.cancel()
        self.writer.transport.abort()
