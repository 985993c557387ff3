"""A raw HTTP/1.1 client: it sees bytes, resets and ends as they are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any

from hivemind_addon.evaluation.mock import MockOptions, MockProvider


def quick(**options: Any) -> MockProvider:
    """A mock on a free port."""
    return MockProvider(MockOptions(port=0, **options))


def message(*, stream: bool = False, **more: Any) -> bytes:
    question = [{"role": "user", "content": "hello"}]
    return json.dumps({"model": "m", "stream": stream, "messages": question, **more}).encode()


def head(
    body: bytes,
    path: str = "/v1/messages",
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: mock", "x-api-key: key-1"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode()


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool = True
    chunks: list[bytes] = field(default_factory=list)

    def json(self) -> Any:
        return json.loads(self.body)


async def connect(
    mock: MockProvider, *, tls: bool = False
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    url = mock.https_url if tls else mock.http_url
    assert url is not None
    context = ssl.create_default_context(cafile=mock.ca_path) if tls else None
    return await asyncio.open_connection(
        "127.0.0.1",
        int(url.rpartition(":")[2]),
        ssl=context,
        server_hostname="api.anthropic.com" if tls else None,
        limit=2**22,
    )


async def ask(
    mock: MockProvider,
    body: bytes = b"",
    path: str = "/v1/messages",
    method: str = "POST",
    *,
    tls: bool = False,
    **headers: str,
) -> Answer:
    """One request on a connection of its own; header names are given with underscores."""
    reader, writer = await connect(mock, tls=tls)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        writer.write(head(body, path, method, named) + body)
        return await read_answer(reader, method)
    finally:
        writer.transport.abort()


async def read_answer(reader: asyncio.StreamReader, method: str = "POST") -> Answer:
    """Read one answer; raises ConnectionError or IncompleteReadError if there is none at all."""
    raw = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = raw.strip().split("\r\n")
    headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
    answer = Answer(int(first.split()[1]), headers, b"")
    if method == "HEAD" or answer.status in (204, 304):
        return answer
    try:
        if "content-length" in headers:
            length = int(headers["content-length"])
            while piece := await reader.read(length - len(answer.body)):
                answer.body += piece
            answer.complete = len(answer.body) == length
        else:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                answer.chunks.append((await reader.readexactly(size + 2))[:-2])
                answer.body += answer.chunks[-1]
            await reader.readexactly(2)
    except (ConnectionError, asyncio.IncompleteReadError):
        answer.complete = False
    return answer


def raw_first_byte(port: int, body: bytes, fault: str) -> bytes:
    """Ask over a blocking socket and read once: a reset raises ConnectionResetError, a FIN reads as empty."""
    with contextlib.closing(socket.create_connection(("127.0.0.1", port), timeout=5)) as sock:
        sock.sendall(head(body, headers={"x-mock-fault": fault}) + body)
        return sock.recv(100)


async def eventually(condition: Any, seconds: float = 2.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)
