"""HTTP libraries and curl without any SDK."""

import asyncio
import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from tests.e2e.clients.bodies import (
    CHAT,
    MESSAGES,
    stream_text,
    stream_text_async,
    whole_text,
)

Ask = Callable[[str, bool], Awaitable[str]]


class OnlyHttp2(ssl.SSLContext):
    """httpx offers HTTP/1.1 before HTTP/2 and mitmproxy takes the first, so HTTP/2 is offered alone."""

    def set_alpn_protocols(self, alpn_protocols: Iterable[str]) -> None:
        super().set_alpn_protocols(["h2"])


def trust(kind: type[ssl.SSLContext] = ssl.SSLContext) -> ssl.SSLContext:
    """A context for libraries that know no CA variable, or no way to ask for HTTP/2."""
    context = kind(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=os.environ["SSL_CERT_FILE"])
    return context


@contextlib.asynccontextmanager
async def httpx_client(version: str, versions: set[str]) -> AsyncIterator[Ask]:
    import httpx

    more: dict[str, Any] = {"http2": True, "verify": trust(OnlyHttp2)} if version == "2" else {}
    async with httpx.AsyncClient(timeout=60, **more) as client:

        async def ask(prompt: str, stream: bool) -> str:
            async with client.stream(
                "POST",
                MESSAGES.url,
                headers=MESSAGES.headers,
                content=MESSAGES.body(prompt, stream),
            ) as answer:
                versions.add(answer.http_version)
                answer.raise_for_status()
                if stream:
                    return await stream_text_async(MESSAGES, answer.aiter_lines())
                return whole_text(json.loads(await answer.aread()))

        yield ask


@contextlib.asynccontextmanager
async def requests_client(_version: str, versions: set[str]) -> AsyncIterator[Ask]:
    import requests

    session = requests.Session()
    session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=32, max_retries=0))

    def ask(prompt: str, stream: bool) -> str:
        with session.post(
            CHAT.url,
            headers=CHAT.headers,
            data=CHAT.body(prompt, stream),
            stream=stream,
            timeout=60,
        ) as answer:
            versions.add(f"HTTP/{answer.raw.version / 10}")
            answer.raise_for_status()
            if stream:
                return stream_text(CHAT, (line.decode() for line in answer.iter_lines()))
            return whole_text(answer.json())

    with session:
        yield lambda prompt, stream: asyncio.to_thread(ask, prompt, stream)


@contextlib.asynccontextmanager
async def aiohttp_client(_version: str, versions: set[str]) -> AsyncIterator[Ask]:
    import aiohttp

    context = trust()
    timeout = aiohttp.ClientTimeout(60)
    async with aiohttp.ClientSession(trust_env=True, timeout=timeout) as session:

        async def ask(prompt: str, stream: bool) -> str:
            async with session.post(
                MESSAGES.url,
                headers=MESSAGES.headers,
                data=MESSAGES.body(prompt, stream),
                ssl=context,
                raise_for_status=True,
            ) as answer:
                assert answer.version is not None
                versions.add(f"HTTP/{answer.version.major}.{answer.version.minor}")
                if stream:
                    lines = (line.decode().rstrip("\n") async for line in answer.content)
                    return await stream_text_async(MESSAGES, lines)
                return whole_text(await answer.json())

        yield ask


@contextlib.asynccontextmanager
async def curl_client(version: str, versions: set[str]) -> AsyncIterator[Ask]:
    """One process per call, as scripts use it."""
    option = "--http2" if version == "2" else "--http1.1"

    async def ask(prompt: str, stream: bool) -> str:
        headers = [word for pair in CHAT.headers.items() for word in ("-H", ": ".join(pair))]
        process = await asyncio.create_subprocess_exec(
            "curl", "-sS", "--fail", "-N", option, "--max-time", "60", *headers,
            "-d", CHAT.body(prompt, stream).decode(), "-w", "\n%{http_version}", CHAT.url,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, error = await process.communicate()
        assert process.returncode == 0, error.decode()
        body, _, spoken = out.decode().rpartition("\n")
        versions.add(f"HTTP/{spoken}")
        return stream_text(CHAT, body.split("\n")) if stream else whole_text(json.loads(body))

    yield ask


RAW = {
    "httpx": httpx_client,
    "requests": requests_client,
    "aiohttp": aiohttp_client,
    "curl": curl_client,
}
