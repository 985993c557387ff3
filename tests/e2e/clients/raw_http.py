"""HTTP libraries and curl without any SDK."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from tests.e2e.clients.bodies import (
    CHAT,
    MESSAGES,
    stream_text,
    stream_text_async,
    whole_text,
)

Ask = Callable[[str, bool], Awaitable[str]]


@contextlib.asynccontextmanager
async def httpx_client(version: str, versions: set[str]) -> AsyncIterator[Ask]:
    import httpx

    async with httpx.AsyncClient(http2=version == "2", timeout=60) as client:

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
    import os
    import ssl

    import aiohttp

    # aiohttp knows no CA variable: its users bring a context.
    trust = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    timeout = aiohttp.ClientTimeout(60)
    async with aiohttp.ClientSession(trust_env=True, timeout=timeout) as session:

        async def ask(prompt: str, stream: bool) -> str:
            async with session.post(
                MESSAGES.url,
                headers=MESSAGES.headers,
                data=MESSAGES.body(prompt, stream),
                ssl=trust,
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
