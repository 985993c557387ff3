"""A client that gives up after seconds of silence outlives a longer queue, over real sockets."""

import asyncio
import json
from typing import Any

import pytest

from tests.e2e import raw
from tests.e2e.harness import running_mock, running_proxy, upstreams

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

HOST = "api.openai.com"
PATIENCE = 4.0
"""Seconds of silence that the client bears: Groq's and Gemini CLI's 60 s, scaled."""


def chat(agent: str, knobs: dict[str, str] | None = None, stated: float | None = None) -> bytes:
    body = {"model": "gpt-5", "stream": True, "messages": [{"role": "user", "content": agent}]}
    headers = {"user-agent": agent, **(knobs or {})}
    if stated is not None:
        headers["x-stainless-read-timeout"] = f"{stated:g}"
    return raw.request_bytes(body, path="/v1/chat/completions", host=HOST, headers=headers)


async def impatient(proxy, request: bytes) -> bytes:
    """Everything that came, read by a client that gives up after `PATIENCE` seconds of silence."""
    reader, writer = await raw.connect(proxy, HOST)
    seen = b""
    try:
        writer.write(request)
        while not seen.endswith(b"0\r\n\r\n") and not seen.startswith(b"HTTP/1.1 5"):
            piece = await asyncio.wait_for(reader.read(65536), PATIENCE)
            if not piece:
                break
            seen += piece
    finally:
        writer.transport.abort()
    return seen


async def hold_the_only_slot(proxy, seconds: float) -> asyncio.Task[Any]:
    held = asyncio.create_task(
        raw.exchange(proxy, chat("holder", {"x-mock-latency": f"{seconds:g}"}), HOST)
    )
    await asyncio.sleep(0.5)
    assert proxy.in_flight() == 1
    return held


async def test_a_queue_longer_than_the_clients_patience_is_survived(tmp_path):
    with (
        running_mock(seed=1, compress="true") as mock,
        running_proxy(
            tmp_path, upstreams(mock.http_url) + "admission: {max_concurrency: 1}\n"
        ) as proxy,
    ):
        held = await hold_the_only_slot(proxy, 1.5 * PATIENCE)
        request = chat("Groq/Python 1.7.0", {"accept-encoding": "gzip"}, PATIENCE)
        seen = await impatient(proxy, request)
        head, _, body = seen.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"content-encoding" not in head.lower()
        assert body.startswith(b"1\r\n\n\r\n"), "blank lines first"
        assert b"data: [DONE]" in body
        assert seen.endswith(b"0\r\n\r\n")
        await held
        status = proxy.status()
        assert status["totals"]["errors"] == 0
        assert status["totals"]["output_tokens"] == 40
        assert proxy.in_flight() == 0


async def test_a_client_that_could_break_on_a_heartbeat_gets_none(tmp_path):
    with (
        running_mock(seed=1) as mock,
        running_proxy(
            tmp_path, upstreams(mock.http_url) + "admission: {max_concurrency: 1}\n"
        ) as proxy,
    ):
        held = await hold_the_only_slot(proxy, 1.5 * PATIENCE)
        seen = await impatient(proxy, chat("strict-agent/1.0", stated=PATIENCE))
        # It is told in time that there is no slot, with a status that its own retry understands.
        assert seen.startswith(b"HTTP/1.1 503")
        assert b"retry-after" in seen.lower()
        await held


async def test_the_setting_switches_heartbeats_off(tmp_path):
    with (
        running_mock(seed=1) as mock,
        running_proxy(
            tmp_path,
            upstreams(mock.http_url) + "admission: {max_concurrency: 1}\nheartbeat: off\n",
        ) as proxy,
    ):
        held = await hold_the_only_slot(proxy, 1.5 * PATIENCE)
        seen = await impatient(proxy, chat("Groq/Python 1.7.0", stated=PATIENCE))
        assert seen.startswith(b"HTTP/1.1 503")
        await held


async def test_what_fails_after_the_early_200_is_told_in_the_dialect(tmp_path):
    config = "retry: {max_retries: 2, base: 2}\n"
    with (
        running_mock(seed=1, fault_500=1.0) as mock,
        running_proxy(tmp_path, upstreams(mock.http_url) + config) as proxy,
    ):
        seen = await impatient(proxy, chat("Groq/Python 1.7.0", stated=PATIENCE))
        assert seen.startswith(b"HTTP/1.1 200")
        assert not seen.endswith(b"0\r\n\r\n"), "no tidy end"
        [event] = [line for line in seen.split(b"\n") if line.startswith(b"data: ")]
        assert json.loads(event[6:])["error"]["type"] == "server_error"
        assert proxy.status()["totals"]["errors"] == 1
        assert mock.stats()["requests"]["total"] == 3
