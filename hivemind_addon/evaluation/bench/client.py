"""A load generator that costs little: HTTP/1.1 over TLS through CONNECT, one connection per worker.

It checks status and length of each answer and nothing else, so that the machine's time goes to the proxy.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Target:
    """Where a worker connects: through a proxy, or straight."""

    host: str
    port: int
    proxy_port: int | None
    ca: str = ""
    """PEM file that signs what the worker sees; empty is plain HTTP to this machine."""


@dataclass(slots=True)
class Sample:
    """What one phase measured."""

    seconds: float = 0.0
    requests: int = 0
    events: int = 0
    latencies: list[float] = field(default_factory=list)
    """Seconds per request, unsorted."""

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Worker:
    """One keep-alive connection."""

    def __init__(self, target: Target) -> None:
        self._target = target

    async def open(self) -> None:
        target = self._target
        if not target.ca:
            self._reader, self._writer = await asyncio.open_connection(target.host, target.port)
            return
        context = ssl.create_default_context(cafile=target.ca)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if target.proxy_port is None:
            self._reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", target.port, ssl=context, server_hostname=target.host
            )
            return
        reader, writer = await asyncio.open_connection("127.0.0.1", target.proxy_port)
        writer.write(
            f"CONNECT {target.host}:{target.port} HTTP/1.1\r\n"
            f"Host: {target.host}:{target.port}\r\n\r\n".encode()
        )
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer.split(b"\r\n")[0]:
            raise ConnectionError(f"CONNECT refused: {answer!r}")
        await writer.start_tls(context, server_hostname=target.host)
        self._reader, self._writer = reader, writer

    async def request(self, head: bytes, body: bytes) -> int:
        """Send one request and read its answer to the end; answers the number of events seen."""
        self._writer.write(head + body)
        header = await self._reader.readuntil(b"\r\n\r\n")
        if not header.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(f"unexpected answer: {header[:200]!r}")
        lowered = header.lower()
        at = lowered.find(b"content-length:")
        if at >= 0:
            length = int(lowered[at + 15 : lowered.index(b"\r\n", at)])
            await self._reader.readexactly(length)
            return 0
        return await self._read_chunked()

    async def leave_amid(self, head: bytes, body: bytes) -> None:
        """Send one request and go away once its answer has begun."""
        self._writer.write(head + body)
        await self._reader.readuntil(b"\r\n\r\n")
        await self._reader.read(1)
        self.close()

    async def _read_chunked(self) -> int:
        events, tail = 0, b""
        while True:
            data = await self._reader.read(65536)
            if not data:
                raise ConnectionError("the stream was cut")
            joined = tail + data
            events += joined.count(b"}\n") - tail.count(b"}\n")
            tail = joined[-8:]
            if joined.endswith(b"0\r\n\r\n"):
                return events

    def close(self) -> None:
        self._writer.transport.abort()


def message(host: str, *, stream: bool, tokens: int) -> tuple[bytes, bytes]:
    """An Anthropic request as bytes."""
    flag = b"true" if stream else b"false"
    body = (
        b'{"model":"claude-sonnet-5","max_tokens":%d,"stream":%s,'
        b'"messages":[{"role":"user","content":"hello there, how are you today?"}]}'
        % (tokens, flag)
    )
    head = (
        f"POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nx-api-key: bench\r\n"
        f"anthropic-version: 2023-06-01\r\ncontent-type: application/json\r\n"
        f"x-mock-tokens: {tokens}\r\nx-hivemind-agent: bench\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()
    return head, body


async def run_phase(
    target: Target,
    *,
    workers: int,
    seconds: float,
    stream: bool = False,
    tokens: int = 20,
    request: tuple[bytes, bytes] | None = None,
) -> Sample:
    """Keep `workers` connections busy for `seconds`; opening them is not measured.

    `request` (head and body) takes the place of the Anthropic message that `stream` and `tokens` describe.
    """
    head, body = request or message(target.host, stream=stream, tokens=tokens)
    crew = [Worker(target) for _ in range(workers)]
    for start in range(0, workers, 16):
        await asyncio.gather(*(worker.open() for worker in crew[start : start + 16]))
    for start in range(0, workers, 16):
        await asyncio.gather(*(worker.request(head, body) for worker in crew[start : start + 16]))
    sample = Sample()
    begin = perf_counter()
    deadline = begin + seconds

    async def work(worker: Worker) -> None:
        while (started := perf_counter()) < deadline:
            events = await worker.request(head, body)
            ended = perf_counter()
            if ended <= deadline or not sample.requests:
                sample.requests += 1
                sample.events += events
                sample.latencies.append(ended - started)

    try:
        await asyncio.gather(*(work(worker) for worker in crew))
    finally:
        for worker in crew:
            worker.close()
    sample.seconds = seconds
    return sample
